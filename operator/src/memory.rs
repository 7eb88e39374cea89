//! What the operator remembers between reconciliations of a job. Nothing here is needed for correctness: after a restart a backoff
//! begins anew, brokers are asked again, children are applied once more, ids are fenced once more.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost_plan::{
    BrokerObserved, FenceObserved, Fingerprints, PositionsObserved, Replacement, Revision, WorkerObserved, backoff,
    decide::READY_LONG_ENOUGH,
    pods::{PodFacts, elapsed},
    secrets::SecretKeys,
};
use k8s_openapi::jiff::Timestamp;

use crate::{broker::Known, observe::Objects};

/// How long an answer of the brokers that allows the spec is good.
const BROKER_RECHECK: Duration = Duration::from_mins(5);
/// The same while a deadline of a revision counts: time in which they are away must not.
const BROKER_WATCH: Duration = Duration::from_secs(30);
/// When children that were refused are tried again.
const TRY_AGAIN: Duration = Duration::from_mins(2);
/// How often workers are asked for their state.
const WORKER_POLL: Duration = Duration::from_secs(9);
/// How often Secrets are looked at. The kubelet takes about as long to see a change.
const SECRET_POLL: Duration = Duration::from_mins(1);
/// How long what nobody has touched, as far as the watches tell, is taken as it was.
const LOOK: Duration = REAPPLY;
/// How long children that nobody touched are taken as applied.
const REAPPLY: Duration = Duration::from_mins(10);

/// Namespace and name.
pub type JobKey = (String, String);

/// Memory of all jobs.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<HashMap<JobKey, JobMemory>>>);

/// Memory of one job.
#[derive(Clone, Debug, Default)]
pub struct JobMemory {
    uid: String,
    broker: Option<BrokerMemory>,
    /// The brokers are asked more often.
    watches: bool,
    plan_failures: BTreeMap<Revision, u32>,
    replacements: BTreeMap<String, Replacement>,
    workers: Option<(Timestamp, BTreeMap<String, WorkerObserved>)>,
    secrets: Option<(SecretKeys, Timestamp, Fingerprints)>,
    applied: Option<(Timestamp, u64)>,
    /// Changes of children that the watches have told.
    changes: u64,
    calm: Option<Calm>,
    fence: Option<FenceObserved>,
    positions: Option<PositionsObserved>,
    known: Option<Known>,
    refused_act: Option<String>,
    refused_children: Option<(Revision, Timestamp, String)>,
    failures: u32,
}

/// What a job and its objects were like when there was nothing to do.
#[derive(Clone, Debug)]
struct Calm {
    at: Timestamp,
    version: Option<String>,
    changes: u64,
    objects: Objects,
}

#[derive(Clone, Debug)]
struct BrokerMemory {
    revision: Revision,
    at: Timestamp,
    answer: BrokerObserved,
    /// Answers in a row that did not allow the spec.
    failures: u32,
    allowed: bool,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobKey, JobMemory>> {
        // A panic while the lock was held leaves at worst a stale hint.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with the memory of a job. An object that was deleted and made again under its name starts with none.
    pub fn with<T>(&self, key: &JobKey, uid: &str, work: impl FnOnce(&mut JobMemory) -> T) -> T {
        let mut jobs = self.lock();
        let job = jobs.entry(key.clone()).or_default();
        if job.uid != uid {
            *job = JobMemory { uid: uid.to_owned(), ..JobMemory::default() };
        }
        work(job)
    }

    /// Forgets a job.
    pub fn forget(&self, key: &JobKey) {
        self.lock().remove(key);
    }

    /// A child of the job changed: it is applied again at the next look.
    pub fn child_changed(&self, key: &JobKey) {
        if let Some(job) = self.lock().get_mut(key) {
            job.applied = None;
            job.changes += 1;
            job.calm = None;
        }
    }

    /// A watch was interrupted, and may have missed something: everything is read again.
    pub fn watch_interrupted(&self) {
        for job in self.lock().values_mut() {
            job.changes += 1;
            job.calm = None;
        }
    }

    /// A reconciliation failed: how long to wait before the next.
    pub fn failed(&self, key: &JobKey) -> Duration {
        self.lock().get_mut(key).map_or(backoff::RECONCILE.first, |job| {
            job.failures = job.failures.saturating_add(1);
            backoff::RECONCILE.after(job.failures)
        })
    }
}

impl JobMemory {
    /// The brokers' answer to this revision, while it is good.
    #[must_use]
    pub fn broker(&self, revision: &Revision, now: Timestamp) -> Option<BrokerObserved> {
        let memory = self.broker.as_ref().filter(|memory| memory.revision == *revision)?;
        (!memory.rest(now, self.watches).is_zero()).then(|| memory.answer.clone())
    }

