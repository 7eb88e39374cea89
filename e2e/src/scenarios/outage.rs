//! The only broker goes away and comes back.

use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_oracle::reader::Tail;

use super::bench::{Limits, has};
use super::failure::ensure;
use super::scale::moves;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome, deletion};
use crate::load::Plan;

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 4, 1000))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    moves(&mut tail, "before the outage")?;
    let workers = bench.workers(&job.name)?;

    let broker = bench.cluster().broker(1).ok_or_else(|| Failure::Expectation("there is no broker 1".to_owned()))?;
    bench.cluster().kill_broker(broker).map_err(Failure::means("kill the broker"))?;
    let named = bench.until_job(&job.name, "a condition that names the broker's absence", Limits::JUDGED, |job| {
        has(job, ConditionType::Degraded, "True", None)
            || has(job, ConditionType::BrokerCompatible, "False", Some(Reason::BrokerUnreachable))
    });
    bench.cluster().start_broker(broker).map_err(Failure::means("start the broker"))?;
    named?;
    moves(&mut tail, "after the outage")?;
    bench.until_job(&job.name, "the job to be healthy again", Limits::READY, |job| {
        has(job, ConditionType::Ready, "True", None) && has(job, ConditionType::Degraded, "False", None)
    })?;
    ensure!(bench.workers(&job.name)? == workers, "the outage replaced workers");
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    deletion::without_brokers(bench, &job)?;
    Ok(vec![verdict])
}
