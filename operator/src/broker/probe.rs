use std::{collections::BTreeMap, time::Duration};

use fencepost_kafka::{
    rpc::{ClientOptions, Cluster, NewTopic, RpcError, TopicMetadata},
    settings::ConnectionSettings,
};
use fencepost_plan::{BrokerFacts, BrokerFailure, BrokerLimits, TopicFacts, validate::TopicToCreate};
use futures::future::BoxFuture;

use super::{BrokerProbe, Limits, Question};

/// Short: the job's other business waits meanwhile, and a check that fails is repeated anyway.
const OPTIONS: ClientOptions = ClientOptions {
    connect_timeout: Duration::from_secs(3),
    request_timeout: Duration::from_secs(5),
    call_timeout: Duration::from_secs(8),
};

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

fn failure(error: &RpcError) -> BrokerFailure {
    BrokerFailure { reason: error.cause().reason(), message: error.report() }
}
