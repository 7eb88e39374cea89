//! Topics as they are in the field: empty, of a thousand partitions, growing, compacted, shortened by retention, of small batches.

use std::time::Duration;

use fencepost_crds::conditions::ConditionType;
use fencepost_oracle::reader::{self, Isolation, Surveyor};
use fencepost_oracle::trial::Extent;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::bench::{Limits, has, message};
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::faults::PodProcess;
use crate::load::{Defects, Order, Plan};
use crate::wait::{self, Deadline};

/// Most of them get a few records, or none.
pub(super) fn a_thousand_partitions(bench: &Bench<'_>) -> Outcome {
    const PARTITIONS: i32 = 1000;
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", PARTITIONS)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, PARTITIONS, 0).records(30_500))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

/// An empty topic at first, and then more partitions than it began with.
pub(super) fn partitions_are_added(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 4)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let first = bench.load(Plan::new(&input, 2, 1000))?;
    let workers = bench.workers(&job.name)?;
    bench.add_partitions(&input, 7)?;
    // Written before the job can know of them: nothing of a new partition may be passed over.
    let second = bench.load(Plan::new(&input, 7, 2000).stream(1).records(14_000))?;
    second.finish().map_err(Failure::means("write the input"))?;
    first.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial)?;
    ensure!(bench.workers(&job.name)? == workers, "new partitions cost a worker");
    Ok(vec![verdict])
}

/// Retention has removed records that the job has not read: it says so, goes on with the other partitions, and waits for a
/// person at this one.
pub(super) fn retention_is_faster(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 2, 0).records(8_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    for partition in [0, 1] {
        bench.set_position(&job.name, &input, partition, 100)?;
    }
    bench.delete_records(&input, 0, 100)?;
    bench.delete_records(&input, 1, 1700)?;
    bench.apply(&job.manifest(bench)?)?;
    gap(bench, &job, &input, 100)
}

/// The same in the middle of its work: the workers stand still, and when they go on, what they were to read next is gone.
pub(super) fn retention_overtakes(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 4)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut asleep = Vec::new();
    for worker in bench.workers(&job.name)?.into_keys() {
        let process = PodProcess::of_pod(bench.cluster(), bench.namespace(), &worker, None);
        let pause = process.and_then(|process| process.pause());
        asleep.push(pause.map_err(Failure::means("pause a worker"))?);
    }
    let load = bench.load(Plan::new(&input, 2, 0).records(8_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    bench.delete_records(&input, 1, 1700)?;
    drop(asleep);
    gap(bench, &job, &input, 0)
}

/// The records of partition 1 from where the job stands up to 1700 are gone.
fn gap(bench: &Bench<'_>, job: &OrdersJob, input: &str, stands_at: i64) -> Outcome {
    let what = "a condition that names the gap";
    let degraded = bench.until_job(&job.name, what, Limits::READY, |job| {
        let told = message(job, ConditionType::Degraded);
        has(job, ConditionType::Degraded, "True", None)
            && told.contains(&format!("position {stands_at} of {input}/1 "))
            && told.contains("holds 1700 to")
    })?;
    let told = message(&degraded, ConditionType::Degraded);
    let group = format!("{}.{}", bench.namespace(), job.name);
    let position = |partition: i32| -> Result<i64, Failure> {
        let all =
            reader::committed(&bench.connection(), &group, input).map_err(Failure::means("read the positions"))?;
        Ok(all.get(&partition).copied().unwrap_or_default())
    };
    let other =
        wait::until(Deadline::after(Limits::CAUGHT_UP), || Ok::<_, Failure>((position(0)? == 4000).then_some(())))?;
    ensure!(other.is_some(), "the other partition stands at {}", position(0)?);
    ensure!(position(1)? == stands_at, "records were passed over: position {}", position(1)?);
    let trial = || bench.trial(&job.name, Meaning::purchases(&job.output)).input(input).output(&job.output);
    let before = bench.judge(trial().extent(Extent::Committed))?;

    // The person's decision: go on behind the gap.
    let workers = bench.workers(&job.name)?;
    bench.kubectl(&["delete", "streamjob", &job.name, "--namespace", bench.namespace()])?;
    for worker in workers.keys() {
        bench.until(worker, &format!("{worker} to be gone"), Limits::READY, |pod: Option<&Pod>| pod.is_none())?;
    }
    bench.set_position(&job.name, input, 1, 1700)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    Ok(vec![told, before, bench.judge(trial())?])
}

/// Records of nearly the size that Kafka takes at most, many times that of a fetch, and without a key.
pub(super) fn large_records(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 2, 0).records(4_000).bulky(50, 900_000))?;
    bench.apply(&job.manifest(bench)?)?;
    load.finish().map_err(Failure::means("write the input"))?;
    bench.until_ready(&job.name)?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

