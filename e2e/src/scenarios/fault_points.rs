//! A worker dies at each step of a transaction, and the next one takes over what it left.

use std::time::Duration;

use fencepost_oracle::Promise;
use fencepost_oracle::reader::Tail;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};

use super::bench::{Limits, renew};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::wait::{self, Deadline};

/// Where it dies: around the outputs, the deliveries, the positions and the end of the transaction.
const STEPS: &[&str] = &[
    "before-begin",
    "before-produce",
    "after-produce",
    "before-flush",
    "after-flush",
    "before-send-offsets",
    "after-send-offsets",
    "before-commit",
    "after-commit",
];

/// Where it dies when partitions change hands.
const REBALANCES: &[&str] = &["revoked", "before-give-up", "before-resolve", "after-resolve", "before-read"];

/// Where it dies while it takes a transaction back.
const ABORTS: &[&str] = &["before-abort", "after-abort"];

/// Longer than it takes to be back in the group and in a transaction.
const AGAIN: Duration = Duration::from_secs(8);

/// Where it dies without transactions.
const COMMITS: &[&str] = &["after-produce", "after-flush", "before-commit-offsets", "after-commit-offsets"];

/// Not the first time, so that there is something before it that was committed.
const DIE: &str = "20*off->return";

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { image: Some(bench.worker_with_faults()?), ..OrdersJob::new(bench) };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    die_at_each(bench, &job, &mut tail, STEPS)?;
    // The third worker makes the group ask the others for partitions back, and all of them look up where to go on.
    for (replicas, point) in
        REBALANCES.iter().zip([3, 2].into_iter().cycle()).map(|(point, replicas)| (replicas, point))
    {
        bench.arm("orders-0", point, "return")?;
        bench.scale(&job.name, replicas)?;
        dies(bench, "orders-0", point)?;
        moves(&mut tail, &format!("after a death at {point}"))?;
        renew(bench, &job.name, "orders-0")?;
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    Ok(vec![format!("{} deaths", STEPS.len() + REBALANCES.len()), verdict])
}

/// A worker is taken out of its group in the middle of a transaction, which it then cannot commit, and dies in the abort.
pub(super) fn aborts(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { image: Some(bench.worker_with_faults()?), ..OrdersJob::new(bench) };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    for (step, ordinal) in ABORTS.iter().zip(0..) {
        let victim = format!("orders-{ordinal}");
        bench.arm(&victim, step, "return")?;
        // So long that it is in a transaction when it is taken out; but the first time it may not have begun one yet.
        bench.arm(&victim, "after-produce", "sleep(1000)")?;
        let died = wait::until(Deadline::after(Limits::JUDGED), || {
            bench.take_out_of_group(&job.name, ordinal)?;
            let ended = bench.until(&victim, "its death", AGAIN, |pod: Option<&Pod>| pod.and_then(aborted).is_some());
            Ok::<_, Failure>(ended.is_ok().then_some(()))
        })?;
        ensure!(died.is_some(), "{victim} was taken out of its group again and again, and had nothing to abort");
        dies(bench, &victim, step)?;
        moves(&mut tail, &format!("after a death {step}"))?;
        renew(bench, &job.name, &victim)?;
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

/// Without transactions: what was written and not yet counted as read is written again, and nothing is lost.
pub(super) fn at_least_once(bench: &Bench<'_>) -> Outcome {
    let image = Some(bench.worker_with_faults()?);
    let job = OrdersJob { image, guarantee: "AtLeastOnce", ..OrdersJob::new(bench) };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    die_at_each(bench, &job, &mut tail, COMMITS)?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial.promise(Promise::AtLeastOnce))?])
}

/// The two workers take turns.
fn die_at_each(bench: &Bench<'_>, job: &OrdersJob, tail: &mut Tail, steps: &[&str]) -> Result<(), Failure> {
    for (step, victim) in steps.iter().zip(["orders-0", "orders-1"].into_iter().cycle()) {
        bench.arm(victim, step, DIE)?;
        dies(bench, victim, step)?;
        moves(tail, &format!("after a death {step}"))?;
        renew(bench, &job.name, victim)?;
    }
    Ok(())
}

/// Waits until the container has died where it should, and not otherwise.
pub(super) fn dies(bench: &Bench<'_>, pod: &str, step: &str) -> Result<(), Failure> {
    let what = format!("the death of {pod} at {step}");
    let ended = bench.until(pod, &what, Limits::JUDGED, |pod: Option<&Pod>| pod.and_then(aborted).is_some())?;
    let last_words = ended.as_ref().and_then(aborted).and_then(|end| end.message.clone()).unwrap_or_default();
    ensure!(last_words.contains(&format!("{step:?}")), "{pod} has not died at {step}: {last_words}");
    Ok(())
}

/// The end of a container that has crashed.
fn aborted(pod: &Pod) -> Option<&ContainerStateTerminated> {
    /// SIGABRT, or what follows when the kernel shields the first process of a container from it.
    const ABORTED: [i32; 4] = [128 + 6, 128 + 4, 128 + 11, 128 + 5];
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().find_map(|status| {
        let now = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        let before = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        now.or(before).filter(|end| ABORTED.contains(&end.exit_code))
    })
}
