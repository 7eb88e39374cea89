//! A new version of the SQL replaces a running one, and a version is restarted.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_crds::v1alpha1::Approval;
use fencepost_oracle::reader::{Isolation, Surveyor, Tail, scan};

use super::bench::{Limits, epoch, has, message};
use super::failure::ensure;
use super::scale::{moves, silence_during};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;

/// Longest time without output while all workers are replaced, from the last commit of the old ones to the first of the new ones. Their image is there.
const PAUSE: Duration = Duration::from_secs(15);

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 4, 2000))?;
    let journal = bench.journal();
    bench.apply(&job.manifest(bench)?)?;
    let first = epoch(&bench.until_ready(&job.name)?);
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    let mut told = Vec::new();
    for (version, want) in [(2, first + 1), (3, first + 2), (3, first + 3)] {
        moves(&mut tail, "before the change")?;
        let restarts = job.version == version;
        job.version = version;
        let (silence, changed) = silence_during(&mut tail, || {
            if restarts {
                bench.plugin(&["restart", &job.name], "")?;
            } else {
                bench.apply(&job.manifest(bench)?)?;
            }
            let changed = bench.until_job(&job.name, "the next epoch", Limits::READY, |job| epoch(job) >= want)?;
            bench.until_ready(&job.name)?;
            Ok(changed)
        })?;
        ensure!(epoch(&changed) == want, "one change led from epoch {} to {}", want - 1, epoch(&changed));
        ensure!(silence < PAUSE, "no output for {} ms", silence.as_millis());
        let what = if restarts { "a restart".to_owned() } else { format!("version {version}") };
        told.push(format!("{what}: {} ms without output", silence.as_millis()));
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let overlaps = journal.overlaps();
    ensure!(overlaps.is_empty(), "workers of two epochs existed at once: {overlaps:?}");
    ensure!(journal.pods().len() == 8, "four epochs of two workers are eight pods, not {:?}", journal.pods());
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    let versions = versions(bench, &job.output)?;
    ensure!(versions.len() == 3, "records of versions {versions:?} were written, not of three");
    told.push(format!("records by version: {versions:?}"));
    told.push(verdict);
    Ok(told)
}

/// A version that somebody has to let start.
pub(super) fn approved(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let asks = |job: &OrdersJob| -> Result<StreamJob, Failure> {
        let mut manifest = job.manifest(bench)?;
        manifest.spec.upgrade.approval = Approval::Manual;
        Ok(manifest)
    };
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 4, 1500))?;
    bench.apply(&asks(&job)?)?;
    let first = bench.until_ready(&job.name)?;
    let workers = bench.workers(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    job.version = 2;
    bench.apply(&asks(&job)?)?;
    let reason = Reason::ApprovalNeeded;
    let waiting = bench.until_condition(&job.name, ConditionType::Approved, "False", reason, Limits::JUDGED)?;
    let told = message(&waiting, ConditionType::Approved);
    ensure!(told.contains("- spec.pipeline.sql has changed"), "it is not said what changes: {told}");
    moves(&mut tail, "while a version waits for approval")?;
    ensure!(bench.workers(&job.name)? == workers, "a version that nobody has approved has cost a worker");

    // As the message says.
    let command = told.lines().last().and_then(|line| line.split_once("kubectl ")).map(|(_, command)| command);
    let arguments: Vec<&str> = command.unwrap_or_default().split_whitespace().collect();
    bench.kubectl(&arguments)?;
    bench.until_job(&job.name, "the version that was approved", Limits::READY, |job| {
        epoch(job) == epoch(&first) + 1 && has(job, ConditionType::Ready, "True", None)
    })?;
    moves(&mut tail, "of the version that was approved")?;
    with_the_plugin(bench, &asks, &mut job, epoch(&first) + 2)?;
    moves(&mut tail, "of the version that was approved with the plugin")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![told, bench.judge(trial)?])
}

/// The same for another version: looked at before it is applied, approved, and looked at.
fn with_the_plugin(
    bench: &Bench<'_>,
    asks: &impl Fn(&OrdersJob) -> Result<StreamJob, Failure>,
    job: &mut OrdersJob,
    want: i64,
) -> Result<(), Failure> {
    job.version = 3;
    let manifest = asks(job)?;
    let text = serde_json::to_string(&manifest).map_err(Failure::means("write a manifest"))?;
    let plan = bench.plugin(&["plan", "-f", "-"], &text)?;
    for part in [": restart\n", "- spec.pipeline.sql has changed (restart)", "waits until somebody approves it"] {
        ensure!(plan.contains(part), "the plan does not say {part:?}: {plan}");
    }
    let mut wrong = serde_json::to_value(&manifest).map_err(Failure::means("write a manifest"))?;
    if let Some(spec) = wrong.get_mut("spec").and_then(serde_json::Value::as_object_mut) {
        spec.insert("replica".to_owned(), 3.into());
    }
    let refused = bench.plugin(&["plan", "-f", "-"], &wrong.to_string());
    ensure!(refused.is_err(), "a field that nobody knows is planned: {refused:?}");
    let early = bench.plugin(&["approve", &job.name], "");
    ensure!(early.is_err(), "what does not wait is approved: {early:?}");
    bench.apply(&manifest)?;
    let reason = Reason::ApprovalNeeded;
    bench.until_condition(&job.name, ConditionType::Approved, "False", reason, Limits::JUDGED)?;
    let said = bench.plugin(&["approve", &job.name], "")?;
    ensure!(said.contains("is approved"), "{said}");
    bench.until_job(&job.name, "the version that was approved", Limits::READY, |job| {
        epoch(job) == want && has(job, ConditionType::Ready, "True", None)
    })?;
    let page = bench.plugin(&["status", &job.name], "")?;
    for part in [format!("epoch {want}"), format!("{}-0", job.name), "AllWorkersReady".to_owned()] {
        ensure!(page.contains(&part), "the page does not say {part:?}: {page}");
    }
    let same = bench.plugin(&["plan", "-f", "-"], &text)?;
    ensure!(same.contains(": no change\n"), "what runs is planned as a change: {same}");
    Ok(())
}

/// Records of each version, after a check that no partition has an older one behind a newer one.
fn versions(bench: &Bench<'_>, topic: &str) -> Result<BTreeMap<u64, u64>, Failure> {
    let read = Failure::means::<fencepost_oracle::reader::Error>;
    let connection = bench.connection();
    let ends =
        Surveyor::new(&connection).and_then(|surveyor| surveyor.ends(topic)).map_err(read("survey the output"))?;
    let mut counts = BTreeMap::new();
    let mut newest: BTreeMap<i32, u64> = BTreeMap::new();
    let mut late = None;
    scan(&connection, Isolation::Committed, topic, &ends, Limits::CAUGHT_UP, |record| {
        let value: serde_json::Value = serde_json::from_slice(record.value.unwrap_or_default()).unwrap_or_default();
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
        *counts.entry(version).or_default() += 1;
        let newest = newest.entry(record.partition).or_default();
        if version < *newest {
            late.get_or_insert(format!("version {version} behind version {newest} at {}", record.position()));
        }
        *newest = version.max(*newest);
    })
    .map_err(read("read the output"))?;
    late.map_or(Ok(counts), |late| Err(Failure::Expectation(late)))
}
