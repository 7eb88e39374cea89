//! Revisions: hashes of a spec without `replicas`, `state`, `upgrade` and `deletion`, and what each of them runs.

use std::{collections::BTreeMap, fmt};

use fencepost_crds::{
    StreamJob, StreamJobSpec,
    contract::ResolvedJob,
    names, resolve,
    v1alpha1::{DeletionSpec, JobState, UpgradeSpec, WorkerSpec},
};
use k8s_openapi::{
    api::apps::v1::ControllerRevision,
    apimachinery::pkg::{apis::meta::v1::OwnerReference, runtime::RawExtension},
};
use kube_core::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{build::labels, secrets::SecretKeys};

/// Number of bytes of the hash in a name: ten hexadecimal digits.
const HASH_BYTES: usize = 5;

/// Hash of a spec without `replicas`, `state`, `upgrade` and `deletion`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// The hash of a spec. Equal specs give equal hashes whatever the order of their fields.
    #[must_use]
    pub fn hash(spec: &StreamJobSpec) -> Self {
        let mut value = serde_json::to_value(spec).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.remove("replicas");
            object.remove("state");
            object.remove("upgrade");
            object.remove("deletion");
        }
        let mut text = String::new();
        write_canonical(&value, &mut text);
        let digest = Sha256::digest(text.as_bytes());
        Self(hex::encode(digest.get(..HASH_BYTES).unwrap_or_default()))
    }

    /// A revision read back from where the operator wrote it.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The spec without what makes no other revision: how many workers run, whether any do, how they are replaced, and how they end.
fn essence(spec: &StreamJobSpec) -> StreamJobSpec {
    StreamJobSpec {
        replicas: 1,
        state: JobState::default(),
        upgrade: UpgradeSpec::default(),
        deletion: DeletionSpec::default(),
        ..spec.clone()
    }
}

/// JSON with sorted keys: the order must not depend on how `serde_json` was built.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for value in list {
                write_canonical(value, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Who a job is: what every child carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The owner reference of children: deleting the job deletes them.
    pub owner: OwnerReference,
}

/// The object did not come from an API server.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the StreamJob has no {0}: it was not read from an API server")]
pub struct NotStored(&'static str);

impl Identity {
    /// The identity of a stored job.
    ///
    /// # Errors
    /// The object has no name, namespace or uid.
    pub fn of(job: &StreamJob) -> Result<Self, NotStored> {
        let mut owner = job.controller_owner_ref(&()).ok_or(NotStored("name or uid"))?;
        owner.block_owner_deletion = Some(true);
        Ok(Self {
            namespace: job.namespace().ok_or(NotStored("namespace"))?,
            name: job.name_any(),
            uid: job.uid().ok_or(NotStored("uid"))?,
            owner,
        })
    }

    /// True when an object with these owner references is a child of this job, not of an earlier one with the same name.
    #[must_use]
    pub fn owns(&self, references: &[OwnerReference]) -> bool {
        references.iter().any(|owner| owner.uid == self.uid)
    }
}

/// What one revision runs. Builders see this and nothing of the raw spec.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The revision.
    pub revision: Revision,
    /// Image of the workers, spelled out.
    pub image: String,
    /// What the workers read.
    pub resolved: ResolvedJob,
    /// How the workers run.
    pub worker: WorkerSpec,
    /// Secrets to mount, with the keys that are used and no others.
    pub secrets: SecretKeys,
}

impl RunSpec {
    /// What `spec` runs as a revision of `job`.
    #[must_use]
    pub fn of(job: &StreamJob, spec: &StreamJobSpec, revision: Revision, default_image: &str) -> Self {
        let job = StreamJob { metadata: job.metadata.clone(), spec: spec.clone(), status: None };
        Self {
            image: spec.worker.image.clone().unwrap_or_else(|| default_image.to_owned()),
            resolved: resolve::resolve(&job, revision.as_str(), names::SECRETS_DIR),
            worker: spec.worker.clone(),
            secrets: secrets(spec),
            revision,
        }
    }
}

/// The Secrets that a spec uses.
#[must_use]
pub fn secrets(spec: &StreamJobSpec) -> SecretKeys {
    let tls = spec.kafka.tls.iter().filter_map(|tls| tls.ca_secret_ref.as_ref());
    let sasl = spec.kafka.sasl.iter().flat_map(|sasl| [&sasl.username_secret_ref, &sasl.password_secret_ref]);
    let mut secrets = SecretKeys::new();
    for reference in tls.chain(sasl) {
        secrets.entry(reference.name.clone()).or_default().insert(reference.key.clone());
    }
    if let Some(client) = spec.kafka.tls.as_ref().and_then(|tls| tls.client_certificate_secret_ref.as_ref()) {
        let keys = secrets.entry(client.name.clone()).or_default();
        keys.extend([names::TLS_CERTIFICATE, names::TLS_KEY].map(str::to_owned));
    }
    secrets
}

