//! How long the partitions of a worker stand still when it is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_oracle::reader::Surveyor;
use serde::Deserialize;

use super::bench::{Limits, renew};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::wait::{self, Deadline};

const KILLS: usize = 4;
/// The brokers notice a dead member after its session timeout of 20 s. Who comes back under its old name need not wait for that.
const LIMIT: Duration = Duration::from_secs(15);
/// What it takes on a machine that has nothing else to do; one of the kills may meet a busy moment.
const USUAL: Duration = Duration::from_secs(3);

/// Which input record an output is of.
#[derive(Deserialize)]
pub(super) struct Output {
    pub part: i32,
    seq: u64,
}

pub(super) fn classic(bench: &Bench<'_>) -> Outcome {
    run(bench, &OrdersJob::new(bench), "Classic")
}

/// The brokers notice a dead member after 45 s here, and refuse another of its name until then, if nobody releases it.
pub(super) fn consumer(bench: &Bench<'_>) -> Outcome {
    run(bench, &OrdersJob { group_protocol: Some("Consumer"), ..OrdersJob::new(bench) }, "Consumer")
}

/// The partitions of a worker, once it has some: under the consumer protocol it is ready before others have given them up.
pub(super) fn has_partitions(bench: &Bench<'_>, worker: &str) -> Result<BTreeMap<i32, u64>, Failure> {
    let owned = wait::until(Deadline::after(Limits::READY), || {
        let slots = bench.worker_status(worker)?.slots;
        let owned: BTreeMap<i32, u64> =
            slots.iter().flat_map(|slot| &slot.partitions).map(|partition| (partition.partition, u64::MAX)).collect();
        Ok::<_, Failure>((!owned.is_empty()).then_some(owned))
    })?;
    owned.ok_or_else(|| Failure::Expectation(format!("{worker} has no partitions")))
}

fn run(bench: &Bench<'_>, job: &OrdersJob, protocol: &str) -> Outcome {
    let Flow { input, load, mut tail } = flow(bench, job, 4, 1500)?;
    let surveyor = Surveyor::new(&bench.connection()).map_err(Failure::means("look at the input"))?;
    let mut took = Vec::with_capacity(KILLS);
    for victim in ["orders-0", "orders-1"].into_iter().cycle().take(KILLS) {
        moves(&mut tail, "before the kill")?;
        let mut owned = has_partitions(bench, victim)?;
        ensure!(bench.kill(bench.namespace(), victim)?, "{victim} could not be killed");
        let clock = Deadline::after(LIMIT);
        // Records from here on cannot have been processed by the one that was killed.
        let ends = surveyor.ends(&input).map_err(Failure::means("look at the input"))?;
        for (partition, bounds) in ends {
            owned.entry(partition).and_modify(|from| *from = u64::try_from(bounds.end).unwrap_or_default());
        }
        while !owned.is_empty() {
            ensure!(!clock.passed(), "{victim} was killed {LIMIT:?} ago, and partitions {owned:?} still stand");
            let see = |value: Option<&[u8]>| {
                let output: Option<Output> = value.and_then(|value| serde_json::from_slice(value).ok());
                if let Some(output) = output {
                    owned.retain(|partition, from| *partition != output.part || output.seq < *from);
                }
            };
            tail.poll_each(Duration::from_millis(20), see).map_err(Failure::means("follow the output"))?;
        }
        took.push(clock.elapsed());
        renew(bench, &job.name, victim)?;
        bench.until_ready(&job.name)?;
    }
    let found = bench.group_type(&job.name)?;
    ensure!(found == protocol, "the group is {found}, and was to be {protocol}");
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    let told = format!("from kill -9 to committed output of new records: {took:.1?}");
    let slow = took.iter().filter(|took| **took > USUAL).count();
    ensure!(slow <= 1, "{told}: {slow} took more than {USUAL:?}");
    Ok(vec![told, verdict])
}
