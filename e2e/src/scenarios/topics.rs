//! Topics as they are in the field: empty, of a thousand partitions, growing, compacted, shortened by retention, of small batches.

use std::ops::RangeInclusive;
use std::time::Duration;

use fencepost_crds::conditions::ConditionType;
use fencepost_crds::names::LABEL_JOB;
use fencepost_oracle::reader::{self, Isolation, Surveyor, Tail};
use fencepost_oracle::trial::Extent;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::bench::{Limits, has, message, restarts};
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
    let mut told = waits_at_a_gap(bench, &job, &input, 100..=100)?;
    told.push(goes_on_behind_it(bench, &job, &input)?);
    Ok(told)
}

/// Records of both partitions together.
const WITHDRAWN: u64 = 20;

/// The same in the middle of its work: the workers stand still, and when they go on, what they were to read next is gone.
pub(super) fn retention_overtakes(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 4)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut asleep = Vec::new();
    let workers = bench.workers(&job.name)?;
    for worker in workers.keys() {
        let process = PodProcess::of_pod(bench.cluster(), bench.namespace(), worker, None);
        let pause = process.and_then(|process| process.pause());
        asleep.push(pause.map_err(Failure::means("pause a worker"))?);
    }
    // A worker that was stopped while it waited at a broker gets what comes first, and no more. That is withdrawn, so that no output is of records
    // that the judge cannot read any more.
    let withdrawn = bench.load(Plan::new(&input, 2, 0).records(WITHDRAWN).transactions(WITHDRAWN, 1))?;
    withdrawn.finish().map_err(Failure::means("write the input"))?;
    let load = bench.load(Plan::new(&input, 2, 0).stream(1).records(8_000))?;
    load.finish().map_err(Failure::means("write the input"))?;
    bench.delete_records(&input, 1, 1700)?;
    drop(asleep);
    // With the marker behind them.
    let before = i64::try_from(WITHDRAWN / 2 + 1).unwrap_or(i64::MAX);
    let mut told = waits_at_a_gap(bench, &job, &input, 0..=before)?;
    ensure!(bench.workers(&job.name)? == workers, "the gap cost a worker");
    told.push(goes_on_behind_it(bench, &job, &input)?);
    Ok(told)
}

/// No container has ended since its pod was made.
fn never_restarted(bench: &Bench<'_>, job: &OrdersJob) -> Result<(), Failure> {
    for pod in bench.pods(bench.namespace(), &format!("{LABEL_JOB}={}", job.name))? {
        ensure!(restarts(&pod) == 0, "{} has ended {} times", pod.name_any(), restarts(&pod));
    }
    Ok(())
}

/// The records of partition 1 from where the job stands up to 1700 are gone.
fn waits_at_a_gap(bench: &Bench<'_>, job: &OrdersJob, input: &str, stands_at: RangeInclusive<i64>) -> Outcome {
    let what = "a condition that names the gap";
    let degraded = bench.until_job(&job.name, what, Limits::READY, |job| {
        let told = message(job, ConditionType::Degraded);
        has(job, ConditionType::Degraded, "True", None)
            && stands_at.clone().any(|position| told.contains(&format!("position {position} of {input}/1 ")))
            && told.contains("holds 1700 to")
    })?;
    let told = message(&degraded, ConditionType::Degraded);
    let group = format!("{}.{}", bench.namespace(), job.name);
    let position = |partition: i32| -> Result<i64, Failure> {
        let all =
            reader::committed(&bench.connection(), &group, input).map_err(Failure::means("read the positions"))?;
        Ok(all.get(&partition).copied().unwrap_or_default())
    };
    let surveyor = Surveyor::new(&bench.connection()).map_err(Failure::means("look at the input"))?;
    let ends = surveyor.ends(input).map_err(Failure::means("look at the input"))?;
    let end = ends.get(&0).map_or(0, |bounds| bounds.end);
    let other =
        wait::until(Deadline::after(Limits::CAUGHT_UP), || Ok::<_, Failure>((position(0)? == end).then_some(())))?;
    ensure!(other.is_some(), "the other partition stands at {}", position(0)?);
    ensure!(stands_at.contains(&position(1)?), "records were passed over: position {}", position(1)?);
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(input).output(&job.output);
    let before = bench.judge(trial.extent(Extent::Committed))?;
    never_restarted(bench, job)?;
    Ok(vec![told, before])
}

