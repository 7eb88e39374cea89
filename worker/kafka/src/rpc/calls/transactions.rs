//! Transactions: found, described, fenced, committed.
//!
//! There is no abort by EndTxn here. On an id whose data is committed a v5 abort answers "success" and leaves the
//! coordinator saying "aborted": after that nobody can tell what happened. Ids are ended by
//! [`Cluster::init_producer_ids`].

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use kafka_protocol::messages::describe_transactions_response::TransactionState as WireState;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, EndTxnRequest, InitProducerIdRequest, ListTransactionsRequest, ProducerId,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::error::{BrokerCode, Operation, Resource, Subject};
use crate::rpc::api::Api;
use crate::rpc::cluster::{Answers, Cluster, CoordinatorKind, Routed, Routes};
use crate::rpc::connection::{Connection, millis};
use crate::rpc::error::RpcError;
use crate::rpc::types::{
    BrokerId, CommitAnswer, ProducerIdentity, TopicPartition, TransactionDescription, TransactionFilter,
    TransactionListing, TransactionState,
};

/// Result per transactional id.
pub type PerId<T> = BTreeMap<String, Result<T, RpcError>>;

impl Cluster {
    /// What the coordinators know about ids; `None` for an id they do not know: never used, or expired.
    ///
    /// Needs DESCRIBE on each transactional id.
    pub async fn describe_transactions(&self, ids: &[String]) -> PerId<Option<TransactionDescription>> {
        self.routed(&Describe, ids).await
    }

    /// Fences ids: aborts their open transactions and makes every producer that uses them fail from now on. Returns the
    /// identity that is current afterwards.
    ///
    /// The requests of one coordinator share a connection and do not wait for each other. An id with an open transaction
    /// takes a second request, after the first has begun to abort it. Repeating a fence raises the epoch once more and does
    /// no harm. `timeout` becomes the id's transaction timeout until its next owner sets its own.
    ///
    /// Prepared transactions that a checkpoint promised must be committed **before**: this aborts them.
    ///
    /// Needs WRITE on each transactional id.
    pub async fn init_producer_ids(&self, ids: &[String], timeout: Duration) -> PerId<ProducerIdentity> {
        self.routed(&Init { timeout }, ids).await
    }

    /// Asks the coordinator to commit an open transaction of another producer instance.
    ///
    /// The answer proves **neither** success nor loss: a v5 commit answers success for some aborted transactions, and errors
    /// for some committed ones. So call it only when [`Self::describe_transactions`] says `Ongoing` with the same producer
    /// id, epoch and start time, and describe again after it, whatever it answers. For the same reason nothing is repeated
    /// here but requests that found no coordinator.
    ///
    /// Needs WRITE on the transactional id.
    ///
    /// # Errors
    ///
    /// [`RpcError`]; when its class is `Unknown`, the commit may have been done.
    pub async fn commit_transaction(&self, id: &str, producer: ProducerIdentity) -> Result<CommitAnswer, RpcError> {
        let mut outcomes = self.routed(&Commit { producer }, &[id.to_owned()]).await;
        outcomes
            .pop_first()
            .map_or_else(|| Err(refused(Commit::NAME, BrokerCode::UNKNOWN_SERVER_ERROR, id)), |(_, v)| v)
    }

