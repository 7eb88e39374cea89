//! From an accepted revision to running workers, without ever having two generations at once.
//!
//! ```text
//!  StatefulSet    pods of        journal
//!  has epoch      other epochs   (epoch, current)    step
//!  ─────────────  ─────────────  ──────────────────  ─────────────────────────────────────────────────────
//!  -              -              -                   journal (1, target), apply
//!  -              some           -                   wait: workers of an earlier job of the same name live
//!  e              -              (e, target)         apply (repairs drift, scales)
//!  e              any            (e, other)          scale to zero, wait until every pod is gone; so when a restart of the same is asked for
//!  e, 0 pods      none           (e, other)          fence the ids of workers that are gone, read positions, journal (e+1, target), apply
//!  e              any            (e+1, target)       killed between journal and apply, or meddled with: scale to zero, wait, apply
//!  not ours       any            any                 blocked
//!
//!  not held       -              -                   first the finalizer, see `deletion`
//!
//!  suspended:
//!  e              any            any                 scale to zero, wait until every pod is gone
//!  e, 0 pods      none           any                 fence the ids of workers that are gone, journal (e, none)
//! ```

use fencepost_crds::{
    conditions, names,
    v1alpha1::{JobState, OperationType},
};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube_core::ResourceExt;

use super::{
    Act, Case, Gates, Seen, deletion,
    fence::{self, Fencing, Owed},
    rotate,
    verify::{self, Proof},
};
use crate::{
    build::{self, BuildError, Start},
    observed::BrokerObserved,
    pods::PodFacts,
    revision::{AcceptedRevision, Revision, RunSpec, newest_first},
};

/// Accepted revisions that are kept besides those in use, to go back to without a new plan image.
const HISTORY: usize = 5;

/// Longest value of the annotation that is told from another.
const RESTART_LIMIT: usize = 64;

/// Where a rollout stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The step.
    pub step: Step,
    /// The operation that it is a step of.
    pub operation: Option<OperationType>,
    /// Epoch to journal.
    pub epoch: Option<i64>,
    /// Revision to journal as running.
    pub current: Option<Revision>,
    /// Workers wanted.
    pub replicas: i32,
    /// Transactional ids of workers that are gone.
    pub fencing: Fencing,
    /// Which revisions have committed.
    pub proof: Proof,
    /// The restart that the newest start stands for.
    pub restarted: Option<String>,
    /// What the step needs done.
    pub acts: Vec<Act>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing was accepted yet.
    Nothing,
    /// The newest spec is being accepted.
    Accepting,
    /// Old workers finish.
    Draining {
        /// Pods that live.
        pods: Vec<String>,
    },
    /// They are gone, and their transactional ids are taken from them.
    Fencing {
        /// Number of ids.
        ids: usize,
    },
    /// The positions are read that they have committed.
    ReadingPositions,
    /// Workers start.
    Starting,
    /// The number of workers changes.
    Scaling,
    /// Workers are replaced one by one, because their credentials have changed.
    Rotating {
        /// Those that are left.
        pods: Vec<String>,
    },
    /// Workers run as asked.
    Running,
    /// None does, as asked.
    Suspended,
    /// The finalizer is added before anything starts.
    Holding,
    /// The job is deleted, and nothing is left to be done.
    Released,
    /// Something is in the way.
    Blocked(Foreign),
}

/// Something that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A StatefulSet of this name that belongs to no StreamJob, or to one that was deleted.
    StatefulSet(String),
    /// Workers of an earlier StreamJob of the same name.
    Workers(Vec<String>),
    /// A revision runs whose spec is not kept any more.
    LostRevision(Revision),
}

pub(super) fn next(case: &Case<'_>, gates: &Gates) -> Result<Progress, BuildError> {
    let mut progress = Progress {
        step: Step::Nothing,
        operation: None,
        epoch: case.old.epoch,
        current: current(case),
        replicas: case.seen.job.spec.replicas,
        fencing: Fencing::default(),
        proof: verify::judge(case),
        restarted: case.old.restarted.clone(),
        acts: Vec::new(),
    };
    if deletion::is_deleted(case) {
        deletion::proceed(case, &mut progress);
        return Ok(progress);
    }
    if gates.passed() && !case.target_is_accepted {
        progress.acts.push(accept(case)?);
        progress.step = Step::Accepting;
        return Ok(progress);
    }
    let Some(run) = to_run(case, &progress.proof) else {
        if let Some(lost) = progress.current.clone() {
            progress.step = Step::Blocked(Foreign::LostRevision(lost));
        }
        return Ok(progress);
    };
    if let Some(foreign) = foreign(case) {
        progress.step = Step::Blocked(foreign);
        return Ok(progress);
    }
    match case.seen.job.spec.state {
        JobState::Running => start_or_drain(case, &run, &mut progress)?,
        JobState::Suspended => suspend(case, &run, &mut progress),
    }
    Ok(progress)
}

