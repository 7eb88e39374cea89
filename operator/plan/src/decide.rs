//! What is the next step.
//!
//! ```text
//!             ┌──────────── gates (newest spec) ────────────┐
//!  spec ──▶ static rules ─┬─▶ plan pod ─────────┬─▶ accepted: ControllerRevision ──▶ rollout
//!                         └─▶ brokers, topics ──┘
//!
//!  rollout:   nothing runs ──────────────────────────▶ epoch 1 journaled ──▶ children applied
//!             another revision runs ──▶ Draining ──▶ all old pods gone ──▶ Fencing ──▶ positions read ──▶ epoch+1 journaled ──▶ children applied
//!             it fails before its first commit ──▶ the same way back to the last revision that has committed
//!             suspended          ──▶ Draining ──▶ all pods gone ──▶ Fencing ──▶ no revision journaled as running
//!             deleted            ──▶ Draining ──▶ all pods gone ──▶ Fencing ──▶ finalizer removed, or when the deadline has passed
//!             the same revision runs ────────────────────────────────────────────────────────▶ children applied
//! ```
//!
//! The journal is `status`: it is written before the acts of the same decision are done, and each act is idempotent. So the operator
//! may be killed anywhere: the next decision starts from what is really there.

mod deletion;
pub(crate) mod fence;
mod gates;
mod repair;
mod rollout;
mod rotate;
#[cfg(test)]
mod tests;
pub(crate) mod verify;

use std::time::Duration;

use fencepost_crds::v1alpha1::StreamJobStatus;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use kube_core::ResourceExt;
use thiserror::Error;

pub(crate) use self::rollout::{delete_id, restart_asked, restart_id, scale_id, settled_pods, suspend_id};
pub use self::{
    fence::{Fence, Fencing, open},
    gates::{ApprovalGate, BrokerGate, Gates, SpecGate},
    repair::{Cause, READY_LONG_ENOUGH, Replace},
    rollout::{Foreign, Progress, Step},
    verify::{Proof, ReadPositions},
};
use crate::{
    build::{BuildError, Children, PlanChildren},
    events::{self, Note},
    observed::Observed,
    pods::{self, PodFacts},
    report,
    revision::{Identity, NotStored, RunSpec, newest_first, revision_of},
    validate::TopicToCreate,
};

/// An observed job that nothing can be decided about.
#[derive(Debug, Error)]
pub enum DecideError {
    /// It did not come from an API server.
    #[error("the job cannot be identified")]
    NotStored(#[from] NotStored),
    /// A child could not be built.
    #[error("the children cannot be built")]
    Build(#[from] BuildError),
}

/// Something to do. Every act may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Apply a plan pod and its ConfigMap.
    Plan(Box<PlanChildren>),
    /// Delete a plan pod and its ConfigMap.
    DeletePlan {
        /// Name of both.
        name: String,
        /// The pod that is meant, if it exists.
        uid: Option<String>,
        /// Why, which also says what it counts as.
        outcome: PlanOutcome,
    },
    /// Make topics.
    CreateTopics(Vec<TopicToCreate>),
    /// Keep a revision that passed all checks, as the next entry of the log; but first let the API server try its children, so that a
    /// running revision does not stop for one that cannot start.
    Accept {
        /// The entry.
        revision: Box<ControllerRevision>,
        /// What is tried.
        trial: Box<Children>,
    },
    /// Ask for zero workers, whatever revision the StatefulSet has.
    ScaleToZero {
        /// Name of the StatefulSet.
        name: String,
        /// The StatefulSet that is meant.
        uid: String,
        /// It must not have changed since it was seen.
        resource_version: String,
    },
    /// Take transactional ids from workers that are gone.
    Fence(Box<Fence>),
    /// Read the committed positions of the group, when no worker lives.
    ReadPositions(Box<ReadPositions>),
    /// Add the finalizer: from now on the job may have something that has to be ended before it goes.
    Hold,
    /// Remove the finalizer.
    Release {
        /// What is left behind, to be said to people.
        warning: Option<String>,
    },
    /// Apply all children, the StatefulSet last, and delete those that are no longer wanted.
    Apply {
        /// The children.
        children: Box<Children>,
        /// The StatefulSet must not have changed since it was seen: a second operator that believes to lead must not undo a newer epoch.
        seen: Option<Seen>,
    },
    /// Replace a worker.
    Replace(Replace),
    /// Forget revisions that nothing refers to.
    ForgetRevisions(Vec<String>),
}

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// It is this one, and no other of its name.
    pub uid: String,
    /// It has not changed.
    pub resource_version: String,
}

impl Seen {
    pub(crate) fn of(set: &StatefulSet) -> Self {
        Self { uid: set.uid().unwrap_or_default(), resource_version: set.resource_version().unwrap_or_default() }
    }
}

