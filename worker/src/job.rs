//! Reading the job: a StreamJob manifest as the user writes it, or the resolved job that the operator writes.

use std::{
    fs,
    io::{Read, stdin},
    path::{Path, PathBuf},
};

use fencepost_crds::{
    StreamJob, StreamJobSpec,
    contract::{CONTRACT_VERSION, ResolvedJob},
    resolve::resolve,
};
use kube::CustomResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

/// Why a job file cannot be used.
#[derive(Debug, Error)]
pub enum JobError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Neither YAML nor JSON.
    #[error("{} is not valid YAML or JSON: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says, with line and column.
        message: String,
    },
    /// Some other kind of object.
    #[error("{} is not a StreamJob: it has apiVersion {api_version:?} and kind {kind:?}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it says it is.
        api_version: String,
        /// What it says it is.
        kind: String,
    },
    /// A field is missing, unknown or of the wrong type.
    #[error("{}: {message}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Which field, and what is wrong.
        message: String,
    },
    /// Written by a newer operator.
    #[error("{} has contract version {have}, this worker knows up to {CONTRACT_VERSION}: use a newer worker image", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        have: u32,
    },
}

/// Where a manifest comes through a pipe, such as that of `kubectl exec`.
const STANDARD_INPUT: &str = "-";

/// A job as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// With everything filled in.
    pub(crate) resolved: ResolvedJob,
    /// What the user wrote, when it was a manifest.
    pub(crate) spec: Option<StreamJobSpec>,
}

/// Reads a job, from standard input where the path is `-`. Secrets of a StreamJob manifest are looked for in `secrets_dir` as `<secret>/<key>`.
///
/// # Errors
/// When the file cannot be read, is of another kind, has a field that the schema does not know, or is of a newer version.
pub(crate) fn load(path: &Path, secrets_dir: &str) -> Result<Loaded, JobError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some(STANDARD_INPUT) => stdin().lock().read_to_string(&mut text).map(drop),
        _ => fs::read_to_string(path).map(|content| text = content),
    };
    read.map_err(|source| JobError::Read { path: path.to_owned(), source })?;
    parse(path, &text, secrets_dir)
}

fn parse(path: &Path, text: &str, secrets_dir: &str) -> Result<Loaded, JobError> {
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| JobError::Syntax { path: path.to_owned(), message: error.to_string() })?;
    let shape = |message: String| JobError::Shape { path: path.to_owned(), message };
    if let Some(version) = value.get("contractVersion") {
        let have = version.as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(u32::MAX);
        if have > CONTRACT_VERSION {
            return Err(JobError::Newer { path: path.to_owned(), have });
        }
        let resolved = typed(value).map_err(shape)?;
        return Ok(Loaded { resolved, spec: None });
    }
    let word = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = StreamJob::api_resource();
    if word("apiVersion") != resource.api_version || word("kind") != resource.kind {
        return Err(JobError::Kind { path: path.to_owned(), api_version: word("apiVersion"), kind: word("kind") });
    }
    let unknown = unknown_fields(&value);
    if !unknown.is_empty() {
        return Err(shape(format!("unknown field {}", unknown.join(", "))));
    }
    let job: StreamJob = typed(value).map_err(shape)?;
    Ok(Loaded { resolved: resolve(&job, "", secrets_dir), spec: Some(job.spec) })
}

/// The error says which field it is.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        root if root == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

/// Fields that the schema does not have. The API server would refuse or drop them, so a file must not be silently different.
fn unknown_fields(job: &Value) -> Vec<String> {
    let crd = serde_json::to_value(fencepost_crds::crd::stream_job()).unwrap_or_default();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").cloned().unwrap_or_default();
    let mut found = Vec::new();
    if let Some(spec) = job.get("spec") {
        walk(spec, &schema, "spec", &mut found);
    }
    found
}

fn walk(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let open = schema.get("additionalProperties").is_some()
                || schema.get("x-kubernetes-preserve-unknown-fields").is_some()
                || known.is_none();
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                match known.and_then(|known| known.get(name)) {
                    Some(schema) => walk(field, schema, &path, found),
                    None if open => {}
                    None => found.push(path),
                }
            }
        }
        Value::Array(items) => {
            let schema = schema.get("items").cloned().unwrap_or_default();
            for (index, item) in items.iter().enumerate() {
                walk(item, &schema, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const MANIFEST: &str = "
apiVersion: fencepost.dev/v1alpha1
kind: StreamJob
metadata: {name: spend, namespace: shop}
spec:
  kafka:
    bootstrapServers: kafka:9092
    tls: {caSecretRef: {name: ca, key: ca.crt}}
  processing: {protocol: {transactional: {commitInterval: 250ms}}}
  pipeline:
    sources:
    - {name: orders, kafka: {topic: orders, format: {json: {}}}, columns: [{name: user, type: STRING}]}
    sql: INSERT INTO users SELECT user FROM orders
    sinks:
    - {name: users, kafka: {topic: users, format: {json: {}}}}
";

    fn read(text: &str) -> Result<ResolvedJob, JobError> {
        parse(Path::new("job.yaml"), text, "/secrets").map(|loaded| loaded.resolved)
    }

    #[test]
    fn a_manifest_is_resolved_with_the_defaults_of_the_schema() {
        let job = read(MANIFEST).unwrap();
        assert_eq!(job.transactional_id_prefix, "shop.spend");
        assert_eq!((job.commit_interval_ms, job.transaction_timeout_ms, job.slots), (250, 30_000, 1));
        assert_eq!(job.kafka.tls.unwrap().ca_file.as_deref(), Some("/secrets/ca/ca.crt"));
    }

    #[test]
    fn a_resolved_job_is_read_back_as_it_was_written() {
        let job = read(MANIFEST).unwrap();
        assert_eq!(read(&serde_json::to_string(&job).unwrap()).unwrap(), job);
    }

    #[test]
    fn an_unknown_field_is_named_with_its_path() {
        let error = read(&MANIFEST.replace("name: user, type", "name: user, tpye: x, type")).unwrap_err().to_string();
        assert!(error.contains("unknown field spec.pipeline.sources[0].columns[0].tpye"), "{error}");
    }

    #[rstest]
    #[case::a_duration_without_unit("250ms", "250", "spec.processing.protocol.transactional.commitInterval: ")]
    #[case::an_unknown_word(
        "STRING}]}",
        "STRING}], onBadRecord: Drop}",
        "spec.pipeline.sources[0].onBadRecord: unknown variant `Drop`"
    )]
    #[case::another_type("name: orders,", "name: [orders],", "spec.pipeline.sources[0].name: invalid type")]
    #[case::a_field_that_is_missing(
        "bootstrapServers: kafka:9092",
        "groupProtocol: Classic",
        "spec.kafka: missing field `bootstrapServers`"
    )]
    fn a_wrong_field_is_named_with_its_path(#[case] from: &str, #[case] to: &str, #[case] wanted: &str) {
        let error = read(&MANIFEST.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn other_kinds_and_newer_versions_are_refused() {
        assert!(matches!(read("{apiVersion: v1, kind: Pod}"), Err(JobError::Kind { .. })));
        assert!(matches!(read(r#"{"contractVersion": 99}"#), Err(JobError::Newer { have: 99, .. })));
        assert!(matches!(read("{"), Err(JobError::Syntax { .. })));
    }
}
