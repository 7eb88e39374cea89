//! Ends of partitions, and who writes to them.

use std::collections::BTreeMap;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    BrokerId as WireBroker, DescribeProducersRequest, ListOffsetsRequest, ProducerId, TopicName,
    WriteTxnMarkersRequest, describe_producers_request, describe_producers_response, write_txn_markers_request,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::cluster::{Answers, Cluster, Routed, Routes};
use crate::rpc::connection::{Connection, millis};
use crate::rpc::error::RpcError;
use crate::rpc::types::{
    ActiveProducer, Isolation, NoCoordinatorKnowsThisProducer, OffsetSpec, ProducerIdentity, TopicPartition,
};

impl Cluster {
    /// Offsets at an end of partitions. With [`Isolation::ReadCommitted`] the latest is the last stable offset (LSO), else
    /// the high watermark.
    ///
    /// Needs DESCRIBE on each topic.
    ///
    /// # Errors
    ///
    /// [`RpcError`] of the first partition whose leader did not answer.
    pub async fn list_offsets(
        &self,
        partitions: &[TopicPartition],
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> Result<BTreeMap<TopicPartition, i64>, RpcError> {
        self.routed(&ListOffsets { spec, isolation }, partitions)
            .await
            .into_iter()
            .map(|(key, v)| Ok((key, v?)))
            .collect()
    }

    /// Producers that the leaders of partitions remember.
    ///
    /// Needs READ on each topic.
    ///
    /// # Errors
    ///
    /// As [`Self::list_offsets`].
    pub async fn describe_producers(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Vec<ActiveProducer>>, RpcError> {
        self.routed(&DescribeProducers, partitions).await.into_iter().map(|(key, v)| Ok((key, v?))).collect()
    }

    /// Writes abort markers for a producer into partitions, past its coordinator. **Dangerous.**
    ///
    /// A coordinator that still has the transaction is not told: the owner's commit succeeds later although its records are
    /// gone. The only use is a transaction that no coordinator knows and that holds up the LSO of a partition; and even that
    /// first goes through [`Self::describe_producers`], whose coordinator epoch belongs here.
    ///
    /// Needs CLUSTER_ACTION on the cluster. A repeated marker does no further harm.
    ///
    /// # Errors
    ///
    /// [`RpcError`] of the first partition whose leader did not write the marker.
    pub async fn write_abort_markers(
        &self,
        _checked: NoCoordinatorKnowsThisProducer,
        producer: ProducerIdentity,
        coordinator_epoch: i32,
        partitions: &[TopicPartition],
    ) -> Result<(), RpcError> {
        let call = WriteAbortMarkers { producer, coordinator_epoch };
        self.routed(&call, partitions).await.into_values().collect()
    }
}

/// Partitions of each topic.
fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for key in partitions {
        topics.entry(&key.topic).or_default().push(key.partition);
    }
    topics
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn refused(
    call: &'static str,
    code: i16,
    operation: Operation,
    topic: &str,
    message: Option<&StrBytes>,
) -> Option<RpcError> {
    let code = BrokerCode::from_response(code)?;
    let subject = Subject::new(operation, Resource::Topic(topic.to_owned()));
    Some(RpcError::broker(call, code, subject, message.map(ToString::to_string)))
}

struct ListOffsets {
    spec: OffsetSpec,
    isolation: Isolation,
}

impl Routed for ListOffsets {
    const NAME: &'static str = ListOffsetsRequest::NAME;
    const READ_ONLY: bool = true;
    type Key = TopicPartition;
    type Value = i64;

    async fn route(
        &self,
        cluster: &Cluster,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Routes<TopicPartition>, RpcError> {
        cluster.leaders(Operation::Describe, keys, deadline).await
    }

    fn misrouted(&self, _: &Cluster, _: &[TopicPartition]) {}

    async fn ask(
        &self,
        connection: &Connection,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Answers<TopicPartition, i64> {
        let timestamp = match self.spec {
            OffsetSpec::Earliest => -2,
            OffsetSpec::Latest => -1,
        };
        let topics = by_topic(keys).into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|partition| {
                ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp)
            });
            ListOffsetsTopic::default().with_name(name(topic)).with_partitions(partitions.collect())
        });
        let request = ListOffsetsRequest::default()
            .with_replica_id(WireBroker(-1))
            .with_isolation_level(match self.isolation {
                Isolation::ReadUncommitted => 0,
                Isolation::ReadCommitted => 1,
            })
            .with_timeout_ms(millis(deadline.saturating_duration_since(Instant::now())))
            .with_topics(topics.collect());
        let answer = connection.call(&request, deadline).await?;
        let answers = answer.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |partition| {
                let error = refused(Self::NAME, partition.error_code, Operation::Describe, &name, None);
                let key = TopicPartition::new(name.clone(), partition.partition_index);
                (key, error.map_or(Ok(partition.offset), Err))
            })
        });
        Ok(answers.collect())
    }
}