    /// The brokers' last answer to this revision, good or not.
    #[must_use]
    pub fn last_broker(&self, revision: &Revision) -> Option<BrokerObserved> {
        self.broker.as_ref().filter(|memory| memory.revision == *revision).map(|memory| memory.answer.clone())
    }

    /// Keeps an answer.
    pub fn broker_answered(&mut self, revision: &Revision, now: Timestamp, answer: BrokerObserved) {
        let failures =
            self.broker.as_ref().filter(|memory| memory.revision == *revision).map_or(0, |memory| memory.failures);
        self.broker =
            Some(BrokerMemory { revision: revision.clone(), at: now, answer, failures: failures + 1, allowed: false });
    }

    /// What the answer amounted to, and when it is worth asking again.
    pub fn broker_judged(&mut self, allowed: bool, now: Timestamp) -> Option<Duration> {
        let memory = self.broker.as_mut()?;
        memory.allowed = allowed;
        if allowed {
            memory.failures = 0;
        }
        Some(memory.rest(now, self.watches))
    }

    /// Whether brokers that go away shall be noticed soon.
    pub const fn watch_brokers(&mut self, closely: bool) {
        self.watches = closely;
    }

    /// Settings have led to the brokers, if they have.
    pub fn reached(&mut self, known: Option<Known>) {
        self.known = known.or(self.known.take());
    }

    /// The newest settings that led to the brokers.
    #[must_use]
    pub fn known(&self) -> Option<Known> {
        self.known.clone()
    }

    /// Topics were made: the answer is out of date.
    pub fn forget_broker(&mut self) {
        self.broker = None;
    }

    /// Plan pods of this revision that ended without an answer.
    #[must_use]
    pub fn plan_failures(&self, revision: &Revision) -> u32 {
        self.plan_failures.get(revision).copied().unwrap_or(0)
    }

    /// A plan pod of this revision ended without an answer. Other revisions are history.
    pub fn plan_failed(&mut self, revision: &Revision) {
        let failures = self.plan_failures(revision).saturating_add(1);
        self.plan_failures = BTreeMap::from([(revision.clone(), failures)]);
    }

    /// Workers replaced because they crash. Calm workers and those that are gone for good are forgotten.
    pub fn replacements(&mut self, pods: &[PodFacts], replicas: i32, now: Timestamp) -> BTreeMap<String, Replacement> {
        self.replacements.retain(|name, _| {
            let calm = pods.iter().any(|pod| pod.name == *name && pod.is_stable(now, READY_LONG_ENOUGH));
            let wanted = fencepost_crds::names::ordinal_of_pod(name)
                .is_some_and(|ordinal| i64::from(ordinal) < i64::from(replicas));
            wanted && !calm
        });
        self.replacements.clone()
    }

    /// A worker was replaced.
    pub fn replaced(&mut self, pod: &str, now: Timestamp) {
        let entry = self.replacements.entry(pod.to_owned()).or_insert(Replacement { count: 0, last: now });
        *entry = Replacement { count: entry.count.saturating_add(1), last: now };
    }

    /// What workers said, while it is new.
    #[must_use]
    pub fn workers(&self, now: Timestamp) -> Option<BTreeMap<String, WorkerObserved>> {
        let (at, answers) = self.workers.as_ref()?;
        (elapsed(*at, now) < WORKER_POLL).then(|| answers.clone())
    }

    /// Workers answered.
    pub fn workers_answered(&mut self, now: Timestamp, answers: BTreeMap<String, WorkerObserved>) {
        self.workers = Some((now, answers));
    }

    /// Fingerprints of these Secrets, while they are new.
    #[must_use]
    pub fn secrets(&self, wanted: &SecretKeys, now: Timestamp) -> Option<Fingerprints> {
        let (of, at, seen) = self.secrets.as_ref()?;
        (of == wanted && elapsed(*at, now) < SECRET_POLL).then(|| seen.clone())
    }

