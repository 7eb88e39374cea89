//! New versions that cannot work are taken back as long as they have committed nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_crds::contract::WorkerStatus;
use fencepost_crds::v1alpha1::RevisionStatus;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Duration as Written;

use super::bench::{Limits, epoch, has, is_answered, message};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;
use crate::wait::{self, Deadline};

/// `spec.upgrade.deadlines` of what shall fail by them.
const SOON: Duration = Duration::from_secs(15);
/// From a bad version to the good one, with the replacements of workers that crash.
const TAKEN_BACK: Duration = Duration::from_secs(180);

/// ```text
///  input       ──────────────────────────────┐                 ┌────────────────────────────────────────────────────────
///  version     1 ─▶ no room ─▶ back to 1     crashes ─▶ 1      commits nothing ─▶ back to 1 ─▶ no image: 1 goes on ─▶ 2
/// ```
pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let journal = bench.journal();
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "of the first version")?;
    let proven = bench.until_job(&job.name, "the first version to be known as stable", Limits::READY, |job| {
        revision(job).stable.is_some()
    })?;
    let good = Good { epoch: epoch(&proven), revision: revision(&proven).stable };

    let mut huge = job.manifest(bench)?;
    let requests = BTreeMap::from([("cpu".to_owned(), Quantity("1000".to_owned()))]);
    huge.spec.worker.resources =
        Some(ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() });
    huge.spec.upgrade.deadlines.ready = Written::from(SOON);
    bench.apply(&huge)?;
    let mut lines = vec![good.is_back(bench, 1, Reason::Unschedulable)?];
    moves(&mut tail, "after a version without room was taken back")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = || bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    lines.push(bench.judge(trial())?);

    // Without input there is nothing that it could commit between two deaths.
    let mut crashing = job.manifest(bench)?;
    crashing.spec.worker.drain_timeout = Written::from(Duration::from_secs(6));
    bench.apply(&crashing)?;
    crash(bench, "orders-1", good.epoch + 3)?;
    lines.push(good.is_back(bench, 2, Reason::WorkersRestarting)?);

    let mut stuck = job.manifest(bench)?;
    stuck.spec.worker.image = Some(bench.worker_with_faults()?);
    stuck.spec.worker.drain_timeout = Written::from(Duration::from_secs(5));
    stuck.spec.upgrade.deadlines.first_commit = Written::from(SOON);
    bench.apply(&stuck)?;
    bench.until_job(&job.name, "a version that shall get stuck", Limits::READY, |job| {
        epoch(job) == good.epoch + 5 && has(job, ConditionType::Ready, "True", None)
    })?;
    for pod in ["orders-0", "orders-1"] {
        bench.arm(pod, "before-commit", "1*sleep(600000)")?;
    }
    let load = bench.load(Plan::new(&input, 4, 1500).stream(1))?;
    lines.push(good.is_back(bench, 3, Reason::NoFirstCommit)?);
    moves(&mut tail, "after a version that was stuck was taken back")?;
    let events = bench.events("RevisionFailed")?;
    ensure!(events.contains("was taken back"), "no event says that it happened: {events}");

    // One that cannot even be planned stops nothing.
    let before = bench.workers(&job.name)?;
    let mut imageless = job.manifest(bench)?;
    imageless.spec.worker.image = Some("registry.invalid/worker:none".to_owned());
    bench.apply(&imageless)?;
    bench.until_condition(&job.name, ConditionType::Degraded, "True", Reason::ImagePullFailed, Limits::JUDGED)?;
    moves(&mut tail, "while an image cannot be pulled")?;
    ensure!(bench.workers(&job.name)? == before, "a version without an image has cost a worker");

    job.version = 2;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    moves(&mut tail, "of the version that works")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let overlaps = journal.overlaps();
    ensure!(overlaps.is_empty(), "workers of two epochs existed at once: {overlaps:?}");
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    lines.push(bench.judge(trial)?);
    Ok(lines)
}

/// The version that has committed.
struct Good {
    epoch: i64,
    revision: Option<String>,
}

impl Good {
    /// Waits until it runs again, after so many bad ones.
    fn is_back(&self, bench: &Bench<'_>, bad: i64, reason: Reason) -> Result<String, Failure> {
        let clock = Deadline::after(TAKEN_BACK);
        let what = format!("the first version again, in place of one that failed of {reason}");
        let back = bench.until_job("orders", &what, TAKEN_BACK, |job| {
            is_answered(job)
                && epoch(job) == self.epoch + 2 * bad
                && has(job, ConditionType::RolledBack, "True", Some(Reason::RevisionFailed))
                && has(job, ConditionType::Stalled, "True", Some(Reason::RevisionFailed))
                && has(job, ConditionType::Ready, "False", Some(Reason::RevisionFailed))
                && job.status.as_ref().and_then(|status| status.workers.as_deref()) == Some("2/2")
        })?;
        let RevisionStatus { current, failed, .. } = revision(&back);
        let failed = failed.unwrap_or_default();
        ensure!(current == self.revision, "revision {current:?} runs, not {:?}", self.revision);
        ensure!(failed.reason == reason.to_string(), "it is taken back because of {failed:?}");
        let seconds = clock.elapsed().as_secs_f64();
        Ok(format!("{seconds:.0} s later: {}", message(&back, ConditionType::RolledBack)))
    }
}

/// Kills a worker of this epoch whenever it runs, until its revision has failed.
fn crash(bench: &Bench<'_>, pod: &str, of: i64) -> Result<(), Failure> {
    bench.until_job("orders", "workers of the version that crashes", Limits::READY, |job| epoch(job) == of)?;
    let deadline = Deadline::after(TAKEN_BACK);
    let killed = wait::until(deadline, || {
        if revision(&bench.job("orders")?).failed.is_some() {
            return Ok::<_, Failure>(Some(()));
        }
        let is_of = |status: &WorkerStatus| status.epoch == of;
        if bench.worker_status(pod).is_ok_and(|status| is_of(&status)) {
            bench.kill(bench.namespace(), pod)?;
        }
        Ok(None)
    })?;
    ensure!(killed.is_some(), "{pod} was killed again and again, and its revision has not failed");
    Ok(())
}

fn revision(job: &StreamJob) -> RevisionStatus {
    job.status.as_ref().and_then(|status| status.revision.clone()).unwrap_or_default()
}
