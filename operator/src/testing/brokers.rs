use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencepost_crds::{
    conditions::Reason,
    v1alpha1::{FencedId, ProducerStatus},
};
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_plan::{BrokerFacts, BrokerFailure, BrokerLimits, Positions, TopicFacts, validate::TopicToCreate};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Life;
use crate::broker::{BrokerProbe, Fenced, Fencer, Question, Reached};

const PARTITIONS: usize = 4;

/// A Kafka cluster, as far as transactional ids go.
#[derive(Clone, Default)]
pub(crate) struct Brokers(Arc<Mutex<State>>);

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    ids: BTreeMap<String, Id>,
    topics: Vec<String>,
    /// The position of the group.
    committed: i64,
    violations: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Id {
    producer_epoch: i32,
    /// A transaction is open.
    open: bool,
    /// Who has it: the pod, and the epoch of the job. `None`: nobody since a fence.
    owner: Option<(String, i64)>,
    /// That pod is there.
    lives: bool,
}

impl Brokers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, from here on apart.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// What they know, to be put away.
    pub(crate) fn keep(&self) -> State {
        self.state().clone()
    }

    /// Brokers that know what others knew.
    pub(crate) fn of(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// Workers commit.
    pub(crate) fn commit(&self) {
        self.state().committed += 1;
    }

    pub(crate) fn positions(&self) -> Positions {
        Positions::of([("orders", 0, self.state().committed)])
    }

    /// A worker takes an id and begins a transaction.
    pub(crate) fn take(&self, id: &str, pod: &str, epoch: i64) {
        let mut state = self.state();
        let mut wrong = Vec::new();
        let prefix = |id: &str| id.rsplitn(3, '-').nth(2).map(str::to_owned);
        for (other, Id { owner, .. }) in state.ids.iter().filter(|(other, _)| prefix(other) == prefix(id)) {
            if let Some((holder, of)) = owner.as_ref().filter(|(_, of)| *of != epoch) {
                wrong.push(format!(
                    "{pod} of epoch {epoch} begins, and {holder} of epoch {of} was not fenced from {other}"
                ));
            }
        }
        match state.ids.get(id) {
            Some(Id { owner: Some((holder, _)), lives: true, .. }) if holder != pod => {
                wrong.push(format!("{pod} takes {id}, and {holder} lives"));
            }
            _ => {}
        }
        state.violations.extend(wrong);
        let producer_epoch = state.ids.get(id).map_or(0, |before| before.producer_epoch + 1);
        state.ids.insert(
            id.to_owned(),
            Id { producer_epoch, open: true, owner: Some((pod.to_owned(), epoch)), lives: true },
        );
    }

    /// A worker is gone. It has committed, or it has left its transactions open.
    pub(crate) fn gone(&self, pod: &str, committed: bool) {
        for id in self.state().ids.values_mut().filter(|id| id.owner.as_ref().is_some_and(|(owner, _)| owner == pod)) {
            id.lives = false;
            id.open &= !committed;
        }
    }

    /// Ids with an open transaction.
    pub(crate) fn open(&self) -> Vec<String> {
        self.state().ids.iter().filter(|(_, id)| id.open).map(|(id, _)| id.clone()).collect()
    }

    /// What must not have happened.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    fn fence(&self, id: &str, life: &Life) -> FencedId {
        let mut state = self.state();
        let before = state.ids.get(id).cloned();
        if let Some(Id { owner: Some((pod, _)), lives: true, .. }) = &before {
            state.violations.push(format!("{pod} lives, and {id} is taken from it"));
        }
        if before.as_ref().is_some_and(|id| id.owner.is_some() || id.open) {
            life.effect(format!("fence {id}"));
        }
        let producer = |producer_epoch, state: Option<&str>| {
            Some(ProducerStatus { producer_id: 1, producer_epoch, state: state.map(str::to_owned) })
        };
        let producer_epoch = before.as_ref().map_or(0, |before| before.producer_epoch + 1);
        state.ids.insert(id.to_owned(), Id { producer_epoch, open: false, owner: None, lives: false });
        let before =
            before.and_then(|id| producer(id.producer_epoch, Some(if id.open { "Ongoing" } else { "CompleteCommit" })));
        FencedId { id: id.to_owned(), before, after: producer(producer_epoch, None) }
    }
}

/// The brokers as one process of the operator reaches them.
pub(crate) struct Network {
    pub brokers: Brokers,
    pub life: Arc<Life>,
}

/// A request: it may be the last of this life before or after it takes effect.
async fn asked<T>(life: &Life, work: impl FnOnce() -> T) -> T {
    life.step().await;
    let outcome = work();
    life.step().await;
    outcome
}

impl BrokerProbe for Network {
    fn facts(&self, question: Question) -> BoxFuture<'_, Result<BrokerFacts, BrokerFailure>> {
        Box::pin(asked(&self.life, move || {
            let made = self.brokers.state().topics.clone();
            let topic = |name: String| {
                let there = name == "orders" || made.contains(&name);
                let facts = if there { TopicFacts::Exists { partitions: PARTITIONS } } else { TopicFacts::Missing };
                (name, facts)
            };
            let limits = BrokerLimits {
                transaction_max_timeout_ms: Some(900_000),
                transactional_id_expiration_ms: Some(604_800_000),
            };
            Ok(BrokerFacts {
                cluster_id: Some("c-1".to_owned()),
                limits: BTreeMap::from([(1, limits)]),
                topics: question.topics.into_iter().map(topic).collect(),
                has_consumer_protocol: question.consumer_protocol_of.map(|_| true),
            })
        }))
    }

    fn create_topics(
        &self,
        _: ConnectionSettings,
        topics: Vec<TopicToCreate>,
    ) -> BoxFuture<'_, Result<(), BrokerFailure>> {
        Box::pin(asked(&self.life, move || {
            for topic in topics {
                self.life.effect(format!("create topic {}", topic.name));
                self.brokers.state().topics.push(topic.name);
            }
            Ok(())
        }))
    }

    fn positions(&self, _: ConnectionSettings, _: String) -> BoxFuture<'_, Result<Positions, BrokerFailure>> {
        Box::pin(asked(&self.life, || Ok(self.brokers.positions())))
    }

    fn reach(
        &self,
        _: ConnectionSettings,
        ids: Vec<String>,
        _: Option<String>,
    ) -> BoxFuture<'_, Result<Reached, BrokerFailure>> {
        let fencer = Volley { ids, brokers: self.brokers.clone(), life: Arc::clone(&self.life) };
        Box::pin(asked(&self.life, || Ok(Reached::Meant(Box::new(fencer)))))
    }
}

/// Each id is a request of its own.
struct Volley {
    ids: Vec<String>,
    brokers: Brokers,
    life: Arc<Life>,
}

impl Fencer for Volley {
    fn fence(self: Box<Self>, until: Instant) -> BoxFuture<'static, Fenced> {
        Box::pin(async move {
            let mut fenced = Fenced::default();
            for id in self.ids {
                if Instant::now() > until {
                    let message = "too late".to_owned();
                    fenced.failed = Some(BrokerFailure { reason: Reason::BrokerUnreachable, message });
                    break;
                }
                fenced.ids.push(asked(&self.life, || self.brokers.fence(&id, &self.life)).await);
            }
            fenced
        })
    }
}
