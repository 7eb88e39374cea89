//! What goes into calls and comes out of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::error::{BrokerCode, Cause, Operation, Resource, Subject};
use crate::settings::HostPort;

/// Number of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition.
    #[must_use]
    pub fn new(topic: impl Into<String>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What the cluster says about itself and some topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Id of the cluster.
    pub cluster_id: Option<String>,
    /// Broker to send administrative requests to.
    pub controller: Option<BrokerId>,
    /// Brokers that are up.
    pub brokers: BTreeMap<BrokerId, HostPort>,
    /// The topics that were asked for.
    pub topics: BTreeMap<String, TopicMetadata>,
}

/// What the cluster says about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Present: the cluster cannot or will not describe it, for example [`BrokerCode::UNKNOWN_TOPIC_OR_PARTITION`].
    pub error: Option<BrokerCode>,
    /// Partitions by number.
    pub partitions: BTreeMap<i32, PartitionMetadata>,
}

/// The brokers know the topic, or know whether it exists, and do not say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topic {topic} cannot be described: {code}. {}", cause.advice())]
pub struct TopicRefused {
    /// Its name.
    pub topic: String,
    /// The brokers' answer.
    pub code: BrokerCode,
    /// What it means for the user.
    pub cause: Cause,
}

impl TopicMetadata {
    /// Number of partitions; `None`: the topic does not exist.
    ///
    /// # Errors
    ///
    /// [`TopicRefused`] when the brokers answer with anything else, a missing permission above all: that is no proof of absence.
    pub fn partition_count(&self, topic: &str) -> Result<Option<usize>, TopicRefused> {
        match self.error {
            None => Ok(Some(self.partitions.len())),
            Some(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION) => Ok(None),
            Some(code) => {
                let subject = Subject::new(Operation::Describe, Resource::Topic(topic.to_owned()));
                Err(TopicRefused { topic: topic.to_owned(), code, cause: Cause::of(code, &subject) })
            }
        }
    }
}

/// What the cluster says about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Present: something is wrong with it, for example [`BrokerCode::LEADER_NOT_AVAILABLE`].
    pub error: Option<BrokerCode>,
    /// The leader, when there is one.
    pub leader: Option<BrokerId>,
    /// All replicas.
    pub replicas: Vec<BrokerId>,
    /// Replicas in sync.
    pub in_sync: Vec<BrokerId>,
}

/// Limits of one broker. `None`: the broker did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimit {
    /// `transaction.max.timeout.ms`
    pub transaction_max_timeout_ms: Option<i64>,
    /// `transactional.id.expiration.ms`
    pub transactional_id_expiration_ms: Option<i64>,
    /// `message.max.bytes`
    pub message_max_bytes: Option<i64>,
}

/// Limits of every broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// By broker.
    pub brokers: BTreeMap<BrokerId, BrokerLimit>,
}

impl BrokerLimits {
    /// The smallest `transaction.max.timeout.ms`, and whose it is. Any broker may become the coordinator of any id.
    #[must_use]
    pub fn transaction_max_timeout_ms(&self) -> Option<(BrokerId, i64)> {
        self.smallest(|limit| limit.transaction_max_timeout_ms)
    }

    /// The smallest `transactional.id.expiration.ms`, and whose it is.
    #[must_use]
    pub fn transactional_id_expiration_ms(&self) -> Option<(BrokerId, i64)> {
        self.smallest(|limit| limit.transactional_id_expiration_ms)
    }

    /// The smallest `message.max.bytes`, and whose it is.
    #[must_use]
    pub fn message_max_bytes(&self) -> Option<(BrokerId, i64)> {
        self.smallest(|limit| limit.message_max_bytes)
    }

    fn smallest(&self, field: impl Fn(&BrokerLimit) -> Option<i64>) -> Option<(BrokerId, i64)> {
        self.brokers.iter().filter_map(|(id, limit)| Some((*id, field(limit)?))).min_by_key(|(id, value)| (*value, *id))
    }
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// Partitions; `None`: the broker's default.
    pub partitions: Option<i32>,
    /// Replicas of each partition; `None`: the broker's default.
    pub replication_factor: Option<i16>,
    /// Configuration of the topic.
    pub configs: BTreeMap<String, String>,
}

/// What became of a topic to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCreation {
    /// It did not exist before.
    Created,
    /// It existed. Its partitions and configuration may differ from what was asked.
    Existed,
}

