//! `plan` and `validate`: what a job would do, and what keeps it from running.

use std::{collections::BTreeMap, io::Write, time::Duration};

use fencepost_crds::{
    StreamJobSpec,
    contract::{CONTRACT_VERSION, ExitCode, PlanReport, ResolvedJob},
    v1alpha1::{GroupProtocol, Guarantee, Violation},
};
use fencepost_kafka::{
    rpc::{Cluster, RpcError, TopicRefused},
    settings::ConnectionSettings,
};
use fencepost_pipeline::plan_report;
use fencepost_plan::{
    observed::{BrokerFacts, BrokerLimits, TopicFacts},
    validate::{Facts, Findings, Stage, topics_of, validate as check},
};

use crate::{cli::chain, job::JobError};

/// Version of this worker.
pub(crate) const WORKER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long all questions to the brokers may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(30);

/// Plans and prints. Talks to nothing.
pub(crate) fn plan(job: &ResolvedJob, json: bool) -> ExitCode {
    show(&plan_report(&job.pipeline, job.guarantee, WORKER_VERSION), None, &[], json)
}

/// Plans, asks the brokers, and prints.
pub(crate) fn validate(job: &ResolvedJob, spec: Option<&StreamJobSpec>, json: bool) -> ExitCode {
    let mut report = plan_report(&job.pipeline, job.guarantee, WORKER_VERSION);
    if !json {
        let limit = PROBE_DEADLINE.as_secs();
        // Nobody is left to hear that this could not be said.
        writeln!(std::io::stderr(), "asking {} (up to {limit} s)", job.kafka.bootstrap_servers).ok();
    }
    let mut warnings = Vec::new();
    let mut seen = None;
    match (spec, probe(job, spec)) {
        (Some(spec), Ok(facts)) => {
            let facts = seen.insert(facts);
            let Findings { spec, broker, warnings: more } = check(Facts {
                spec,
                transactional_id_prefix: &job.transactional_id_prefix,
                broker: Some(facts),
                stage: Stage::New,
            });
            report.violations.extend(spec);
            report.violations.extend(broker.into_iter().map(|(_, violation)| violation));
            warnings = more;
        }
        (None, _) => report.violations.push(Violation {
            reason: "NotAManifest".to_owned(),
            field: String::new(),
            message: "validate needs the StreamJob manifest; this is a resolved job".to_owned(),
        }),
        (_, Err(violation)) => report.violations.push(violation),
    }
    show(&report, seen.as_ref(), &warnings, json)
}

/// A report for a file that is no job.
pub(crate) fn unreadable(error: &JobError) -> PlanReport {
    PlanReport {
        contract_version: CONTRACT_VERSION,
        worker_version: WORKER_VERSION.to_owned(),
        violations: vec![Violation { reason: "InvalidJob".to_owned(), field: String::new(), message: chain(error) }],
        ..PlanReport::default()
    }
}

fn probe(job: &ResolvedJob, spec: Option<&StreamJobSpec>) -> Result<BrokerFacts, Violation> {
    let refuse = |reason: String, message: String| Violation { reason, field: "spec.kafka".to_owned(), message };
    let settings = ConnectionSettings::from_resolved(&job.kafka, "fencepost-validate")
        .map_err(|error| refuse(error.cause().reason().to_string(), chain(&error)))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refuse("Failure".to_owned(), error.to_string()))?;
    let topics: Vec<String> = spec.map(topics_of).unwrap_or_default().into_iter().map(|t| t.to_string()).collect();
    let ask = async { tokio::time::timeout(PROBE_DEADLINE, facts(settings, &topics, job)).await };
    match runtime.block_on(ask) {
        Ok(Ok(facts)) => Ok(facts),
        Ok(Err(ProbeError::Rpc(error))) => Err(refuse(error.cause().reason().to_string(), error.report())),
        Ok(Err(ProbeError::Topic(error))) => Err(refuse(error.cause.reason().to_string(), error.to_string())),
        Err(_) => Err(refuse(
            "BrokerUnreachable".to_owned(),
            format!("{} did not answer within {} s", job.kafka.bootstrap_servers, PROBE_DEADLINE.as_secs()),
        )),
    }
}

/// Why the brokers could not be asked.
enum ProbeError {
    Rpc(RpcError),
    Topic(TopicRefused),
}

