//! `kubectl scale` under load.

use std::thread;
use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::v1alpha1::{FenceStatus, FencedId, OperationStatus, ProducerStatus};
use fencepost_oracle::reader::Tail;

use super::bench::{Limits, epoch, is_answered};
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

/// A worker that is scaled away dies in a transaction that the brokers would keep open for ten minutes, and with it positions which the
/// worker that is left needs. The operator ends it. A new version begins with the same for the ids of all workers that ever were.
pub(super) fn leaves_nothing_open(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob {
        transaction_timeout: Some("10m"),
        image: Some(bench.worker_with_faults()?),
        ..OrdersJob::new(bench)
    };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "before the workers become fewer")?;
    bench.arm("orders-1", "before-commit", "1*sleep(600000)")?;
    bench.scale(&job.name, 1)?;
    let is_over = |job: &StreamJob| is_answered(job) && job.spec.replicas == 1 && operation(job).is_none();
    let scaled = bench.until_job(&job.name, "the end of the scaling", Limits::READY, is_over)?;
    let fence = fence_of(&scaled)?;
    ensure!(
        fence.ids == Some(1)
            && fence.open == Some(1)
            && fence.operation.as_ref().is_some_and(|id| id.starts_with("scale-")),
        "one id with an open transaction was to be fenced: {fence:?}"
    );
    // Nothing but the fence ends the transaction within that time.
    moves(&mut tail, "from the worker that is left")?;

    job.replicas = 1;
    job.version = 2;
    bench.apply(&job.manifest(bench)?)?;
    let changed = bench.until_job(&job.name, "the next epoch", Limits::READY, |job| epoch(job) == 2)?;
    let again = fence_of(&changed)?;
    let raised = |id: &FencedId| {
        let epoch = |producer: &Option<ProducerStatus>| producer.as_ref().map(|it| (it.producer_id, it.producer_epoch));
        epoch(&id.before) < epoch(&id.after)
    };
    ensure!(
        again.operation.as_deref() == Some("restart-2") && again.ids == Some(2) && again.fenced.iter().all(raised),
        "the ids of both workers that ever were are to be fenced before the next epoch: {again:?}"
    );
    bench.until_ready(&job.name)?;
    moves(&mut tail, "from the new version")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

fn operation(job: &StreamJob) -> Option<&OperationStatus> {
    job.status.as_ref()?.operation.as_ref()
}

/// The newest fence.
pub(super) fn fence_of(job: &StreamJob) -> Result<FenceStatus, Failure> {
    let transactions = job.status.as_ref().and_then(|status| status.transactions.as_ref());
    let fence = transactions.and_then(|transactions| transactions.last_fence.clone());
    fence.ok_or_else(|| Failure::Expectation("the status tells of no fence".to_owned()))
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

/// Does something, and gives the longest time without output until the first output after it.
pub(super) fn silence_during<T: Send>(
    tail: &mut Tail,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<(Duration, T), Failure> {
    const LIMIT: Duration = Duration::from_secs(60);
    thread::scope(|scope| {
        let work = scope.spawn(work);
        let mut longest = Duration::ZERO;
        let mut since = Deadline::after(Duration::MAX);
        loop {
            let is_done = work.is_finished();
            let is_some = tail.poll(Duration::from_millis(20)).map_err(Failure::means("follow the output"))? > 0;
            longest = longest.max(since.elapsed());
            if is_some {
                since = Deadline::after(Duration::MAX);
            }
            if is_done && (is_some || since.elapsed() > LIMIT) {
                break;
            }
        }
        Ok((longest, work.join().map_err(|_| Failure::Thread)??))
    })
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
