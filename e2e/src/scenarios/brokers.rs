//! Three brokers: leaders and coordinators die, move, answer late or not at all, while a job runs.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_oracle::reader::Tail;

use super::failure::ensure;
use super::recovery::Output;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome, growth};
use crate::cluster::topology::{Broker, Member};
use crate::cluster::{self, Cluster};
use crate::faults::{self, PodProcess, Traffic};
use crate::load::{Grouping, Plan};
use crate::report;
use crate::wait::{self, Deadline};

/// A coordinator that falls silent is noticed by time-outs, one after the other: of the session, of requests, of calls.
const LIMIT: Duration = Duration::from_secs(180);

/// Partitions of the input.
const PARTITIONS: i32 = 6;
/// More outputs of a partition than can have been under way.
const ENOUGH_OF_EACH: u64 = 150;

/// Every partition of the input moves: a worker that waits for a broker in a call without an end would hold up its own.
fn moves(tail: &mut Tail, when: &str) -> Result<(), Failure> {
    let deadline = Deadline::after(LIMIT);
    while tail.poll(Duration::from_millis(1)).map_err(Failure::means("follow the output"))? > 0 {}
    let mut left: BTreeMap<i32, u64> = (0..PARTITIONS).map(|partition| (partition, ENOUGH_OF_EACH)).collect();
    while !left.is_empty() {
        if deadline.passed() {
            return Err(Failure::Late {
                what: format!("{ENOUGH_OF_EACH} more outputs of each partition {when}"),
                seconds: LIMIT.as_secs(),
                last: format!("partitions and missing outputs: {left:?}"),
            });
        }
        let see = |value: Option<&[u8]>| {
            if let Some(of) = value.and_then(|value| serde_json::from_slice::<Output>(value).ok()) {
                left.entry(of.part).and_modify(|missing| *missing = missing.saturating_sub(1));
                left.retain(|_, missing| *missing > 0);
            }
        };
        tail.poll_each(Duration::from_millis(200), see).map_err(Failure::means("follow the output"))?;
    }
    Ok(())
}

/// Each broker in turn is killed: whoever leads the topics, and coordinates the transactions and the group, is among them.
pub(super) fn killed(bench: &Bench<'_>) -> Outcome {
    run(bench, load, |bench, broker, tail| goes_and_comes_back(bench, broker, tail, Cluster::kill_broker))
}

/// Each broker in turn is stopped in order and started again, as in an upgrade of the brokers: it hands over what it leads and
/// coordinates before it ends. Meanwhile the input is written in transactions, of which every third is aborted: a reader that got beyond
/// the last stable offset on a new leader would take what is withdrawn.
pub(super) fn restarted(bench: &Bench<'_>) -> Outcome {
    let in_transactions = |input: &str| load(input).transactions(60, 3);
    run(bench, in_transactions, |bench, broker, tail| goes_and_comes_back(bench, broker, tail, Cluster::stop_broker))
}

fn goes_and_comes_back(
    bench: &Bench<'_>,
    broker: Broker,
    tail: &mut Tail,
    end: fn(&Cluster, Broker) -> Result<(), cluster::Error>,
) -> Result<(), Failure> {
    end(bench.cluster(), broker).map_err(Failure::means("end a broker"))?;
    moves(tail, &format!("while {broker} is away"))?;
    bench.cluster().start_broker(broker).map_err(Failure::means("start a broker"))?;
    moves(tail, &format!("after {broker} is back"))
}

/// Each broker in turn becomes a black hole: connections stay open, and nothing comes back.
pub(super) fn black_holes(bench: &Bench<'_>) -> Outcome {
    run(bench, load, |bench, broker, tail| {
        let hole = faults::cut_off(bench.cluster(), Member::Broker(broker));
        let hole = hole.map_err(Failure::means("cut a broker off"))?;
        moves(tail, &format!("while {broker} is a black hole"))?;
        hole.now().map_err(Failure::means("bring a broker back"))?;
        moves(tail, &format!("after {broker} is back"))
    })
}

/// Each broker in turn falls silent for a little longer than the client waits for an answer: it asks again, and then both copies of the
/// request arrive. The last silence is longer than a whole call may take.
pub(super) fn short_silences(bench: &Bench<'_>) -> Outcome {
    run(bench, load, |bench, broker, tail| {
        for silence in [10_500, 12_000, 17_000].map(Duration::from_millis) {
            let hole = faults::cut_off(bench.cluster(), Member::Broker(broker));
            let hole = hole.map_err(Failure::means("cut a broker off"))?;
            let end = Deadline::after(silence);
            while !end.passed() {
                tail.poll(Duration::from_millis(100)).map_err(Failure::means("follow the output"))?;
            }
            hole.now().map_err(Failure::means("bring a broker back"))?;
            moves(tail, &format!("after {broker} was silent for {silence:?}"))?;
        }
        Ok(())
    })
}

