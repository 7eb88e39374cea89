use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fencepost_apiserver::{ApiServer, Asked, Gate, Moment, Verb};
use futures::future::BoxFuture;
use tokio::sync::Notify;

/// What happens to a process in one of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It does not survive it.
    Dies,
    /// It stands still for so long, believes that it is still the leader, and goes on. Only after a request to the API server: one that arrives late
    /// itself cannot be told from one in time.
    Pauses(Duration),
}

/// The life of an operator's process, in steps: just before and just after each request to the API server or to brokers takes effect.
pub(crate) struct Life {
    server: ApiServer,
    steps: AtomicU64,
    fate: Option<(u64, Fate)>,
    dead: AtomicBool,
    /// It has met its fate.
    met: Notify,
    /// The version when the request under way began.
    version: AtomicU64,
    effects: Mutex<Vec<String>>,
}

impl Life {
    pub(crate) fn new(server: &ApiServer, fate: Option<(u64, Fate)>) -> Self {
        Self {
            server: server.clone(),
            steps: AtomicU64::new(0),
            fate,
            dead: AtomicBool::new(false),
            met: Notify::new(),
            version: AtomicU64::new(0),
            effects: Mutex::default(),
        }
    }

    /// One step of a request to brokers. Whoever dies in it never comes back.
    pub(crate) fn step(&self) -> BoxFuture<'static, ()> {
        self.next(false)
    }

    fn next(&self, may_pause: bool) -> BoxFuture<'static, ()> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let fate = self.fate.filter(|(at, _)| *at == step).map(|(_, fate)| fate);
        if self.dead.load(Ordering::Relaxed) || fate == Some(Fate::Dies) {
            self.dead.store(true, Ordering::Relaxed);
            self.met.notify_one();
            return Box::pin(std::future::pending());
        }
        match fate {
            Some(Fate::Pauses(pause)) if may_pause => {
                self.met.notify_one();
                Box::pin(tokio::time::sleep(pause))
            }
            _ => Box::pin(std::future::ready(())),
        }
    }

    /// Comes back when it has died, or stands still.
    pub(crate) async fn fate(&self) {
        self.met.notified().await;
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Requests that it has made: each is two steps.
    pub(crate) fn requests(&self) -> u64 {
        self.steps() / 2
    }

    /// Something was changed by it.
    pub(crate) fn effect(&self, what: String) {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What it changed, in order.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Gate for Life {
    fn pass(&self, moment: Moment, asked: &Asked) -> BoxFuture<'static, ()> {
        // What keeps the cache fresh has no effect, and comes when it comes.
        if asked.verb == Verb::Watch || (asked.verb == Verb::List && asked.namespace.is_none()) {
            return Box::pin(std::future::ready(()));
        }
        let version = self.server.version();
        let before = self.version.swap(version, Ordering::Relaxed);
        // Events are news, and the status tells what goes on: both are compared at the end.
        let told = asked.resource == "events" || asked.subresource.as_deref() == Some("status");
        if moment == Moment::After && before != version && !told {
            let name = asked.name.as_deref().unwrap_or_default();
            self.effect(format!("{} {} {name}", asked.verb.name(), asked.resource));
        }
        self.next(moment == Moment::After)
    }
}
