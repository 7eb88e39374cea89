//! Input that does not fit the columns.

use std::collections::BTreeMap;

use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_oracle::reader;
use fencepost_oracle::trial::Extent;

use super::bench::{Limits, message};
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::{Defect, Defects, Plan};

/// `onBadRecord: Skip`
pub(super) fn skip(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { on_bad_record: "Skip", ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 4)?;
    let load = bench.load(Plan::new(&input, 4, 4000).records(20_000).defects(Defects::OneOf(25)))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let written = load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![format!("{} of {} records were bad", written.defective, written.committed), bench.judge(trial)?])
}

/// `onBadRecord: DeadLetter`
pub(super) fn dead_letter(bench: &Bench<'_>) -> Outcome {
    let bad = bench.make_topic("bad", 2)?;
    let job = OrdersJob { on_bad_record: "DeadLetter", dead_letter_topic: Some(bad.clone()), ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 4)?;
    let load =
        bench.load(Plan::new(&input, 4, 4000).records(20_000).defects(Defects::OneOf(25)).transactions(400, 4))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let written = load.finish().map_err(Failure::means("write the input"))?;
    let meaning = Meaning::purchases(&job.output).dead_letters(&bad);
    let trial = bench.trial(&job.name, meaning).input(&input).output(&job.output).output(&bad);
    Ok(vec![format!("{} of {} records were bad", written.defective, written.committed), bench.judge(trial)?])
}

/// `onBadRecord: Fail`, and then a decision to skip.
pub(super) fn fail(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob { replicas: 1, ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 2)?;
    let output = bench.make_topic("purchases", 4)?;
    let at = 1500;
    let defects = Defects::At { partition: 1, sequence: at, defect: Defect::WrongType };
    let load = bench.load(Plan::new(&input, 2, 0).records(6_000).defects(defects))?;
    load.finish().map_err(Failure::means("write the input"))?;
    bench.apply(&job.manifest(bench)?)?;
    let stalled = bench.until_condition(&job.name, ConditionType::Stalled, "True", Reason::BadRecord, Limits::READY)?;
    let told = message(&stalled, ConditionType::Stalled);
    for part in [input.as_str(), "1500", "amount"] {
        ensure!(told.contains(part), "the condition does not say {part}: {told}");
    }
    ensure!(!told.contains('{'), "the condition shows a log instead of the worker's last words: {told}");
    let group = format!("{}.{}", bench.namespace(), job.name);
    let positions: BTreeMap<i32, i64> =
        reader::committed(&bench.connection(), &group, &input).map_err(Failure::means("read the positions"))?;
    ensure!(positions.get(&1) == Some(&1500), "the job must stand at the bad record, and stands at {positions:?}");
    let trial = || bench.trial("orders", Meaning::purchases(&output)).input(&input).output(&output);
    let before = bench.judge(trial().extent(Extent::Committed))?;

    job.on_bad_record = "Skip";
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    Ok(vec![told, before, bench.judge(trial())?])
}