    /// Secrets were read. What the brokers said to other credentials does not count any more.
    pub fn secrets_read(&mut self, wanted: &SecretKeys, now: Timestamp, seen: Fingerprints) {
        if self.secrets.as_ref().is_some_and(|(.., before)| *before != seen) {
            self.forget_broker();
        }
        self.secrets = Some((wanted.clone(), now, seen));
    }

    /// These children were applied not long ago and nobody touched them.
    #[must_use]
    pub fn is_applied(&self, digest: u64, now: Timestamp) -> bool {
        self.applied.is_some_and(|(at, applied)| applied == digest && elapsed(at, now) < REAPPLY)
    }

    /// These children are about to be applied. Remembered before, so that a change that arrives meanwhile is not lost.
    pub fn applying(&mut self, digest: u64, now: Timestamp) {
        self.applied = Some((now, digest));
    }

    /// How many changes of children there were. Asked before they are read.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// There was nothing to do for this version of the job, with these objects, which were read when there had been so many changes.
    pub fn is_calm(&mut self, version: Option<String>, changes: u64, objects: Objects, now: Timestamp) {
        self.calm = (self.changes == changes).then_some(Calm { at: now, version, changes, objects });
    }

    /// There was something to do.
    pub fn is_busy(&mut self) {
        self.calm = None;
    }

    /// The objects of this version of the job, if nothing has happened since there was nothing to do.
    #[must_use]
    pub fn calm(&self, version: Option<&str>, now: Timestamp) -> Option<Objects> {
        let calm = self.calm.as_ref()?;
        let same = version.is_some() && calm.version.as_deref() == version && calm.changes == self.changes;
        (same && elapsed(calm.at, now) < LOOK).then(|| calm.objects.clone())
    }

    /// The API server would refuse the children of this revision.
    pub fn children_refused(&mut self, revision: &Revision, now: Timestamp, message: String) {
        self.refused_children = Some((revision.clone(), now, message));
    }

    /// Why the API server would refuse the children of this revision. Not for ever: quotas and policies change.
    #[must_use]
    pub fn refused_children(&self, revision: &Revision, now: Timestamp) -> Option<String> {
        let (refused, at, message) = self.refused_children.as_ref()?;
        (refused == revision && elapsed(*at, now) < TRY_AGAIN).then(|| message.clone())
    }

    /// The newest fence, unless one of these workers has taken its id again.
    pub fn fence(&mut self, pods: &[PodFacts]) -> Option<FenceObserved> {
        self.fence = self.fence.take().filter(|fence| !fence.is_over(pods));
        self.fence.clone()
    }

    /// A fence was tried.
    pub fn fenced(&mut self, fence: FenceObserved) {
        self.fence = Some(fence.after(self.fence.take()));
    }

    /// The journal has the end of the newest fence.
    pub fn fence_journaled(&mut self) {
        self.fence = None;
    }

    /// Positions that were read. They are over when a worker lives, which may have committed since.
    pub fn positions(&mut self, pods: &[PodFacts]) -> Option<PositionsObserved> {
        self.positions = self.positions.take().filter(|_| pods.is_empty());
        self.positions.clone()
    }

    /// Positions were asked for.
    pub fn positions_read(&mut self, positions: PositionsObserved) {
        self.positions = Some(positions);
    }

    /// What the API server refused last.
    #[must_use]
    pub fn refused_act(&self) -> Option<String> {
        self.refused_act.clone()
    }

    /// The API server refused an act.
    pub fn act_refused(&mut self, message: String) {
        self.applied = None;
        self.refused_act = Some(message);
    }

    /// A reconciliation went through.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.refused_act = None;
    }
}

impl BrokerMemory {
    fn rest(&self, now: Timestamp, is_watched: bool) -> Duration {
        let good = match (self.allowed, is_watched) {
            (true, false) => BROKER_RECHECK,
            (true, true) => BROKER_WATCH,
            (false, _) => backoff::BROKER.after(self.failures),
        };
        good.saturating_sub(elapsed(self.at, now))
    }
}

#[cfg(test)]
mod tests {
    use fencepost_plan::{Positions, pods};
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn key() -> JobKey {
        ("shop".to_owned(), "spend".to_owned())
    }

