//! Conditions, as kstatus reads them: `Ready` of the newest spec only, `Reconciling` while the operator changes something, `Stalled`
//! when it needs a person. Not both of the last two.

use fencepost_crds::{
    conditions::{self, ConditionStatus, ConditionType, Reason},
    v1alpha1::{FailedRevision, OperationType},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    decide::{ApprovalGate, BrokerGate, Case, Foreign, Gates, Progress, SpecGate, Step, restart_asked, settled_pods},
    diff::{self, Effect},
    observed::BrokerFailure,
    pods::Restart,
    revision::{Revision, newest_first},
    validate,
};

/// What the conditions amount to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub stalled: bool,
    pub all_work: bool,
}

/// One condition without its time.
struct Saying {
    status: ConditionStatus,
    reason: Reason,
    message: String,
}

fn say(status: ConditionStatus, reason: Reason, message: impl Into<String>) -> Saying {
    Saying { status, reason, message: message.into() }
}

pub(super) fn set_all(
    list: &mut Vec<Condition>,
    case: &Case<'_>,
    gates: &Gates,
    progress: &Progress,
    ready: i32,
) -> Verdict {
    let spec = spec_valid(gates);
    let broker = broker_compatible(gates);
    let owned = ids_owned(gates);
    let approved = approved(gates);
    let stalled = stalled(case, gates, progress, [&spec, &broker, &owned]);
    let is_stalled = matches!(stalled.status, ConditionStatus::True);
    let is_newest = progress.current.as_ref() == Some(&case.target.revision);
    let all_work = is_newest && progress.step == Step::Running && ready == progress.replicas;
    let reconciling = reconciling(case, gates, progress, is_stalled);
    let ready = readiness(case, gates, progress, is_newest, ready);
    let degraded = degraded(case, gates, progress);
    let rolled_back = rolled_back(progress);
    let now = Time(case.seen.now);
    let generation = case.seen.job.metadata.generation;
    // A spec that goes is checked no more.
    let checks = [
        (ConditionType::SpecValid, spec),
        (ConditionType::BrokerCompatible, broker),
        (ConditionType::TransactionalIdsOwned, owned),
        (ConditionType::Approved, approved),
    ];
    let checks = checks.into_iter().filter(|_| progress.operation != Some(OperationType::Delete));
    let others = [
        (ConditionType::Ready, ready),
        (ConditionType::Reconciling, reconciling),
        (ConditionType::Stalled, stalled),
        (ConditionType::RolledBack, rolled_back),
        (ConditionType::Degraded, degraded),
    ];
    for (condition_type, saying) in others.into_iter().chain(checks) {
        conditions::set(list, condition_type, saying.status, saying.reason, &saying.message, generation, &now);
    }
    Verdict { stalled: is_stalled, all_work }
}

fn spec_valid(gates: &Gates) -> Saying {
    match &gates.spec {
        SpecGate::Passed if gates.warnings.is_empty() => {
            say(ConditionStatus::True, Reason::Valid, "the spec and its pipeline are valid")
        }
        SpecGate::Passed => say(
            ConditionStatus::True,
            Reason::Valid,
            format!("the spec and its pipeline are valid. Note: {}", validate::list(&gates.warnings)),
        ),
        SpecGate::Planning(what) => say(ConditionStatus::Unknown, Reason::NotChecked, what.as_str()),
        SpecGate::PlanFailed { message, .. } => {
            say(ConditionStatus::Unknown, Reason::PlanFailed, format!("{message} (it is tried again)"))
        }
        SpecGate::Refused { reason, violations } => say(ConditionStatus::False, *reason, validate::list(violations)),
    }
}

fn broker_compatible(gates: &Gates) -> Saying {
    match &gates.broker {
        BrokerGate::Passed => say(
            ConditionStatus::True,
            Reason::Compatible,
            "all brokers answer, and their limits and topics allow the spec",
        ),
        BrokerGate::Checking(what) => say(ConditionStatus::Unknown, Reason::NotChecked, what.as_str()),
        BrokerGate::Failed { reason, message, .. } => say(ConditionStatus::False, *reason, message.as_str()),
    }
}

