//! A job is suspended under load, and goes on.

use std::time::Duration;

use fencepost_crds::v1alpha1::{JobState, Phase};

use super::bench::{Limits, epoch, is_answered};
use super::failure::ensure;
use super::scale::{Flow, fence_of, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};

/// From the end of the suspension until no reader is held up.
const RELEASED: Duration = Duration::from_secs(5);

/// One of the workers dies in a transaction that the brokers would keep open for ten minutes.
pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob {
        transaction_timeout: Some("10m"),
        image: Some(bench.worker_with_faults()?),
        ..OrdersJob::new(bench)
    };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "before it is suspended")?;
    bench.arm("orders-1", "before-commit", "1*sleep(600000)")?;
    let mut manifest = job.manifest(bench)?;
    manifest.spec.state = JobState::Suspended;
    bench.apply(&manifest)?;
    let suspended = bench.until_job(&job.name, "the job to be suspended", Limits::READY, |job| {
        is_answered(job) && job.status.as_ref().and_then(|status| status.phase) == Some(Phase::Suspended)
    })?;
    let left = bench.workers(&job.name)?;
    ensure!(left.is_empty(), "workers are left: {left:?}");
    let fence = fence_of(&suspended)?;
    ensure!(
        (fence.operation.as_deref(), fence.ids, fence.open) == (Some("suspend-1"), Some(2), Some(1)),
        "two ids were to be fenced, one with an open transaction: {fence:?}"
    );
    bench.until_released(&job.output, RELEASED)?;

    // What is written meanwhile waits.
    while tail.poll(Duration::from_millis(100)).map_err(Failure::means("follow the output"))? > 0 {}
    let meanwhile = tail.poll(Duration::from_secs(3)).map_err(Failure::means("follow the output"))?;
    ensure!(meanwhile == 0, "{meanwhile} records were committed by nobody");
    manifest.spec.state = JobState::Running;
    bench.apply(&manifest)?;
    let resumed = bench.until_ready(&job.name)?;
    ensure!(epoch(&resumed) == 2, "the job goes on in epoch {}", epoch(&resumed));
    moves(&mut tail, "after it was resumed")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}
