//! Does the running revision do its work? Until its first commit it may be taken back, later never: then readers have seen its output.
//!
//! ```text
//!   old workers gone ─▶ ids fenced ─▶ positions read ─▶ epoch+1 ─▶ ready ─▶ first commit: stable
//!                                          │                │         │
//!                                          │                └─────────┴─▶ failed: gone, fenced, positions read again
//!                                          └──────────── the same ◀───────────────┘        the stable revision starts
//!                                                    not the same: it did commit, so it starts again itself
//! ```
//!
//! That a worker tells of a commit is the fast way to learn of it. What decides is the brokers' answer after its ids were fenced, when nothing
//! can be committed any more: a worker may have committed and died before anybody asked it.

use std::time::Duration;

use fencepost_crds::{
    conditions::Reason,
    v1alpha1::{FailedRevision, JobState, KafkaSpec, PointOfNoReturn, RestorePoint, Rollback, VerificationStatus},
};
use k8s_openapi::jiff::Timestamp;

use super::{Act, Case, deletion, rollout, settled_pods};
use crate::{
    observed::{BrokerFailure, BrokerObserved, PositionsObserved},
    pods::{PodFacts, Restart, elapsed},
    report::time,
    revision::{AcceptedRevision, Revision, RunSpec, newest_first},
};

/// A worker that was replaced so often will not come up by itself.
const REPLACED: u32 = 3;
/// How long positions on a cluster that the newest spec has left are looked for.
const SEARCH: Duration = Duration::from_mins(2);

/// What is known about revisions and their commits: a part of the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proof {
    /// The last revision that has committed.
    pub stable: Option<Revision>,
    /// The newest one, when it is taken back.
    pub failed: Option<FailedRevision>,
    /// Where the running one began. Gone as soon as it is known whether it has committed.
    pub restore: Option<RestorePoint>,
    /// How it does.
    pub verification: Option<VerificationStatus>,
    /// The newest start that has committed.
    pub point_of_no_return: Option<PointOfNoReturn>,
    /// Positions are needed, and cannot be read.
    pub unread: Option<BrokerFailure>,
}

/// Committed positions to read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadPositions {
    /// What they are read for.
    pub purpose: String,
    /// How to reach the brokers.
    pub kafka: KafkaSpec,
    /// The group.
    pub group: String,
}

/// Looks at the running revision.
pub(super) fn judge(case: &Case<'_>) -> Proof {
    let mut proof = of_journal(case);
    let Some((epoch, current)) = running(case) else { return proof };
    let told = case.seen.workers.values().any(|worker| worker.epoch == epoch && worker.commits > 0);
    let moved = proof.restore.as_ref().and_then(|restore| has_moved(case, restore));
    if told || moved == Some(true) {
        proof.committed(epoch, current, case.seen.now);
        return proof;
    }
    if moved == Some(false) || is_given_up(case, &proof) {
        proof.restore = None;
        proof.verification = None;
        return proof;
    }
    if let Some(trial) = trial(case, &proof) {
        match failure(case, &trial) {
            Some((reason, message)) => {
                proof.verification = None;
                proof.failed = Some(FailedRevision {
                    revision: current.to_string(),
                    number: trial.number,
                    reason: reason.to_string(),
                    message,
                    at: Some(time(case.seen.now)),
                });
            }
            None => proof.verification = Some(trial.verification),
        }
    }
    proof
}

impl Proof {
    fn committed(&mut self, epoch: i64, revision: Revision, now: Timestamp) {
        if self.point_of_no_return.as_ref().is_none_or(|point| point.epoch != epoch) {
            self.point_of_no_return = Some(PointOfNoReturn { epoch, at: Some(time(now)) });
        }
        // It was to be taken back, and that is not possible any more.
        if self.failed.as_ref().is_some_and(|failed| failed.revision == revision.as_str()) {
            self.failed = None;
        }
        self.stable = Some(revision);
        self.restore = None;
        self.verification = None;
    }

    /// What to go back to: the last acceptance of the revision that has committed, unless it is gone.
    pub(super) fn stable<'a>(&self, case: &'a Case<'_>) -> Option<&'a AcceptedRevision> {
        let stable = self.stable.as_ref()?;
        newest_first(&case.seen.accepted).into_iter().find(|accepted| accepted.revision == *stable)
    }
}

