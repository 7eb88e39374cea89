//! The end of a job.
//!
//! ```text
//!  finalizer added ──▶ first start … deleted ──▶ workers commit and go ──▶ ids fenced ──▶ finalizer removed ──▶ children are collected
//!                                       └────────────── deadline ──────────────┘
//! ```
//!
//! Without it Kubernetes would remove everything at once: workers commit if they can, and what one of them leaves open holds up readers
//! until the transaction timeout.
//!
//! After the deadline the job goes in any case: the brokers are asked to fence once more, also for workers that are still there, and what
//! was not ended is said in a warning.

use fencepost_crds::{names, v1alpha1::OperationType};
use kube_core::ResourceExt;

use super::{
    Act, Case, Progress, Step,
    fence::{self, Owed},
    rollout::{self, drain, is_quiet},
};
use crate::pods::elapsed;

/// Of the garbage collector: the job is deleted, and its children stay.
const ORPHAN: &str = "orphan";

/// Somebody has deleted the job.
pub(super) fn is_deleted(case: &Case<'_>) -> bool {
    case.seen.job.metadata.deletion_timestamp.is_some()
}

/// The job waits for us when it is deleted.
pub(super) fn is_held(case: &Case<'_>) -> bool {
    case.seen.job.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// The first steps of a restart; then nothing holds the object any more, and its children go with it.
pub(super) fn proceed(case: &Case<'_>, progress: &mut Progress) {
    progress.replicas = 0;
    progress.operation = Some(OperationType::Delete);
    let set = case.seen.stateful_set.as_ref();
    if progress.epoch.is_none() {
        release(progress, None);
        return;
    }
    if is_orphaned(case) {
        let text = "the job is deleted without its workers, as asked: they go on, and nobody looks after them";
        release(progress, Some(text.to_owned()));
        return;
    }
    let late = is_late(case);
    let quiet = is_quiet(case, set);
    if !quiet && !late {
        drain(case, set, progress);
        return;
    }
    let run = rollout::to_run(case, &progress.proof).unwrap_or_else(|| case.target.clone());
    let operation = rollout::delete_id(progress.epoch.unwrap_or(0));
    let fence = match fence::before_a_start(case, &run, operation, progress) {
        Owed::Now(fence) => Some(Box::new(fence)),
        Owed::Nothing | Owed::Later => None,
    };
    match (fence, quiet) {
        (Some(fence), true) if !late || progress.fencing.failed.is_none() => {
            progress.step = Step::Fencing { ids: fence.ids.len() };
            progress.acts.push(Act::Fence(fence));
        }
        (Some(fence), true) => {
            let why = progress.fencing.failed.as_ref().map(|failed| failed.message.as_str()).unwrap_or_default();
            let left = format!("{} transactional ids are not fenced: {why}", fence.ids.len());
            release(progress, Some(late_with(&left)));
        }
        (None, true) => release(progress, None),
        // Whoever lives may take an id again, so what came of this is not waited for.
        (fence, false) => {
            progress.acts.extend(fence.map(Act::Fence));
            let pods: Vec<&str> = case.pods.iter().map(|pod| pod.name.as_str()).collect();
            release(progress, Some(late_with(&format!("workers are still there: {}", pods.join(", ")))));
        }
    }
}

fn late_with(left: &str) -> String {
    format!("the job is deleted, spec.deletion.deadline has passed, and {left}")
}

fn release(progress: &mut Progress, warning: Option<String>) {
    progress.step = Step::Released;
    progress.acts.push(Act::Release { warning });
}

/// Whoever deleted the job wants its workers to go on; the garbage collector may have cut them off already.
fn is_orphaned(case: &Case<'_>) -> bool {
    let set = case.seen.stateful_set.as_ref();
    case.seen.job.finalizers().iter().any(|finalizer| finalizer == ORPHAN)
        || set.is_some_and(|set| !case.identity.owns(set.owner_references()))
}

fn is_late(case: &Case<'_>) -> bool {
    let deadline = case.seen.job.spec.deletion.deadline;
    let since = case.seen.job.metadata.deletion_timestamp.as_ref();
    since.is_some_and(|since| elapsed(since.0, case.seen.now) >= std::time::Duration::from(deadline))
}
