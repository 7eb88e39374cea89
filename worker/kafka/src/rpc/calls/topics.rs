//! Topics: made, and removed again by tests. Permissions for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{CreateAclsRequest, CreateTopicsRequest, DeleteTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::cluster::{Cluster, unanswered};
use crate::rpc::connection::{Connection, millis};
use crate::rpc::error::RpcError;
use crate::rpc::types::{NewTopic, TopicCreation};

/// Result per topic.
type PerTopic<T> = BTreeMap<String, Result<T, RpcError>>;

impl Cluster {
    /// Creates topics. One that exists is left as it is.
    ///
    /// Needs CREATE on the cluster or on each topic. A new topic may take some milliseconds to be known to all brokers.
    ///
    /// # Errors
    ///
    /// [`RpcError`] when no broker answers. Errors of topics are in the result, which has an entry for each topic.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<PerTopic<TopicCreation>, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.create_once(topics, retry.attempt()).await {
                Ok(outcomes) => match passing(&outcomes) {
                    // What was created stays created: the next round finds it.
                    Some(error) => match retry.pause(error).await {
                        Ok(()) => {}
                        Err(_) => return Ok(outcomes),
                    },
                    None => return Ok(outcomes),
                },
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn create_once(&self, topics: &[NewTopic], deadline: Instant) -> Result<PerTopic<TopicCreation>, RpcError> {
        let wanted = topics.iter().map(|topic| {
            let configs = topic.configs.iter().map(|(key, value)| {
                CreatableTopicConfig::default()
                    .with_name(StrBytes::from_string(key.clone()))
                    .with_value(Some(StrBytes::from_string(value.clone())))
            });
            CreatableTopic::default()
                .with_name(name(&topic.name))
                .with_num_partitions(topic.partitions.unwrap_or(-1))
                .with_replication_factor(topic.replication_factor.unwrap_or(-1))
                .with_configs(configs.collect())
        });
        let request = CreateTopicsRequest::default()
            .with_topics(wanted.collect())
            .with_timeout_ms(millis(deadline.saturating_duration_since(Instant::now())));
        let connection = self.controller(deadline).await?;
        let answer = connection.call(&request, deadline).await?;
        let mut outcomes =
            all_unanswered(topics.iter().map(|topic| &topic.name), &connection, CreateTopicsRequest::NAME);
        for topic in answer.topics {
            let outcome = match BrokerCode::from_response(topic.error_code) {
                None => Ok(TopicCreation::Created),
                Some(BrokerCode::TOPIC_ALREADY_EXISTS) => Ok(TopicCreation::Existed),
                Some(code) => {
                    let subject = Subject::new(Operation::Create, Resource::Topic(topic.name.to_string()));
                    let message = topic.error_message.map(|text| text.to_string());
                    Err(RpcError::broker(CreateTopicsRequest::NAME, code, subject, message))
                }
            };
            outcomes.insert(topic.name.to_string(), outcome);
        }
        Ok(outcomes)
    }

    /// Deletes topics with all their data. One that does not exist counts as deleted.
    ///
    /// # Errors
    ///
    /// As [`Self::create_topics`].
    pub async fn delete_topics(&self, topics: &[&str]) -> Result<PerTopic<()>, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.delete_once(topics, retry.attempt()).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn delete_once(&self, topics: &[&str], deadline: Instant) -> Result<PerTopic<()>, RpcError> {
        let wanted = topics.iter().map(|topic| DeleteTopicState::default().with_name(Some(name(topic))));
        let request = DeleteTopicsRequest::default()
            .with_topics(wanted.collect())
            .with_timeout_ms(millis(deadline.saturating_duration_since(Instant::now())));
        let connection = self.controller(deadline).await?;
        let answer = connection.call(&request, deadline).await?;
        let mut outcomes = all_unanswered(topics, &connection, DeleteTopicsRequest::NAME);
        for topic in answer.responses {
            let Some(name) = topic.name else { continue };
            let outcome = match BrokerCode::from_response(topic.error_code) {
                None | Some(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION) => Ok(()),
                Some(code) => {
                    let subject = Subject::new(Operation::Delete, Resource::Topic(name.to_string()));
                    let message = topic.error_message.map(|text| text.to_string());
                    Err(RpcError::broker(DeleteTopicsRequest::NAME, code, subject, message))
                }
            };
            outcomes.insert(name.to_string(), outcome);
        }
        Ok(outcomes)
    }

    /// Allows a principal (`User:name`) operations on resources, from every host.
    ///
    /// Needs ALTER on the cluster.
    ///
    /// # Errors
    ///
    /// [`RpcError`] of the first permission that could not be given.
    pub async fn create_acls(&self, principal: &str, subjects: &[Subject]) -> Result<(), RpcError> {
        let creations = subjects.iter().map(|subject| acl(principal, subject)).collect();
        let request = CreateAclsRequest::default().with_creations(creations);
        let mut retry = self.retry();
        loop {
            let deadline = retry.attempt();
            let answer = match self.controller(deadline).await {
                Ok(connection) => connection.call(&request, deadline).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => {
                    let failed = answer
                        .results
                        .into_iter()
                        .find_map(|result| Some((BrokerCode::from_response(result.error_code)?, result.error_message)));
                    let Some((code, message)) = failed else { return Ok(()) };
                    let subject = Subject::new(Operation::Alter, Resource::Cluster);
                    let message = message.map(|text| text.to_string());
                    retry.pause(RpcError::broker(CreateAclsRequest::NAME, code, subject, message)).await?;
                }
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    /// The broker to send administrative requests to.
    async fn controller(&self, deadline: Instant) -> Result<Arc<Connection>, RpcError> {
        match self.metadata_once(&[], deadline).await?.controller {
            Some(id) => self.broker(id, deadline).await,
            // Under KRaft every broker passes them on.
            None => self.any(deadline).await,
        }
    }
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn all_unanswered<T>(
    topics: impl IntoIterator<Item = impl ToString>,
    connection: &Connection,
    call: &'static str,
) -> PerTopic<T> {
    topics.into_iter().map(|topic| (topic.to_string(), Err(unanswered(connection, call)))).collect()
}

fn passing<T>(outcomes: &PerTopic<T>) -> Option<RpcError> {
    outcomes.values().find_map(|outcome| outcome.as_ref().err().filter(|error| error.passes()).cloned())
}

/// Numbers of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType.
fn acl(principal: &str, subject: &Subject) -> AclCreation {
    let (resource_type, resource_name) = match &subject.resource {
        Resource::Topic(name) => (2, name.as_str()),
        Resource::Group(name) => (3, name.as_str()),
        Resource::Cluster => (4, "kafka-cluster"),
        Resource::TransactionalId(name) => (5, name.as_str()),
    };
    let operation = match subject.operation {
        Operation::Read => 3,
        Operation::Write => 4,
        Operation::Create => 5,
        Operation::Delete => 6,
        Operation::Alter => 7,
        Operation::Describe => 8,
        Operation::ClusterAction => 9,
        Operation::DescribeConfigs => 10,
        Operation::IdempotentWrite => 12,
    };
    const LITERAL: i8 = 3;
    const ALLOW: i8 = 3;
    AclCreation::default()
        .with_resource_type(resource_type)
        .with_resource_name(StrBytes::from_string(resource_name.to_owned()))
        .with_resource_pattern_type(LITERAL)
        .with_principal(StrBytes::from_string(principal.to_owned()))
        .with_host(StrBytes::from_static_str("*"))
        .with_operation(operation)
        .with_permission_type(ALLOW)
}
