//! Which changes of a status are worth an event. Transitions only: a state that lasts is in the conditions.

use fencepost_crds::{
    conditions::{self, ConditionType},
    v1alpha1::StreamJobStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Kubernetes limits of an event.
const NOTE_LIMIT: usize = 1024;

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is bad news.
    pub kind: NoteKind,
    /// Machine-readable, from a fixed set.
    pub reason: String,
    /// What the operator was doing.
    pub action: &'static str,
    /// For people, cut to what an event can hold.
    pub text: String,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// As expected.
    Normal,
    /// Bad news.
    Warning,
}

/// Builds a note within the limits of the API.
#[must_use]
pub fn note(kind: NoteKind, reason: &str, action: &'static str, text: &str) -> Note {
    Note { kind, reason: reason.to_owned(), action, text: conditions::clamp(text, NOTE_LIMIT) }
}

/// The events between two statuses.
#[must_use]
pub fn between(old: &StreamJobStatus, new: &StreamJobStatus) -> Vec<Note> {
    let mut notes = Vec::new();
    for (condition_type, bad_when) in [
        (ConditionType::SpecValid, "False"),
        (ConditionType::BrokerCompatible, "False"),
        (ConditionType::TransactionalIdsOwned, "False"),
        (ConditionType::Approved, "False"),
        (ConditionType::Degraded, "True"),
        (ConditionType::RolledBack, "True"),
    ] {
        let (before, after) = pair(old, new, condition_type);
        let Some(after) = after else { continue };
        let action = condition_type.into();
        if is_bad(after, bad_when)
            && before.is_none_or(|before| before.reason != after.reason || !is_bad(before, bad_when))
        {
            notes.push(note(NoteKind::Warning, &after.reason, action, &after.message));
        } else if !is_bad(after, bad_when) && after.status != "Unknown" && before.is_some_and(|b| is_bad(b, bad_when)) {
            notes.push(note(NoteKind::Normal, &after.reason, action, &after.message));
        }
    }
    notes.extend(warnings(old, new));
    notes.extend(given_up(old, new));
    notes.extend(stalled(old, new));
    notes.extend(failed(old, new));
    notes.extend(committed(old, new));
    notes.extend(operation(old, new));
    notes.extend(ready(old, new));
    notes
}

fn pair<'a>(
    old: &'a StreamJobStatus,
    new: &'a StreamJobStatus,
    condition_type: ConditionType,
) -> (Option<&'a Condition>, Option<&'a Condition>) {
    (conditions::get(&old.conditions, condition_type), conditions::get(&new.conditions, condition_type))
}

/// Bad, or not known because something failed.
fn is_bad(condition: &Condition, bad_when: &str) -> bool {
    condition.status == bad_when || (condition.status == "Unknown" && condition.reason != "NotChecked")
}

/// A valid spec with a remark.
fn warnings(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let (before, after) = pair(old, new, ConditionType::SpecValid);
    let after = after.filter(|after| after.status == "True")?;
    let remark = |condition: &Condition| condition.message.split_once("Note: ").map(|(_, remark)| remark.to_owned());
    let remarks = remark(after)?;
    (before.and_then(remark).as_ref() != Some(&remarks))
        .then(|| note(NoteKind::Warning, "SpecWarning", "Validate", &remarks))
}

/// A fence that was not done.
fn given_up(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let newest = |status: &StreamJobStatus| status.transactions.as_ref()?.last_fence.clone();
    let fence = newest(new).filter(|fence| newest(old).as_ref() != Some(fence))?;
    let text = format!("ids on a cluster that the job has left are not fenced: {}", fence.error?);
    Some(note(NoteKind::Warning, "FenceGivenUp", "Fence", &text))
}

/// The reasons that have no condition of their own.
fn stalled(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let (before, after) = pair(old, new, ConditionType::Stalled);
    let after = after.filter(|after| after.status == "True")?;
    if matches!(after.reason.as_str(), "SpecInvalid" | "BrokerIncompatible" | "IdsTaken" | "RevisionFailed") {
        return None;
    }
    before
        .is_none_or(|before| before.status != "True" || before.reason != after.reason)
        .then(|| note(NoteKind::Warning, &after.reason, "Stalled", &after.message))
}

/// A revision has failed, and it is about to be seen whether it can be taken back.
fn failed(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let newest = |status: &StreamJobStatus| status.revision.as_ref()?.failed.clone();
    let found = newest(new)?;
    let told = conditions::get(&new.conditions, ConditionType::RolledBack)?;
    (newest(old) != Some(found)).then(|| note(NoteKind::Warning, &told.reason, "Verify", &told.message))
}

/// A start has committed for the first time.
fn committed(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let after = new.point_of_no_return.as_ref()?;
    let is_known = old.point_of_no_return.as_ref().is_some_and(|before| before.epoch == after.epoch);
    let stable = new.revision.as_ref()?.stable.as_deref()?;
    let text = format!("epoch {} has committed: revision {stable} is not taken back any more", after.epoch);
    (!is_known).then(|| note(NoteKind::Normal, "FirstCommit", "Verify", &text))
}

fn operation(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let after = new.operation.as_ref()?;
    let same = |before: &fencepost_crds::v1alpha1::OperationStatus| before.id == after.id && before.step == after.step;
    if old.operation.as_ref().is_some_and(same) {
        return None;
    }
    let step = after.step.as_deref().unwrap_or_default();
    let text = conditions::get(&new.conditions, ConditionType::Reconciling).map_or(step, |c| c.message.as_str());
    Some(note(NoteKind::Normal, step, "Reconcile", text))
}

fn ready(old: &StreamJobStatus, new: &StreamJobStatus) -> Option<Note> {
    let (before, after) = pair(old, new, ConditionType::Ready);
    let after = after?;
    // A newer spec that is being checked is not a failure of what runs.
    let same_revision = new.revision.as_ref().is_some_and(|revision| revision.current == revision.target);
    let was_ready = before.is_some_and(|before| before.status == "True");
    match (was_ready, after.status == "True") {
        (false, true) => Some(note(NoteKind::Normal, &after.reason, "Ready", &after.message)),
        // Not while the operator changes something: that has its own event.
        (true, false) if new.operation.is_none() && same_revision && after.reason == "WorkersNotReady" => {
            Some(note(NoteKind::Warning, &after.reason, "Ready", &after.message))
        }
        _ => None,
    }
}
