//! May the newest spec run? Four checks, independent of each other, so that a user sees all problems at once: rules on the spec, the
//! plan of its own image, the brokers, other jobs with the same names. Then, if the spec wants it, a person.
//!
//! A revision passes once. What brokers say later is reported, and never stops workers.

use std::time::Duration;

use fencepost_crds::{
    conditions::Reason,
    contract::{CONTRACT_VERSION, PlanReport},
    names,
    v1alpha1::{Approval, PlanStatus, SinkGuarantee, Violation},
};
use k8s_openapi::api::core::v1::Pod;
use kube_core::ResourceExt;

use super::{Act, Case, PlanOutcome, rollout};
use crate::{
    backoff,
    build::{self, BuildError},
    diff::{self, Effect},
    observed::{BrokerFacts, BrokerObserved, PlanPod},
    ownership,
    pods::{PodFacts, elapsed},
    revision::newest_first,
    validate::{self, Facts, Findings, Stage},
};

/// How soon names that another job has are worth another look.
const TAKEN: Duration = Duration::from_secs(10);

/// Judgement on the newest spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Gates {
    /// The spec and its plan.
    pub spec: SpecGate,
    /// The brokers.
    pub broker: BrokerGate,
    /// Why the transactional ids or the group belong to another job.
    pub taken: Option<String>,
    /// Whether a person has to let it start.
    pub approval: ApprovalGate,
    /// Allowed and probably not meant.
    pub warnings: Vec<Violation>,
    /// The plan, when it is known.
    pub plan: Option<PlanStatus>,
    /// What a reader of each sink gets, when the plan was answered just now.
    pub guarantees: Option<Vec<SinkGuarantee>>,
    /// What the checks need done.
    pub acts: Vec<Act>,
    /// When a check is worth repeating.
    pub look_again: Option<Duration>,
}

/// The spec and its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecGate {
    /// Nothing is wrong.
    Passed,
    /// Not known yet: what it waits for.
    Planning(String),
    /// The plan pod cannot start or did not answer: it is tried again.
    PlanFailed {
        /// Reason for `Degraded`, where the pod could not even start.
        trouble: Option<Reason>,
        /// In whose words.
        message: String,
    },
    /// Refused until it is changed.
    Refused {
        /// Of the condition.
        reason: Reason,
        /// All problems.
        violations: Vec<Violation>,
    },
}

/// A person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalGate {
    /// Nobody has to say anything.
    NotNeeded,
    /// It may start.
    Given,
    /// All else is right: what would change, and how to let it.
    Needed(String),
}

/// The brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerGate {
    /// Limits and topics allow the spec.
    Passed,
    /// Not known yet: what it waits for.
    Checking(String),
    /// Not possible.
    Failed {
        /// Of the condition.
        reason: Reason,
        /// What failed, what to change.
        message: String,
        /// Only a person can help.
        needs_a_person: bool,
    },
}

impl Gates {
    /// The newest spec may run.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.spec == SpecGate::Passed
            && self.broker == BrokerGate::Passed
            && self.taken.is_none()
            && !matches!(self.approval, ApprovalGate::Needed(_))
    }

    /// The newest spec is refused and stays refused until a person does something.
    #[must_use]
    pub const fn refused(&self) -> bool {
        self.taken.is_some()
            || matches!(self.spec, SpecGate::Refused { .. })
            || matches!(self.broker, BrokerGate::Failed { needs_a_person: true, .. })
    }
}

/// Runs the checks.
pub(super) fn judge(case: &Case<'_>) -> Result<Gates, BuildError> {
    let broker_facts = match &case.seen.broker {
        BrokerObserved::Facts(facts) => Some(facts),
        BrokerObserved::NotAsked | BrokerObserved::Failed(_) => None,
    };
    let findings = validate::validate(Facts {
        spec: &case.seen.job.spec,
        transactional_id_prefix: &case.target.resolved.transactional_id_prefix,
        broker: broker_facts,
        stage: if case.target_is_accepted { Stage::Accepted } else { Stage::New },
    });
    let planned = plan(case)?;
    let spec = spec_gate(case, &findings, &planned);
    let mut acts = planned.acts;
    let mut look_again = planned.look_again;
    let broker = broker_gate(case, &findings, &spec, broker_facts, &mut acts);
    let taken = ownership::taken(&case.seen.rivals, &case.seen.job.spec.kafka, &case.seen.broker);
    let approval = approval(case, &spec, &broker);
    if taken.is_some() || matches!(approval, ApprovalGate::Needed(_)) {
        acts.retain(|act| !matches!(act, Act::CreateTopics(_)));
    }
    if taken.is_some() {
        // Nobody tells when the other one goes.
        look_again = Some(look_again.map_or(TAKEN, |first| first.min(TAKEN)));
    }
    Ok(Gates {
        spec,
        broker,
        taken,
        approval,
        warnings: findings.warnings,
        plan: planned.plan,
        guarantees: planned.guarantees,
        acts,
        look_again,
    })
}

