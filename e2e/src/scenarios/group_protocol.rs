//! The consumer protocol of groups (KIP-848): partitions that move one by one, and a running job that goes over to it, and back.

use serde::Deserialize;

use super::bench::{Limits, epoch};
use super::failure::ensure;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let Flow { input, load, mut tail } = flow(bench, &job, 5, 2000)?;
    moves(&mut tail, "under the classic protocol")?;
    is_under(bench, &job, "Classic")?;
    job.group_protocol = Some("Consumer");
    bench.apply(&job.manifest(bench)?)?;
    bench.until_job(&job.name, "the next epoch", Limits::READY, |job| epoch(job) == 2)?;
    bench.until_ready(&job.name)?;
    moves(&mut tail, "under the consumer protocol")?;
    is_under(bench, &job, "Consumer")?;
    // One more than partitions: a worker that has nothing to do is ready, too.
    for replicas in [6, 2] {
        bench.scale(&job.name, replicas)?;
        bench.until_ready(&job.name)?;
        moves(&mut tail, "after scaling")?;
        ensure!(bench.kill(bench.namespace(), "orders-1")?, "orders-1 could not be killed");
        moves(&mut tail, "after a death")?;
        bench.until_ready(&job.name)?;
    }
    let kept = some_were_kept(&bench.kubectl(&["logs", "orders-0", "--namespace", bench.namespace()])?)?;
    job.group_protocol = None;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_job(&job.name, "the epoch after that", Limits::READY, |job| epoch(job) == 3)?;
    bench.until_ready(&job.name)?;
    moves(&mut tail, "back under the classic protocol")?;
    is_under(bench, &job, "Classic")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![kept, bench.judge(trial)?])
}

fn is_under(bench: &Bench<'_>, job: &OrdersJob, protocol: &str) -> Result<(), Failure> {
    let found = bench.group_type(&job.name)?;
    ensure!(found == protocol, "the group is {found}, and was to be {protocol}");
    Ok(())
}

/// A line of a worker's log.
#[derive(Deserialize)]
struct Line {
    message: String,
    partitions: Option<usize>,
}

/// A worker that had to give something up went on with the rest.
fn some_were_kept(log: &str) -> Result<String, Failure> {
    let (mut has, mut story) = (0_usize, Vec::new());
    let mut kept = false;
    for Line { message, partitions } in log.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        let partitions = partitions.unwrap_or_default();
        match message.as_str() {
            "partitions assigned" => has += partitions,
            "partitions revoked" => {
                has = has.saturating_sub(partitions);
                kept |= has > 0;
            }
            _ => continue,
        }
        story.push(format!("{message}: {partitions}"));
    }
    ensure!(kept, "orders-0 gave up all it had each time: {story:?}");
    Ok(format!("orders-0: {}", story.join(", ")))
}