/// Which offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first offset that is still there.
    Earliest,
    /// The end. See [`Isolation`].
    Latest,
}

/// What "the end" is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The high watermark.
    ReadUncommitted,
    /// The last stable offset (LSO): transactions that are open are not passed.
    ReadCommitted,
}

/// The identity under which a producer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerIdentity {
    /// Producer id.
    pub id: i64,
    /// Producer epoch.
    pub epoch: i16,
}

impl fmt::Display for ProducerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.epoch)
    }
}

/// State of a transactional id at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::EnumString)]
pub enum TransactionState {
    /// No transaction since the id was initialised.
    Empty,
    /// Open.
    Ongoing,
    /// Commit decided, markers on their way.
    PrepareCommit,
    /// Abort decided, markers on their way.
    PrepareAbort,
    /// Committed.
    CompleteCommit,
    /// Aborted.
    CompleteAbort,
    /// The id expired and is being removed.
    Dead,
    /// The epoch is being raised over an open transaction.
    PrepareEpochFence,
    /// A state this program does not know.
    #[strum(default)]
    Other(String),
}

/// What a coordinator knows about a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// State.
    pub state: TransactionState,
    /// Current owner.
    pub producer: ProducerIdentity,
    /// Timeout its owner asked for.
    pub timeout: Duration,
    /// When the transaction began, in Unix milliseconds of the broker; `None` when there is none.
    ///
    /// Names one transaction: constant from its first partition to its end, and beyond a restart of the broker.
    pub started_at_ms: Option<i64>,
    /// Partitions in the transaction; while it is being ended only those without a marker.
    pub partitions: BTreeSet<TopicPartition>,
}

/// One line of a list of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionListing {
    /// Producer id of the owner.
    pub producer_id: i64,
    /// State.
    pub state: TransactionState,
    /// The coordinator that listed it.
    pub coordinator: BrokerId,
}

/// Which transactions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    /// Only these states; empty: all.
    pub states: Vec<TransactionState>,
    /// Only ids that begin so; empty: all.
    pub prefix: String,
    /// Only transactions that are open for longer. Combine with [`TransactionState::Ongoing`]: brokers count the age of ids
    /// without a transaction too. Brokers before 4.0 do not know it and list all.
    pub longer_than: Option<Duration>,
}

/// A producer that a partition's leader remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its identity.
    pub producer: ProducerIdentity,
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// When it wrote last, Unix milliseconds.
    pub last_timestamp_ms: i64,
    /// Epoch of the coordinator that wrote the last marker; -1 before the first.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub transaction_start_offset: Option<i64>,
}

/// What a broker answered to a commit.
///
/// It proves neither success nor loss: see [`super::Cluster::commit_transaction`].
#[must_use = "an answer to a commit must be checked against DescribeTransactions"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAnswer {
    /// The identity after the commit; only brokers with transaction version 2 say it.
    pub producer: Option<ProducerIdentity>,
    /// Version of the request that was used. From 5 on the commit also fences the producer that was running.
    pub version: i16,
}

/// The statement that writing transaction markers past the coordinator is what is wanted.
///
/// A marker written while the coordinator still has the transaction makes its owner's later commit succeed although the
/// records are gone. There is one use: a producer id that no coordinator knows blocks the LSO of a partition.
#[derive(Debug)]
pub struct NoCoordinatorKnowsThisProducer(());

impl NoCoordinatorKnowsThisProducer {
    /// States it. The caller has listed the transactions of all brokers and not found the producer id.
    #[must_use]
    pub fn i_have_checked_every_coordinator() -> Self {
        Self(())
    }
}

#[cfg(test)]
mod topic_tests {
    use fencepost_crds::conditions::Reason;

    use super::*;

    fn answered(error: Option<BrokerCode>) -> TopicMetadata {
        TopicMetadata { error, partitions: BTreeMap::new() }
    }

    #[test]
    fn only_the_answer_unknown_means_that_a_topic_does_not_exist() {
        assert_eq!(answered(None).partition_count("t").unwrap(), Some(0));
        assert_eq!(answered(Some(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION)).partition_count("t").unwrap(), None);
        let refused = answered(Some(BrokerCode::TOPIC_AUTHORIZATION_FAILED)).partition_count("t").unwrap_err();
        assert_eq!(refused.cause.reason(), Reason::AuthorizationFailed);
        assert!(refused.to_string().contains("topic t cannot be described"), "{refused}");
    }
}