pub(super) fn current(case: &Case<'_>) -> Option<Revision> {
    case.old.revision.as_ref()?.current.as_deref().map(Revision::read)
}

/// What should run: the newest accepted revision, unless it is taken back. A newer spec that was not accepted changes nothing.
pub(super) fn to_run(case: &Case<'_>, proof: &Proof) -> Option<RunSpec> {
    let newest = newest_first(&case.seen.accepted).first().copied();
    let stable = proof.failed.as_ref().and_then(|_| proof.stable(case));
    stable.or(newest).map(|run| run.run_spec(&case.seen.job))
}

fn accept(case: &Case<'_>) -> Result<Act, BuildError> {
    let readable = newest_first(&case.seen.accepted).first().map_or(0, |newest| newest.number);
    // A number is taken also when what it stands for cannot be read.
    let number = readable.max(case.seen.newest_number).saturating_add(1);
    let accepted = AcceptedRevision {
        object: AcceptedRevision::object_name(&case.identity.name, number),
        number,
        revision: case.target.revision.clone(),
        image: case.target.image.clone(),
        spec: case.seen.job.spec.clone(),
    };
    let start = Start {
        epoch: case.old.epoch.unwrap_or(0).saturating_add(1),
        replicas: case.seen.job.spec.replicas,
        secrets: rotate::newest(case, &case.target),
    };
    let trial = Box::new(build::children(&case.identity, &case.target, &start)?);
    Ok(Act::Accept { revision: Box::new(accepted.write(&case.identity)), trial })
}

fn foreign(case: &Case<'_>) -> Option<Foreign> {
    if let Some(set) = &case.seen.stateful_set {
        if !case.identity.owns(set.owner_references()) {
            return Some(Foreign::StatefulSet(set.name_any()));
        }
    } else if case.old.epoch.is_none() && !case.pods.is_empty() {
        return Some(Foreign::Workers(case.pods.iter().map(|pod| pod.name.clone()).collect()));
    }
    None
}

fn start_or_drain(case: &Case<'_>, run: &RunSpec, progress: &mut Progress) -> Result<(), BuildError> {
    let set = case.seen.stateful_set.as_ref();
    let is_current = progress.current.as_ref() == Some(&run.revision);
    // Workers that work are not stopped while nobody could start.
    let restart = restart_asked(case).filter(|_| !matches!(case.seen.broker, BrokerObserved::Failed(_)));
    let goes_on = is_current && !is_being_replaced(case) && restart.is_none();
    let journaled = progress.epoch.filter(|_| goes_on);
    // The epoch that may run now: the journaled one, or the next.
    let epoch = journaled.unwrap_or_else(|| progress.epoch.unwrap_or(0).saturating_add(1));
    let same_start =
        set.is_none_or(|set| epoch_of(set) == Some(epoch)) && case.pods.iter().all(|pod| pod.epoch == Some(epoch));
    let is_taken_back = progress.proof.failed.is_some() && !is_current;
    let replaces = if is_taken_back { OperationType::Rollback } else { OperationType::Restart };
    if !same_start && !is_quiet(case, set) {
        progress.operation = Some(replaces);
        drain(case, set, progress);
        return Ok(());
    }
    // From here on no worker of another start lives, and none can appear.
    let fresh = journaled.is_none();
    if !deletion::is_held(case) {
        progress.acts.push(Act::Hold);
        if fresh {
            progress.step = Step::Holding;
            return Ok(());
        }
    }
    if fresh && let Owed::Now(fence) = fence::before_a_start(case, run, restart_id(epoch), progress) {
        progress.operation = Some(replaces);
        progress.step = Step::Fencing { ids: fence.ids.len() };
        progress.acts.push(Act::Fence(Box::new(fence)));
        return Ok(());
    }
    if fresh {
        let asked = verify::ask_about_the_last(case, &mut progress.proof)
            .or_else(|| verify::restore_point(case, &mut progress.proof, run, epoch));
        if let Some(asked) = asked {
            progress.operation = Some(replaces);
            progress.step = Step::ReadingPositions;
            progress.acts.push(asked);
            return Ok(());
        }
    }
    progress.epoch = Some(epoch);
    progress.current = Some(run.revision.clone());
    if fresh {
        // Any start is as good as the one that was asked for.
        progress.restarted = restart.or_else(|| progress.restarted.take());
    }
    (progress.step, progress.operation) = running_step(case, set, epoch, fresh);
    let start = Start { epoch, replicas: progress.replicas, secrets: rotate::newest(case, run) };
    progress.acts.push(Act::Apply {
        children: Box::new(build::children(&case.identity, run, &start)?),
        seen: set.map(Seen::of),
    });
    progress.fencing.used = fence::uses(run, progress.replicas, fresh);
    // New credentials first: the fence may need them.
    rotate::proceed(case, &start.secrets, progress);
    if !fresh {
        let owed = fence::of_surplus(case, run, set, scale_id(case, epoch), progress);
        if progress.step == Step::Running && !matches!(owed, Owed::Nothing) {
            (progress.step, progress.operation) = (Step::Scaling, Some(OperationType::Scale));
        }
        if let Owed::Now(fence) = owed {
            progress.acts.push(Act::Fence(Box::new(fence)));
        }
    }
    progress.acts.extend(forget(case, &run.revision, &progress.proof));
    Ok(())
}

