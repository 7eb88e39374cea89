//! A cluster that wants TLS, a password and permissions: what is missing is named, and when it is there the job runs.

use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use serde_json::{Value, json};

use super::bench::{Limits, has, message};
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::cluster::kafka::User;
use crate::load::{Defects, Plan};

/// The operator asks again by itself, ever more rarely: a mended Secret or ACL must be seen without help.
pub(super) const SEEN_BY_ITSELF: Duration = Duration::from_secs(240);

pub(super) fn named(bench: &Bench<'_>) -> Outcome {
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 2)?;
    let load = bench.load(Plan::new(&input, 2, 2000).records(10_000))?;
    authority(bench)?;
    let journal = bench.journal();

    credentials(bench, User::Worker, "not-the-password")?;
    let job = OrdersJob::new(bench);
    bench.apply(&secured(job.manifest(bench)?, &with_password(bench))?)?;
    let wrong_password = incompatible(bench, &job, Reason::AuthenticationFailed, Limits::JUDGED)?;

    credentials(bench, User::Worker, &User::Worker.password())?;
    let no_permission = incompatible(bench, &job, Reason::AuthorizationFailed, SEEN_BY_ITSELF)?;
    ensure!(journal.pods().is_empty(), "workers were started: {:?}", journal.pods());

    // What the guide says, but for the one that the operator itself needs.
    let (limits, others) = permissions(bench, &job)
        .split_last()
        .map(|(last, others)| (last.clone(), others.to_vec()))
        .ok_or_else(|| Failure::Expectation("the guide names no permission".to_owned()))?;
    for permission in &others {
        permission.grant(bench, User::Worker)?;
    }
    let what = "a condition that names DescribeConfigs";
    bench.until_job(&job.name, what, SEEN_BY_ITSELF, |job| names(job, ConditionType::BrokerCompatible, &limits))?;
    ensure!(journal.pods().is_empty(), "workers were started: {:?}", journal.pods());
    limits.grant(bench, User::Worker)?;
    runs(bench, &job)?;
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![wrong_password, no_permission, bench.judge(trial)?])
}

/// Each permission of the guide in turn, while the job runs. Its user is nobody else's: what is granted on the cluster would be granted to others.
pub(super) fn taken_away(bench: &Bench<'_>) -> Outcome {
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 2)?;
    let bad = bench.make_topic("bad", 1)?;
    authority(bench)?;
    credentials(bench, User::Losing, &User::Losing.password())?;
    let job = OrdersJob { on_bad_record: "DeadLetter", dead_letter_topic: Some(bad.clone()), ..OrdersJob::new(bench) };
    let permissions = permissions(bench, &job);
    for permission in &permissions {
        permission.grant(bench, User::Losing)?;
    }
    let load = bench.load(Plan::new(&input, 2, 500).defects(Defects::OneOf(25)))?;
    bench.apply(&secured(job.manifest(bench)?, &with_password(bench))?)?;
    runs(bench, &job)?;
    let mut told = Vec::new();
    // The last is not the workers'.
    for permission in permissions.iter().rev().skip(1).rev() {
        permission.revoke(bench, User::Losing)?;
        let what = format!("a condition that names {} on {}", permission.operation, permission.name);
        let degraded =
            bench.until_job(&job.name, &what, SEEN_BY_ITSELF, |job| names(job, ConditionType::Degraded, permission))?;
        told.push(message(&degraded, ConditionType::Degraded));
        permission.grant(bench, User::Losing)?;
        bench.until_job(&job.name, "the job to be well again", SEEN_BY_ITSELF, |job| {
            has(job, ConditionType::Ready, "True", None) && has(job, ConditionType::Degraded, "False", None)
        })?;
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let meaning = Meaning::purchases(&job.output).dead_letters(&bad);
    let trial = bench.trial(&job.name, meaning).input(&input).output(&job.output).output(&bad);
    told.push(bench.judge(trial)?);
    Ok(told)
}

