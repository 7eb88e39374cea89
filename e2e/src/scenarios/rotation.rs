//! Credentials that change under a running job.

use std::collections::BTreeMap;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_oracle::reader::Tail;

use super::bench::{Limits, epoch, has};
use super::failure::ensure;
use super::scale::moves;
use super::secured::{self, SEEN_BY_ITSELF};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::cluster::kafka::User;
use crate::load::{Load, Plan};

/// Nobody else has this user: its password changes.
const USER: User = User::Changing;

/// A new password: first at the brokers, then in the Secret. Then one that the brokers do not know.
pub(super) fn password(bench: &Bench<'_>) -> Outcome {
    secured::credentials(bench, USER, &USER.password())?;
    let mut running = start(bench, USER, &secured::with_password(bench))?;
    bench.cluster().change_password(USER, "a-new-one").map_err(Failure::means("change the password"))?;
    secured::credentials(bench, USER, "a-new-one")?;
    let told = rotated(bench, &mut running, "kafka-user")?;

    let before = bench.workers(&running.job.name)?;
    secured::credentials(bench, USER, "not-the-password")?;
    let reason = Reason::AuthenticationFailed;
    bench.until_condition(&running.job.name, ConditionType::BrokerCompatible, "False", reason, SEEN_BY_ITSELF)?;
    moves(&mut running.tail, "while the Secret holds a wrong password")?;
    ensure!(bench.workers(&running.job.name)? == before, "workers were replaced for credentials that do not work");
    secured::credentials(bench, USER, "a-new-one")?;
    bench.until_job(&running.job.name, "the job to be well again", SEEN_BY_ITSELF, |job| {
        has(job, ConditionType::BrokerCompatible, "True", None) && has(job, ConditionType::Ready, "True", None)
    })?;
    ensure!(bench.workers(&running.job.name)? == before, "workers were replaced although they have these credentials");
    Ok(vec![told, finish(bench, running)?])
}

/// A new certificate and key, as cert-manager writes them long before the old ones expire. The new one carries another name: when the old
/// name may do nothing any more, whoever goes on does so with the new files.
pub(super) fn certificate(bench: &Bench<'_>) -> Outcome {
    let (old, new) = (User::Renamed, USER);
    secured::certificate(bench, old)?;
    let mut running = start(bench, old, &secured::with_certificate(bench))?;
    let permissions = secured::permissions(bench, &running.job);
    for permission in &permissions {
        permission.grant(bench, new)?;
    }
    secured::certificate(bench, new)?;
    let told = rotated(bench, &mut running, "kafka-worker")?;
    for permission in &permissions {
        permission.revoke(bench, old)?;
    }
    // What was committed before the brokers took notice may still arrive.
    for _ in 0..2 {
        moves(&mut running.tail, "without the permissions of the old name")?;
    }
    Ok(vec![told, finish(bench, running)?])
}

struct Running {
    job: OrdersJob,
    input: String,
    load: Load,
    tail: Tail,
    /// Uids of the workers by name.
    workers: BTreeMap<String, String>,
    epoch: i64,
}

fn start(bench: &Bench<'_>, user: User, kafka: &serde_json::Value) -> Result<Running, Failure> {
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 2)?;
    secured::authority(bench)?;
    let job = OrdersJob::new(bench);
    for permission in secured::permissions(bench, &job) {
        permission.grant(bench, user)?;
    }
    let load = bench.load(Plan::new(&input, 2, 1500))?;
    bench.apply(&secured::secured(job.manifest(bench)?, kafka)?)?;
    let ready = bench.until_ready(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    moves(&mut tail, "before anything changes")?;
    let workers = bench.workers(&job.name)?;
    Ok(Running { job, input, load, tail, workers, epoch: epoch(&ready) })
}

/// Waits until every worker is another one, within the same epoch, and says what was told of it.
fn rotated(bench: &Bench<'_>, running: &mut Running, secret: &str) -> Result<String, Failure> {
    let name = &running.job.name;
    let is_rotating = |job: &StreamJob| has(job, ConditionType::Reconciling, "True", Some(Reason::Rotating));
    bench.until_job(name, "the rotation to begin", Limits::READY, is_rotating)?;
    let job = bench.until_job(name, "the rotation to end", Limits::READY, |job| {
        has(job, ConditionType::Reconciling, "False", None) && has(job, ConditionType::Ready, "True", None)
    })?;
    let now = bench.workers(name)?;
    let kept: Vec<_> = now.iter().filter(|(pod, uid)| running.workers.get(*pod) == Some(*uid)).collect();
    ensure!(kept.is_empty() && now.len() == running.workers.len(), "these workers were not replaced: {kept:?}");
    ensure!(epoch(&job) == running.epoch, "all workers were stopped at once: epoch {}", epoch(&job));
    moves(&mut running.tail, "with the new credentials")?;
    let notes = bench.events("CredentialsChanged")?;
    ensure!(notes.contains(&format!("Secret {secret} has changed")), "no event names the Secret {secret}: {notes:?}");
    Ok(notes)
}

fn finish(bench: &Bench<'_>, running: Running) -> Result<String, Failure> {
    let Running { job, input, load, .. } = running;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    bench.judge(trial)
}
