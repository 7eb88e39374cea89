//! What there is: brokers, topics, and the configuration of both.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use kafka_protocol::messages::{
    BrokerId as WireBroker, DescribeConfigsRequest, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::cluster::{Cluster, unanswered};
use crate::rpc::error::RpcError;
use crate::rpc::types::{BrokerId, BrokerLimit, BrokerLimits, Metadata, PartitionMetadata, TopicMetadata};
use crate::settings::HostPort;

/// `BROKER` of Kafka's ConfigResource.Type.
const RESOURCE_BROKER: i8 = 4;
/// `TOPIC` of the same.
const RESOURCE_TOPIC: i8 = 2;

const TRANSACTION_MAX_TIMEOUT: &str = "transaction.max.timeout.ms";
const TRANSACTIONAL_ID_EXPIRATION: &str = "transactional.id.expiration.ms";
const MESSAGE_MAX_BYTES: &str = "message.max.bytes";

impl Cluster {
    /// The cluster, and the topics of these names. Topics that do not exist are not created; they carry their error.
    ///
    /// Needs DESCRIBE on each topic.
    ///
    /// # Errors
    ///
    /// [`RpcError`] when no broker answers. Errors of topics are in the result.
    pub async fn metadata(&self, topics: &[&str]) -> Result<Metadata, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.metadata_once(topics, retry.attempt()).await {
                Ok(metadata) => return Ok(metadata),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    pub(in crate::rpc) async fn metadata_once(&self, topics: &[&str], deadline: Instant) -> Result<Metadata, RpcError> {
        let names = topics.iter().map(|name| {
            let name = TopicName(StrBytes::from_string((*name).to_owned()));
            MetadataRequestTopic::default().with_name(Some(name))
        });
        // No list at all would mean all topics; an empty list means none.
        let request =
            MetadataRequest::default().with_topics(Some(names.collect())).with_allow_auto_topic_creation(false);
        let answer = self.any(deadline).await?.call(&request, deadline).await?;
        let metadata = metadata(answer)?;
        self.learn(&metadata);
        Ok(metadata)
    }

    /// The values of these keys of the configuration of **every** broker. A key that a broker does not know is left out.
    ///
    /// Needs DESCRIBE_CONFIGS on the cluster.
    ///
    /// # Errors
    ///
    /// [`RpcError`] when one of the brokers does not answer: limits of some brokers prove nothing.
    pub async fn describe_broker_configs(
        &self,
        keys: &[&str],
    ) -> Result<BTreeMap<BrokerId, BTreeMap<String, String>>, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.broker_configs_once(keys, retry.attempt()).await {
                Ok(configs) => return Ok(configs),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn broker_configs_once(
        &self,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<BrokerId, BTreeMap<String, String>>, RpcError> {
        let metadata = self.metadata_once(&[], deadline).await?;
        let asked = metadata.brokers.keys().map(async |id| {
            let configs = self.configs_of(*id, keys, deadline).await?;
            Ok::<_, RpcError>((*id, configs))
        });
        Ok(try_join_all(asked).await?.into_iter().collect())
    }

    /// A broker's own configuration is answered by that broker only.
    async fn configs_of(
        &self,
        broker: BrokerId,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, RpcError> {
        let keys = keys.iter().map(|key| StrBytes::from_string((*key).to_owned())).collect();
        let resource = DescribeConfigsResource::default()
            .with_resource_type(RESOURCE_BROKER)
            .with_resource_name(StrBytes::from_string(broker.to_string()))
            .with_configuration_keys(Some(keys));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let connection = self.broker(broker, deadline).await?;
        let answer = connection.call(&request, deadline).await?;
        let result =
            answer.results.into_iter().next().ok_or_else(|| unanswered(&connection, DescribeConfigsRequest::NAME))?;
        if let Some(code) = BrokerCode::from_response(result.error_code) {
            let subject = Subject::new(Operation::DescribeConfigs, Resource::Cluster);
            let message = result.error_message.map(|text| text.to_string());
            return Err(RpcError::broker(DescribeConfigsRequest::NAME, code, subject, message));
        }
        Ok(pairs(result.configs))
    }

    /// The values of these keys of the configuration of topics, with the defaults where a topic has none of its own. A topic that may
    /// not be asked about, or does not exist, has its error.
    ///
    /// Needs DESCRIBE_CONFIGS on each topic.
    ///
    /// # Errors
    ///
    /// [`RpcError`] when no broker answers.
    pub async fn describe_topic_configs(
        &self,
        topics: &[&str],
        keys: &[&str],
    ) -> Result<BTreeMap<String, Result<BTreeMap<String, String>, RpcError>>, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.topic_configs_once(topics, keys, retry.attempt()).await {
                Ok(configs) => return Ok(configs),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn topic_configs_once(
        &self,
        topics: &[&str],
        keys: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Result<BTreeMap<String, String>, RpcError>>, RpcError> {
        let text = |text: &&str| StrBytes::from_string((*text).to_owned());
        let resources = topics.iter().map(|topic| {
            DescribeConfigsResource::default()
                .with_resource_type(RESOURCE_TOPIC)
                .with_resource_name(text(topic))
                .with_configuration_keys(Some(keys.iter().map(text).collect()))
        });
        let request = DescribeConfigsRequest::default().with_resources(resources.collect());
        let connection = self.any(deadline).await?;
        let answer = connection.call(&request, deadline).await?;
        let results = answer.results.into_iter().map(|result| {
            let topic = result.resource_name.to_string();
            let outcome = match BrokerCode::from_response(result.error_code) {
                None => Ok(pairs(result.configs)),
                Some(code) => {
                    let subject = Subject::new(Operation::DescribeConfigs, Resource::Topic(topic.clone()));
                    let message = result.error_message.map(|text| text.to_string());
                    Err(RpcError::broker(DescribeConfigsRequest::NAME, code, subject, message))
                }
            };
            (topic, outcome)
        });
        Ok(results.collect())
    }

    /// The limits that decide about transactions, of every broker.
    ///
    /// # Errors
    ///
    /// As [`Self::describe_broker_configs`].
    pub async fn broker_limits(&self) -> Result<BrokerLimits, RpcError> {
        let keys = [TRANSACTION_MAX_TIMEOUT, TRANSACTIONAL_ID_EXPIRATION, MESSAGE_MAX_BYTES];
        let configs = self.describe_broker_configs(&keys).await?;
        let limits = configs.into_iter().map(|(id, values)| {
            let number = |key: &str| values.get(key).and_then(|value| value.parse().ok());
            let limit = BrokerLimit {
                transaction_max_timeout_ms: number(TRANSACTION_MAX_TIMEOUT),
                transactional_id_expiration_ms: number(TRANSACTIONAL_ID_EXPIRATION),
                message_max_bytes: number(MESSAGE_MAX_BYTES),
            };
            (id, limit)
        });
        Ok(BrokerLimits { brokers: limits.collect() })
    }
}

fn pairs(configs: Vec<DescribeConfigsResourceResult>) -> BTreeMap<String, String> {
    let pairs = configs.into_iter().filter_map(|entry| Some((entry.name.to_string(), entry.value?.to_string())));
    pairs.collect()
}

fn metadata(answer: MetadataResponse) -> Result<Metadata, RpcError> {
    if let Some(code) = BrokerCode::from_response(answer.error_code) {
        let subject = Subject::new(Operation::Describe, Resource::Cluster);
        return Err(RpcError::broker(MetadataRequest::NAME, code, subject, None));
    }
    let brokers = answer.brokers.into_iter().filter_map(|broker| {
        let port = u16::try_from(broker.port).ok().filter(|port| *port != 0)?;
        Some((BrokerId(*broker.node_id), HostPort { host: broker.host.to_string(), port }))
    });
    let topics = answer.topics.into_iter().filter_map(|topic| {
        let name = topic.name.as_ref()?.to_string();
        Some((name, topic_metadata(topic)))
    });
    Ok(Metadata {
        cluster_id: answer.cluster_id.map(|id| id.to_string()),
        controller: present(answer.controller_id),
        brokers: brokers.collect(),
        topics: topics.collect(),
    })
}

fn topic_metadata(topic: MetadataResponseTopic) -> TopicMetadata {
    let partitions =
        topic.partitions.into_iter().map(|partition| (partition.partition_index, partition_metadata(&partition)));
    TopicMetadata { error: BrokerCode::from_response(topic.error_code), partitions: partitions.collect() }
}

fn partition_metadata(partition: &MetadataResponsePartition) -> PartitionMetadata {
    let ids = |wire: &[WireBroker]| wire.iter().map(|id| BrokerId(**id)).collect();
    PartitionMetadata {
        error: BrokerCode::from_response(partition.error_code),
        leader: present(partition.leader_id),
        replicas: ids(&partition.replica_nodes),
        in_sync: ids(&partition.isr_nodes),
    }
}

/// Brokers are numbered from 0; -1 means none.
fn present(id: WireBroker) -> Option<BrokerId> {
    Some(BrokerId(*id)).filter(|id| id.0 >= 0)
}