/// Asked for last: what is wrong in another way need not be looked at by a person.
fn approval(case: &Case<'_>, spec: &SpecGate, broker: &BrokerGate) -> ApprovalGate {
    let job = &case.seen.job;
    let is_first = case.old.epoch.is_none();
    // Back to what runs, from a revision that was taken back: nothing would change.
    let runs = rollout::current(case).as_ref() == Some(&case.target.revision);
    if job.spec.upgrade.approval == Approval::Automatic || is_first || runs || case.target_is_accepted {
        return ApprovalGate::NotNeeded;
    }
    let revision = &case.target.revision;
    if job.annotations().get(names::ANNOTATION_APPROVE).map(String::as_str) == Some(revision.as_str()) {
        return ApprovalGate::Given;
    }
    let is_checked = *spec == SpecGate::Passed && matches!(case.seen.broker, BrokerObserved::Facts(_));
    if !is_checked || matches!(broker, BrokerGate::Failed { .. }) {
        return ApprovalGate::NotNeeded;
    }
    let newest = newest_first(&case.seen.accepted).first().map(|newest| diff::differences(&newest.spec, &job.spec));
    let changes: Vec<String> = newest
        .iter()
        .flatten()
        .filter(|difference| difference.effect == Effect::Restart)
        .map(|difference| format!("- {difference}"))
        .collect();
    let topics = match broker {
        BrokerGate::Checking(topics) => format!("\n- {topics}"),
        BrokerGate::Passed | BrokerGate::Failed { .. } => String::new(),
    };
    let (namespace, name) = (&case.identity.namespace, &case.identity.name);
    ApprovalGate::Needed(format!(
        "revision {revision} has passed all checks and waits for approval. All workers commit and stop, and new ones start:\n{}{topics}\n\
         To let it: kubectl --namespace {namespace} annotate --overwrite streamjob {name} {}={revision}",
        changes.join("\n"),
        names::ANNOTATION_APPROVE
    ))
}

fn spec_gate(case: &Case<'_>, findings: &Findings, planned: &Planned) -> SpecGate {
    if case.target_is_accepted {
        return SpecGate::Passed;
    }
    let pipeline = planned.plan.as_ref().map(|plan| plan.violations.as_slice()).unwrap_or_default();
    let violations: Vec<Violation> = findings.spec.iter().chain(pipeline).cloned().collect();
    if !violations.is_empty() {
        let reason = if findings.spec.is_empty() { Reason::PipelineInvalid } else { Reason::InvalidSpec };
        return SpecGate::Refused { reason, violations };
    }
    match (&planned.plan, &planned.waiting) {
        (Some(_), _) => match &case.seen.refused_children {
            None => SpecGate::Passed,
            Some(message) => {
                SpecGate::Refused { reason: Reason::InvalidSpec, violations: vec![refused_children(message)] }
            }
        },
        (None, Waiting::For(what)) => SpecGate::Planning(what.clone()),
        (None, Waiting::Failed { trouble, message }) => {
            SpecGate::PlanFailed { trouble: *trouble, message: message.clone() }
        }
    }
}

fn refused_children(message: &str) -> Violation {
    Violation {
        reason: "WorkersRefused".to_owned(),
        field: "spec.worker".to_owned(),
        message: format!("the API server would refuse the workers of this spec: {message}"),
    }
}

fn broker_gate(
    case: &Case<'_>,
    findings: &Findings,
    spec: &SpecGate,
    facts: Option<&BrokerFacts>,
    acts: &mut Vec<Act>,
) -> BrokerGate {
    let facts = match (&case.seen.broker, facts) {
        (BrokerObserved::Failed(failure), _) => {
            return BrokerGate::Failed {
                reason: failure.reason,
                message: failure.message.clone(),
                needs_a_person: failure.needs_a_person(),
            };
        }
        (_, Some(facts)) => facts,
        (_, None) => return BrokerGate::Checking("the brokers are asked for their limits and topics".to_owned()),
    };
    if let Some((reason, _)) = findings.broker.first() {
        let violations: Vec<Violation> = findings.broker.iter().map(|(_, violation)| violation.clone()).collect();
        return BrokerGate::Failed { reason: *reason, message: validate::list(&violations), needs_a_person: true };
    }
    let missing = validate::topics_to_create(&case.seen.job.spec, facts);
    if missing.is_empty() || case.target_is_accepted {
        return BrokerGate::Passed;
    }
    let names: Vec<&str> = missing.iter().map(|topic| topic.name.as_str()).collect();
    let message = format!("topics to create: {}", names.join(", "));
    // Nothing is made for a spec that may turn out to be a mistake.
    if *spec == SpecGate::Passed {
        acts.push(Act::CreateTopics(missing));
    }
    BrokerGate::Checking(message)
}

