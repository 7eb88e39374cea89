use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_crds::contract::{SlotStatus, WorkerError};

/// How long a slot may be failing before it counts as not ready. A single aborted transaction must not make a probe fail.
const FAILING_IS_NOT_READY: Duration = Duration::from_secs(10);

/// What an error is about. A new one replaces an old one about the same, and each goes when its cause has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorKey {
    Producer,
    Group,
    Topic(u16),
    Partition(u16, i32),
    Output(String),
    Connection,
}

#[derive(Debug, Default)]
struct Inner {
    status: SlotStatus,
    errors: BTreeMap<ErrorKey, WorkerError>,
    is_joined: bool,
    failing_since: Option<Duration>,
    last_turn: Duration,
    open_since: Option<Duration>,
}

/// The state of a slot, for those who watch it.
#[derive(Debug, Default)]
pub struct SlotStats(Mutex<Inner>);

impl SlotStats {
    /// Of a slot that has not started.
    #[must_use]
    pub fn new(slot: u32) -> Self {
        let status = SlotStatus { slot, state: "Closed".to_owned(), ..SlotStatus::default() };
        Self(Mutex::new(Inner { status, ..Inner::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For `GET /v1/status`.
    #[must_use]
    pub fn status(&self) -> SlotStatus {
        let inner = self.lock();
        let mut status = inner.status.clone();
        status.error = inner.errors.values().max_by_key(|error| error.at_ms).cloned();
        status
    }

    /// Whether the slot is in the group and able to commit. A slot without partitions is.
    #[must_use]
    pub fn is_ready(&self, now: Duration) -> bool {
        let inner = self.lock();
        let is_failing = inner.failing_since.is_some_and(|since| now.saturating_sub(since) > FAILING_IS_NOT_READY);
        inner.is_joined && !is_failing
    }

    /// How long the slot's loop has not turned.
    #[must_use]
    pub fn silent_for(&self, now: Duration) -> Duration {
        now.saturating_sub(self.lock().last_turn)
    }

    /// How long the open transaction has been open.
    #[must_use]
    pub fn open_for(&self, now: Duration) -> Option<Duration> {
        self.lock().open_since.map(|since| now.saturating_sub(since))
    }

    pub(super) fn turn(&self, now: Duration) {
        self.lock().last_turn = now;
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut SlotStatus)) {
        change(&mut self.lock().status);
    }

    pub(super) fn is_joined(&self) -> bool {
        self.lock().is_joined
    }

    pub(super) fn joined(&self) {
        self.lock().is_joined = true;
    }

    pub(super) fn left(&self) {
        self.lock().is_joined = false;
    }

    pub(super) fn set_open_since(&self, since: Option<Duration>) {
        self.lock().open_since = since;
    }

    pub(super) fn failing(&self, now: Duration) {
        self.lock().failing_since.get_or_insert(now);
    }

    pub(super) fn well(&self) {
        self.lock().failing_since = None;
    }

    pub(super) fn set_error(&self, key: ErrorKey, error: WorkerError) {
        self.lock().errors.insert(key, error);
    }

    pub(super) fn clear_errors(&self, gone: impl Fn(&ErrorKey) -> bool) {
        self.lock().errors.retain(|key, _| !gone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str, at_ms: i64) -> WorkerError {
        WorkerError { reason: "BrokerError".to_owned(), message: message.to_owned(), at_ms }
    }

    #[test]
    fn the_newest_error_is_shown_and_goes_when_its_cause_has() {
        let stats = SlotStats::new(3);
        stats.set_error(ErrorKey::Topic(1), error("no topic", 10));
        stats.set_error(ErrorKey::Producer, error("no broker", 20));
        assert_eq!(stats.status().error.unwrap().message, "no broker");
        stats.clear_errors(|key| *key == ErrorKey::Producer);
        assert_eq!(stats.status().error.unwrap().message, "no topic");
        stats.clear_errors(|key| matches!(key, ErrorKey::Topic(1)));
        assert_eq!(stats.status().error, None);
    }

    #[test]
    fn a_slot_is_ready_once_it_joined_and_while_failures_are_short() {
        let stats = SlotStats::new(0);
        let at = Duration::from_secs;
        assert!(!stats.is_ready(at(1)));
        stats.joined();
        assert!(stats.is_ready(at(1)));
        stats.failing(at(5));
        assert!(stats.is_ready(at(14)));
        stats.failing(at(14));
        assert!(!stats.is_ready(at(16)));
        stats.well();
        assert!(stats.is_ready(at(16)));
    }
}