/// Packets that a disturbance must hit to be one.
const ENOUGH: u64 = 20;

/// Each broker in turn answers late, and then loses packets.
pub(super) fn bad_network(bench: &Bench<'_>) -> Outcome {
    run(bench, load, |bench, broker, tail| {
        for traffic in [Traffic::Delay(Duration::from_millis(150)), Traffic::Lose { percent: 5.0 }] {
            let bad = faults::disturb(bench.cluster(), Member::Broker(broker), traffic);
            let bad = bad.map_err(Failure::means("disturb the network"))?;
            // How many packets a broker gets is up to the job: it moves until enough of them were hit.
            let deadline = Deadline::after(LIMIT);
            loop {
                moves(tail, &format!("with {broker} disturbed: {traffic:?}"))?;
                let hit = faults::disturbed(bench.cluster(), Member::Broker(broker), traffic);
                let hit = hit.map_err(Failure::means("count the disturbed packets"))?.unwrap_or_default();
                if hit >= ENOUGH {
                    break;
                }
                ensure!(!deadline.passed(), "{traffic:?} has hit {hit} packets of {broker}: nothing was tested");
            }
            bad.now().map_err(Failure::means("mend the network"))?;
        }
        Ok(())
    })
}

fn load(input: &str) -> Plan {
    Plan::new(input, PARTITIONS, 1000)
}

fn run(
    bench: &Bench<'_>,
    plan: impl Fn(&str) -> Plan,
    disturb: fn(&Bench<'_>, Broker, &mut Tail) -> Result<(), Failure>,
) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", PARTITIONS)?;
    bench.make_topic("purchases", 6)?;
    let plan = plan(&input);
    let withdraws = plan.grouping != Grouping::Plain;
    let load = bench.load(plan)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    moves(&mut tail, "at the start")?;
    let threads = threads(bench, &job)?;
    let before = load.confirmed();
    let disturbed =
        bench.cluster().spec().brokers().into_iter().try_for_each(|broker| disturb(bench, broker, &mut tail));
    let confirmed = load.confirmed();
    let written = load.stop();
    if let Err(failure) = disturbed {
        // A job that stands still may have nothing to read.
        let load =
            written.map_or_else(|error| report::chain(&error), |written| format!("{} written", written.committed));
        let failure = report::chain(&failure);
        return Err(Failure::Expectation(format!("{failure}; the load: {before}, then {confirmed} confirmed, {load}")));
    }
    let written = written.map_err(Failure::means("write the input"))?;
    ensure!(withdraws == (written.aborted > 0), "{} records of aborted transactions", written.aborted);
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    bench.until_ready(&job.name)?;
    Ok(vec![verdict, nothing_is_left_behind(bench, &job, &threads)?])
}

/// How many threads each worker has.
fn threads(bench: &Bench<'_>, job: &OrdersJob) -> Result<BTreeMap<String, u64>, Failure> {
    let mut threads = BTreeMap::new();
    for worker in bench.workers(&job.name)?.into_keys() {
        let process = PodProcess::of_pod(bench.cluster(), bench.namespace(), &worker, None);
        let sample = growth::read(process.map_err(Failure::means("find a process"))?.pid);
        threads.extend(sample.map(|sample| (worker, sample.threads)));
    }
    Ok(threads)
}

/// Clients that did not come back from a call, and were left behind in it, have ended.
fn nothing_is_left_behind(
    bench: &Bench<'_>,
    job: &OrdersJob,
    before: &BTreeMap<String, u64>,
) -> Result<String, Failure> {
    /// A client has one for each broker that it has heard of, and some more.
    const OF_NO_CLIENT: u64 = 4;
    let mut now = BTreeMap::new();
    let clock = Deadline::after(Duration::MAX);
    let ended = wait::until(Deadline::after(LIMIT), || {
        now = threads(bench, job)?;
        let is_calm =
            |(worker, threads): (&String, &u64)| now.get(worker).is_some_and(|now| *now <= threads + OF_NO_CLIENT);
        Ok::<_, Failure>(before.iter().all(is_calm).then_some(()))
    })?;
    ensure!(ended.is_some(), "threads of the workers: {before:?} before, {now:?} now");
    Ok(format!("threads: {before:?} before, {now:?} {} s after the end", clock.elapsed().as_secs()))
}