/// The topic of a sink is to be made, and the job may not.
pub(super) fn topic_to_make(bench: &Bench<'_>) -> Outcome {
    let input = bench.make_topic("orders", 2)?;
    let load = bench.load(Plan::new(&input, 2, 2000).records(10_000))?;
    authority(bench)?;
    credentials(bench, User::Making, &User::Making.password())?;
    let job = OrdersJob::new(bench);
    for permission in permissions(bench, &job) {
        permission.grant(bench, User::Making)?;
    }
    let manifest = job.manifest(bench)?;
    let sinks = manifest.spec.pipeline.sinks.clone();
    let mut manifest = secured(manifest, &with_password(bench))?;
    manifest.spec.pipeline.sinks = sinks;
    bench.apply(&manifest)?;
    let create = Permission { operation: "Create", kind: "--topic", name: job.output.clone(), is_prefix: false };
    let refused = bench.until_job(&job.name, "a condition that names Create", Limits::JUDGED, |job| {
        names(job, ConditionType::BrokerCompatible, &create)
    })?;
    ensure!(bench.workers(&job.name)?.is_empty(), "workers were started without a topic to write to");
    create.grant(bench, User::Making)?;
    runs(bench, &job)?;
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![message(&refused, ConditionType::BrokerCompatible), bench.judge(trial)?])
}

/// Mutual TLS: no password anywhere.
pub(super) fn mutual_tls(bench: &Bench<'_>) -> Outcome {
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 2)?;
    let load = bench.load(Plan::new(&input, 2, 2000).records(10_000))?;
    authority(bench)?;
    certificate(bench, User::Certified)?;
    let job = OrdersJob::new(bench);
    for permission in permissions(bench, &job) {
        permission.grant(bench, User::Certified)?;
    }
    // The same permissions are enough for the other protocol of groups.
    let mut kafka = with_certificate(bench);
    if let Some(kafka) = kafka.as_object_mut() {
        kafka.insert("groupProtocol".to_owned(), "Consumer".into());
    }
    bench.apply(&secured(job.manifest(bench)?, &kafka)?)?;
    runs(bench, &job)?;
    let found = bench.group_type(&job.name)?;
    ensure!(found == "Consumer", "the group is {found}, and was to be Consumer");
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

pub(super) fn authority(bench: &Bench<'_>) -> Result<(), Failure> {
    let authority =
        std::fs::read_to_string(bench.cluster().kafka_authority()).map_err(Failure::means("read the authority"))?;
    bench.apply(&secret(bench, "kafka-ca", &json!({"ca.crt": authority})))
}

fn incompatible(bench: &Bench<'_>, job: &OrdersJob, reason: Reason, limit: Duration) -> Result<String, Failure> {
    let refused = bench.until_condition(&job.name, ConditionType::BrokerCompatible, "False", reason, limit)?;
    Ok(message(&refused, ConditionType::BrokerCompatible))
}

fn runs(bench: &Bench<'_>, job: &OrdersJob) -> Result<(), Failure> {
    let is_ready = |job: &StreamJob| has(job, ConditionType::Ready, "True", None);
    bench.until_job(&job.name, "the job to run with its permissions", SEEN_BY_ITSELF, is_ready).map(drop)
}

/// One line of the installation guide's table.
#[derive(Debug, Clone)]
pub(super) struct Permission {
    operation: &'static str,
    /// `--topic` and the like.
    kind: &'static str,
    name: String,
    is_prefix: bool,
}

impl Permission {
    fn words(&self) -> Vec<&str> {
        let mut words = vec!["--operation", self.operation, self.kind];
        if !self.name.is_empty() {
            words.push(&self.name);
        }
        if self.is_prefix {
            words.extend(["--resource-pattern-type", "prefixed"]);
        }
        words
    }

    pub(super) fn grant(&self, bench: &Bench<'_>, user: User) -> Result<(), Failure> {
        bench.cluster().grant(user, &self.words()).map_err(Failure::means("grant a permission"))
    }

