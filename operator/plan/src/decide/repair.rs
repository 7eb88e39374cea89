//! Workers that crash again and again.
//!
//! The kubelet restarts a container at once, then after 10 s, 20 s, … up to five minutes, and its clock is reset by ten minutes
//! of calm. For a stream job that is long: partitions wait. A new pod starts without that history, so a pod whose container is held
//! back is replaced, with a backoff of our own that ends at one minute.

use std::time::Duration;

use super::{Act, Case, Progress, Step};
use crate::{
    backoff,
    pods::{PodFacts, Restart, elapsed},
};

/// Ready for this long, a worker's earlier crashes do not count any more.
pub const READY_LONG_ENOUGH: Duration = Duration::from_mins(1);

/// Why a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It crashes again and again.
    Crash,
    /// Its credentials have changed.
    Credentials,
}

/// A worker to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replace {
    /// Name of the pod.
    pub pod: String,
    /// The instance that is meant.
    pub uid: String,
    /// Why.
    pub cause: Cause,
    /// The same for log and event.
    pub why: String,
}

/// What is to be replaced, and when to look again.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub acts: Vec<Act>,
    pub look_again: Option<Duration>,
}

pub(super) fn replacements(case: &Case<'_>, progress: &Progress) -> Repairs {
    let mut repairs = Repairs::default();
    if !matches!(progress.step, Step::Starting | Step::Scaling | Step::Running | Step::Rotating { .. }) {
        return repairs;
    }
    for pod in &case.pods {
        match due(case, pod) {
            Due::Not => {}
            Due::Now(why) => {
                repairs.acts.push(Act::Replace(Replace {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    cause: Cause::Crash,
                    why,
                }));
            }
            Due::In(rest) => repairs.look_again = Some(repairs.look_again.map_or(rest, |old| old.min(rest))),
        }
    }
    repairs
}

enum Due {
    Not,
    Now(String),
    In(Duration),
}

fn due(case: &Case<'_>, pod: &PodFacts) -> Due {
    let Some(exit) = pod.last_exit.as_ref().filter(|_| pod.backing_off && !pod.terminating) else { return Due::Not };
    // Fenced, a bad record, a job that does not plan: a fresh start meets the same end sooner.
    if exit.restart() != Restart::MayHelp {
        return Due::Not;
    }
    let pause = case.seen.replacements.get(&pod.name).map_or(Duration::ZERO, |done| {
        backoff::REPLACE.after(done.count).saturating_sub(elapsed(done.last, case.seen.now))
    });
    if pause.is_zero() { Due::Now(exit.describe()) } else { Due::In(pause) }
}
