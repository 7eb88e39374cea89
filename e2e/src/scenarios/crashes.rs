//! Workers killed with -9 all the time, and the operator too.

use std::time::Duration;

use fencepost_oracle::reader::Tail;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::failure::ensure;
use super::lab::SYSTEM;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;
use crate::report;
use crate::wait::Deadline;

/// For how long things are killed.
const DURATION: Duration = Duration::from_secs(120);

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 3, ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 6)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 6, 2000))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    let killed = kill_all_the_time(bench, &job, &mut tail)?;
    let written = load.stop().map_err(Failure::means("write the input"))?;
    ensure!(killed.workers >= 15, "only {} workers could be killed in {DURATION:?}", killed.workers);
    ensure!(killed.operators >= 3, "the operator could be killed only {} times in {DURATION:?}", killed.operators);
    ensure!(killed.moved > 0, "nothing was committed between the kills: the run shows nothing");
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial.patience(Duration::from_secs(240)))?;
    bench.until_ready(&job.name)?;
    let deaths = format!(
        "{} workers and {} operators killed, {} records committed between the kills, {} written",
        killed.workers, killed.operators, killed.moved, written.committed
    );
    Ok(vec![deaths, verdict])
}

struct Killed {
    workers: u32,
    operators: u32,
    moved: u64,
}

fn kill_all_the_time(bench: &Bench<'_>, job: &OrdersJob, tail: &mut Tail) -> Result<Killed, Failure> {
    let seed = u64::from(std::process::id());
    report::detail(format!("{}: the seed of the kills is {seed}", bench.name()));
    let mut random = StdRng::seed_from_u64(seed);
    let mut killed = Killed { workers: 0, operators: 0, moved: 0 };
    let whole = Deadline::after(DURATION);
    let mut operator = Deadline::after(Duration::from_secs(15));
    while !whole.passed() {
        let gap = Deadline::after(Duration::from_millis(random.random_range(2_000..6_000)));
        while !gap.passed() {
            killed.moved += tail.poll(Duration::from_millis(200)).map_err(Failure::means("follow the output"))?;
        }
        let workers: Vec<String> = bench.workers(&job.name)?.into_keys().collect();
        if let Some(victim) = workers.choose(&mut random)
            && bench.kill(bench.namespace(), victim)?
        {
            killed.workers += 1;
        }
        if operator.passed() {
            operator = Deadline::after(Duration::from_secs(25));
            killed.operators += kill_operator(bench, killed.operators)?;
        }
    }
    Ok(killed)
}

/// In turns by `kill -9` and by deleting its pod.
fn kill_operator(bench: &Bench<'_>, before: u32) -> Result<u32, Failure> {
    let pods = bench.pods(SYSTEM, "app.kubernetes.io/name=fencepost")?;
    let Some(name) = pods.first().and_then(|pod| pod.metadata.name.as_deref()) else { return Ok(0) };
    if before.is_multiple_of(2) {
        return Ok(u32::from(bench.kill(SYSTEM, name)?));
    }
    bench.kubectl(&["delete", "pod", name, "--namespace", SYSTEM, "--wait=false"])?;
    Ok(1)
}
