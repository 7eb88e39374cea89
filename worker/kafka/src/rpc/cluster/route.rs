//! Calls about many things, each of which has its own broker: ids and groups their coordinator, partitions their leader.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use futures::future::join_all;
use kafka_protocol::messages::FindCoordinatorRequest;
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::connection::Connection;
use crate::rpc::error::RpcError;
use crate::rpc::types::{BrokerId, TopicPartition};
use crate::settings::HostPort;

use super::Cluster;

/// Most keys in one FindCoordinator or one round of pipelined requests.
const CHUNK: usize = 500;

/// What a coordinator coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::rpc) enum CoordinatorKind {
    Group,
    Transaction,
}

impl CoordinatorKind {
    pub(in crate::rpc) fn subject(self, operation: Operation, key: &str) -> Subject {
        let resource = match self {
            Self::Group => Resource::Group(key.to_owned()),
            Self::Transaction => Resource::TransactionalId(key.to_owned()),
        };
        Subject::new(operation, resource)
    }
}

/// Result per key.
pub(in crate::rpc) type Outcomes<K, V> = BTreeMap<K, Result<V, RpcError>>;
/// What one broker answered.
pub(in crate::rpc) type Answers<K, V> = Result<Vec<(K, Result<V, RpcError>)>, RpcError>;
/// The broker of each key.
pub(in crate::rpc) type Routes<K> = Outcomes<K, BrokerId>;

/// A call whose keys live on different brokers.
pub(in crate::rpc) trait Routed: Sync {
    /// Name of the request.
    const NAME: &'static str;
    /// It changes nothing, so an attempt of which nothing was heard leaves nothing open.
    const READ_ONLY: bool = false;
    /// What it is about.
    type Key: Ord + Clone + Send + Sync;
    /// The answer for one key.
    type Value: Send;

    /// Finds the brokers.
    fn route(
        &self,
        cluster: &Cluster,
        keys: &[Self::Key],
        deadline: Instant,
    ) -> impl Future<Output = Result<Routes<Self::Key>, RpcError>> + Send;

    /// What was believed about these keys is wrong.
    fn misrouted(&self, cluster: &Cluster, keys: &[Self::Key]);

    /// Asks one broker.
    fn ask(
        &self,
        connection: &Connection,
        keys: &[Self::Key],
        deadline: Instant,
    ) -> impl Future<Output = Answers<Self::Key, Self::Value>> + Send;

    /// Whether a key is asked again after this error.
    fn again(&self, error: &RpcError) -> bool {
        error.passes()
    }
}

/// The broker left out something it was asked for.
pub(in crate::rpc) fn unanswered(connection: &Connection, call: &'static str) -> RpcError {
    let problem = "it leaves out what was asked for".to_owned();
    RpcError::BadAnswer { peer: connection.peer().clone(), call, problem }
}

impl Cluster {
    /// Makes the call for all keys, brokers in parallel, until every key has an answer or an error that stays.
    pub(in crate::rpc) async fn routed<C: Routed>(&self, call: &C, keys: &[C::Key]) -> Outcomes<C::Key, C::Value> {
        let mut retry = self.retry();
        let mut outcomes = Outcomes::new();
        let mut open: BTreeSet<C::Key> = keys.iter().cloned().collect();
        loop {
            let round = self.round(call, &open, retry.attempt()).await;
            let mut failed = None;
            let mut misrouted = Vec::new();
            for (key, outcome) in round {
                match outcome {
                    Err(error) if call.again(&error) => {
                        misrouted.push(key.clone());
                        failed = Some(error.clone());
                        // What a broker said before tells more than that time was up in the middle of the last attempt.
                        let is_told = matches!(outcomes.get(&key), Some(Err(before)) if before.code().is_some());
                        if !(C::READ_ONLY && is_told && retry.is_over()) {
                            outcomes.insert(key, Err(error));
                        }
                    }
                    settled => {
                        open.remove(&key);
                        outcomes.insert(key, settled);
                    }
                }
            }
            let Some(error) = failed.filter(|_| !open.is_empty()) else { return outcomes };
            call.misrouted(self, &misrouted);
            if retry.pause(error).await.is_err() {
                return outcomes;
            }
        }
    }

    /// One attempt for all keys: every key is in the result.
    async fn round<C: Routed>(
        &self,
        call: &C,
        keys: &BTreeSet<C::Key>,
        deadline: Instant,
    ) -> Outcomes<C::Key, C::Value> {
        let all: Vec<C::Key> = keys.iter().cloned().collect();
        let mut outcomes = Outcomes::new();
        let routes = match call.route(self, &all, deadline).await {
            Ok(routes) => routes,
            Err(error) => return all.into_iter().map(|key| (key, Err(error.clone()))).collect(),
        };
        let mut by_broker: BTreeMap<BrokerId, Vec<C::Key>> = BTreeMap::new();
        for (key, route) in routes {
            match route {
                Ok(broker) => by_broker.entry(broker).or_default().push(key),
                Err(error) => drop(outcomes.insert(key, Err(error))),
            }
        }
        let asked = by_broker.iter().map(async |(broker, keys)| {
            let mut answers = Vec::with_capacity(keys.len());
            for chunk in keys.chunks(CHUNK) {
                answers.extend(self.ask_broker(call, *broker, chunk, deadline).await);
            }
            answers
        });
        outcomes.extend(join_all(asked).await.into_iter().flatten());
        outcomes
    }

