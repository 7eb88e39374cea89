//! The cheaper guarantee: exact while nothing fails, complete when something does.

use fencepost_oracle::Promise;
use fencepost_oracle::reader::Tail;

use super::failure::ensure;
use super::scale::moves;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { guarantee: "AtLeastOnce", ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    bench.apply(&job.manifest(bench)?)?;
    let ready = bench.until_ready(&job.name)?;
    let guarantees = ready.status.map(|status| status.guarantees).unwrap_or_default();
    ensure!(
        guarantees.iter().all(|g| g.guarantee == "AtLeastOnce"),
        "the status claims more than is promised: {guarantees:?}"
    );
    let trial = || bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);

    let load = bench.load(Plan::new(&input, 4, 4000).records(20_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    let steady = bench.judge(trial())?;

    // The second load is another stream: its sequences begin anew.
    let load = bench.load(Plan::new(&input, 4, 2000).stream(1))?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    for worker in bench.workers(&job.name)?.into_keys() {
        moves(&mut tail, "before a kill")?;
        ensure!(bench.kill(bench.namespace(), &worker)?, "{worker} could not be killed");
    }
    moves(&mut tail, "after the kills")?;
    load.stop().map_err(Failure::means("write the input"))?;
    Ok(vec![steady, bench.judge(trial().promise(Promise::AtLeastOnce))?])
}
