//! The examples cannot rot: each is held against the types, the rules of the schema, and the planner of the workers.
//! (The API server sees them in the end-to-end tests, and one of them runs in the demo.)

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: a panic is the failure")]

use std::path::PathBuf;

use fencepost_crds::StreamJob;
use fencepost_e2e::paths;
use fencepost_pipeline::plan;
use kube::core::cel::validate_cel_schema;

fn examples() -> Vec<(PathBuf, serde_json::Value)> {
    let folder = paths::repository().join("examples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let manifest = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, manifest)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn every_example_is_a_streamjob_that_the_schema_allows_and_the_worker_can_plan() {
    let examples = examples();
    assert!(examples.len() >= 4, "{examples:?}");
    for (path, manifest) in examples {
        let path = path.display();
        let job: StreamJob = serde_json::from_value(manifest.clone()).unwrap_or_else(|error| panic!("{path}: {error}"));
        validate_cel_schema::<StreamJob>(&manifest, None).unwrap_or_else(|errors| panic!("{path}: {errors}"));
        if let Err(violations) = plan(&job.spec.pipeline) {
            panic!("{path}: {violations:?}");
        }
    }
}

/// The types pass over a field that they do not know, and the API server would prune it: an example would show what does nothing.
#[test]
fn an_example_has_no_field_that_does_nothing() {
    for (path, manifest) in examples() {
        let job: StreamJob = serde_json::from_value(manifest.clone()).unwrap();
        let understood = serde_json::to_value(job).unwrap();
        assert_eq!(lost(&manifest, &understood), None, "{}", path.display());
    }
}

/// The first place in `written` that is not in `understood`.
fn lost(written: &serde_json::Value, understood: &serde_json::Value) -> Option<String> {
    use serde_json::Value::{Array, Object};
    match (written, understood) {
        (Object(written), Object(understood)) => written.iter().find_map(|(name, value)| match understood.get(name) {
            None => Some(format!(".{name}")),
            Some(kept) => lost(value, kept).map(|place| format!(".{name}{place}")),
        }),
        (Array(written), Array(understood)) if written.len() == understood.len() => {
            let pairs = written.iter().zip(understood).enumerate();
            pairs.into_iter().find_map(|(at, (value, kept))| lost(value, kept).map(|place| format!("[{at}]{place}")))
        }
        (Array(_), _) => Some("[]".to_owned()),
        _ => None,
    }
}