/// Version of [`Stored`].
const STORED_FORMAT: u32 = 1;

/// The data of a ControllerRevision.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    format: u32,
    revision: Revision,
    image: String,
    spec: StreamJobSpec,
}

/// A revision that passed all checks, as kept in a ControllerRevision.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedRevision {
    /// Name of the ControllerRevision.
    pub object: String,
    /// Acceptances are numbered: the largest number is the newest.
    pub number: i64,
    /// The revision.
    pub revision: Revision,
    /// The image it was accepted with.
    pub image: String,
    /// The spec; `replicas`, `state`, `upgrade` and `deletion` are as they were then and mean nothing.
    pub spec: StreamJobSpec,
}

/// A ControllerRevision that is not as the operator writes them.
#[derive(Debug, Error)]
pub enum RevisionError {
    /// The data cannot be read.
    #[error("ControllerRevision {object} cannot be read")]
    Unreadable {
        /// Its name.
        object: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A newer operator wrote it.
    #[error("ControllerRevision {object} has format {format}; this operator reads up to {STORED_FORMAT}")]
    TooNew {
        /// Its name.
        object: String,
        /// Its format.
        format: u32,
    },
}

impl AcceptedRevision {
    /// Name of the ControllerRevision of an acceptance. The StatefulSet controller keeps its own as `<name>-<hash>`.
    ///
    /// Acceptances are a log: numbered, never changed, each number taken once. Whoever finds a number taken looks again.
    #[must_use]
    pub fn object_name(job: &str, number: i64) -> String {
        format!("{job}-spec-{number}")
    }

    /// Reads a ControllerRevision.
    ///
    /// # Errors
    /// It was not written by this operator or an older one.
    pub fn read(object: &ControllerRevision) -> Result<Self, RevisionError> {
        let name = object.name_any();
        let data = object.data.as_ref().map(|data| data.0.clone()).unwrap_or_default();
        let stored: Stored = serde_json::from_value(data)
            .map_err(|source| RevisionError::Unreadable { object: name.clone(), source })?;
        if stored.format > STORED_FORMAT {
            return Err(RevisionError::TooNew { object: name, format: stored.format });
        }
        Ok(Self {
            object: name,
            number: object.revision,
            revision: stored.revision,
            image: stored.image,
            spec: stored.spec,
        })
    }

    /// The ControllerRevision that keeps this.
    #[must_use]
    pub fn write(&self, identity: &Identity) -> ControllerRevision {
        let stored = Stored {
            format: STORED_FORMAT,
            revision: self.revision.clone(),
            image: self.image.clone(),
            spec: self.spec.clone(),
        };
        let mut metadata = labels::metadata(identity, &self.object);
        labels::label(&mut metadata, names::LABEL_REVISION, self.revision.as_str());
        ControllerRevision {
            metadata,
            revision: self.number,
            data: Some(RawExtension(serde_json::to_value(stored).unwrap_or_default())),
        }
    }

    /// What this revision runs.
    #[must_use]
    pub fn run_spec(&self, job: &StreamJob) -> RunSpec {
        let mut spec = self.spec.clone();
        // Names that identify the job to the brokers are immutable; the live object decides in any case.
        spec.kafka.transactional_id_prefix.clone_from(&job.spec.kafka.transactional_id_prefix);
        spec.kafka.consumer_group.clone_from(&job.spec.kafka.consumer_group);
        RunSpec::of(job, &spec, self.revision.clone(), &self.image)
    }
}

/// The revision of a spec.
///
/// An accepted revision with the same content keeps its name: an operator that knows more fields hashes the same spec
/// differently, and that must not restart anything.
#[must_use]
pub fn revision_of(spec: &StreamJobSpec, accepted: &[AcceptedRevision]) -> Revision {
    let wanted = essence(spec);
    newest_first(accepted)
        .into_iter()
        .find(|old| essence(&old.spec) == wanted)
        .map_or_else(|| Revision::hash(spec), |old| old.revision.clone())
}

/// Accepted revisions, the newest acceptance first.
#[must_use]
pub fn newest_first(accepted: &[AcceptedRevision]) -> Vec<&AcceptedRevision> {
    let mut list: Vec<&AcceptedRevision> = accepted.iter().collect();
    list.sort_by_key(|old| std::cmp::Reverse(old.number));
    list
}

#[cfg(test)]
mod tests;