    /// The transactional ids that match, from all brokers: each lists those it coordinates.
    ///
    /// Ids without DESCRIBE permission are left out by the brokers, silently.
    ///
    /// # Errors
    ///
    /// [`RpcError`] when one of the brokers does not answer: a list with holes proves nothing.
    pub async fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<BTreeMap<String, TransactionListing>, RpcError> {
        let mut retry = self.retry();
        loop {
            match self.list_once(filter, retry.attempt()).await {
                Ok(listed) => return Ok(listed),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn list_once(
        &self,
        filter: &TransactionFilter,
        deadline: Instant,
    ) -> Result<BTreeMap<String, TransactionListing>, RpcError> {
        let metadata = self.metadata_once(&[], deadline).await?;
        let asked = metadata.brokers.keys().map(|broker| self.list_of(*broker, filter, deadline));
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }

    async fn list_of(
        &self,
        broker: BrokerId,
        filter: &TransactionFilter,
        deadline: Instant,
    ) -> Result<Vec<(String, TransactionListing)>, RpcError> {
        let connection = self.broker(broker, deadline).await?;
        let version = connection.version_of::<ListTransactionsRequest>()?;
        let mut request = ListTransactionsRequest::default()
            .with_state_filters(filter.states.iter().map(|state| StrBytes::from_string(state.to_string())).collect());
        if version >= 1 {
            request.duration_filter =
                filter.longer_than.map_or(-1, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        }
        if version >= 2 && !filter.prefix.is_empty() {
            request.transactional_id_pattern = Some(StrBytes::from_string(pattern(&filter.prefix)));
        }
        let answer = connection.call(&request, deadline).await?;
        if let Some(code) = BrokerCode::from_response(answer.error_code) {
            let subject = Subject::new(Operation::Describe, Resource::Cluster);
            return Err(RpcError::broker(ListTransactionsRequest::NAME, code, subject, None));
        }
        let listed = answer.transaction_states.into_iter().map(|transaction| {
            let listing = TransactionListing {
                producer_id: *transaction.producer_id,
                state: state(&transaction.transaction_state),
                coordinator: broker,
            };
            (transaction.transactional_id.to_string(), listing)
        });
        // Brokers before 4.1 do not know the pattern.
        Ok(listed.filter(|(id, _)| id.starts_with(&filter.prefix)).collect())
    }
}

/// A regular expression that matches what begins with the prefix. It has to match an id as a whole.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 8);
    for character in prefix.chars() {
        if character.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push_str(".*");
    pattern
}

fn state(text: &str) -> TransactionState {
    text.parse().unwrap_or_else(|_| TransactionState::Other(text.to_owned()))
}

fn wire_id(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}

fn refused(call: &'static str, code: BrokerCode, id: &str) -> RpcError {
    let operation = if call == DescribeTransactionsRequest::NAME { Operation::Describe } else { Operation::Write };
    RpcError::broker(call, code, CoordinatorKind::Transaction.subject(operation, id), None)
}

/// Where transactional ids are coordinated: the same for all calls of this file.
macro_rules! by_transaction_coordinator {
    () => {
        type Key = String;

        async fn route(
            &self,
            cluster: &Cluster,
            keys: &[String],
            deadline: Instant,
        ) -> Result<Routes<String>, RpcError> {
            cluster.coordinators(CoordinatorKind::Transaction, keys, deadline).await
        }

        fn misrouted(&self, cluster: &Cluster, keys: &[String]) {
            cluster.forget_coordinators(CoordinatorKind::Transaction, keys);
        }
    };
}

struct Describe;

impl Routed for Describe {
    const NAME: &'static str = DescribeTransactionsRequest::NAME;
    const READ_ONLY: bool = true;
    type Value = Option<TransactionDescription>;
    by_transaction_coordinator!();

    async fn ask(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, Option<TransactionDescription>> {
        let ids = keys.iter().map(|id| wire_id(id)).collect();
        let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
        let answer = connection.call(&request, deadline).await?;
        let answers = answer.transaction_states.into_iter().map(|found| {
            let id = found.transactional_id.to_string();
            let description = match BrokerCode::from_response(found.error_code) {
                None => Ok(Some(description(found))),
                Some(BrokerCode::TRANSACTIONAL_ID_NOT_FOUND) => Ok(None),
                Some(code) => Err(refused(Self::NAME, code, &id)),
            };
            (id, description)
        });
        Ok(answers.collect())
    }
}

fn description(found: WireState) -> TransactionDescription {
    let partitions = found.topics.into_iter().flat_map(|topic| {
        let name = topic.topic.to_string();
        topic.partitions.into_iter().map(move |partition| TopicPartition::new(name.clone(), partition))
    });
    TransactionDescription {
        state: state(&found.transaction_state),
        producer: ProducerIdentity { id: *found.producer_id, epoch: found.producer_epoch },
        timeout: Duration::from_millis(u64::try_from(found.transaction_timeout_ms).unwrap_or(0)),
        started_at_ms: Some(found.transaction_start_time_ms).filter(|start| *start >= 0),
        partitions: partitions.collect(),
    }
}

struct Init {
    timeout: Duration,
}

impl Routed for Init {
    const NAME: &'static str = InitProducerIdRequest::NAME;
    type Value = ProducerIdentity;
    by_transaction_coordinator!();

    async fn ask(
        &self,
        connection: &Connection,
        keys: &[String],
        deadline: Instant,
    ) -> Answers<String, ProducerIdentity> {
        let sent = keys.iter().map(async |id| {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(wire_id(id)))
                .with_transaction_timeout_ms(millis(self.timeout))
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1);
            let outcome =
                connection.call(&request, deadline).await.and_then(|answer| {
                    match BrokerCode::from_response(answer.error_code) {
                        None => Ok(ProducerIdentity { id: *answer.producer_id, epoch: answer.producer_epoch }),
                        Some(code) => Err(refused(Self::NAME, code, id)),
                    }
                });
            (id.clone(), outcome)
        });
        Ok(join_all(sent).await)
    }
}

struct Commit {
    producer: ProducerIdentity,
}

impl Routed for Commit {
    const NAME: &'static str = EndTxnRequest::NAME;
    type Value = CommitAnswer;
    by_transaction_coordinator!();

    /// Only what was certainly not executed.
    fn again(&self, error: &RpcError) -> bool {
        match error {
            RpcError::Connect { .. } | RpcError::ConnectTimeout { .. } | RpcError::UnknownBroker { .. } => true,
            RpcError::Closed { sent, call, .. } => *call != Self::NAME || *sent == crate::rpc::error::Sent::No,
            RpcError::Timeout { call, .. } | RpcError::BadAnswer { call, .. } => *call != Self::NAME,
            RpcError::Broker { code, .. } => matches!(
                *code,
                BrokerCode::NOT_COORDINATOR
                    | BrokerCode::COORDINATOR_NOT_AVAILABLE
                    | BrokerCode::COORDINATOR_LOAD_IN_PROGRESS
            ),
            _ => false,
        }
    }

    async fn ask(&self, connection: &Connection, keys: &[String], deadline: Instant) -> Answers<String, CommitAnswer> {
        let version = connection.version_of::<EndTxnRequest>()?;
        let mut answers = Vec::with_capacity(keys.len());
        for id in keys {
            let request = EndTxnRequest::default()
                .with_transactional_id(wire_id(id))
                .with_producer_id(ProducerId(self.producer.id))
                .with_producer_epoch(self.producer.epoch)
                .with_committed(true);
            let outcome =
                connection.call(&request, deadline).await.and_then(|answer| {
                    match BrokerCode::from_response(answer.error_code) {
                        None => {
                            let after = ProducerIdentity { id: *answer.producer_id, epoch: answer.producer_epoch };
                            Ok(CommitAnswer { producer: Some(after).filter(|after| after.id >= 0), version })
                        }
                        Some(code) => Err(refused(Self::NAME, code, id)),
                    }
                });
            answers.push((id.clone(), outcome));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests;