/// What is known about the plan of the newest spec.
struct Planned {
    plan: Option<PlanStatus>,
    guarantees: Option<Vec<SinkGuarantee>>,
    waiting: Waiting,
    acts: Vec<Act>,
    look_again: Option<Duration>,
}

enum Waiting {
    For(String),
    Failed { trouble: Option<Reason>, message: String },
}

fn plan(case: &Case<'_>) -> Result<Planned, BuildError> {
    let revision = &case.target.revision;
    let name = build::plan_name(&case.identity.name, revision);
    let known = case.old.plan.clone().filter(|plan| plan.revision.as_deref() == Some(revision.as_str()));
    let mut planned = Planned {
        plan: known,
        guarantees: None,
        waiting: Waiting::For("the worker image plans the pipeline".to_owned()),
        acts: superseded(case, &name),
        look_again: None,
    };
    let pod = case.seen.plan.pods.iter().find(|plan| is_current(case, &plan.pod, &name));
    match (planned.plan.is_some() || case.target_is_accepted, pod) {
        (true, None) => {}
        (true, Some(plan)) => planned.acts.push(delete(&plan.pod, PlanOutcome::Superseded)),
        (false, None) if case.seen.plan.pods.iter().any(|plan| plan.pod.metadata.name.as_deref() == Some(&name)) => {
            // A pod of the same name is on its way out.
        }
        (false, None) => planned.acts.push(Act::Plan(Box::new(build::plan_children(&case.identity, &case.target)?))),
        (false, Some(plan)) => read(case, plan, &mut planned),
    }
    Ok(planned)
}

fn read(case: &Case<'_>, plan: &PlanPod, planned: &mut Planned) {
    let facts = PodFacts::of(&plan.pod);
    match &plan.report {
        None => {
            if let Some(trouble) = facts.trouble {
                planned.waiting = Waiting::Failed {
                    trouble: Some(trouble.reason),
                    message: format!("the plan pod cannot start: {}", trouble.message),
                };
            }
        }
        Some(Ok(report)) if report.contract_version > CONTRACT_VERSION => {
            failed(case, plan, &facts, &newer_contract(report), planned);
        }
        Some(Ok(report)) => {
            planned.plan = Some(PlanStatus {
                revision: Some(case.target.revision.to_string()),
                signature: Some(report.signature.clone()).filter(|text| !text.is_empty()),
                worker_version: Some(report.worker_version.clone()),
                violations: report.violations.clone(),
            });
            planned.guarantees = report.violations.is_empty().then(|| report.guarantees.clone());
            planned.acts.push(delete(&plan.pod, PlanOutcome::Answered));
        }
        Some(Err(message)) => failed(case, plan, &facts, message, planned),
    }
}

fn newer_contract(report: &PlanReport) -> String {
    format!(
        "worker {} speaks contract version {}, this operator up to {CONTRACT_VERSION}: upgrade the operator, or use an older worker image",
        report.worker_version, report.contract_version
    )
}

/// A pod without an answer stays for as long as the backoff lasts, for people to look at.
fn failed(case: &Case<'_>, plan: &PlanPod, facts: &PodFacts, message: &str, planned: &mut Planned) {
    planned.waiting = Waiting::Failed { trouble: None, message: message.to_owned() };
    let pause = backoff::PLAN.after(case.seen.plan.failures.saturating_add(1));
    let ended = facts.last_exit.as_ref().and_then(|exit| exit.at);
    let waited = ended.map_or(pause, |ended| elapsed(ended, case.seen.now));
    match pause.checked_sub(waited) {
        Some(rest) if !rest.is_zero() => planned.look_again = Some(rest),
        _ => planned.acts.push(delete(&plan.pod, PlanOutcome::Failed)),
    }
}

/// The plan pod of the newest spec, made by this job and not by an earlier one of the same name, and not being deleted.
fn is_current(case: &Case<'_>, pod: &Pod, name: &str) -> bool {
    pod.metadata.name.as_deref() == Some(name)
        && pod.metadata.deletion_timestamp.is_none()
        && case.identity.owns(pod.metadata.owner_references.as_deref().unwrap_or_default())
}

fn superseded(case: &Case<'_>, name: &str) -> Vec<Act> {
    let pods = case.seen.plan.pods.iter().map(|plan| &plan.pod);
    pods.filter(|pod| pod.metadata.deletion_timestamp.is_none() && !is_current(case, pod, name))
        .map(|pod| delete(pod, PlanOutcome::Superseded))
        .collect()
}

fn delete(pod: &Pod, outcome: PlanOutcome) -> Act {
    Act::DeletePlan { name: pod.metadata.name.clone().unwrap_or_default(), uid: pod.metadata.uid.clone(), outcome }
}