/// What a plan pod came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    /// It answered.
    Answered,
    /// It ended without an answer.
    Failed,
    /// The spec changed meanwhile, or the answer is not needed any more.
    Superseded,
}

/// What is to be done, and what is to be said.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Decision {
    /// The status to write **before** the acts.
    pub status: StreamJobStatus,
    /// In this order.
    pub acts: Vec<Act>,
    /// To publish after the status was written.
    pub notes: Vec<Note>,
    /// When to look again if nothing else happens.
    pub look_again: Duration,
    /// Workers that are wanted.
    pub replicas: i32,
    /// The status has the end of a fence: what is done from now on is another one, whatever its name.
    pub fence_is_over: bool,
    /// Whether the brokers allow the newest spec, once they answered: how soon they are worth asking again.
    pub brokers_allow: bool,
}

/// What all parts of a decision share.
pub(crate) struct Case<'a> {
    pub seen: &'a Observed,
    pub identity: Identity,
    /// What the newest spec asks for.
    pub target: RunSpec,
    /// The newest spec is the newest accepted one.
    pub target_is_accepted: bool,
    pub pods: Vec<PodFacts>,
    pub old: StreamJobStatus,
}

impl<'a> Case<'a> {
    fn new(seen: &'a Observed) -> Result<Self, NotStored> {
        let identity = Identity::of(&seen.job)?;
        let revision = revision_of(&seen.job.spec, &seen.accepted);
        let ranked = newest_first(&seen.accepted);
        let target = ranked.iter().find(|old| old.revision == revision).map_or_else(
            || RunSpec::of(&seen.job, &seen.job.spec, revision.clone(), &seen.settings.worker_image),
            |old| old.run_spec(&seen.job),
        );
        Ok(Self {
            target_is_accepted: ranked.first().is_some_and(|newest| newest.revision == revision),
            target,
            identity,
            pods: pods::workers(&seen.pods),
            old: seen.job.status.clone().unwrap_or_default(),
            seen,
        })
    }
}

/// Decides.
///
/// # Errors
/// The job cannot be identified or its children cannot be built: bugs, not states of the world.
pub fn decide(seen: &Observed) -> Result<Decision, DecideError> {
    let case = Case::new(seen)?;
    let mut gates = gates::judge(&case)?;
    if deletion::is_deleted(&case) {
        // Nothing is begun for a job that goes.
        gates.acts.clear();
    }
    let progress = rollout::next(&case, &gates)?;
    let repairs = repair::replacements(&case, &progress);
    let status = report::status(&case, &gates, &progress);
    let notes = events::between(&case.old, &status);
    let look_again = look_again(&gates, &progress, &repairs);

    let brokers_allow = matches!(gates.broker, BrokerGate::Passed);
    let mut acts = gates.acts;
    acts.extend(progress.acts);
    acts.extend(repairs.acts);
    // Brokers may take their time, and nothing but the end of the job waits for their answer.
    acts.sort_by_key(|act| match act {
        Act::Release { .. } => 2,
        Act::Fence(_) | Act::ReadPositions(_) => 1,
        _ => 0,
    });
    Ok(Decision {
        status,
        acts,
        notes,
        look_again,
        brokers_allow,
        replicas: progress.replicas,
        fence_is_over: progress.fencing.done.is_some(),
    })
}

/// Nothing else happens for long only when all is well; workers are asked for their state at this pace.
const STEADY: Duration = Duration::from_secs(10);
/// Nothing runs: the checks say themselves when they are worth repeating.
const IDLE: Duration = Duration::from_mins(1);
/// Pods and plans wake the operator by themselves; this is for a lost wake-up.
const WAITING: Duration = Duration::from_secs(3);
/// The next step can be done at once.
const AT_ONCE: Duration = Duration::from_millis(20);

fn look_again(gates: &Gates, progress: &Progress, repairs: &repair::Repairs) -> Duration {
    // What came of a fence or a question is looked at at once; one that failed is tried again.
    let asks = |act: &Act| matches!(act, Act::Fence(_) | Act::ReadPositions(_));
    let is_refused = progress.fencing.failed.is_some() || progress.proof.unread.is_some();
    let rollout = match progress.step {
        _ if progress.acts.iter().any(asks) && !is_refused => AT_ONCE,
        Step::Accepting | Step::Holding => AT_ONCE,
        Step::Draining { .. }
        | Step::Fencing { .. }
        | Step::ReadingPositions
        | Step::Starting
        | Step::Scaling
        | Step::Rotating { .. }
        | Step::Blocked(_) => WAITING,
        Step::Running => STEADY,
        Step::Nothing | Step::Suspended | Step::Released => IDLE,
    };
    let gate = gates.look_again.unwrap_or(IDLE);
    repairs.look_again.into_iter().fold(rollout.min(gate), Duration::min)
}
