use std::{collections::BTreeMap, time::Duration};

use fencepost_crds::v1alpha1::{FencedId, ProducerStatus};
use fencepost_kafka::{
    rpc::{ClientOptions, Cluster, NewTopic, ProducerIdentity, RpcError, TopicMetadata},
    settings::ConnectionSettings,
};
use fencepost_plan::{BrokerFacts, BrokerFailure, BrokerLimits, TopicFacts, validate::TopicToCreate};
use futures::future::BoxFuture;

use super::{BrokerProbe, FenceAnswer, FenceQuestion, Fenced, Limits, Question};

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

    fn fence(&self, question: FenceQuestion) -> BoxFuture<'_, Result<FenceAnswer, BrokerFailure>> {
        Box::pin(fence(question))
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
    Ok(BrokerFacts { cluster_id: metadata.cluster_id, limits, topics })
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

async fn fence(question: FenceQuestion) -> Result<FenceAnswer, BrokerFailure> {
    let cluster = Cluster::with_options(question.settings.clone(), OPTIONS).map_err(|error| failure(&error))?;
    let ids = &question.ids;
    if let Some(meant) = &question.cluster_id {
        let metadata = cluster.metadata(&[]).await.map_err(|error| failure(&error))?;
        let found = metadata.cluster_id.unwrap_or_default();
        if found != *meant {
            return Ok(FenceAnswer::Elsewhere(found));
        }
    }
    let mut before = cluster.describe_transactions(ids).await;
    question.is_still_asked()?;
    let mut fenced = Fenced::default();
    for (id, after) in cluster.init_producer_ids(ids, UNTIL_THE_NEXT_OWNER).await {
        match after {
            Ok(after) => {
                // Only for the record: that it is fenced does not depend on it.
                let before = before.remove(&id).and_then(Result::ok).flatten();
                let before = before.map(|before| producer(before.producer, Some(before.state.to_string())));
                fenced.ids.push(FencedId { id, before, after: Some(producer(after, None)) });
            }
            Err(error) => fenced.failed = fenced.failed.or_else(|| Some(failure(&error))),
        }
    }
    Ok(FenceAnswer::Fenced(fenced))
}

fn producer(identity: ProducerIdentity, state: Option<String>) -> ProducerStatus {
    ProducerStatus { producer_id: identity.id, producer_epoch: identity.epoch.into(), state }
}

fn failure(error: &RpcError) -> BrokerFailure {
    BrokerFailure { reason: error.cause().reason(), message: error.report() }
}
