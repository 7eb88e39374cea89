use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The Kafka cluster of a job.
///
/// The two names identify the job to the brokers. They are fixed for the life of the object: a changed prefix would leave the
/// old workers unfenced, a changed group would read everything again.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.transactionalIdPrefix) == has(oldSelf.transactionalIdPrefix) && (!has(self.transactionalIdPrefix) || self.transactionalIdPrefix == oldSelf.transactionalIdPrefix)").message("transactionalIdPrefix is immutable: it fences the workers of this job; make a new StreamJob for a new prefix").field_path(".transactionalIdPrefix"),
    validation = Rule::new("has(self.consumerGroup) == has(oldSelf.consumerGroup) && (!has(self.consumerGroup) || self.consumerGroup == oldSelf.consumerGroup)").message("consumerGroup is immutable: it holds the positions of this job; make a new StreamJob for a new group").field_path(".consumerGroup"),
    validation = Rule::new("!has(self.sasl) || self.sasl.mechanism != 'PLAIN' || has(self.tls)").message("SASL mechanism PLAIN sends the password as it is: set tls, or use SCRAM-SHA-512").field_path(".sasl.mechanism")
)]
pub struct KafkaSpec {
    /// `host:port`, several separated by commas.
    #[schemars(length(min = 3, max = 2048), regex(pattern = r"^[^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*$"))]
    pub bootstrap_servers: String,

    /// Encrypts the connections. Absent: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,

    /// Authenticates the job. Absent: no authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<SaslSpec>,

    /// Transactional ids are `<prefix>-<ordinal>-<slot>`. Default `<namespace>.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub transactional_id_prefix: Option<String>,

    /// Consumer group that holds the positions. Default `<namespace>.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub consumer_group: Option<String>,

    /// How the group shares its partitions out among the workers: `Classic` (the default), or `Consumer` (KIP-848, from Kafka 4.0), under
    /// which the brokers move single partitions. May be changed: the workers restart under the other one.
    #[serde(default, skip_serializing_if = "GroupProtocol::is_classic")]
    pub group_protocol: GroupProtocol,
}

/// Protocols of consumer groups (`group.protocol` of Kafka's clients).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum GroupProtocol {
    /// At each rebalance every worker commits and gives up all it has. Partitions change hands within about 2 s; those of a worker that
    /// does not come back wait 20 s.
    #[default]
    Classic,
    /// KIP-848, needs Kafka 4.0: the brokers move single partitions, and workers keep the others. Partitions change hands with the
    /// heartbeats, and those of a worker that does not come back wait for the session timeout; both are settings of the brokers
    /// (5 s and 45 s by default).
    Consumer,
}

impl GroupProtocol {
    /// The default.
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub const fn is_classic(&self) -> bool {
        matches!(self, Self::Classic)
    }
}

/// TLS to the brokers. The broker's name is always checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// PEM certificates that sign the brokers' certificates. Absent: the authorities that the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,

    /// Secret of type `kubernetes.io/tls` with the certificate (`tls.crt`) and key (`tls.key`) that the job shows to the brokers.
    /// Absent: none; then the brokers know the job by its SASL user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_secret_ref: Option<SecretRef>,
}

/// SASL authentication.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaslSpec {
    /// The mechanism the broker offers.
    pub mechanism: SaslMechanism,
    /// Where the user name is.
    pub username_secret_ref: SecretKeyRef,
    /// Where the password is.
    pub password_secret_ref: SecretKeyRef,
}

/// SASL mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum SaslMechanism {
    /// RFC 7677 with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    #[strum(serialize = "SCRAM-SHA-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    #[strum(serialize = "SCRAM-SHA-512")]
    ScramSha512,
    /// User and password as they are: only together with `tls`.
    #[serde(rename = "PLAIN")]
    #[strum(serialize = "PLAIN")]
    Plain,
}

/// A Secret in the namespace of the StreamJob.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// One key of a Secret in the namespace of the StreamJob.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