fn ids_owned(gates: &Gates) -> Saying {
    match &gates.taken {
        None => say(
            ConditionStatus::True,
            Reason::IdsOwned,
            "no other StreamJob uses this prefix of transactional ids or this consumer group",
        ),
        Some(message) => say(ConditionStatus::False, Reason::IdsTaken, message.as_str()),
    }
}

fn approved(gates: &Gates) -> Saying {
    match &gates.approval {
        ApprovalGate::NotNeeded => {
            say(ConditionStatus::True, Reason::ApprovalNotNeeded, "nobody has to approve the newest spec")
        }
        ApprovalGate::Given => {
            say(ConditionStatus::True, Reason::ApprovalGiven, "somebody has approved the newest spec")
        }
        ApprovalGate::Needed(message) => say(ConditionStatus::False, Reason::ApprovalNeeded, message.as_str()),
    }
}

fn stalled(case: &Case<'_>, gates: &Gates, progress: &Progress, [spec, broker, owned]: [&Saying; 3]) -> Saying {
    // What is said of a spec that runs already does not stop it: that is `Degraded`.
    let is_asked = progress.operation != Some(OperationType::Delete) && !case.target_is_accepted;
    let refusals = [
        (Reason::SpecInvalid, spec, matches!(gates.spec, SpecGate::Refused { .. })),
        (Reason::BrokerIncompatible, broker, matches!(gates.broker, BrokerGate::Failed { needs_a_person: true, .. })),
        (Reason::IdsTaken, owned, gates.taken.is_some()),
    ];
    let refusals = refusals.iter().filter(|(_, _, refused)| is_asked && *refused);
    let (reasons, messages): (Vec<Reason>, Vec<&str>) =
        refusals.map(|(reason, saying, _)| (*reason, saying.message.as_str())).unzip();
    if let Some(reason) = reasons.first() {
        return say(ConditionStatus::True, *reason, messages.join("\n"));
    }
    let fence = progress.fencing.failed.as_ref().filter(|failure| failure.needs_a_person());
    if let (Step::Fencing { .. }, Some(failure)) = (&progress.step, fence) {
        return say(ConditionStatus::True, failure.reason, cannot_fence(failure));
    }
    let nothing = || say(ConditionStatus::False, Reason::Progressing, "nothing is in the way");
    // What is wrong with those who leave is no matter any more.
    if leaves(&progress.step) {
        return nothing();
    }
    let hopeless = case.pods.iter().filter(|pod| !pod.works() && !pod.terminating).find_map(|pod| {
        let exit = pod.last_exit.as_ref()?;
        match exit.restart() {
            Restart::DoesNotHelp(reason) => Some((reason, format!("worker {}: {}", pod.name, exit.describe()))),
            Restart::MayHelp => None,
        }
    });
    match (hopeless, &progress.proof.failed) {
        (Some((reason, message)), _) => say(ConditionStatus::True, reason, message),
        // A job that is suspended is as asked; and a spec that came after the one that failed is another one.
        (None, Some(failed)) if progress.step != Step::Suspended && case.target_is_accepted => {
            say(ConditionStatus::True, Reason::RevisionFailed, taking_back(failed, progress))
        }
        (None, _) => nothing(),
    }
}

/// Said when it has happened, not when it is meant to.
fn rolled_back(progress: &Progress) -> Saying {
    match &progress.proof.failed {
        Some(failed) if leaves(&progress.step) => {
            say(ConditionStatus::False, Reason::RevisionFailed, taking_back(failed, progress))
        }
        Some(failed) => say(ConditionStatus::True, Reason::RevisionFailed, taking_back(failed, progress)),
        None => say(ConditionStatus::False, Reason::NotRolledBack, "no revision was taken back"),
    }
}

fn taking_back(failed: &FailedRevision, progress: &Progress) -> String {
    let FailedRevision { revision, reason, .. } = failed;
    let message = failed.message.trim_end_matches('.');
    let stable = progress.proof.stable.as_ref().map_or("", Revision::as_str);
    if leaves(&progress.step) {
        return format!(
            "revision {revision} has failed: {message} ({reason}). It is taken back if it has committed nothing"
        );
    }
    format!(
        "revision {revision} has failed before it had committed anything: {message} ({reason}). It was taken back, revision {stable} runs: change the spec"
    )
}

/// Workers are on their way out.
const fn leaves(step: &Step) -> bool {
    matches!(step, Step::Draining { .. } | Step::Fencing { .. } | Step::ReadingPositions)
}