async fn facts(settings: ConnectionSettings, topics: &[String], job: &ResolvedJob) -> Result<BrokerFacts, ProbeError> {
    let cluster = Cluster::new(settings).map_err(ProbeError::Rpc)?;
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let metadata = cluster.metadata(&names).await.map_err(ProbeError::Rpc)?;
    // Without transactions they do not matter, and asking needs a permission.
    let limits = match job.guarantee {
        Guarantee::ExactlyOnce => cluster.broker_limits().await.map_err(ProbeError::Rpc)?.brokers,
        Guarantee::AtLeastOnce => BTreeMap::new(),
    };
    let topics = metadata.topics.iter().map(|(name, topic)| {
        let partitions = topic.partition_count(name).map_err(ProbeError::Topic)?;
        let facts = partitions.map_or(TopicFacts::Missing, |partitions| TopicFacts::Exists { partitions });
        Ok((name.clone(), facts))
    });
    let topics = topics.collect::<Result<_, ProbeError>>()?;
    let limits: BTreeMap<_, _> = limits
        .into_iter()
        .map(|(id, limit)| {
            let limits = BrokerLimits {
                transaction_max_timeout_ms: limit.transaction_max_timeout_ms,
                transactional_id_expiration_ms: limit.transactional_id_expiration_ms,
            };
            (id.0, limits)
        })
        .collect();
    let has_consumer_protocol = match job.group_protocol {
        GroupProtocol::Classic => None,
        GroupProtocol::Consumer => {
            Some(cluster.has_consumer_protocol(&job.consumer_group).await.map_err(ProbeError::Rpc)?)
        }
    };
    Ok(BrokerFacts { cluster_id: metadata.cluster_id, limits, topics, has_consumer_protocol })
}

fn show(report: &PlanReport, brokers: Option<&BrokerFacts>, warnings: &[Violation], json: bool) -> ExitCode {
    if json {
        return print_json(report);
    }
    let written = std::io::stdout().lock().write_all(text(report, brokers, warnings).as_bytes());
    verdict(report, written)
}

/// Prints a report as one line of JSON.
pub(crate) fn print_json(report: &PlanReport) -> ExitCode {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let written = std::io::stdout().lock().write_all(&line);
    verdict(report, written)
}

fn verdict(report: &PlanReport, written: std::io::Result<()>) -> ExitCode {
    match (written, report.violations.is_empty()) {
        (Err(_), _) => ExitCode::Failure,
        (Ok(()), true) => ExitCode::Ok,
        (Ok(()), false) => ExitCode::InvalidJob,
    }
}

/// What the brokers said, so that one sees that they were asked.
fn answers(facts: &BrokerFacts) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((id, limit)) = facts.smallest(|limits| limits.transaction_max_timeout_ms) {
        let brokers = facts.limits.len();
        lines.push(format!("brokers {brokers}, the smallest transaction.max.timeout.ms is {limit} (broker {id})"));
    }
    lines.extend(facts.topics.iter().map(|(topic, facts)| match facts {
        TopicFacts::Exists { partitions } => format!("broker has topic {topic} with {partitions} partitions"),
        TopicFacts::Missing => format!("broker lacks topic {topic}"),
    }));
    lines
}

fn text(report: &PlanReport, brokers: Option<&BrokerFacts>, warnings: &[Violation]) -> String {
    let mut lines = Vec::new();
    for stage in &report.stages {
        lines.push(format!("stage {}", stage.id));
        lines.extend(stage.operators.iter().map(|operator| format!("  {operator}")));
    }
    for topic in &report.topics {
        lines.push(format!("topic {} ({} {})", topic.topic, topic.role, topic.table));
    }
    for sink in &report.guarantees {
        let condition = sink.condition.as_deref().map(|text| format!(", if {text}")).unwrap_or_default();
        lines.push(format!("guarantee of {}: {}{condition}", sink.sink, sink.guarantee));
    }
    if !report.signature.is_empty() {
        lines.push(format!("signature {}", report.signature));
    }
    lines.extend(brokers.into_iter().flat_map(answers));
    lines.extend(warnings.iter().map(|warning| format!("warning: {}: {}", warning.field, warning.message)));
    for violation in &report.violations {
        lines.push(format!("error: {} [{}]: {}", violation.field, violation.reason, violation.message));
    }
    lines.push(String::new());
    lines.join("\n")
}
