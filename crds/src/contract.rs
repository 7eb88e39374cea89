//! What operator and worker say to each other. Versioned: either side may be one version older.
//!
//! - [`ResolvedJob`]: operator → worker, JSON in the ConfigMap. Everything is spelled out; the worker fills in nothing.
//! - [`PlanReport`]: worker → operator, the last line of a plan pod's output.
//! - [`WorkerStatus`]: worker → operator, `GET /v1/status`.
//! - [`ExitCode`]: worker → kubelet → operator.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumMessage, FromRepr, IntoStaticStr};

use crate::v1alpha1::{GroupProtocol, Guarantee, PipelineSpec, SaslMechanism, Violation};

/// Version of this contract. A reader refuses a newer one.
pub const CONTRACT_VERSION: u32 = 1;

/// A job with every default filled in and every Secret turned into a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedJob {
    /// [`CONTRACT_VERSION`] of the writer.
    pub contract_version: u32,
    /// Namespace of the StreamJob.
    pub namespace: String,
    /// Name of the StreamJob.
    pub name: String,
    /// `metadata.uid` of the StreamJob; empty outside Kubernetes.
    #[serde(default)]
    pub uid: String,
    /// Hash of the spec this was made from.
    #[serde(default)]
    pub revision: String,
    /// Connection to Kafka.
    pub kafka: ResolvedKafka,
    /// Transactional ids are `<prefix>-<ordinal>-<slot>`.
    pub transactional_id_prefix: String,
    /// Consumer group that holds the positions.
    pub consumer_group: String,
    /// How the group shares its partitions out.
    #[serde(default, skip_serializing_if = "GroupProtocol::is_classic")]
    pub group_protocol: GroupProtocol,
    /// The guarantee.
    pub guarantee: Guarantee,
    /// Milliseconds between commits.
    pub commit_interval_ms: u64,
    /// `transaction.timeout.ms` of the producers.
    pub transaction_timeout_ms: u64,
    /// Milliseconds a worker may take to finish when asked to stop.
    pub drain_timeout_ms: u64,
    /// Processing threads of each worker.
    pub slots: u32,
    /// Sources, SQL and sinks.
    pub pipeline: PipelineSpec,
}

/// How to reach the brokers. Secrets are paths of files, never values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedKafka {
    /// `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Present: TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ResolvedTls>,
    /// Present: SASL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<ResolvedSasl>,
}

/// TLS with paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTls {
    /// PEM file with the authorities. Absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// PEM file with the client's certificate and its chain. Absent: none is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<String>,
    /// PEM file with the key of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
}

/// SASL with paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedSasl {
    /// Mechanism.
    pub mechanism: SaslMechanism,
    /// File with the user name.
    pub username_file: String,
    /// File with the password.
    pub password_file: String,
}

/// The answer to "can this image run this pipeline, and how". `violations` empty means yes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// [`CONTRACT_VERSION`] of the worker.
    pub contract_version: u32,
    /// Version of the worker.
    pub worker_version: String,
    /// Signature of the pipeline (hex SHA-256). Empty when it does not plan.
    #[serde(default)]
    pub signature: String,
    /// Stages from sources to sinks.
    #[serde(default)]
    pub stages: Vec<StageReport>,
    /// Topics the job touches.
    #[serde(default)]
    pub topics: Vec<TopicUse>,
    /// What a reader of each sink gets.
    #[serde(default)]
    pub guarantees: Vec<crate::v1alpha1::SinkGuarantee>,
    /// Everything that keeps the pipeline from running.
    #[serde(default)]
    pub violations: Vec<Violation>,
}

/// One stage of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageReport {
    /// Number, from 0.
    pub id: u32,
    /// Operators in the order of the data, one line each.
    pub operators: Vec<String>,
    /// Sources it reads.
    pub sources: Vec<String>,
    /// Sinks it writes.
    pub sinks: Vec<String>,
}

/// How a topic is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicUse {
    /// Topic name.
    pub topic: String,
    /// What for.
    pub role: TopicRole,
    /// Name of the source or sink.
    pub table: String,
}

/// What a topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[serde(rename_all = "camelCase")]
pub enum TopicRole {
    /// Read by a source.
    Source,
    /// Written by a sink.
    Sink,
    /// Written with bad records.
    DeadLetter,
}

/// The state of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// [`CONTRACT_VERSION`] of the worker.
    pub contract_version: u32,
    /// Version of the worker.
    #[serde(default)]
    pub worker_version: String,
    /// Revision of the job it runs.
    #[serde(default)]
    pub revision: String,
    /// Epoch it was started with.
    #[serde(default)]
    pub epoch: i64,
    /// Ordinal of the pod.
    #[serde(default)]
    pub ordinal: u32,
    /// All slots have joined the group and can commit.
    #[serde(default)]
    pub ready: bool,
    /// It was asked to stop and is finishing.
    #[serde(default)]
    pub draining: bool,
    /// One entry per slot.
    #[serde(default)]
    pub slots: Vec<SlotStatus>,
}

/// The state of a slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotStatus {
    /// Number of the slot.
    pub slot: u32,
    /// Transactional id; empty with `AtLeastOnce`.
    #[serde(default)]
    pub transactional_id: String,
    /// State of the protocol machine.
    #[serde(default)]
    pub state: String,
    /// Partitions it owns, with positions.
    #[serde(default)]
    pub partitions: Vec<PartitionStatus>,
    /// Records read since the worker started.
    #[serde(default)]
    pub records_in: u64,
    /// Records written and committed since the worker started.
    #[serde(default)]
    pub records_out: u64,
    /// Bad records since the worker started.
    #[serde(default)]
    pub bad_records: u64,
    /// Transactions committed since the worker started.
    #[serde(default)]
    pub commits: u64,
    /// The newest error, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkerError>,
}

/// A partition of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionStatus {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Next offset to read according to the last commit; -1: none committed by this worker yet.
    pub committed: i64,
    /// Records between the committed position and the last stable offset; -1: not known.
    pub lag: i64,
}

/// An error of a worker, for people and for conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerError {
    /// A [`crate::conditions::Reason`] where one fits, otherwise `WorkerErrors`.
    pub reason: String,
    /// What, where, and what to do.
    pub message: String,
    /// Unix milliseconds when it was seen last.
    pub at_ms: i64,
}

/// Exit codes of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumIter, EnumMessage, FromRepr, IntoStaticStr)]
#[repr(u8)]
pub enum ExitCode {
    /// Asked to stop; everything processed is committed.
    Ok = 0,
    /// A bug or an unknown failure. A restart may help.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A newer producer has our transactional id. A restart would fight with it.
    Fenced = 64,
    /// The job does not plan. A restart does not help.
    InvalidJob = 65,
    /// A bad record with `onBadRecord: Fail`. A restart meets it again.
    BadRecord = 66,
    /// Asked to stop; the grace period ended first. The open transaction was left to the brokers.
    DrainTimeout = 67,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_status_of_a_newer_minor_shape_can_still_be_read() {
        let status: WorkerStatus =
            serde_json::from_str(r#"{"contractVersion":1,"ready":true,"somethingNew":5,"slots":[{"slot":0}]}"#)
                .unwrap();
        assert!(status.ready && status.slots.len() == 1);
    }

    #[test]
    fn exit_codes_can_be_told_apart_from_signals() {
        use strum::IntoEnumIterator;
        for code in ExitCode::iter() {
            assert!((code as u8) < 126, "{code}");
        }
        assert_eq!(ExitCode::from_repr(64), Some(ExitCode::Fenced));
    }
}
