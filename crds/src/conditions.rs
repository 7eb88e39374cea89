//! Condition types and reasons. Both are enums, so that a typo cannot reach a status and the documentation can list them.
//!
//! Semantics follow kstatus: `Ready=True` when the newest spec runs, `Reconciling=True` while something is under way,
//! `Stalled=True` when progress needs a person.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use strum::{Display, EnumIter, EnumMessage, EnumString, IntoStaticStr};

/// Types of conditions of a StreamJob.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter, EnumMessage, EnumString, IntoStaticStr,
)]
pub enum ConditionType {
    /// All workers of the newest revision process.
    Ready,
    /// The operator is changing something.
    Reconciling,
    /// Progress needs a change of the spec or of the world around the job.
    Stalled,
    /// The spec is free of contradictions and the worker image could plan it.
    SpecValid,
    /// The brokers can be reached and their limits allow the spec.
    BrokerCompatible,
    /// No other job uses the same transactional ids or consumer group.
    TransactionalIdsOwned,
    /// The newest revision may start: nobody has to approve it, or somebody has.
    Approved,
    /// The newest revision failed before its first commit, and the one before it runs again.
    RolledBack,
    /// The job runs, but something is wrong.
    Degraded,
}

/// Reasons of conditions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter, EnumMessage, EnumString, IntoStaticStr,
)]
pub enum Reason {
    // --- Ready
    /// All workers process.
    AllWorkersReady,
    /// The spec asks for no workers, and there are none.
    Suspended,
    /// Some workers do not process yet.
    WorkersNotReady,
    /// The job is deleted.
    Deleting,
    /// Nothing runs yet.
    NotStarted,
    /// The newest spec is refused; the last accepted revision goes on.
    NewRevisionRefused,

    // --- Reconciling
    /// Everything is as asked.
    UpToDate,
    /// The worker image is planning the pipeline.
    Planning,
    /// Workers are starting.
    Starting,
    /// Workers commit and stop.
    Draining,
    /// Workers are gone; the operator takes their transactional ids from them.
    Fencing,
    /// The committed positions are read, which tell whether the workers that are gone have committed anything.
    ReadingPositions,
    /// The number of workers changes.
    Scaling,
    /// Workers are replaced one by one, because their credentials have changed.
    Rotating,

    // --- Stalled
    /// Nothing is in the way.
    Progressing,
    /// See `SpecValid`.
    SpecInvalid,
    /// See `BrokerCompatible`.
    BrokerIncompatible,
    /// A worker stopped at a record it cannot read (`onBadRecord: Fail`).
    BadRecord,
    /// Another producer took over a transactional id of this job.
    Fenced,

    // --- SpecValid
    /// The spec and the pipeline were checked.
    Valid,
    /// At least one rule is violated; the message lists all.
    InvalidSpec,
    /// The worker image could not plan the SQL.
    PipelineInvalid,
    /// The plan pod did not finish: image, scheduling or permissions.
    PlanFailed,
    /// Not checked yet.
    NotChecked,

    // --- BrokerCompatible
    /// The limits of all brokers allow the spec.
    Compatible,
    /// A broker limit is violated; the message has both numbers.
    BrokerLimitViolated,
    /// A topic does not exist.
    UnknownTopic,
    /// The brokers refused the credentials.
    AuthenticationFailed,
    /// A permission (ACL) is missing.
    AuthorizationFailed,
    /// The certificate of a broker is not trusted, or TLS is not spoken.
    TlsFailed,
    /// No broker answers.
    BrokerUnreachable,
    /// A Secret or a key of it is missing.
    SecretMissing,
    /// The brokers are another cluster than the one on which the workers had their transactions.
    OtherCluster,
    /// The brokers answered with another error.
    BrokerError,

    // --- Degraded
    /// Nothing is wrong.
    Healthy,
    /// Workers restart again and again.
    WorkersRestarting,
    /// Workers report errors; the message has the newest.
    WorkerErrors,
    /// A pod cannot be scheduled.
    Unschedulable,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// The API server refused a child object.
    ApplyFailed,

    // --- TransactionalIdsOwned
    /// The transactional ids and the consumer group are the job's own.
    IdsOwned,
    /// Another StreamJob on the same Kafka cluster has the prefix or the consumer group.
    IdsTaken,

    // --- Approved
    /// The spec asks for no approval, or nothing has run yet.
    ApprovalNotNeeded,
    /// The annotation names this revision.
    ApprovalGiven,
    /// Everything was checked; the message says what changes, and how to let it start.
    ApprovalNeeded,

    // --- RolledBack
    /// The newest revision failed before its first commit; the last one that has committed runs again.
    RevisionFailed,
    /// Nothing was committed by the deadline, although there is input.
    NoFirstCommit,
    /// No revision was taken back.
    NotRolledBack,
}

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known.
    Unknown,
}

/// Longest message of a condition that the API server accepts.
pub const MESSAGE_LIMIT: usize = 32_768;

/// Sets a condition in place. The transition time changes only when the status does.
pub fn set(
    conditions: &mut Vec<Condition>,
    condition_type: ConditionType,
    status: ConditionStatus,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) {
    let type_: &'static str = condition_type.into();
    let status: &'static str = status.into();
    let reason: &'static str = reason.into();
    let message = clamp(message, MESSAGE_LIMIT);
    if let Some(old) = conditions.iter_mut().find(|c| c.type_ == type_) {
        if old.status != status {
            old.last_transition_time = now.clone();
        }
        old.status = status.to_owned();
        old.reason = reason.to_owned();
        old.message = message;
        old.observed_generation = generation;
    } else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: now.clone(),
        });
    }
}

/// The condition of a type.
#[must_use]
pub fn get(conditions: &[Condition], condition_type: ConditionType) -> Option<&Condition> {
    let type_: &'static str = condition_type.into();
    conditions.iter().find(|c| c.type_ == type_)
}

/// The text, cut at a character border so that it has at most `limit` bytes.
#[must_use]
pub fn clamp(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub("…".len());
    while end > 0 && !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use strum::IntoEnumIterator;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        set(&mut list, ConditionType::Ready, ConditionStatus::False, Reason::NotStarted, "a", Some(1), &at(1));
        set(&mut list, ConditionType::Ready, ConditionStatus::False, Reason::WorkersNotReady, "b", Some(2), &at(2));
        assert_eq!(list[0].last_transition_time, at(1));
        assert_eq!((list[0].reason.as_str(), list[0].message.as_str()), ("WorkersNotReady", "b"));
        set(&mut list, ConditionType::Ready, ConditionStatus::True, Reason::AllWorkersReady, "c", Some(2), &at(3));
        assert_eq!(list[0].last_transition_time, at(3));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn every_reason_has_the_form_the_api_server_wants() {
        for reason in Reason::iter() {
            let text = reason.to_string();
            assert!(text.len() <= 1024 && text.chars().all(|c| c.is_ascii_alphanumeric()), "{text}");
            assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
        }
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let text = "ä".repeat(MESSAGE_LIMIT);
        let cut = clamp(&text, MESSAGE_LIMIT);
        assert!(cut.len() <= MESSAGE_LIMIT && cut.ends_with('…'));
    }
}
