//! The consumer protocol of groups (KIP-848): partitions that move one by one, and a running job that goes over to it, and back.

use super::bench::{Limits, epoch};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Meaning, OrdersJob, Outcome};

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let Flow { input, load, mut tail } = flow(bench, &job, 8, 2000)?;
    moves(&mut tail, "under the classic protocol")?;
    job.group_protocol = Some("Consumer");
    bench.apply(&job.manifest(bench)?)?;
    bench.until_job(&job.name, "the next epoch", Limits::READY, |job| epoch(job) == 2)?;
    bench.until_ready(&job.name)?;
    moves(&mut tail, "under the consumer protocol")?;
    for replicas in [4, 2] {
        bench.scale(&job.name, replicas)?;
        bench.until_ready(&job.name)?;
        moves(&mut tail, "after scaling")?;
        ensure!(bench.kill(bench.namespace(), "orders-1")?, "orders-1 could not be killed");
        moves(&mut tail, "after a death")?;
        bench.until_ready(&job.name)?;
    }
    job.group_protocol = None;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_job(&job.name, "the epoch after that", Limits::READY, |job| epoch(job) == 3)?;
    bench.until_ready(&job.name)?;
    moves(&mut tail, "back under the classic protocol")?;
    load.stop().map_err(super::Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}