    pub(super) fn revoke(&self, bench: &Bench<'_>, user: User) -> Result<(), Failure> {
        bench.cluster().revoke(user, &self.words()).map_err(Failure::means("take a permission away"))
    }
}

/// Whether the condition says which permission is missing, and not only something of a similar name.
fn names(job: &StreamJob, condition: ConditionType, permission: &Permission) -> bool {
    let is_bad = condition == ConditionType::BrokerCompatible || has(job, condition, "True", None);
    let kind = permission.kind.trim_start_matches('-').replace('-', " ");
    // Of a prefix, one of the names that begin with it is told.
    let wanted = match kind.as_str() {
        "cluster" => format!("{} on the cluster", permission.operation),
        kind => format!("{} on {kind} {}", permission.operation, permission.name),
    };
    is_bad && message(job, condition).contains(&wanted)
}

/// What the installation guide says a job needs, the operator's own last.
pub(super) fn permissions(bench: &Bench<'_>, job: &OrdersJob) -> Vec<Permission> {
    let name = format!("{}.{}", bench.namespace(), job.name);
    let permission =
        |operation, kind, name: &str| Permission { operation, kind, name: name.to_owned(), is_prefix: false };
    let mut permissions = vec![permission("Read", "--topic", &job.input)];
    for output in [Some(&job.output), job.dead_letter_topic.as_ref()].into_iter().flatten() {
        permissions.extend(["Write", "DescribeConfigs"].map(|operation| permission(operation, "--topic", output)));
    }
    permissions.extend([
        permission("Read", "--group", &name),
        Permission { is_prefix: true, ..permission("Write", "--transactional-id", &format!("{name}-")) },
        permission("DescribeConfigs", "--cluster", ""),
    ]);
    permissions
}

pub(super) fn with_password(bench: &Bench<'_>) -> Value {
    json!({
        "bootstrapServers": bench.cluster().bootstrap_name(),
        "tls": {"caSecretRef": {"name": "kafka-ca", "key": "ca.crt"}},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "usernameSecretRef": {"name": "kafka-user", "key": "username"},
            "passwordSecretRef": {"name": "kafka-user", "key": "password"},
        },
    })
}

pub(super) fn with_certificate(bench: &Bench<'_>) -> Value {
    json!({
        "bootstrapServers": bench.cluster().mutual_bootstrap(),
        "tls": {
            "caSecretRef": {"name": "kafka-ca", "key": "ca.crt"},
            "clientCertificateSecretRef": {"name": "kafka-worker"},
        },
    })
}

pub(super) fn credentials(bench: &Bench<'_>, user: User, password: &str) -> Result<(), Failure> {
    bench.apply(&secret(bench, "kafka-user", &json!({"username": user.to_string(), "password": password})))
}

/// A Secret as cert-manager makes it.
pub(super) fn certificate(bench: &Bench<'_>, user: User) -> Result<(), Failure> {
    let (certificate, key) = bench.cluster().client_certificate(user).map_err(Failure::means("read a certificate"))?;
    let mut secret = secret(bench, "kafka-worker", &json!({"tls.crt": certificate, "tls.key": key}));
    if let Some(secret) = secret.as_object_mut() {
        secret.insert("type".to_owned(), "kubernetes.io/tls".into());
    }
    bench.apply(&secret)
}

fn secret(bench: &Bench<'_>, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": bench.namespace()},
        "stringData": data,
    })
}

pub(super) fn secured(job: StreamJob, kafka: &Value) -> Result<StreamJob, Failure> {
    let mut job = job;
    job.spec.kafka = serde_json::from_value(kafka.clone()).map_err(Failure::means("write the StreamJob"))?;
    for sink in &mut job.spec.pipeline.sinks {
        // The topic is there, and the job has no permission to make one.
        sink.kafka.create = None;
    }
    Ok(job)
}
