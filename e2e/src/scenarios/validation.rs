//! Jobs that cannot work: refused with every reason, before a worker starts, and without touching what runs.

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_oracle::reader::Tail;
use kube::core::Duration as Written;
use std::time::Duration;

use super::bench::{Limits, epoch, has, is_answered, message};
use super::failure::ensure;
use super::scale::moves;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;

fn written(seconds: u64) -> Written {
    Written::from(Duration::from_secs(seconds))
}

/// Spec, SQL, topics and the broker's limits are all wrong at once.
pub(super) fn all_at_once(bench: &Bench<'_>) -> Outcome {
    let journal = bench.journal();
    let job = OrdersJob { input: bench.topic("misspelt"), ..OrdersJob::new(bench) };
    let mut manifest = job.manifest(bench)?;
    // 20 minutes; the broker's default maximum is 15.
    manifest.spec.processing.transaction_timeout = written(1200);
    manifest.spec.pipeline.sql =
        "INSERT INTO purchases SELECT src, part, seq, nobody, amount FROM orders WHERE type = 'purchase'".to_owned();
    bench.apply(&manifest)?;
    let refused = bench.until_job(&job.name, "a refusal of SQL and broker", Limits::JUDGED, |job| {
        is_answered(job)
            && has(job, ConditionType::SpecValid, "False", None)
            && has(job, ConditionType::BrokerCompatible, "False", None)
            && has(job, ConditionType::Ready, "False", None)
    })?;
    let told = format!(
        "{} {}",
        message(&refused, ConditionType::SpecValid),
        message(&refused, ConditionType::BrokerCompatible)
    );
    for part in ["nobody", "misspelt", "1200000 ms", "900000 ms", "transactionTimeout"] {
        ensure!(told.contains(part), "the conditions do not say {part}: {told}");
    }
    nothing_started(bench, &journal.pods())?;

    // Mended, the same object runs.
    bench.make_topic("misspelt", 2)?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    Ok(vec![told])
}

/// A timeout that cannot hold a commit interval.
pub(super) fn below_commit_interval(bench: &Bench<'_>) -> Outcome {
    let journal = bench.journal();
    let job = OrdersJob::new(bench);
    bench.make_topic("orders", 2)?;
    let mut manifest = job.manifest(bench)?;
    manifest.spec.processing.transaction_timeout = written(2);
    manifest.spec.processing.protocol.transactional.commit_interval = written(5);
    bench.apply(&manifest)?;
    let refused =
        bench.until_condition(&job.name, ConditionType::SpecValid, "False", Reason::InvalidSpec, Limits::JUDGED)?;
    let told = message(&refused, ConditionType::SpecValid);
    for part in ["2000 ms", "5000 ms", "transactionTimeout", "commitInterval"] {
        ensure!(told.contains(part), "the condition does not say {part}: {told}");
    }
    nothing_started(bench, &journal.pods())?;
    Ok(vec![told])
}

fn nothing_started(bench: &Bench<'_>, pods: &[String]) -> Result<(), Failure> {
    ensure!(pods.is_empty(), "workers were started: {pods:?}");
    let sets = bench.kubectl(&["get", "statefulsets", "--namespace", bench.namespace(), "--output=name"])?;
    ensure!(sets.trim().is_empty(), "there is a StatefulSet: {sets}");
    Ok(())
}

/// Wrong updates of every kind, one after another, to a job that runs.
pub(super) fn wrong_update(bench: &Bench<'_>) -> Outcome {
    let mut job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let load = bench.load(Plan::new(&input, 4, 1500))?;
    bench.apply(&job.manifest(bench)?)?;
    let good = bench.until_ready(&job.name)?;
    let workers = bench.workers(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    let mut lines = vec![taken_names(bench, &job)?];
    moves(&mut tail, "while another job wants its transactional ids")?;
    for (what, spoil) in WRONG {
        let mut wrong = job.manifest(bench)?;
        spoil(&mut wrong);
        validates(bench, &job, &wrong, false)?;
        bench.apply(&wrong)?;
        let refused = bench.until_job(&job.name, what, Limits::JUDGED, |job| {
            is_answered(job)
                && (has(job, ConditionType::SpecValid, "False", None)
                    || has(job, ConditionType::BrokerCompatible, "False", None))
                && has(job, ConditionType::Ready, "False", Some(Reason::NewRevisionRefused))
        })?;
        lines.push(format!("{what}: {}", message(&refused, ConditionType::Ready)));
        moves(&mut tail, "while the update is refused")?;
        ensure!(bench.workers(&job.name)? == workers, "{what}: the workers of the last good version were replaced");
        ensure!(epoch(&refused) == epoch(&good), "{what}: the epoch changed");
    }
    job.version = 2;
    validates(bench, &job, &job.manifest(bench)?, true)?;
    bench.apply(&job.manifest(bench)?)?;
    let mended = bench.until_job(&job.name, "the mended job to run", Limits::READY, |job| {
        is_answered(job) && has(job, ConditionType::Ready, "True", None) && epoch(job) > epoch(&good)
    })?;
    ensure!(epoch(&mended) == epoch(&good) + 1, "one accepted change took {} epochs", epoch(&mended) - epoch(&good));
    moves(&mut tail, "with the mended job")?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    lines.push(bench.judge(trial)?);
    Ok(lines)
}

/// A second job with the prefix of one that runs must not start, and goes without a trace.
fn taken_names(bench: &Bench<'_>, job: &OrdersJob) -> Result<String, Failure> {
    let mut copy = OrdersJob { name: "copy".to_owned(), ..job.clone() }.manifest(bench)?;
    copy.spec.kafka.transactional_id_prefix = Some(format!("{}.{}", bench.namespace(), job.name));
    bench.apply(&copy)?;
    let refused = bench.until_condition("copy", ConditionType::Stalled, "True", Reason::IdsTaken, Limits::JUDGED)?;
    ensure!(epoch(&refused) == 0, "a copy with the ids of another job has started");
    let told = message(&refused, ConditionType::TransactionalIdsOwned);
    ensure!(told.contains(&format!("{}/{}", bench.namespace(), job.name)), "the condition does not name it: {told}");
    bench.kubectl(&["delete", "streamjob", "copy", "--namespace", bench.namespace(), "--wait=true"])?;
    Ok(told)
}

/// A user asks a worker whether a manifest would be accepted.
fn validates(bench: &Bench<'_>, job: &OrdersJob, manifest: &StreamJob, wanted: bool) -> Result<(), Failure> {
    let text = serde_json::to_string(manifest).map_err(Failure::means("write a manifest"))?;
    let told = bench.execute(&format!("{}-0", job.name), &["fencepost-worker", "validate", "-"], &text);
    ensure!(told.is_ok() == wanted, "fencepost-worker validate says {told:?}");
    Ok(())
}

type Spoil = fn(&mut StreamJob);

const WRONG: [(&str, Spoil); 3] = [
    ("SQL that does not plan", |job| {
        job.spec.pipeline.sql = "INSERT INTO purchases SELECT nobody FROM orders".to_owned();
    }),
    ("a timeout above the broker's maximum", |job| job.spec.processing.transaction_timeout = written(1200)),
    ("an unknown topic", |job| {
        if let Some(source) = job.spec.pipeline.sources.first_mut() {
            source.kafka.topic = "nowhere-to-be-found".to_owned();
        }
    }),
];
