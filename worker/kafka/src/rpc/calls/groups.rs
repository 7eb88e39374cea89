//! Positions of consumer groups.

use std::collections::BTreeMap;

use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::cluster::{Answers, Cluster, CoordinatorKind, Routed, Routes, unanswered};
use crate::rpc::connection::Connection;
use crate::rpc::error::RpcError;
use crate::rpc::types::TopicPartition;

/// What to do about offsets of transactions that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Wait for the transactions to end, as far as the call's time goes, then fail. This is what a restart needs.
    Wait,
    /// Answer with the offset that was committed before.
    Ignore,
}

/// Offsets of one group.
type Offsets = BTreeMap<TopicPartition, i64>;

impl Cluster {
    /// The committed offsets of a group: of these partitions, or (`None`) of all it ever committed. Partitions without one
    /// are left out.
    ///
    /// Needs DESCRIBE on the group and on each topic.
    ///
    /// # Errors
    ///
    /// [`RpcError`], also when one partition of several failed.
    pub async fn committed_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        pending: Pending,
    ) -> Result<Offsets, RpcError> {
        let group = [group.to_owned()];
        let mut outcomes = self.routed(&OffsetFetch { partitions, pending }, &group).await;
        outcomes.pop_first().map_or_else(|| Ok(Offsets::new()), |(_, outcome)| outcome)
    }
}

struct OffsetFetch<'a> {
    partitions: Option<&'a [TopicPartition]>,
    pending: Pending,
}

impl Routed for OffsetFetch<'_> {
    const NAME: &'static str = OffsetFetchRequest::NAME;
    type Key = String;
    type Value = Offsets;

    async fn route(&self, cluster: &Cluster, keys: &[String], deadline: Instant) -> Result<Routes<String>, RpcError> {
        cluster.coordinators(CoordinatorKind::Group, keys, deadline).await
    }

    fn misrouted(&self, cluster: &Cluster, keys: &[String]) {
        cluster.forget_coordinators(CoordinatorKind::Group, keys);
    }

    async fn ask(&self, connection: &Connection, keys: &[String], deadline: Instant) -> Answers<String, Offsets> {
        let groups = keys.iter().map(|group| {
            OffsetFetchRequestGroup::default()
                .with_group_id(GroupId(StrBytes::from_string(group.clone())))
                .with_member_epoch(-1)
                .with_topics(self.partitions.map(topics))
        });
        let request = OffsetFetchRequest::default()
            .with_groups(groups.collect())
            .with_require_stable(self.pending == Pending::Wait);
        let answer = connection.call(&request, deadline).await?;
        if answer.groups.is_empty() {
            return Err(unanswered(connection, Self::NAME));
        }
        Ok(answer.groups.into_iter().map(|group| (group.group_id.to_string(), offsets(group))).collect())
    }
}

fn topics(partitions: &[TopicPartition]) -> Vec<OffsetFetchRequestTopics> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for key in partitions {
        topics.entry(&key.topic).or_default().push(key.partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetFetchRequestTopics::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partition_indexes(partitions)
    });
    topics.collect()
}

fn offsets(group: OffsetFetchResponseGroup) -> Result<Offsets, RpcError> {
    let refused = |code: i16, resource: Resource| {
        let subject = Subject::new(Operation::Describe, resource);
        BrokerCode::from_response(code).map(|code| RpcError::broker(OffsetFetchRequest::NAME, code, subject, None))
    };
    if let Some(error) = refused(group.error_code, Resource::Group(group.group_id.to_string())) {
        return Err(error);
    }
    let mut offsets = Offsets::new();
    for topic in group.topics {
        for partition in topic.partitions {
            if let Some(error) = refused(partition.error_code, Resource::Topic(topic.name.to_string())) {
                return Err(error);
            }
            if partition.committed_offset >= 0 {
                let key = TopicPartition::new(topic.name.to_string(), partition.partition_index);
                offsets.insert(key, partition.committed_offset);
            }
        }
    }
    Ok(offsets)
}