    #[test]
    fn brokers_that_do_not_allow_a_spec_are_asked_again_ever_later() {
        let mut job = JobMemory::default();
        let revision = Revision::read("a");
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                job.broker_answered(&revision, at(0), BrokerObserved::NotAsked);
                job.broker_judged(false, at(0)).unwrap().as_secs()
            })
            .collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(job.broker_judged(true, at(0)), Some(BROKER_RECHECK));
        assert!(job.broker(&revision, at(299)).is_some());
        assert!(job.broker(&revision, at(300)).is_none());
        assert!(job.broker(&Revision::read("b"), at(1)).is_none(), "another spec is another question");
    }

    #[test]
    fn brokers_are_asked_more_often_while_a_revision_has_a_deadline() {
        let (mut job, revision) = (JobMemory::default(), Revision::read("a"));
        job.broker_answered(&revision, at(0), BrokerObserved::NotAsked);
        job.watch_brokers(true);
        assert_eq!(job.broker_judged(true, at(0)), Some(BROKER_WATCH));
        assert!(job.broker(&revision, at(29)).is_some() && job.broker(&revision, at(30)).is_none());
        job.watch_brokers(false);
        assert!(job.broker(&revision, at(30)).is_some());
    }

    #[test]
    fn positions_are_over_when_a_worker_lives() {
        let mut job = JobMemory::default();
        let found = PositionsObserved { purpose: "proof-1".to_owned(), found: Ok(Positions::default()) };
        job.positions_read(found.clone());
        assert_eq!(job.positions(&[]), Some(found));
        let worker = json!({ "metadata": { "name": "spend-0", "annotations": { "fencepost.dev/epoch": "1" } } });
        let workers = pods::workers(&[serde_json::from_value(worker).unwrap()]);
        assert_eq!((workers.len(), job.positions(&workers), job.positions(&[])), (1, None, None));
    }

    #[test]
    fn a_job_made_again_under_the_same_name_starts_without_memory() {
        let memory = Memory::default();
        memory.with(&key(), "1", |job| job.plan_failed(&Revision::read("a")));
        assert_eq!(memory.with(&key(), "1", |job| job.plan_failures(&Revision::read("a"))), 1);
        assert_eq!(memory.with(&key(), "2", |job| job.plan_failures(&Revision::read("a"))), 0);
    }

    #[test]
    fn new_credentials_make_the_answer_of_the_brokers_old() {
        let (mut job, revision, wanted) = (JobMemory::default(), Revision::read("a"), SecretKeys::new());
        job.secrets_read(&wanted, at(0), Fingerprints::default());
        job.broker_answered(&revision, at(0), BrokerObserved::NotAsked);
        assert!(job.secrets(&wanted, at(59)).is_some() && job.secrets(&wanted, at(60)).is_none());
        job.secrets_read(&wanted, at(30), Fingerprints::default());
        assert!(job.last_broker(&revision).is_some());
        let mut changed = Fingerprints::default();
        changed.insert("kafka-user", "1".to_owned());
        job.secrets_read(&wanted, at(60), changed);
        assert!(job.last_broker(&revision).is_none());
    }

    #[test]
    fn nothing_is_read_again_until_something_happens() {
        let memory = Memory::default();
        let with = |work: &mut dyn FnMut(&mut JobMemory) -> bool| memory.with(&key(), "1", work);
        let rests = |version, second| with(&mut |job| job.calm(Some(version), at(second)).is_some());
        let rest = |changes| {
            with(&mut |job| {
                job.is_calm(Some("7".to_owned()), changes, Objects::default(), at(0));
                true
            })
        };
        rest(0);
        assert!(rests("7", 1) && !rests("8", 1), "another version of the job");
        assert!(rests("7", 599) && !rests("7", 600), "watches may miss something");
        memory.child_changed(&key());
        assert!(!rests("7", 1), "a child has changed");
        rest(0);
        assert!(!rests("7", 1), "it had changed before it was said to be calm");
        rest(1);
        assert!(rests("7", 1));
        memory.watch_interrupted();
        assert!(!rests("7", 1), "what happened meanwhile is not known");
        rest(2);
        with(&mut |job| {
            job.is_busy();
            true
        });
        assert!(!rests("7", 1), "there was something to do");
    }

    #[test]
    fn a_touched_child_is_applied_again() {
        let memory = Memory::default();
        memory.with(&key(), "1", |job| job.applying(7, at(0)));
        assert!(memory.with(&key(), "1", |job| job.is_applied(7, at(1))));
        assert!(!memory.with(&key(), "1", |job| job.is_applied(8, at(1))));
        memory.child_changed(&key());
        assert!(!memory.with(&key(), "1", |job| job.is_applied(7, at(1))));
    }
}
