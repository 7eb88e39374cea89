use kube::{KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::duration_schema;

/// The guarantee of a job, and how it is reached.
#[derive(Clone, Debug, PartialEq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessingSpec {
    /// What readers with `isolation.level=read_committed` see after failures.
    #[serde(default)]
    pub guarantee: Guarantee,

    /// Exactly one protocol.
    #[serde(default)]
    pub protocol: ProtocolSpec,

    /// How long the brokers wait for a transaction of a dead worker before they abort it. Until then `read_committed` readers
    /// of its output wait. At most the brokers' `transaction.max.timeout.ms`.
    #[serde(default = "default_transaction_timeout")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("transactionTimeout must be between 1s and 24h"))]
    pub transaction_timeout: Duration,
}

impl Default for ProcessingSpec {
    fn default() -> Self {
        Self {
            guarantee: Guarantee::default(),
            protocol: ProtocolSpec::default(),
            transaction_timeout: default_transaction_timeout(),
        }
    }
}

/// What a job promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum Guarantee {
    /// Output and positions are committed in one Kafka transaction.
    #[default]
    ExactlyOnce,
    /// Positions are committed after the output is confirmed: nothing is lost, a failure may repeat records.
    AtLeastOnce,
}

/// The protocol: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtocolSpec {
    /// One Kafka transaction per commit interval holds outputs and input positions.
    #[serde(default)]
    pub transactional: TransactionalProtocol,
}

/// Settings of the transactional loop.
#[derive(Clone, Debug, PartialEq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TransactionalProtocol {
    /// Time between commits: lower latency against more transactions. With `AtLeastOnce`, time between commits of the positions.
    #[serde(default = "default_commit_interval")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1ms') && duration(self) <= duration('10m')").message("commitInterval must be between 1ms and 10m"))]
    pub commit_interval: Duration,
}

impl Default for TransactionalProtocol {
    fn default() -> Self {
        Self { commit_interval: default_commit_interval() }
    }
}

fn default_commit_interval() -> Duration {
    Duration::from(std::time::Duration::from_millis(100))
}

fn default_transaction_timeout() -> Duration {
    Duration::from(std::time::Duration::from_secs(30))
}
