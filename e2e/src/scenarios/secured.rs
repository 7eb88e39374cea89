//! A cluster that wants TLS, a password and permissions: what is missing is named, and when it is there the job runs.

use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{ConditionType, Reason};
use serde_json::{Value, json};

use super::bench::{Limits, message};
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::cluster::kafka::User;
use crate::load::Plan;

/// The operator asks again by itself, ever more rarely: a mended Secret or ACL must be seen without help.
const SEEN_BY_ITSELF: Duration = Duration::from_secs(240);

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let input = bench.make_topic("orders", 2)?;
    bench.make_topic("purchases", 2)?;
    let load = bench.load(Plan::new(&input, 2, 2000).records(10_000))?;
    let authority =
        std::fs::read_to_string(bench.cluster().kafka_authority()).map_err(Failure::means("read the authority"))?;
    bench.apply(&secret(bench, "kafka-ca", &json!({"ca.crt": authority})))?;
    let journal = bench.journal();

    credentials(bench, "not-the-password")?;
    let job = OrdersJob::new(bench);
    bench.apply(&secured(job.manifest(bench)?)?)?;
    let refused = bench.until_condition(
        &job.name,
        ConditionType::BrokerCompatible,
        "False",
        Reason::AuthenticationFailed,
        Limits::JUDGED,
    )?;
    let wrong_password = message(&refused, ConditionType::BrokerCompatible);

    credentials(bench, &User::Worker.password())?;
    let refused = bench.until_condition(
        &job.name,
        ConditionType::BrokerCompatible,
        "False",
        Reason::AuthorizationFailed,
        SEEN_BY_ITSELF,
    )?;
    let no_permission = message(&refused, ConditionType::BrokerCompatible);
    ensure!(journal.pods().is_empty(), "workers were started: {:?}", journal.pods());

    for acl in permissions(bench, &job) {
        let words: Vec<&str> = acl.split(' ').collect();
        bench.cluster().grant(User::Worker, &words).map_err(Failure::means("grant a permission"))?;
    }
    bench.until_job(&job.name, "the job to run with its permissions", SEEN_BY_ITSELF, |job| {
        super::bench::has(job, ConditionType::Ready, "True", None)
    })?;
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![wrong_password, no_permission, bench.judge(trial)?])
}

/// What the installation guide says a job needs.
fn permissions(bench: &Bench<'_>, job: &OrdersJob) -> [String; 6] {
    let name = format!("{}.{}", bench.namespace(), job.name);
    let OrdersJob { input, output, .. } = job;
    [
        format!("--operation Read --operation Describe --topic {input}"),
        format!("--operation Write --operation Describe --topic {output}"),
        format!("--operation Read --operation Describe --group {name}"),
        format!("--operation Write --operation Describe --transactional-id {name} --resource-pattern-type prefixed"),
        "--operation Describe --cluster".to_owned(),
        "--operation DescribeConfigs --cluster".to_owned(),
    ]
}

fn credentials(bench: &Bench<'_>, password: &str) -> Result<(), Failure> {
    let user = User::Worker.to_string();
    bench.apply(&secret(bench, "kafka-user", &json!({"username": user, "password": password})))
}

fn secret(bench: &Bench<'_>, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": bench.namespace()},
        "stringData": data,
    })
}

fn secured(job: StreamJob) -> Result<StreamJob, Failure> {
    let mut job = job;
    let kafka = json!({
        "bootstrapServers": job.spec.kafka.bootstrap_servers,
        "tls": {"caSecretRef": {"name": "kafka-ca", "key": "ca.crt"}},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "usernameSecretRef": {"name": "kafka-user", "key": "username"},
            "passwordSecretRef": {"name": "kafka-user", "key": "password"},
        },
    });
    job.spec.kafka = serde_json::from_value(kafka).map_err(Failure::means("write the StreamJob"))?;
    for sink in &mut job.spec.pipeline.sinks {
        // The topic is there, and the job has no permission to make one.
        sink.kafka.create = None;
    }
    Ok(job)
}