/// Somebody wants the workers to begin anew.
pub(crate) fn restart_asked(case: &Case<'_>) -> Option<String> {
    let asked = case.seen.job.annotations().get(names::ANNOTATION_RESTART).filter(|asked| !asked.is_empty())?;
    let asked = conditions::clamp(asked, RESTART_LIMIT);
    (case.old.restarted.as_ref() != Some(&asked)).then_some(asked)
}

/// A fence has begun whose end nobody has seen: what is left of it may still reach the brokers, and would hit workers that start without another
/// fence. Or its end was seen, and the next start is being prepared.
fn is_being_replaced(case: &Case<'_>) -> bool {
    let step = case.old.operation.as_ref().and_then(|operation| operation.step.as_deref());
    matches!(step, Some("Fencing" | "ReadingPositions"))
}

/// The first steps of a restart, and no others. That no revision is current afterwards makes the next start another epoch.
fn suspend(case: &Case<'_>, run: &RunSpec, progress: &mut Progress) {
    progress.replicas = 0;
    let set = case.seen.stateful_set.as_ref();
    if !is_quiet(case, set) {
        progress.operation = Some(OperationType::Suspend);
        drain(case, set, progress);
        return;
    }
    let operation = suspend_id(progress.epoch.unwrap_or(0));
    if let Owed::Now(fence) = fence::before_a_start(case, run, operation, progress) {
        progress.operation = Some(OperationType::Suspend);
        progress.step = Step::Fencing { ids: fence.ids.len() };
        progress.acts.push(Act::Fence(Box::new(fence)));
        return;
    }
    if let Some(asked) = verify::ask_about_the_last(case, &mut progress.proof) {
        progress.operation = Some(OperationType::Suspend);
        progress.step = Step::ReadingPositions;
        progress.acts.push(asked);
        return;
    }
    progress.current = None;
    progress.step = Step::Suspended;
}

pub(super) fn drain(case: &Case<'_>, set: Option<&StatefulSet>, progress: &mut Progress) {
    progress.step = Step::Draining { pods: case.pods.iter().map(|pod| pod.name.clone()).collect() };
    progress.acts.extend(set.filter(|set| wanted(set) != Some(0)).map(scale_to_zero));
}

/// Names the operation that stops this epoch for a while.
pub(crate) fn suspend_id(epoch: i64) -> String {
    format!("suspend-{epoch}")
}

/// Names the operation that ends the job.
pub(crate) fn delete_id(epoch: i64) -> String {
    format!("delete-{epoch}")
}

/// Names the operation that starts this epoch.
pub(crate) fn restart_id(epoch: i64) -> String {
    format!("restart-{epoch}")
}

