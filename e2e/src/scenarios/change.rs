//! A new version of the SQL replaces a running one.

use std::collections::BTreeMap;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_crds::v1alpha1::Approval;
use fencepost_oracle::reader::{Isolation, Surveyor, Tail, scan};

use super::bench::{Limits, epoch, has, message};
use super::failure::ensure;
use super::scale::moves;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 4, 2000))?;
    let journal = bench.journal();
    bench.apply(&job.manifest(bench)?)?;
    let first = epoch(&bench.until_ready(&job.name)?);
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    for (version, want) in [(2, first + 1), (3, first + 2)] {
        moves(&mut tail, "before the change")?;
        job.version = version;
        bench.apply(&job.manifest(bench)?)?;
        let changed = bench.until_job(&job.name, "the next epoch", Limits::READY, |job| epoch(job) >= want)?;
        ensure!(epoch(&changed) == want, "one change led from epoch {} to {}", want - 1, epoch(&changed));
        bench.until_ready(&job.name)?;
    }
    moves(&mut tail, "after the changes")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let overlaps = journal.overlaps();
    ensure!(overlaps.is_empty(), "workers of two epochs existed at once: {overlaps:?}");
    ensure!(journal.pods().len() == 6, "three epochs of two workers are six pods, not {:?}", journal.pods());
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    let versions = versions(bench, &job.output)?;
    ensure!(versions.len() == 3, "records of versions {versions:?} were written, not of three");
    Ok(vec![format!("records by version: {versions:?}"), verdict])
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
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![told, bench.judge(trial)?])
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