fn of_journal(case: &Case<'_>) -> Proof {
    let old = &case.old;
    let revision = old.revision.clone().unwrap_or_default();
    let newest = newest_first(&case.seen.accepted).first().map(|newest| newest.number);
    Proof {
        stable: revision.stable.as_deref().map(Revision::read),
        // A newer acceptance is another try.
        failed: revision.failed.filter(|failed| Some(failed.number) == newest),
        restore: old.restore.clone(),
        verification: old.verification.clone(),
        point_of_no_return: old.point_of_no_return.clone(),
        unread: None,
    }
}

/// Epoch and revision that are journaled as running.
fn running(case: &Case<'_>) -> Option<(i64, Revision)> {
    Some((case.old.epoch?, rollout::current(case)?))
}

/// Whether something was committed since then. `None`: nobody has looked.
fn has_moved(case: &Case<'_>, restore: &RestorePoint) -> Option<bool> {
    let found = positions(case, &proof_of(restore.epoch))?.found.as_ref().ok()?;
    Some(found.digest != restore.digest)
}

fn positions<'a>(case: &'a Case<'_>, purpose: &str) -> Option<&'a PositionsObserved> {
    case.seen.positions.as_ref().filter(|positions| positions.purpose == purpose)
}

/// A new spec leads to another cluster, and does not wait for ever for what the old one cannot tell any more.
fn is_given_up(case: &Case<'_>, proof: &Proof) -> bool {
    let Some(restore) = proof.restore.as_ref().filter(|_| proof.failed.is_none()) else { return false };
    let unread = positions(case, &proof_of(restore.epoch)).is_some_and(|positions| positions.found.is_err());
    let operation = case.old.operation.as_ref().filter(|old| old.step.as_deref() == Some("ReadingPositions"));
    let since = operation.and_then(|operation| operation.started_at.as_deref()?.parse::<Timestamp>().ok());
    unread && since.is_some_and(|since| elapsed(since, case.seen.now) >= SEARCH)
}

/// A revision that has committed nothing yet, and could be taken back.
struct Trial {
    epoch: i64,
    number: i64,
    verification: VerificationStatus,
}

fn trial(case: &Case<'_>, proof: &Proof) -> Option<Trial> {
    let (epoch, current) = running(case)?;
    let newest = *newest_first(&case.seen.accepted).first()?;
    let is_wanted = case.seen.job.spec.state == JobState::Running && !deletion::is_deleted(case);
    let is_open = is_wanted
        && case.seen.job.spec.upgrade.rollback == Rollback::UntilFirstCommit
        && proof.failed.is_none()
        && proof.restore.as_ref().is_some_and(|restore| restore.epoch == epoch)
        && newest.revision == current
        && proof.stable(case).is_some_and(|stable| stable.revision != current);
    is_open.then(|| Trial {
        epoch,
        number: newest.number,
        verification: clock(case, proof.verification.clone().unwrap_or_default()),
    })
}

/// Time counts while something is missing that the revision itself owes.
fn clock(case: &Case<'_>, before: VerificationStatus) -> VerificationStatus {
    let is_ready = settled_pods(case, case.seen.job.spec.replicas);
    let was_ready = before.was_ready || is_ready;
    let owes = !is_ready || case.seen.workers.values().any(|worker| worker.has_input);
    let counts = owes && !matches!(case.seen.broker, BrokerObserved::Failed(_));
    // The first time that all are ready another wait begins.
    let since = before.since.filter(|_| before.was_ready == was_ready);
    VerificationStatus { was_ready, since: counts.then(|| since.unwrap_or_else(|| time(case.seen.now))) }
}

