//! Version `v1alpha1` of the API group `fencepost.dev`.
//!
//! A field is here only when something acts on it: the API server refuses or prunes the rest, so no setting is silently ignored.

mod kafka;
mod pipeline;
mod processing;
mod status;
mod worker;

use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

pub use self::{
    kafka::{GroupProtocol, KafkaSpec, SaslMechanism, SaslSpec, SecretKeyRef, SecretRef, TlsSpec},
    pipeline::{
        ColumnMetadata, ColumnSpec, FormatSpec, HeaderColumn, JsonFormat, KafkaSinkSpec, KafkaSourceSpec, KeyFormat,
        OnBadRecord, PipelineSpec, SinkSpec, SourceSpec, StartPosition, TopicCreateSpec,
    },
    processing::{Guarantee, ProcessingSpec, ProtocolSpec, TransactionalProtocol},
    status::{
        BrokerStatus, FailedRevision, FenceStatus, FencedId, OperationStatus, OperationType, Phase, PlanStatus,
        PointOfNoReturn, ProducerStatus, RestorePoint, RevisionStatus, SinkGuarantee, StreamJobStatus,
        TransactionsStatus, VerificationStatus, Violation,
    },
    worker::{ImagePullPolicy, LocalObjectRef, WorkerSpec},
};

/// An exactly-once Kafka stream job: where records come from, a SQL pipeline, where results go.
#[derive(Clone, Debug, PartialEq, CustomResource, KubeSchema, Serialize, Deserialize)]
#[kube(
    group = "fencepost.dev",
    version = "v1alpha1",
    kind = "StreamJob",
    namespaced,
    status = "StreamJobStatus",
    shortname = "sj",
    category = "streaming",
    derive = "PartialEq",
    doc = "An exactly-once Kafka stream job.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Workers", type_ = "string", json_path = ".status.workers"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Guarantee",
        type_ = "string",
        priority = 1,
        json_path = ".spec.processing.guarantee"
    ),
    printcolumn(name = "Message", type_ = "string", priority = 1, json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    validation = Rule::new("size(self.metadata.name) <= 45").message("metadata.name must be at most 45 characters, so that the names of the pods fit into a label"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must start with a letter and hold only a-z, 0-9 and '-': it becomes the name of a Service")
)]
#[serde(rename_all = "camelCase")]
pub struct StreamJobSpec {
    /// Whether the job runs. `Suspended`: the workers commit and go, and nothing holds readers up. `Running` goes on from the positions, if
    /// the brokers still have them: see their `offsets.retention.minutes`.
    #[serde(default)]
    pub state: JobState,

    /// Number of workers (pods). Changed by `kubectl scale` too. More workers than input partitions leave some idle.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: i32,

    /// The Kafka cluster, and the names that identify this job in it.
    pub kafka: KafkaSpec,

    /// The guarantee and the protocol that gives it.
    #[serde(default)]
    pub processing: ProcessingSpec,

    /// Sources, SQL and sinks.
    pub pipeline: PipelineSpec,

    /// How the workers run.
    #[serde(default)]
    pub worker: WorkerSpec,

    /// How a new revision of the spec replaces the running one.
    #[serde(default)]
    pub upgrade: UpgradeSpec,

    /// What happens when the job is deleted.
    #[serde(default)]
    pub deletion: DeletionSpec,
}

/// How a new revision of the spec replaces the running one.
#[derive(Clone, Debug, Default, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeSpec {
    /// Whether a revision that passed all checks starts by itself. `Manual`: when the annotation `fencepost.dev/approve` names it. The first
    /// start needs no approval.
    #[serde(default)]
    pub approval: Approval,

    /// Whether a revision that fails before its first commit is replaced by the last one that has committed.
    #[serde(default)]
    pub rollback: Rollback,

    /// How long a new revision may take.
    #[serde(default)]
    pub deadlines: UpgradeDeadlines,
}

/// Who lets a new revision start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum Approval {
    /// Nobody has to.
    #[default]
    Automatic,
    /// A person.
    Manual,
}

/// What becomes of a revision that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum Rollback {
    /// As long as it has committed nothing, the operator goes back to the last revision that has; later only a person does.
    #[default]
    UntilFirstCommit,
    /// It stays.
    Never,
}

/// How long a new revision may take. Time in which the brokers are away does not count.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeDeadlines {
    /// Until all its workers are ready.
    #[serde(default = "default_deadline")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("ready must be between 1s and 24h"))]
    pub ready: Duration,

    /// From then on until the first of them has committed. Only time with unread input counts.
    #[serde(default = "default_deadline")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("firstCommit must be between 1s and 24h"))]
    pub first_commit: Duration,
}

impl Default for UpgradeDeadlines {
    fn default() -> Self {
        Self { ready: default_deadline(), first_commit: default_deadline() }
    }
}

/// What happens when the job is deleted: the workers commit and go, and their transactional ids are fenced. Topics and positions stay.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionSpec {
    /// How long workers and brokers may take. Then the job goes anyway, with a warning event.
    #[serde(default = "default_deadline")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("deadline must be between 1s and 24h"))]
    pub deadline: Duration,
}

impl Default for DeletionSpec {
    fn default() -> Self {
        Self { deadline: default_deadline() }
    }
}

fn default_deadline() -> Duration {
    Duration::from(std::time::Duration::from_mins(5))
}

/// Whether a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum JobState {
    /// It runs.
    #[default]
    Running,
    /// It has no workers until it is to run again.
    Suspended,
}

const fn default_replicas() -> i32 {
    1
}

/// A schema for [`kube::core::Duration`] that says how it is written.
pub(crate) fn duration_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
    })
}