/// Offsets with holes, tombstones among the records.
pub(super) fn compacted(bench: &Bench<'_>) -> Outcome {
    let compact = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "3600000"),
    ];
    let bad = bench.make_topic("bad", 2)?;
    let job = OrdersJob { on_bad_record: "DeadLetter", dead_letter_topic: Some(bad.clone()), ..OrdersJob::new(bench) };
    let input = bench.make_topic_with("orders", 2, &compact)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 2, 0).records(60_000).defects(Defects::OneOf(50)))?;
    load.finish().map_err(Failure::means("write the input"))?;
    let surveyor = Surveyor::new(&bench.connection()).map_err(Failure::means("look at the input"))?;
    let ends = surveyor.ends(&input).map_err(Failure::means("look at the input"))?;
    let mut left = 0;
    let cleaned = wait::until(Deadline::after(Duration::from_secs(120)), || {
        left = 0;
        reader::scan(&bench.connection(), Isolation::Committed, &input, &ends, Duration::from_secs(30), |_| left += 1)
            .map_err(Failure::means("read the input"))?;
        Ok::<_, Failure>((left < 50_000).then_some(()))
    })?;
    ensure!(cleaned.is_some(), "Kafka has not compacted the topic: {left} of 60000 records are left");
    // What is judged must not change any more.
    let topic =
        ["--alter", "--entity-type", "topics", "--entity-name", &input, "--add-config", "cleanup.policy=delete"];
    bench
        .cluster()
        .kafka_tool("org.apache.kafka.tools.ConfigCommand", &topic)
        .map_err(Failure::means("set up a topic"))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let meaning = Meaning::purchases(&job.output).dead_letters(&bad);
    let trial = bench.trial(&job.name, meaning).input(&input).output(&job.output).output(&bad);
    Ok(vec![bench.judge(trial)?])
}

/// The output topic takes a few records at a time, and the input is there already: the producer would like to write large batches.
pub(super) fn small_batches(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 1, ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 3)?;
    bench.make_topic_with("purchases", 2, &[("max.message.bytes", "2000")])?;
    let load = bench.load(Plan::new(&input, 3, 0).records(30_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    bench.apply(&job.manifest(bench)?)?;
    Ok(vec![bench.judge(bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output))?])
}

/// A query that makes so much of its records that a batch has to be taken in parts.
pub(super) fn much_of_little(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 1, ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 3)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 3, 0).records(3_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    let mut manifest = job.manifest(bench)?;
    manifest.spec.pipeline.sql =
        "INSERT INTO purchases SELECT src, part, seq, customer, repeat('x', 100000) AS pad FROM orders".to_owned();
    bench.apply(&manifest)?;
    let meaning = Meaning::new().branch(&job.output, |order| {
        let Order { src, part, seq, customer, .. } = order;
        let value = json!({"src": src, "part": part, "seq": seq, "customer": customer, "pad": "x".repeat(100_000)});
        Some((customer.clone(), value))
    });
    Ok(vec![bench.judge(bench.trial(&job.name, meaning).input(&input).output(&job.output))?])
}
