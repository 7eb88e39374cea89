//! `kubectl scale` under load.

use std::time::Duration;

use fencepost_oracle::reader::Tail;

use super::bench::epoch;
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::{Load, Plan};
use crate::wait::Deadline;

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 1, ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 8)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 8, 2000))?;
    bench.apply(&job.manifest(bench)?)?;
    let before = bench.until_ready(&job.name)?;
    let first = bench.workers(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    moves(&mut tail, "at the start")?;
    for replicas in [4, 2] {
        bench.scale(&job.name, replicas)?;
        let scaled = bench.until_ready(&job.name)?;
        ensure!(scaled.spec.replicas == replicas, "kubectl scale did not change spec.replicas");
        ensure!(epoch(&scaled) == epoch(&before), "scaling restarted the job: epoch {}", epoch(&scaled));
        moves(&mut tail, "after scaling")?;
    }
    let last = bench.workers(&job.name)?;
    ensure!(
        first.iter().all(|worker| last.get(worker.0) == Some(worker.1)),
        "scaling replaced a worker: {first:?}, {last:?}"
    );
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

/// A job of orders at work.
pub(super) struct Flow {
    pub input: String,
    pub load: Load,
    /// Follows what it commits.
    pub tail: Tail,
}

/// Makes the topics, with `partitions` of the input, starts a load of `rate` records a second, and waits until the job is ready.
pub(super) fn flow(bench: &Bench<'_>, job: &OrdersJob, partitions: i32, rate: u32) -> Result<Flow, Failure> {
    let input = bench.make_topic("orders", partitions)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, partitions, rate))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    Ok(Flow { input, load, tail })
}

/// Waits until the job has committed a few thousand more records.
pub(super) fn moves(tail: &mut Tail, when: &str) -> Result<(), Failure> {
    moves_within(Duration::from_secs(60), tail, when)
}

/// The same with another limit.
pub(super) fn moves_within(limit: Duration, tail: &mut Tail, when: &str) -> Result<(), Failure> {
    const ENOUGH: u64 = 3000;
    let deadline = Deadline::after(limit);
    let mut seen = 0;
    // What is already there counts for nothing.
    while tail.poll(Duration::from_millis(1)).map_err(Failure::means("follow the output"))? > 0 {}
    while seen < ENOUGH {
        if deadline.passed() {
            return Err(Failure::Late {
                what: format!("{ENOUGH} more committed records {when}"),
                seconds: limit.as_secs(),
                last: format!("{seen} records"),
            });
        }
        seen += tail.poll(Duration::from_millis(200)).map_err(Failure::means("follow the output"))?;
    }
    Ok(())
}