/// Why the revision has failed, if it has.
fn failure(case: &Case<'_>, trial: &Trial) -> Option<(Reason, String)> {
    let of_this = |pod: &&PodFacts| pod.epoch == Some(trial.epoch) && !pod.works() && !pod.terminating;
    for pod in case.pods.iter().filter(of_this) {
        let Some(exit) = &pod.last_exit else { continue };
        let replaced = case.seen.replacements.get(&pod.name).map_or(0, |done| done.count);
        match exit.restart() {
            // Somebody else has its id: the same would happen to any revision.
            Restart::DoesNotHelp(Reason::Fenced) => {}
            Restart::DoesNotHelp(reason) => return Some((reason, format!("worker {}: {}", pod.name, exit.describe()))),
            Restart::MayHelp if replaced >= REPLACED => {
                let message = format!("worker {}: {}, replaced {replaced} times", pod.name, exit.describe());
                return Some((Reason::WorkersRestarting, message));
            }
            Restart::MayHelp => {}
        }
    }
    let since = trial.verification.since.as_deref()?.parse::<Timestamp>().ok()?;
    let waited = elapsed(since, case.seen.now);
    let deadlines = &case.seen.job.spec.upgrade.deadlines;
    if !trial.verification.was_ready {
        return (waited >= Duration::from(deadlines.ready)).then(|| not_ready(case, "ready"));
    }
    if waited < Duration::from(deadlines.first_commit) {
        return None;
    }
    if !settled_pods(case, case.seen.job.spec.replicas) {
        return Some(not_ready(case, "firstCommit"));
    }
    let message = "there is input, and nothing was committed within spec.upgrade.deadlines.firstCommit";
    Some((Reason::NoFirstCommit, message.to_owned()))
}

fn not_ready(case: &Case<'_>, deadline: &str) -> (Reason, String) {
    let late = format!("not all workers are ready, and spec.upgrade.deadlines.{deadline} has passed without a commit");
    let trouble = case.pods.iter().find_map(|pod| Some((pod, pod.trouble.as_ref()?)));
    trouble.map_or_else(
        || (Reason::WorkersNotReady, late.clone()),
        |(pod, trouble)| (trouble.reason, format!("{late}: worker {}: {}", pod.name, trouble.message)),
    )
}

/// All workers are gone and their ids are fenced: whether they have committed anything is asked, if it matters.
pub(super) fn ask_about_the_last(case: &Case<'_>, proof: &mut Proof) -> Option<Act> {
    let restore = proof.restore.clone()?;
    let (_, current) = running(case)?;
    let Some(last) = newest_first(&case.seen.accepted).into_iter().find(|accepted| accepted.revision == current) else {
        // Nobody knows any more where its positions are.
        proof.restore = None;
        return None;
    };
    Some(ask(case, proof, proof_of(restore.epoch), &last.run_spec(&case.seen.job), &last.spec.kafka))
}

/// Nothing stands in the way of a start: where it begins is written down, unless it is that of the stable revision. Also when nothing shall be taken
/// back: which revision has committed last must be known in any case.
pub(super) fn restore_point(case: &Case<'_>, proof: &mut Proof, run: &RunSpec, epoch: i64) -> Option<Act> {
    let kafka = proof
        .stable(case)
        .filter(|stable| stable.revision != run.revision)
        .and_then(|_| newest_first(&case.seen.accepted).into_iter().find(|newest| newest.revision == run.revision))
        .map(|newest| newest.spec.kafka.clone())?;
    let purpose = format!("restore-{epoch}");
    if let Some(found) = positions(case, &purpose).and_then(|positions| positions.found.as_ref().ok()) {
        proof.restore = Some(RestorePoint {
            epoch,
            digest: found.digest.clone(),
            partitions: found.partitions,
            at: Some(time(case.seen.now)),
        });
        proof.verification = Some(VerificationStatus { was_ready: false, since: Some(time(case.seen.now)) });
        return None;
    }
    Some(ask(case, proof, purpose, run, &kafka))
}

fn ask(case: &Case<'_>, proof: &mut Proof, purpose: String, run: &RunSpec, kafka: &KafkaSpec) -> Act {
    proof.unread = positions(case, &purpose).and_then(|positions| positions.found.as_ref().err().cloned());
    Act::ReadPositions(Box::new(ReadPositions {
        purpose,
        kafka: kafka.clone(),
        group: run.resolved.consumer_group.clone(),
    }))
}

/// Names the reading that tells whether this start has committed.
fn proof_of(epoch: i64) -> String {
    format!("proof-{epoch}")
}