fn reconciling(case: &Case<'_>, gates: &Gates, progress: &Progress, stalled: bool) -> Saying {
    let (status, reason, message) = match &progress.step {
        Step::Draining { pods } => (
            ConditionStatus::True,
            Reason::Draining,
            format!("{} commit and stop: {}{}", leaving(case, progress), pods.join(", "), changes(case, progress)),
        ),
        Step::Fencing { ids } => (
            ConditionStatus::True,
            Reason::Fencing,
            format!("{} are gone, {ids} transactional ids are taken from them", leaving(case, progress)),
        ),
        Step::ReadingPositions => (
            ConditionStatus::True,
            Reason::ReadingPositions,
            format!("{} are gone: the committed positions are read", leaving(case, progress)),
        ),
        Step::Nothing | Step::Running | Step::Suspended if stalled => {
            (ConditionStatus::False, Reason::UpToDate, "see Stalled".to_owned())
        }
        Step::Blocked(foreign) => (ConditionStatus::True, Reason::Starting, describe(foreign)),
        Step::Starting => {
            (ConditionStatus::True, Reason::Starting, format!("epoch {} starts", progress.epoch.unwrap_or(0)))
        }
        Step::Scaling => (
            ConditionStatus::True,
            Reason::Scaling,
            if settled_pods(case, progress.replicas) {
                "the transactional ids of the workers that are gone are taken from them".to_owned()
            } else {
                format!("from {} workers to {}", case.pods.len(), progress.replicas)
            },
        ),
        Step::Rotating { pods } => (
            ConditionStatus::True,
            Reason::Rotating,
            match pods.as_slice() {
                [] => "credentials have changed: the last worker that was replaced starts".to_owned(),
                left => {
                    format!("credentials have changed: workers are replaced one by one, left are {}", left.join(", "))
                }
            },
        ),
        Step::Released => (ConditionStatus::True, Reason::Deleting, "the job is deleted".to_owned()),
        Step::Accepting | Step::Holding => (ConditionStatus::True, Reason::Starting, "all checks passed".to_owned()),
        Step::Nothing | Step::Running | Step::Suspended if !case.target_is_accepted => match &gates.approval {
            ApprovalGate::Needed(message) => (ConditionStatus::True, Reason::ApprovalNeeded, message.clone()),
            ApprovalGate::NotNeeded | ApprovalGate::Given => {
                (ConditionStatus::True, Reason::Planning, waits_for(gates))
            }
        },
        Step::Nothing | Step::Running | Step::Suspended => {
            (ConditionStatus::False, Reason::UpToDate, "everything is as asked".to_owned())
        }
    };
    // Something that needs a person is not on its way, although the last accepted revision may be scaled meanwhile.
    match (stalled, &progress.step) {
        (true, Step::Released) | (false, _) => say(status, reason, message),
        (true, _) => say(ConditionStatus::False, Reason::UpToDate, message),
    }
}

fn cannot_fence(failure: &BrokerFailure) -> String {
    let message = &failure.message;
    format!("transactional ids of workers that are gone cannot be fenced: {message} (it is tried again)")
}

/// Fields that are told in one message; the object has the others.
const TOLD: usize = 3;

