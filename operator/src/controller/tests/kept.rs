//! Clusters that an operator of some version left in the middle of something, and that every later version must bring to an end.
//!
//! `kept/<version>/<operation>-<step>.json` has all objects and what the brokers knew, at the moment when that step was in the journal first.
//! Those of a version that was released are never written again.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use fencepost_crds::{StreamJob, v1alpha1::StreamJobStatus};

use super::{
    Change, assert_as_asked, broken_sql, delete, four_workers, one_worker, other_sql, quiet_after, resume, status,
    submit, suspend, workers_that_die,
};
use crate::testing::{Cluster, Kept};

/// Each operation, and what was there before it.
const OPERATIONS: [(&[Change], Change); 8] = [
    (&[], submit),
    (&[workers_that_die, submit], other_sql),
    (&[submit], broken_sql),
    (&[submit], four_workers),
    (&[workers_that_die, submit, four_workers], one_worker),
    (&[workers_that_die, submit], suspend),
    (&[submit, suspend], resume),
    (&[workers_that_die, submit], delete),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/controller/tests/kept")
}

/// Which step of which operation, as a name of a file.
fn moment(status: &StreamJobStatus) -> Option<String> {
    let operation = status.operation.as_ref()?;
    Some(format!("{}-{}", operation.operation_type?, operation.step.as_ref()?))
}

/// Puts the clusters away, each cut where a step stands in the journal for the first time.
async fn keep(into: &Path) {
    fs::create_dir_all(into).unwrap();
    let mut kept = BTreeSet::new();
    for (before, change) in OPERATIONS {
        let base = quiet_after(before).await;
        for cut in 1.. {
            let mut cluster = base.fork();
            change(&mut cluster);
            if !cluster.run_until(cut).await {
                break;
            }
            if let Some(moment) = moment(&status(&cluster)).filter(|moment| kept.insert(moment.clone())) {
                let text = serde_json::to_string_pretty(&cluster.keep()).unwrap();
                fs::write(into.join(format!("{moment}.json")), text + "\n").unwrap();
            }
        }
    }
    for old in fs::read_dir(into).unwrap().map(|file| file.unwrap().path()) {
        if !old.file_stem().is_some_and(|name| kept.contains(&*name.to_string_lossy())) {
            fs::remove_file(old).unwrap();
        }
    }
}

/// A thread has a clock of its own.
fn at_its_own_time<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().start_paused(true).build().unwrap().block_on(work())
        };
        scope.spawn(run).join().unwrap()
    })
}

/// Ends it, and says which moment it was.
async fn ends_well(path: &Path) -> String {
    let name = path.display();
    let kept: Kept = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut cluster = Cluster::of(kept).await;
    let moment = moment(&status(&cluster)).unwrap();
    let is_deleted = cluster.job().unwrap().metadata.deletion_timestamp.is_some();
    println!("{name}");
    cluster.run(None).await;
    if is_deleted {
        assert_eq!(cluster.end().keys().collect::<Vec<_>>(), ["Secret shop/kafka"], "{name}");
        assert_eq!((cluster.brokers.open(), cluster.violations()), (vec![], vec![]), "{name}");
    } else {
        assert_as_asked(&cluster);
    }
    moment
}

/// Which steps there are today.
async fn steps() -> BTreeSet<String> {
    let mut steps = BTreeSet::new();
    for (before, change) in OPERATIONS {
        let mut cluster = quiet_after(before).await;
        let from = cluster.server.version();
        change(&mut cluster);
        cluster.run(None).await;
        let versions = cluster.server.history::<StreamJob>(from);
        steps.extend(versions.iter().filter_map(|job| moment(job.status.as_ref()?)));
    }
    steps
}

#[test]
fn what_an_older_operator_left_undone_is_brought_to_an_end() {
    let ours = folder().join(env!("CARGO_PKG_VERSION"));
    if std::env::vars().any(|(name, _)| name == "UPDATE") {
        at_its_own_time(async || keep(&ours).await);
    }
    let files = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = BTreeSet::new();
    for path in files(folder()).flat_map(files) {
        let moment = at_its_own_time(async || ends_well(&path).await);
        assert_eq!(path.file_stem().unwrap().to_str(), Some(moment.as_str()));
        found.insert(moment);
    }
    let missing: Vec<String> = at_its_own_time(steps).difference(&found).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}: run `UPDATE=1 cargo test -p fencepost-operator older_operator`");
}