struct DescribeProducers;

impl Routed for DescribeProducers {
    const NAME: &'static str = DescribeProducersRequest::NAME;
    const READ_ONLY: bool = true;
    type Key = TopicPartition;
    type Value = Vec<ActiveProducer>;

    async fn route(
        &self,
        cluster: &Cluster,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Routes<TopicPartition>, RpcError> {
        cluster.leaders(Operation::Read, keys, deadline).await
    }

    fn misrouted(&self, _: &Cluster, _: &[TopicPartition]) {}

    async fn ask(
        &self,
        connection: &Connection,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Answers<TopicPartition, Vec<ActiveProducer>> {
        let topics = by_topic(keys).into_iter().map(|(topic, partitions)| {
            describe_producers_request::TopicRequest::default()
                .with_name(name(topic))
                .with_partition_indexes(partitions)
        });
        let request = DescribeProducersRequest::default().with_topics(topics.collect());
        let answer = connection.call(&request, deadline).await?;
        let answers = answer.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |partition| {
                let message = partition.error_message.as_ref();
                let error = refused(Self::NAME, partition.error_code, Operation::Read, &name, message);
                let producers = || partition.active_producers.iter().map(active_producer).collect();
                let key = TopicPartition::new(name.clone(), partition.partition_index);
                (key, error.map_or_else(|| Ok(producers()), Err))
            })
        });
        Ok(answers.collect())
    }
}

fn active_producer(state: &describe_producers_response::ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer: ProducerIdentity {
            id: *state.producer_id,
            // 32 bits in this answer alone; the brokers keep 16.
            epoch: i16::try_from(state.producer_epoch).unwrap_or(-1),
        },
        last_sequence: state.last_sequence,
        last_timestamp_ms: state.last_timestamp,
        coordinator_epoch: state.coordinator_epoch,
        transaction_start_offset: Some(state.current_txn_start_offset).filter(|offset| *offset >= 0),
    }
}

struct WriteAbortMarkers {
    producer: ProducerIdentity,
    coordinator_epoch: i32,
}

impl Routed for WriteAbortMarkers {
    const NAME: &'static str = WriteTxnMarkersRequest::NAME;
    type Key = TopicPartition;
    type Value = ();

    async fn route(
        &self,
        cluster: &Cluster,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Routes<TopicPartition>, RpcError> {
        cluster.leaders(Operation::Describe, keys, deadline).await
    }

    fn misrouted(&self, _: &Cluster, _: &[TopicPartition]) {}

    async fn ask(
        &self,
        connection: &Connection,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Answers<TopicPartition, ()> {
        let topics = by_topic(keys).into_iter().map(|(topic, partitions)| {
            write_txn_markers_request::WritableTxnMarkerTopic::default()
                .with_name(name(topic))
                .with_partition_indexes(partitions)
        });
        let marker = write_txn_markers_request::WritableTxnMarker::default()
            .with_producer_id(ProducerId(self.producer.id))
            .with_producer_epoch(self.producer.epoch)
            .with_transaction_result(false)
            .with_coordinator_epoch(self.coordinator_epoch)
            .with_topics(topics.collect());
        let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
        let answer = connection.call(&request, deadline).await?;
        let answers = answer.markers.into_iter().flat_map(|marker| marker.topics).flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |partition| {
                let error = refused(Self::NAME, partition.error_code, Operation::ClusterAction, &name, None);
                (TopicPartition::new(name.clone(), partition.partition_index), error.map_or(Ok(()), Err))
            })
        });
        Ok(answers.collect())
    }
}