/// Why workers of the old revision are replaced.
fn changes(case: &Case<'_>, progress: &Progress) -> String {
    let of =
        |revision: Option<&Revision>| case.seen.accepted.iter().find(|accepted| Some(&accepted.revision) == revision);
    let (Some(old), Some(new)) = (of(progress.current.as_ref()), of(Some(&case.target.revision))) else {
        return String::new();
    };
    if progress.operation != Some(OperationType::Restart) {
        return String::new();
    }
    let differences = diff::differences(&old.spec, &new.spec);
    let fields: Vec<String> =
        differences.iter().filter(|difference| difference.effect == Effect::Restart).map(ToString::to_string).collect();
    match fields.get(TOLD..).map_or(0, <[String]>::len) {
        _ if fields.is_empty() => String::new(),
        0 => format!(". {}", fields.join("; ")),
        more => {
            format!(". {}; and {more} more fields", fields.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; "))
        }
    }
}

/// Who leaves.
fn leaving(case: &Case<'_>, progress: &Progress) -> &'static str {
    match progress.operation {
        Some(OperationType::Restart) if is_restart_of_the_same(case, progress) => "a restart was asked for: workers",
        Some(OperationType::Suspend) => "the job is suspended: its workers",
        Some(OperationType::Delete) => "the job is deleted: its workers",
        Some(OperationType::Rollback) => "the newest revision has failed: its workers",
        _ => "workers of the old revision",
    }
}

/// Nothing is new but the wish.
fn is_restart_of_the_same(case: &Case<'_>, progress: &Progress) -> bool {
    let newest = newest_first(&case.seen.accepted).first().map(|newest| &newest.revision);
    restart_asked(case).is_some() && newest.is_some() && newest == progress.current.as_ref()
}

fn waits_for(gates: &Gates) -> String {
    let spec = match &gates.spec {
        SpecGate::Passed => None,
        SpecGate::Planning(what) => Some(what.as_str()),
        SpecGate::PlanFailed { message, .. } => Some(message.as_str()),
        SpecGate::Refused { .. } => Some("the spec is refused"),
    };
    let broker = match &gates.broker {
        BrokerGate::Passed => None,
        BrokerGate::Checking(what) => Some(what.as_str()),
        BrokerGate::Failed { message, .. } => Some(message.as_str()),
    };
    let approval = match &gates.approval {
        ApprovalGate::Needed(message) => Some(message.as_str()),
        ApprovalGate::NotNeeded | ApprovalGate::Given => None,
    };
    let waits = [spec, broker, gates.taken.as_deref(), approval].into_iter().flatten();
    let waits: Vec<&str> = waits.map(|text| text.trim_end_matches('.')).collect();
    waits.join("; ")
}

fn describe(foreign: &Foreign) -> String {
    match foreign {
        Foreign::StatefulSet(name) => format!(
            "the StatefulSet {name} does not belong to this StreamJob: it is being deleted with its own, or has to be deleted by a person"
        ),
        Foreign::Workers(pods) => {
            format!("workers of an earlier StreamJob of this name are still there: {}", pods.join(", "))
        }
        Foreign::LostRevision(revision) => format!(
            "revision {revision} runs, but its ControllerRevision was deleted: its workers go on and are not looked after until the newest \
             spec is accepted"
        ),
    }
}

fn readiness(case: &Case<'_>, gates: &Gates, progress: &Progress, is_newest: bool, ready: i32) -> Saying {
    let counted = format!("{ready} of {} workers process", progress.replicas);
    if progress.step == Step::Suspended && case.target_is_accepted {
        // As asked: whoever waits for the newest spec to be in force need not wait any more.
        return say(
            ConditionStatus::True,
            Reason::Suspended,
            "spec.state is Suspended: no worker runs, positions stay",
        );
    }
    if progress.operation == Some(OperationType::Suspend) {
        return say(ConditionStatus::False, Reason::WorkersNotReady, "the job is being suspended");
    }
    if progress.operation == Some(OperationType::Delete) {
        return say(ConditionStatus::False, Reason::Deleting, "the job is deleted");
    }
    let Some(current) = &progress.current else {
        let why = if gates.refused() { first_problem(gates) } else { waits_for(gates) };
        return say(ConditionStatus::False, Reason::NotStarted, format!("nothing runs yet: {why}"));
    };
    if !is_newest {
        let goes_on = format!("revision {current} goes on: {counted}");
        return if let Some(failed) = progress.proof.failed.as_ref().filter(|_| case.target_is_accepted) {
            say(ConditionStatus::False, Reason::RevisionFailed, format!("{}; {goes_on}", taking_back(failed, progress)))
        } else if gates.refused() {
            say(
                ConditionStatus::False,
                Reason::NewRevisionRefused,
                format!("the newest spec is refused: {}; {goes_on}", first_problem(gates)),
            )
        } else if let ApprovalGate::Needed(message) = &gates.approval {
            say(ConditionStatus::False, Reason::ApprovalNeeded, format!("{goes_on}; {message}"))
        } else if case.target_is_accepted {
            let makes_way = format!("revision {current} makes way for the newest spec: {counted}");
            say(ConditionStatus::False, Reason::WorkersNotReady, makes_way)
        } else {
            say(
                ConditionStatus::False,
                Reason::WorkersNotReady,
                format!("the newest spec does not run yet: {}; {goes_on}", waits_for(gates)),
            )
        };
    }
    match &progress.step {
        Step::Draining { .. } | Step::Fencing { .. } | Step::ReadingPositions => {
            say(ConditionStatus::False, Reason::WorkersNotReady, "old workers finish before new ones start")
        }
        Step::Blocked(foreign) => say(ConditionStatus::False, Reason::WorkersNotReady, describe(foreign)),
        Step::Running | Step::Rotating { .. } if ready == progress.replicas => {
            say(ConditionStatus::True, Reason::AllWorkersReady, counted)
        }
        // Exactly the wanted ones are there; what remains is to be done with the ids of the others.
        Step::Scaling if settled_pods(case, progress.replicas) => {
            say(ConditionStatus::True, Reason::AllWorkersReady, counted)
        }
        _ => say(ConditionStatus::False, Reason::WorkersNotReady, counted),
    }
}

/// What a list of objects has room for; all problems are in the conditions of the checks.
fn first_problem(gates: &Gates) -> String {
    match (&gates.spec, &gates.broker) {
        (SpecGate::Refused { violations, .. }, _) if !violations.is_empty() => {
            let first =
                violations.first().map(|first| format!("{}: {}", first.field, first.message)).unwrap_or_default();
            match violations.len() {
                1 => first,
                all => format!("{first} (and {} more, see SpecValid)", all - 1),
            }
        }
        (_, BrokerGate::Failed { message, .. }) => message.clone(),
        _ => gates.taken.clone().unwrap_or_else(|| waits_for(gates)),
    }
}

/// The first that applies; the order is from what explains most to what explains least.
fn degraded(case: &Case<'_>, gates: &Gates, progress: &Progress) -> Saying {
    let bad = |reason, message: String| say(ConditionStatus::True, reason, message);
    if let Some(message) = &case.seen.refused_act {
        return bad(Reason::ApplyFailed, format!("{message} (it is tried again)"));
    }
    if let Some(failure) = &progress.fencing.failed {
        return bad(failure.reason, cannot_fence(failure));
    }
    if let Some(failure) = &progress.proof.unread {
        return bad(
            failure.reason,
            format!("the committed positions cannot be read: {} (it is tried again)", failure.message),
        );
    }
    if let Some((pod, trouble)) = case.pods.iter().find_map(|pod| Some((pod, pod.trouble.as_ref()?))) {
        return bad(trouble.reason, format!("worker {}: {}", pod.name, trouble.message));
    }
    if let Some((pod, exit)) =
        case.pods.iter().find_map(|pod| pod.last_exit.as_ref().filter(|_| pod.backing_off).map(|exit| (pod, exit)))
    {
        let times = case.seen.replacements.get(&pod.name).map_or(0, |done| done.count);
        let replaced = if times == 0 { String::new() } else { format!(", replaced {times} times") };
        // What stands in `Stalled` has one reason.
        let reason = match exit.restart() {
            Restart::DoesNotHelp(reason) => reason,
            Restart::MayHelp => Reason::WorkersRestarting,
        };
        return bad(reason, format!("worker {}: {}{replaced}", pod.name, exit.describe()));
    }
    let errors = case.seen.workers.iter().filter_map(|(pod, worker)| Some((pod, worker.error.as_ref()?)));
    if let Some((pod, error)) = errors.clone().next() {
        let reason = error.reason.parse().unwrap_or(Reason::WorkerErrors);
        let more = errors.count() - 1;
        let others = if more == 0 { String::new() } else { format!(" ({more} more workers report errors)") };
        return bad(reason, format!("worker {pod}: {}{others}", error.message));
    }
    if let SpecGate::PlanFailed { trouble: Some(reason), message } = &gates.spec {
        return bad(*reason, message.clone());
    }
    if let (Some(message), Some(_)) = (&gates.taken, &progress.current) {
        return bad(Reason::IdsTaken, format!("workers go on, but {message}"));
    }
    if let (BrokerGate::Failed { reason, message, .. }, Some(_)) = (&gates.broker, &progress.current) {
        return bad(*reason, format!("workers go on, but the newest check of the brokers failed: {message}"));
    }
    say(ConditionStatus::False, Reason::Healthy, "nothing is wrong")
}