    /// One request, or one volley of them, to one broker: every key is in the result.
    async fn ask_broker<C: Routed>(
        &self,
        call: &C,
        broker: BrokerId,
        keys: &[C::Key],
        deadline: Instant,
    ) -> Outcomes<C::Key, C::Value> {
        let answers = match self.broker(broker, deadline).await {
            Ok(connection) => call.ask(&connection, keys, deadline).await.map(|answers| (answers, connection)),
            Err(error) => Err(error),
        };
        match answers {
            Ok((answers, connection)) => {
                let mut outcomes: Outcomes<_, _> = answers.into_iter().collect();
                for key in keys {
                    if !outcomes.contains_key(key) {
                        outcomes.insert(key.clone(), Err(unanswered(&connection, C::NAME)));
                    }
                }
                outcomes
            }
            Err(error) => keys.iter().map(|key| (key.clone(), Err(error.clone()))).collect(),
        }
    }

    /// The coordinators of ids or groups: from memory, the rest asked for.
    pub(in crate::rpc) async fn coordinators(
        &self,
        kind: CoordinatorKind,
        keys: &[String],
        deadline: Instant,
    ) -> Result<Routes<String>, RpcError> {
        let mut routes = Routes::new();
        let mut missing = Vec::new();
        {
            let known = self.known();
            for key in keys {
                match known.coordinators.get(&(kind, key.clone())) {
                    Some(broker) => drop(routes.insert(key.clone(), Ok(*broker))),
                    None => missing.push(key.clone()),
                }
            }
        }
        for chunk in missing.chunks(CHUNK) {
            routes.extend(self.find_coordinators(kind, chunk, deadline).await?);
        }
        Ok(routes)
    }

    async fn find_coordinators(
        &self,
        kind: CoordinatorKind,
        keys: &[String],
        deadline: Instant,
    ) -> Result<Routes<String>, RpcError> {
        let request = FindCoordinatorRequest::default()
            .with_key_type(match kind {
                CoordinatorKind::Group => 0,
                CoordinatorKind::Transaction => 1,
            })
            .with_coordinator_keys(keys.iter().cloned().map(StrBytes::from_string).collect());
        let connection = self.any(deadline).await?;
        let answer = connection.call(&request, deadline).await?;
        let unanswered = || Err(unanswered(&connection, FindCoordinatorRequest::NAME));
        let mut routes: Routes<String> = keys.iter().map(|key| (key.clone(), unanswered())).collect();
        let mut known = self.known();
        for found in answer.coordinators {
            let key = found.key.to_string();
            let route = match BrokerCode::from_response(found.error_code) {
                None => {
                    let broker = BrokerId(*found.node_id);
                    known.coordinators.insert((kind, key.clone()), broker);
                    if let Some(port) = u16::try_from(found.port).ok().filter(|port| *port != 0) {
                        known.brokers.insert(broker, HostPort { host: found.host.to_string(), port });
                    }
                    Ok(broker)
                }
                Some(code) => {
                    let subject = kind.subject(Operation::Describe, &key);
                    let message = found.error_message.map(|text| text.to_string());
                    Err(RpcError::broker(FindCoordinatorRequest::NAME, code, subject, message))
                }
            };
            routes.insert(key, route);
        }
        Ok(routes)
    }

    pub(in crate::rpc) fn forget_coordinators(&self, kind: CoordinatorKind, keys: &[String]) {
        let mut known = self.known();
        for key in keys {
            known.coordinators.remove(&(kind, key.clone()));
        }
    }

    /// The leaders of partitions, asked for anew each time: these calls are rare, and a wrong leader costs a round trip.
    pub(in crate::rpc) async fn leaders(
        &self,
        operation: Operation,
        partitions: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Routes<TopicPartition>, RpcError> {
        let topics: BTreeSet<&str> = partitions.iter().map(|partition| partition.topic.as_str()).collect();
        let topics: Vec<&str> = topics.into_iter().collect();
        let metadata = self.metadata_once(&topics, deadline).await?;
        let lead = |key: &TopicPartition| {
            let topic = metadata.topics.get(&key.topic);
            let partition = topic.and_then(|topic| topic.partitions.get(&key.partition));
            let code = match (topic.and_then(|topic| topic.error), partition) {
                (Some(code), _) => code,
                (None, Some(partition)) => match partition.leader {
                    Some(leader) => return Ok(leader),
                    None => partition.error.unwrap_or(BrokerCode::LEADER_NOT_AVAILABLE),
                },
                (None, None) => BrokerCode::UNKNOWN_TOPIC_OR_PARTITION,
            };
            let subject = Subject::new(operation, Resource::Topic(key.topic.clone()));
            Err(RpcError::broker("Metadata", code, subject, None))
        };
        Ok(partitions.iter().map(|key| (key.clone(), lead(key))).collect())
    }
}
