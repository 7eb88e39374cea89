use std::{collections::BTreeMap, time::Duration};

use fencepost_crds::{
    conditions::Reason,
    v1alpha1::{FencedId, ProducerStatus},
};
use fencepost_kafka::{
    rpc::{
        ClientOptions, Cluster, NewTopic, Pending, ProducerIdentity, RpcError, TopicMetadata, TransactionDescription,
    },
    settings::ConnectionSettings,
};
use fencepost_plan::{BrokerFacts, BrokerFailure, BrokerLimits, Positions, TopicFacts, validate::TopicToCreate};
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{BrokerProbe, Fenced, Fencer, Limits, Question, Reached};

/// Short: the job's other business waits meanwhile, and a check that fails is repeated anyway.
const OPTIONS: ClientOptions = ClientOptions {
    connect_timeout: Duration::from_secs(3),
    request_timeout: Duration::from_secs(5),
    call_timeout: Duration::from_secs(8),
};

/// The transaction timeout that a fence gives to an id. Nobody uses it: each worker sets its own. No broker's maximum is below it.
const UNTIL_THE_NEXT_OWNER: Duration = Duration::from_secs(1);

/// Real brokers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kafka;

impl BrokerProbe for Kafka {
    fn facts(&self, question: Question) -> BoxFuture<'_, Result<BrokerFacts, BrokerFailure>> {
        Box::pin(async move { facts(question).await })
    }

    fn create_topics(
        &self,
        settings: ConnectionSettings,
        topics: Vec<TopicToCreate>,
    ) -> BoxFuture<'_, Result<(), BrokerFailure>> {
        Box::pin(async move { create_topics(settings, topics).await })
    }

    fn positions(
        &self,
        settings: ConnectionSettings,
        group: String,
    ) -> BoxFuture<'_, Result<Positions, BrokerFailure>> {
        Box::pin(async move { positions(settings, &group).await.map_err(|error| failure(&error)) })
    }

    fn reach(
        &self,
        settings: ConnectionSettings,
        ids: Vec<String>,
        cluster_id: Option<String>,
    ) -> BoxFuture<'_, Result<Reached, BrokerFailure>> {
        Box::pin(async move { reach(settings, ids, cluster_id).await.map_err(|error| failure(&error)) })
    }
}

async fn facts(question: Question) -> Result<BrokerFacts, BrokerFailure> {
    let cluster = Cluster::with_options(question.settings, OPTIONS).map_err(|error| failure(&error))?;
    let names: Vec<&str> = question.topics.iter().map(String::as_str).collect();
    let metadata = cluster.metadata(&names).await.map_err(|error| failure(&error))?;
    let mut topics = BTreeMap::new();
    for (name, topic) in &metadata.topics {
        topics.insert(name.clone(), read_topic(name, topic)?);
    }
    let limits = match question.limits {
        Limits::Skip => metadata.brokers.keys().map(|id| (id.0, BrokerLimits::default())).collect(),
        Limits::Ask => {
            let limits = cluster.broker_limits().await.map_err(|error| failure(&error))?;
            let read = |limit: &fencepost_kafka::rpc::BrokerLimit| BrokerLimits {
                transaction_max_timeout_ms: limit.transaction_max_timeout_ms,
                transactional_id_expiration_ms: limit.transactional_id_expiration_ms,
            };
            limits.brokers.iter().map(|(id, limit)| (id.0, read(limit))).collect()
        }
    };
    let has_consumer_protocol = match &question.consumer_protocol_of {
        Some(group) => Some(cluster.has_consumer_protocol(group).await.map_err(|error| failure(&error))?),
        None => None,
    };
    Ok(BrokerFacts { cluster_id: metadata.cluster_id, limits, topics, has_consumer_protocol })
}

fn read_topic(name: &str, topic: &TopicMetadata) -> Result<TopicFacts, BrokerFailure> {
    match topic.partition_count(name) {
        Ok(Some(partitions)) => Ok(TopicFacts::Exists { partitions }),
        Ok(None) => Ok(TopicFacts::Missing),
        Err(refused) => Err(BrokerFailure { reason: refused.cause.reason(), message: refused.to_string() }),
    }
}

async fn create_topics(settings: ConnectionSettings, topics: Vec<TopicToCreate>) -> Result<(), BrokerFailure> {
    let cluster = Cluster::with_options(settings, OPTIONS).map_err(|error| failure(&error))?;
    let topics: Vec<NewTopic> = topics
        .into_iter()
        .map(|topic| NewTopic {
            name: topic.name,
            partitions: Some(topic.partitions),
            replication_factor: topic.replication_factor,
            configs: topic.config,
        })
        .collect();
    let outcomes = cluster.create_topics(&topics).await.map_err(|error| failure(&error))?;
    outcomes.into_values().try_for_each(|outcome| outcome.map(|_| ()).map_err(|error| failure(&error)))
}

async fn positions(settings: ConnectionSettings, group: &str) -> Result<Positions, RpcError> {
    let cluster = Cluster::with_options(settings, OPTIONS)?;
    let committed = cluster.committed_offsets(group, None, Pending::Wait).await?;
    Ok(Positions::of(committed.iter().map(|(at, offset)| (at.topic.as_str(), at.partition, *offset))))
}

async fn reach(
    settings: ConnectionSettings,
    ids: Vec<String>,
    cluster_id: Option<String>,
) -> Result<Reached, RpcError> {
    let cluster = Cluster::with_options(settings, OPTIONS)?;
    if let Some(meant) = cluster_id {
        let found = cluster.metadata(&[]).await?.cluster_id.unwrap_or_default();
        if found != meant {
            return Ok(Reached::Other(found));
        }
    }
    // Only for the record, and for the way to the coordinators: that ids are fenced does not depend on it.
    let before = cluster.describe_transactions(&ids).await;
    let before = before.into_iter().filter_map(|(id, found)| Some((id, found.ok().flatten()?))).collect();
    Ok(Reached::Meant(Box::new(Ready { cluster, ids, before })))
}

/// Brokers that have been reached.
struct Ready {
    cluster: Cluster,
    ids: Vec<String>,
    before: BTreeMap<String, TransactionDescription>,
}

impl Fencer for Ready {
    fn fence(mut self: Box<Self>, until: Instant) -> BoxFuture<'static, Fenced> {
        Box::pin(async move {
            let mut fenced = Fenced::default();
            let sent = self.cluster.init_producer_ids(&self.ids, UNTIL_THE_NEXT_OWNER);
            let Ok(answers) = tokio::time::timeout_at(until, sent).await else {
                let message = "the brokers took too long to fence".to_owned();
                fenced.failed = Some(BrokerFailure { reason: Reason::BrokerUnreachable, message });
                return fenced;
            };
            for (id, after) in answers {
                match after {
                    Ok(after) => {
                        let before = self.before.remove(&id);
                        let before = before.map(|before| producer(before.producer, Some(before.state.to_string())));
                        fenced.ids.push(FencedId { id, before, after: Some(producer(after, None)) });
                    }
                    Err(error) => fenced.failed = fenced.failed.or_else(|| Some(failure(&error))),
                }
            }
            fenced
        })
    }
}

fn producer(identity: ProducerIdentity, state: Option<String>) -> ProducerStatus {
    ProducerStatus { producer_id: identity.id, producer_epoch: identity.epoch.into(), state }
}

fn failure(error: &RpcError) -> BrokerFailure {
    BrokerFailure { reason: error.cause().reason(), message: error.report() }
}
