//! What status and conditions say. Written in full at each decision, from what was seen and decided; nothing is remembered but
//! the journal (epoch, current revision, operation, high-water mark, plan).

mod conditions;

use fencepost_crds::{
    conditions::clamp,
    v1alpha1::{BrokerStatus, OperationStatus, OperationType, Phase, RevisionStatus, StreamJobStatus},
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    build::labels,
    decide::{Case, Gates, Progress, Step, delete_id, fence, restart_id, scale_id, suspend_id},
    observed::{BrokerFacts, BrokerObserved},
};

/// The whole text is in the condition.
const LAST_ERROR_LIMIT: usize = 1024;

/// The status of a decision.
pub(crate) fn status(case: &Case<'_>, gates: &Gates, progress: &Progress) -> StreamJobStatus {
    let old = &case.old;
    let ready = ready(case);
    let mut status = StreamJobStatus {
        observed_generation: case.seen.job.metadata.generation,
        phase: None,
        epoch: progress.epoch,
        conditions: old.conditions.clone(),
        revision: Some(RevisionStatus {
            current: progress.current.as_ref().map(ToString::to_string),
            target: Some(case.target.revision.to_string()),
            stable: progress.proof.stable.as_ref().map(ToString::to_string),
            failed: progress.proof.failed.clone(),
        }),
        restore: progress.proof.restore.clone(),
        verification: progress.proof.verification.clone(),
        point_of_no_return: progress.proof.point_of_no_return.clone(),
        restarted: progress.restarted.clone(),
        plan: gates.plan.clone().or_else(|| old.plan.clone()),
        operation: operation(case, progress),
        transactions: Some(fence::journal(case, progress)),
        broker: broker(case),
        guarantees: gates.guarantees.clone().unwrap_or_else(|| old.guarantees.clone()),
        replicas: Some(count(case.pods.len())),
        ready_replicas: Some(ready),
        workers: Some(format!("{ready}/{}", progress.replicas)),
        selector: Some(labels::worker_selector_text(&case.identity.name)),
    };
    let verdict = conditions::set_all(&mut status.conditions, case, gates, progress, ready);
    status.phase = Some(phase(progress, verdict));
    status
}

fn phase(progress: &Progress, verdict: conditions::Verdict) -> Phase {
    if progress.operation == Some(OperationType::Delete) {
        return Phase::Deleting;
    }
    match (&progress.step, verdict) {
        (_, conditions::Verdict { stalled: true, .. }) => Phase::Stalled,
        (Step::Draining { .. } | Step::Fencing { .. } | Step::ReadingPositions, _) => Phase::Draining,
        (_, conditions::Verdict { all_work: true, .. }) => Phase::Running,
        (Step::Suspended, _) => Phase::Suspended,
        (Step::Nothing | Step::Accepting | Step::Holding | Step::Blocked(_), _) if progress.epoch.is_none() => {
            Phase::Pending
        }
        (Step::Running | Step::Scaling | Step::Rotating { .. }, _) => Phase::Running,
        _ => Phase::Starting,
    }
}

/// Workers of the wanted number that work.
fn ready(case: &Case<'_>) -> i32 {
    count(case.pods.iter().filter(|pod| pod.works()).count())
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The time of a step is the time when it was decided first.
fn operation(case: &Case<'_>, progress: &Progress) -> Option<OperationStatus> {
    let operation_type = progress.operation?;
    let step = match progress.step {
        Step::Draining { .. } => "Draining",
        Step::Fencing { .. } => "Fencing",
        Step::ReadingPositions => "ReadingPositions",
        Step::Scaling => "Scaling",
        Step::Rotating { .. } => "Rotating",
        Step::Released => "Releasing",
        Step::Starting
        | Step::Running
        | Step::Suspended
        | Step::Accepting
        | Step::Holding
        | Step::Nothing
        | Step::Blocked(_) => "Starting",
    };
    let epoch = progress.epoch.unwrap_or(0);
    let id = match operation_type {
        OperationType::Scale => scale_id(case, epoch),
        // These steps still have the old epoch, and belong to the start of the next one.
        OperationType::Restart | OperationType::Rollback
            if matches!(progress.step, Step::Draining { .. } | Step::Fencing { .. } | Step::ReadingPositions) =>
        {
            restart_id(epoch.saturating_add(1))
        }
        OperationType::Restart | OperationType::Rollback => restart_id(epoch),
        OperationType::Resume => format!("resume-{epoch}"),
        OperationType::Suspend => suspend_id(epoch),
        OperationType::Delete => delete_id(epoch),
        OperationType::Start => format!("start-{epoch}"),
        OperationType::Rotate => under_way(case, OperationType::Rotate)
            .unwrap_or_else(|| format!("rotate-{epoch}-{}", case.seen.now.as_second())),
    };
    let before = case.old.operation.as_ref().filter(|old| old.id == id && old.step.as_deref() == Some(step));
    Some(OperationStatus {
        id,
        operation_type: Some(operation_type),
        step: Some(step.to_owned()),
        started_at: before.and_then(|old| old.started_at.clone()).or_else(|| Some(time(case.seen.now))),
        last_error: case.seen.refused_act.as_deref().map(|message| clamp(message, LAST_ERROR_LIMIT)),
    })
}

/// RFC 3339, in whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The id of the operation that is under way, if it is of this type.
fn under_way(case: &Case<'_>, operation_type: OperationType) -> Option<String> {
    let old = case.old.operation.as_ref().filter(|old| old.operation_type == Some(operation_type));
    old.map(|old| old.id.clone())
}

/// What the brokers said last stays when they do not answer.
fn broker(case: &Case<'_>) -> Option<BrokerStatus> {
    match &case.seen.broker {
        BrokerObserved::Facts(facts) => Some(broker_status(facts)),
        BrokerObserved::NotAsked | BrokerObserved::Failed(_) => case.old.broker.clone(),
    }
}

fn broker_status(facts: &BrokerFacts) -> BrokerStatus {
    BrokerStatus {
        cluster_id: facts.cluster_id.clone(),
        brokers: Some(count(facts.limits.len())),
        transaction_max_timeout_ms: facts.smallest(|limits| limits.transaction_max_timeout_ms).map(|(_, value)| value),
        transactional_id_expiration_ms: facts
            .smallest(|limits| limits.transactional_id_expiration_ms)
            .map(|(_, value)| value),
    }
}
