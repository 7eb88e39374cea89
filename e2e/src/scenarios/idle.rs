//! A job without input for longer than brokers remember what is not used: connections, transactional ids, producer ids.

use std::time::Duration;

use fencepost_crds::names::LABEL_JOB;

use super::bench::restarts;
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;
use crate::wait::{self, Deadline};

/// Forgetting takes its time: the expiry, and the brokers' look at it.
const FORGOTTEN: Duration = Duration::from_secs(90);

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "before the silence")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let workers = bench.workers(&job.name)?;
    let mut told = Vec::new();
    for stream in 1..=2 {
        let silent = until_forgotten(bench)?;
        told.push(format!("forgotten after {silent} s"));
        let load = bench.load(Plan::new(&input, 4, 1500).stream(stream))?;
        moves(&mut tail, "after the silence")?;
        load.stop().map_err(Failure::means("write the input"))?;
    }
    ensure!(bench.workers(&job.name)? == workers, "the silence cost a worker");
    let pods = bench.pods(bench.namespace(), &format!("{LABEL_JOB}={}", job.name))?;
    ensure!(pods.iter().map(restarts).sum::<i32>() == 0, "a worker has died of the silence");
    bench.until_ready(&job.name)?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    told.push(bench.judge(trial)?);
    Ok(told)
}

/// Waits until the brokers know none of the job's transactional ids any more.
fn until_forgotten(bench: &Bench<'_>) -> Result<u64, Failure> {
    let clock = Deadline::after(FORGOTTEN);
    let mut last = String::new();
    let ids = |bench: &Bench<'_>| {
        let listed = bench.cluster().kafka_tool("org.apache.kafka.tools.TransactionsCommand", &["list"]);
        let listed = listed.map_err(Failure::means("list the transactional ids"))?;
        let of_job = listed.lines().filter(|line| line.contains(bench.namespace()));
        Ok::<_, Failure>(of_job.map(str::to_owned).collect::<Vec<_>>().join("; "))
    };
    ensure!(!ids(bench)?.is_empty(), "no transactional id of the job was known before the silence");
    let forgotten = wait::until(clock, || {
        last = ids(bench)?;
        Ok::<_, Failure>(last.is_empty().then_some(()))
    })?;
    forgotten.map(|()| clock.elapsed().as_secs()).ok_or_else(|| Failure::Late {
        what: "the brokers to forget the job's transactional ids".to_owned(),
        seconds: FORGOTTEN.as_secs(),
        last,
    })
}
