use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// What the operator observed. Nothing here is required, so that an older or newer operator can read it.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamJobStatus {
    /// `metadata.generation` that this status answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// One word for people. Programs read `conditions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Number of this start of the workers. Rises by one each time the operator starts them with a possibly different spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,

    /// Conditions, one per type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Which revisions of the spec run and are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionStatus>,

    /// Where the running revision began, while it may still be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestorePoint>,

    /// How the running revision does, while it may still be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationStatus>,

    /// The newest start that has committed something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point_of_no_return: Option<PointOfNoReturn>,

    /// The annotation `fencepost.dev/restart` of the newest start: only another value asks for a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,

    /// The answer of the worker image to the newest spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,

    /// The change under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationStatus>,

    /// Transactional ids of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionsStatus>,

    /// What the brokers said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<BrokerStatus>,

    /// What a reader of each sink really gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guarantees: Vec<SinkGuarantee>,

    /// Workers that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Workers that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// `ready/wanted`, for the table of `kubectl get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,

    /// Label selector of the workers, for `/scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// One word for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum Phase {
    /// Accepted, nothing done yet, or checks under way before the first start.
    Pending,
    /// Workers are starting.
    Starting,
    /// All workers process.
    Running,
    /// The workers of the old revision are finishing.
    Draining,
    /// No worker runs, as the spec asks.
    Suspended,
    /// The job is deleted.
    Deleting,
    /// Needs a change of the spec or of the world around it.
    Stalled,
}

/// Revisions are hashes of the spec without `replicas`, `state`, `upgrade` and `deletion`.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RevisionStatus {
    /// What the workers run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// What the spec asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The last one that has committed something: what a rollback goes back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// The newest one, when it was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRevision>,
}

/// A revision that failed before its first commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedRevision {
    /// The revision.
    pub revision: String,
    /// Number of the ControllerRevision that failed. The same spec, accepted once more, is tried once more.
    pub number: i64,
    /// What it failed of: a reason of conditions.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// Where the workers of a start began: the positions that the group had committed before the first of them ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestorePoint {
    /// The start.
    pub epoch: i64,
    /// Hash of all committed positions. As long as the brokers give the same, the workers have committed nothing.
    pub digest: String,
    /// Number of partitions with a committed position.
    pub partitions: i32,
    /// When they were read, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// How a revision does that has committed nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerificationStatus {
    /// All its workers were ready at least once: it waits for the first commit.
    pub was_ready: bool,
    /// Since when it is waited for. Absent: time does not count, as there is nothing to read, or the brokers are away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// From here on only forward: output of this start is visible.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PointOfNoReturn {
    /// The start.
    pub epoch: i64,
    /// When the operator saw it, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// The result of a plan pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanStatus {
    /// The revision that was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Signature of the pipeline: equal signatures read and write compatible state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Version of the worker that planned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_version: Option<String>,
    /// Why it does not plan. Empty: it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

/// Something that must change before the job can start.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Violation {
    /// Machine-readable kind, such as `TransactionTimeoutAboveBrokerMaximum`.
    pub reason: String,
    /// The field of the spec.
    pub field: String,
    /// What is wrong, with the numbers, and what to change.
    pub message: String,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum OperationType {
    /// First start.
    Start,
    /// A new revision replaces the running one.
    Restart,
    /// The number of workers changes.
    Scale,
    /// All workers stop, because the spec asks for it.
    Suspend,
    /// A suspended job starts again.
    Resume,
    /// The last revision that has committed replaces one that failed before its first commit.
    Rollback,
    /// Workers are replaced one by one, because their credentials have changed.
    Rotate,
    /// The job is deleted.
    Delete,
}

/// A change under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatus {
    /// Identifies this run of the operation.
    pub id: String,
    /// What is being done.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub operation_type: Option<OperationType>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// When the step began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Transactional ids of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransactionsStatus {
    /// Ids are `<prefix>-<ordinal>-<slot>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The largest number of workers that ever ran: ids of ordinals below it may exist at the brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_high_water: Option<i32>,
    /// The largest number of slots that a worker ever had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_high_water: Option<i32>,
    /// Ids of ordinals below this may have an open transaction. It falls only after the ids above it were fenced, or given up with the cluster that had them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_in_use: Option<i32>,
    /// The Kafka cluster on which the ids were used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The newest fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fence: Option<FenceStatus>,
}

/// A fence: ids were taken from producers that may still be somewhere. Their open transactions are aborted, and whatever they
/// write from then on is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FenceStatus {
    /// The operation that it was a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// When it was done, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Number of ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<i32>,
    /// Ids with an open transaction, which is aborted now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<i32>,
    /// The ids, at most the first 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fenced: Vec<FencedId>,
    /// Why it was given up: the cluster that has the ids could not be reached, and the job has left it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An id that was fenced.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FencedId {
    /// The transactional id.
    pub id: String,
    /// Who had it, and the state of the last transaction. Absent: the brokers did not know the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<ProducerStatus>,
    /// Who has it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<ProducerStatus>,
}

/// A producer, as the brokers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerStatus {
    /// Producer id.
    pub producer_id: i64,
    /// Epoch of the producer.
    pub producer_epoch: i32,
    /// The brokers' word for the state of its transaction, such as `Ongoing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// What the brokers said.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatus {
    /// Id of the Kafka cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Number of brokers that were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers: Option<i32>,
    /// The smallest `transaction.max.timeout.ms` of all brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_max_timeout_ms: Option<i64>,
    /// The smallest `transactional.id.expiration.ms` of all brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactional_id_expiration_ms: Option<i64>,
}

/// What a reader of a sink gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SinkGuarantee {
    /// Name of the sink.
    pub sink: String,
    /// `ExactlyOnce` or `AtLeastOnce`.
    pub guarantee: String,
    /// What it depends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}