/// Names the operation that brings the number of workers to what this generation of the spec asks for.
pub(crate) fn scale_id(case: &Case<'_>, epoch: i64) -> String {
    format!("scale-{epoch}-{}", case.seen.job.metadata.generation.unwrap_or(0))
}

fn running_step(case: &Case<'_>, set: Option<&StatefulSet>, epoch: i64, fresh: bool) -> (Step, Option<OperationType>) {
    let under_way = case.old.operation.as_ref().and_then(|operation| operation.operation_type);
    let start = match epoch {
        1 => OperationType::Start,
        _ if under_way == Some(OperationType::Resume) => OperationType::Resume,
        _ if under_way == Some(OperationType::Rollback) => OperationType::Rollback,
        _ if fresh && current(case).is_none() => OperationType::Resume,
        _ => OperationType::Restart,
    };
    let replicas = case.seen.job.spec.replicas;
    let settled = set.is_some_and(|set| epoch_of(set) == Some(epoch) && wanted(set) == Some(replicas))
        && settled_pods(case, replicas);
    if settled && !fresh {
        return (Step::Running, None);
    }
    let set_is_new = set.is_none_or(|set| epoch_of(set) != Some(epoch));
    match under_way {
        _ if fresh || set_is_new => (Step::Starting, Some(start)),
        // A start that is under way stays one when the number of workers changes meanwhile.
        Some(OperationType::Start | OperationType::Restart | OperationType::Resume | OperationType::Rollback) => {
            (Step::Starting, Some(start))
        }
        Some(OperationType::Scale) => (Step::Scaling, Some(OperationType::Scale)),
        None | Some(OperationType::Rotate | OperationType::Suspend | OperationType::Delete)
            if set.and_then(wanted) != Some(replicas) =>
        {
            (Step::Scaling, Some(OperationType::Scale))
        }
        // Nothing was asked for: a worker went away by itself and comes back, or it is replaced.
        None | Some(OperationType::Rotate | OperationType::Suspend | OperationType::Delete) => (Step::Running, None),
    }
}

/// Exactly the wanted workers exist and all work.
pub(crate) fn settled_pods(case: &Case<'_>, replicas: i32) -> bool {
    usize::try_from(replicas).is_ok_and(|wanted| case.pods.len() == wanted) && case.pods.iter().all(PodFacts::works)
}

/// No worker lives, and none can appear: the StatefulSet controller has seen that it shall have none. Without the second half
/// a controller that still acts on its older copy could make a pod after we counted.
pub(super) fn is_quiet(case: &Case<'_>, set: Option<&StatefulSet>) -> bool {
    let none = |set: &StatefulSet| set.status.as_ref().is_some_and(|status| status.replicas == 0);
    let calm = set.is_none_or(|set| wanted(set) == Some(0) && is_observed(set) && none(set));
    calm && case.pods.is_empty()
}

/// The StatefulSet controller has seen the newest spec of the StatefulSet.
pub(super) fn is_observed(set: &StatefulSet) -> bool {
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    seen.is_some() && seen >= set.metadata.generation
}

pub(super) fn wanted(set: &StatefulSet) -> Option<i32> {
    set.spec.as_ref().map(|spec| spec.replicas.unwrap_or(1))
}

fn epoch_of(set: &StatefulSet) -> Option<i64> {
    set.annotations().get(names::ANNOTATION_EPOCH)?.parse().ok()
}

fn scale_to_zero(set: &StatefulSet) -> Act {
    Act::ScaleToZero {
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        resource_version: set.resource_version().unwrap_or_default(),
    }
}

/// Old entries of the log, except those that the running revision and the stable one are read from.
fn forget(case: &Case<'_>, running: &Revision, proof: &Proof) -> Option<Act> {
    let newest = newest_first(&case.seen.accepted);
    let of = |revision: &Revision| newest.iter().position(|old| old.revision == *revision);
    let in_use = [of(running), proof.stable.as_ref().and_then(of)];
    let old: Vec<String> = newest
        .into_iter()
        .enumerate()
        .skip(HISTORY)
        .filter(|(index, _)| !in_use.contains(&Some(*index)))
        .map(|(_, old)| old.object.clone())
        .collect();
    (!old.is_empty()).then_some(Act::ForgetRevisions(old))
}
