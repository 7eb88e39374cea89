//! A job is deleted under load, and its namespace.

use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::v1alpha1::DeletionSpec;
use k8s_openapi::api::apps::v1::StatefulSet;

use super::bench::{Limits, epoch};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;
use crate::wait::{self, Deadline};

/// From the end of the job until no reader is held up.
const RELEASED: Duration = Duration::from_secs(5);

/// One of the workers stands still in a transaction that the brokers would keep open for ten minutes.
pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob {
        transaction_timeout: Some("10m"),
        image: Some(bench.worker_with_faults()?),
        ..OrdersJob::new(bench)
    };
    let manifest = job.manifest(bench)?;
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "before it is deleted")?;
    stand_still(bench, &job)?;
    delete_job(bench, &job)?;
    bench.until_released(&job.output, RELEASED)?;
    let told = bench.events("IdsFenced")?;
    ensure!(told.contains("1 open transaction is aborted"), "the fence is told as {told:?}");
    let forced = bench.events("DeletionForced")?;
    ensure!(forced.is_empty(), "nothing was in the way, and yet: {forced}");

    // Its positions are the group's, so one of the same name goes on.
    bench
        .until(&job.name, "the old StatefulSet to be gone", Limits::READY, |set: Option<&StatefulSet>| set.is_none())?;
    bench.apply(&manifest)?;
    let again = bench.until_ready(&job.name)?;
    ensure!(epoch(&again) == 1, "a new job begins in epoch {}", epoch(&again));
    moves(&mut tail, "from a new job of the same name")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;

    // With the namespace everything goes at once.
    let load = bench.load(Plan::new(&input, 4, 1500))?;
    moves(&mut tail, "before the namespace is deleted")?;
    stand_still(bench, &job)?;
    bench.kubectl(&["delete", "namespace", bench.namespace(), "--timeout=120s"])?;
    bench.until_released(&job.output, RELEASED)?;
    load.stop().map_err(Failure::means("write the input"))?;
    Ok(vec![verdict])
}

/// The brokers are away, and the job goes nevertheless.
pub(super) fn without_brokers(bench: &Bench<'_>, job: &OrdersJob) -> Result<(), Failure> {
    let mut manifest = job.manifest(bench)?;
    manifest.spec.deletion = DeletionSpec { deadline: Duration::from_secs(10).into() };
    bench.apply(&manifest)?;
    let broker = bench.cluster().broker(1).ok_or_else(|| Failure::Expectation("there is no broker 1".to_owned()))?;
    bench.cluster().kill_broker(broker).map_err(Failure::means("kill the broker"))?;
    let deleted = delete_job(bench, job);
    bench.cluster().start_broker(broker).map_err(Failure::means("start the broker"))?;
    deleted?;
    let told = bench.events("DeletionForced")?;
    ensure!(told.contains("spec.deletion.deadline has passed"), "what was left behind is told as {told:?}");
    Ok(())
}

fn delete_job(bench: &Bench<'_>, job: &OrdersJob) -> Result<(), Failure> {
    bench.kubectl(&["delete", "streamjob", &job.name, "--namespace", bench.namespace(), "--wait=false"])?;
    let gone = |job: Option<&StreamJob>| job.is_none();
    bench.until(&job.name, "the job to be gone", Limits::READY, gone).map(drop)
}

/// Holds the second worker in front of its next commit, until its transaction is the oldest that is open.
fn stand_still(bench: &Bench<'_>, job: &OrdersJob) -> Result<(), Failure> {
    const LONG: Duration = Duration::from_secs(2);
    bench.arm("orders-1", "before-commit", "1*sleep(600000)")?;
    let mut before = bench.stable(&job.output)?;
    let mut since = Deadline::after(LONG);
    let held = wait::until(Deadline::after(Limits::READY), || {
        let now = bench.stable(&job.output)?;
        let held = now.iter().any(|(partition, (stable, end))| {
            stable < end && before.get(partition).is_some_and(|(before, _)| before == stable)
        });
        if !held {
            (before, since) = (now, Deadline::after(LONG));
        }
        Ok::<_, Failure>(since.passed().then_some(()))
    })?;
    held.ok_or_else(|| Failure::Expectation("no transaction stays open".to_owned()))
}