/// A person decides to do without the records.
fn goes_on_behind_it(bench: &Bench<'_>, job: &OrdersJob, input: &str) -> Result<String, Failure> {
    let workers = bench.workers(&job.name)?;
    bench.kubectl(&["delete", "streamjob", &job.name, "--namespace", bench.namespace()])?;
    for worker in workers.keys() {
        bench.until(worker, &format!("{worker} to be gone"), Limits::READY, |pod: Option<&Pod>| pod.is_none())?;
    }
    bench.set_position(&job.name, input, 1, 1700)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    bench.judge(bench.trial(&job.name, Meaning::purchases(&job.output)).input(input).output(&job.output))
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

/// Offsets with holes, tombstones among the records, markers of transactions, and some of these aborted.
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
    let plan = Plan::new(&input, 2, 0).records(60_000).defects(Defects::OneOf(50)).transactions(400, 3);
    let written = bench.load(plan)?.finish().map_err(Failure::means("write the input"))?;
    let surveyor = Surveyor::new(&bench.connection()).map_err(Failure::means("look at the input"))?;
    let ends = surveyor.ends(&input).map_err(Failure::means("look at the input"))?;
    let mut left = 0;
    let cleaned = wait::until(Deadline::after(Duration::from_secs(120)), || {
        left = 0;
        reader::scan(&bench.connection(), Isolation::Committed, &input, &ends, Duration::from_secs(30), |_| left += 1)
            .map_err(Failure::means("read the input"))?;
        Ok::<_, Failure>((left * 6 < written.committed * 5).then_some(()))
    })?;
    ensure!(cleaned.is_some(), "Kafka has not compacted the topic: {left} of {} records are left", written.committed);
    // What is judged must not change any more.
    bench.set_topic(&input, "cleanup.policy", "delete")?;
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

/// Timestamps from the year 0 to 9999, which a topic takes when it is told to, and which SQL reads as they are.
pub(super) fn any_year(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 1, ..OrdersJob::new(bench) };
    let any = [("message.timestamp.after.max.ms", "9223372036854775807")];
    let input = bench.make_topic_with("orders", 2, &any)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 2, 0).records(2_000).of_any_time())?;
    load.finish().map_err(Failure::means("write the input"))?;
    let mut manifest = job.manifest(bench)?;
    let time = json!({"name": "at", "type": "TIMESTAMP_MS", "metadata": {"timestamp": {}}});
    for source in &mut manifest.spec.pipeline.sources {
        source.columns.push(serde_json::from_value(time.clone()).map_err(Failure::means("write the StreamJob"))?);
    }
    manifest.spec.pipeline.sql =
        "INSERT INTO purchases SELECT src, part, seq, customer, CAST(at AS BIGINT) AS at FROM orders".to_owned();
    bench.apply(&manifest)?;
    let meaning = Meaning::new().branch(&job.output, |order| {
        let Order { src, part, seq, customer, .. } = order;
        Some((
            customer.clone(),
            json!({"src": src, "part": part, "seq": seq, "customer": customer, "at": order.time()}),
        ))
    });
    Ok(vec![bench.judge(bench.trial(&job.name, meaning).input(&input).output(&job.output))?])
}

/// A topic that takes more from now on gets more from now on, from the same worker. When the worker has heard of it, a second pair of topics
/// shows: their limit is raised later, and asked for together with the first.
pub(super) fn limit_is_raised(bench: &Bench<'_>) -> Outcome {
    const SMALL: &[(&str, &str)] = &[("max.message.bytes", "2000")];
    let job = OrdersJob { replicas: 1, on_bad_record: "Skip", ..OrdersJob::new(bench) };
    let input = bench.make_topic("orders", 2)?;
    let signals = bench.make_topic("signals", 1)?;
    bench.make_topic_with("purchases", 4, SMALL)?;
    let echoes = bench.make_topic_with("echoes", 1, SMALL)?;
    let mut manifest = job.manifest(bench)?;
    let pipeline = &mut manifest.spec.pipeline;
    let twin = pipeline.sources.first().cloned().zip(pipeline.sinks.first().cloned());
    let (mut source, mut sink) = twin.ok_or_else(|| Failure::Expectation("the job has no source".to_owned()))?;
    (source.name, source.kafka.topic) = ("signals".to_owned(), signals.clone());
    (sink.name, sink.kafka.topic) = ("echoes".to_owned(), echoes.clone());
    pipeline.sources.push(source);
    pipeline.sinks.push(sink);
    let enlarge = |from: &str, to: &str| {
        format!("INSERT INTO {to} SELECT src, part, seq, customer, repeat('x', 5000) AS pad FROM {from};\n")
    };
    pipeline.sql = enlarge("orders", "purchases") + &enlarge("signals", "echoes");
    bench.apply(&manifest)?;
    bench.until_ready(&job.name)?;
    let workers = bench.workers(&job.name)?;
    let write = |plan: Plan| bench.load(plan)?.finish().map_err(Failure::means("write the input"));

    write(Plan::new(&input, 2, 0).records(1_000))?;
    // Nothing is expected of stream 0: all of it is read before the limit is raised.
    let meaning = Meaning::new().branch(&job.output, |order| {
        let Order { src, part, seq, customer, .. } = order;
        let value = json!({"src": src, "part": part, "seq": seq, "customer": customer, "pad": "x".repeat(5_000)});
        (*src > 0).then(|| (customer.clone(), value))
    });
    let trial = || bench.trial(&job.name, meaning.clone()).input(&input).output(&job.output);
    let skipped = trial().verdict().map_err(Failure::means("read the topics"))?;
    ensure!(skipped.holds(), "records that are too large were written: {}", skipped.summary());

    let mut tail = Tail::new(&bench.connection(), &[&echoes]).map_err(Failure::means("follow the output"))?;
    for topic in [&job.output, &echoes] {
        bench.set_topic(topic, "max.message.bytes", "1048588")?;
    }
    let signal = bench.load(Plan::new(&signals, 1, 10))?;
    let heard = wait::until(Deadline::after(Limits::READY), || {
        let seen = tail.poll(Duration::from_millis(200)).map_err(Failure::means("follow the output"))?;
        Ok::<_, Failure>((seen > 0).then_some(()))
    })?;
    ensure!(heard.is_some(), "the worker has not heard of the new limit");
    signal.stop().map_err(Failure::means("write the input"))?;
    write(Plan::new(&input, 2, 0).stream(1).records(1_000))?;
    let verdict = bench.judge(trial())?;
    ensure!(bench.workers(&job.name)? == workers, "the new limit cost a worker");
    never_restarted(bench, &job)?;
    Ok(vec![verdict])
}
