//! Positions and members of consumer groups.

use std::collections::BTreeMap;

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, GroupId, LeaveGroupRequest, OffsetFetchRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::consumer::StaticMember;
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

/// The epoch with which a static member says that it leaves for a while: what it had is kept for whoever comes under its name.
const LEAVES_FOR_A_WHILE: i32 = -2;

/// The member id of each static member of a group of the consumer protocol; `None`: there is no such group.
type StaticMembers = Option<BTreeMap<String, String>>;

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

    /// Takes static members out of a group: what they had goes to others at once, and not only after the session timeout. A member that
    /// lives notices at its next heartbeat, and may join again. Members that are not there are passed over, and those whose name another
    /// process has by now.
    ///
    /// Needs READ on the group.
    ///
    /// # Errors
    ///
    /// [`RpcError`], also when one member of several could not be removed.
    pub async fn remove_members(&self, group: &str, members: &[StaticMember]) -> Result<(), RpcError> {
        let group = [group.to_owned()];
        self.routed(&RemoveMembers { members }, &group).await.into_values().collect()
    }

    /// Releases the name of a static member of the consumer protocol (KIP-848) in its place: what it had is kept for the next process
    /// of that name, which would be refused otherwise. A member that lives is out of the group with this. Does nothing where nobody has
    /// the name.
    ///
    /// Needs READ on the group, and DESCRIBE on the topics that its members have subscribed to.
    ///
    /// # Errors
    ///
    /// [`RpcError`]; [`RpcError::UnsupportedVersion`] when the brokers do not have this protocol.
    pub async fn release_member(&self, group: &str, instance: &str) -> Result<(), RpcError> {
        let group = [group.to_owned()];
        let described = self.routed(&DescribeMembers, &group).await.into_values().next();
        let Some(mut members) = described.transpose()?.flatten() else { return Ok(()) };
        let Some(id) = members.remove(instance) else { return Ok(()) };
        let member = StaticMember { instance: instance.to_owned(), id: Some(id) };
        self.routed(&ReleaseMember { member: &member }, &group).await.into_values().collect()
    }

    /// Whether the brokers have the consumer protocol (KIP-848) for groups.
    ///
    /// Needs DESCRIBE on the group.
    ///
    /// # Errors
    ///
    /// [`RpcError`].
    pub async fn has_consumer_protocol(&self, group: &str) -> Result<bool, RpcError> {
        let group = [group.to_owned()];
        match self.routed(&DescribeMembers, &group).await.into_values().next().transpose() {
            Ok(_) => Ok(true),
            Err(RpcError::UnsupportedVersion { .. }) => Ok(false),
            Err(error) if error.code() == Some(BrokerCode::UNSUPPORTED_VERSION) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A call that the coordinators of groups answer.
pub(in crate::rpc) trait GroupCall: Sync {
    /// The request.
    type Request: Api;
    /// As [`Routed::READ_ONLY`].
    const IS_READ_ONLY: bool = false;
    /// The answer for one group.
    type Value: Send;

    /// Asks the coordinator of these groups.
    fn ask_coordinator(
        &self,
        connection: &Connection,
        groups: &[String],
        deadline: Instant,
    ) -> impl Future<Output = Answers<String, Self::Value>> + Send;
}

impl<C: GroupCall> Routed for C {
    const NAME: &'static str = C::Request::NAME;
    const READ_ONLY: bool = C::IS_READ_ONLY;
    type Key = String;
    type Value = C::Value;

    async fn route(&self, cluster: &Cluster, keys: &[String], deadline: Instant) -> Result<Routes<String>, RpcError> {
        cluster.coordinators(CoordinatorKind::Group, keys, deadline).await
    }

    fn misrouted(&self, cluster: &Cluster, keys: &[String]) {
        cluster.forget_coordinators(CoordinatorKind::Group, keys);
    }

    async fn ask(&self, connection: &Connection, keys: &[String], deadline: Instant) -> Answers<String, C::Value> {
        self.ask_coordinator(connection, keys, deadline).await
    }
}

/// What the coordinator said of members that were to leave: one that is gone, or whose name somebody else has by now, is passed over.
fn departed(call: &'static str, group: &str, codes: impl IntoIterator<Item = i16>) -> Result<(), RpcError> {
    let passed_over = [BrokerCode::UNKNOWN_MEMBER_ID, BrokerCode::FENCED_INSTANCE_ID, BrokerCode::GROUP_ID_NOT_FOUND];
    let refused = codes.into_iter().filter_map(BrokerCode::from_response).find(|code| !passed_over.contains(code));
    let subject = Subject::new(Operation::Read, Resource::Group(group.to_owned()));
    refused.map_or(Ok(()), |code| Err(RpcError::broker(call, code, subject, None)))
}

struct DescribeMembers;

impl GroupCall for DescribeMembers {
    type Request = ConsumerGroupDescribeRequest;
    const IS_READ_ONLY: bool = true;
    type Value = StaticMembers;

    async fn ask_coordinator(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, StaticMembers> {
        let groups = keys.iter().map(|group| GroupId(StrBytes::from_string(group.clone())));
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(groups.collect());
        let answer = connection.call(&request, deadline).await?;
        if answer.groups.is_empty() {
            return Err(unanswered(connection, Self::NAME));
        }
        let outcomes = answer.groups.into_iter().map(|group| {
            let subject = Subject::new(Operation::Describe, Resource::Group(group.group_id.to_string()));
            let outcome = match BrokerCode::from_response(group.error_code) {
                None => Ok(Some(
                    group
                        .members
                        .into_iter()
                        .filter_map(|member| Some((member.instance_id?.to_string(), member.member_id.to_string())))
                        .collect(),
                )),
                Some(BrokerCode::GROUP_ID_NOT_FOUND) => Ok(None),
                Some(code) => Err(RpcError::broker(Self::NAME, code, subject, None)),
            };
            (group.group_id.to_string(), outcome)
        });
        Ok(outcomes.collect())
    }
}

struct ReleaseMember<'a> {
    member: &'a StaticMember,
}

impl GroupCall for ReleaseMember<'_> {
    type Request = ConsumerGroupHeartbeatRequest;
    type Value = ();

    async fn ask_coordinator(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, ()> {
        let mut outcomes = Vec::with_capacity(keys.len());
        // The request has room for one group.
        for group in keys {
            let request = ConsumerGroupHeartbeatRequest::default()
                .with_group_id(GroupId(StrBytes::from_string(group.clone())))
                .with_member_id(StrBytes::from_string(self.member.id.clone().unwrap_or_default()))
                .with_member_epoch(LEAVES_FOR_A_WHILE)
                .with_instance_id(Some(StrBytes::from_string(self.member.instance.clone())));
            let answer = connection.call(&request, deadline).await?;
            let outcome = departed(Self::NAME, group, [answer.error_code]);
            outcomes.push((group.clone(), outcome));
        }
        Ok(outcomes)
    }
}

struct RemoveMembers<'a> {
    members: &'a [StaticMember],
}

impl GroupCall for RemoveMembers<'_> {
    type Request = LeaveGroupRequest;
    type Value = ();

    async fn ask_coordinator(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, ()> {
        let mut outcomes = Vec::with_capacity(keys.len());
        // The request has room for one group.
        for group in keys {
            let members = self.members.iter().map(|member| {
                MemberIdentity::default()
                    .with_group_instance_id(Some(StrBytes::from_string(member.instance.clone())))
                    .with_member_id(StrBytes::from_string(member.id.clone().unwrap_or_default()))
            });
            let request = LeaveGroupRequest::default()
                .with_group_id(GroupId(StrBytes::from_string(group.clone())))
                .with_members(members.collect());
            let answer = connection.call(&request, deadline).await?;
            let codes = std::iter::once(answer.error_code).chain(answer.members.iter().map(|member| member.error_code));
            let outcome = departed(Self::NAME, group, codes);
            outcomes.push((group.clone(), outcome));
        }
        Ok(outcomes)
    }
}

struct OffsetFetch<'a> {
    partitions: Option<&'a [TopicPartition]>,
    pending: Pending,
}

impl GroupCall for OffsetFetch<'_> {
    type Request = OffsetFetchRequest;
    const IS_READ_ONLY: bool = true;
    type Value = Offsets;

    async fn ask_coordinator(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, Offsets> {
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
