//! Everything that a decision may depend on.

use std::{collections::BTreeMap, ops::Range};

use fencepost_crds::{
    StreamJob,
    conditions::Reason,
    contract::{PlanReport, SlotStatus, WorkerError, WorkerStatus},
    v1alpha1::FencedId,
};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    jiff::Timestamp,
};
use sha2::{Digest, Sha256};

use crate::{ownership::Rival, pods::PodFacts, revision::AcceptedRevision, secrets::Fingerprints};

/// How the operator was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of workers whose spec names none. A revision keeps the image it was accepted with, so that an upgrade of the
    /// operator restarts nothing.
    pub worker_image: String,
}

/// What was seen at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When.
    pub now: Timestamp,
    /// How the operator was installed.
    pub settings: Settings,
    /// The job, read from the API server and not from a cache: its status is the journal.
    pub job: StreamJob,
    /// Revisions that passed all checks once, in any order.
    pub accepted: Vec<AcceptedRevision>,
    /// The largest number of an acceptance, also of one that cannot be read. 0: there is none.
    pub newest_number: i64,
    /// The StatefulSet with the name of the job.
    pub stateful_set: Option<StatefulSet>,
    /// Every worker pod that carries the job's name, whoever owns it.
    pub pods: Vec<Pod>,
    /// Plan pods.
    pub plan: PlanObserved,
    /// What the brokers said.
    pub broker: BrokerObserved,
    /// Other jobs with the same prefix or group.
    pub rivals: Vec<Rival>,
    /// What each worker says that answers, by pod name.
    pub workers: BTreeMap<String, WorkerObserved>,
    /// Workers that were replaced because they crash, by pod name.
    pub replacements: BTreeMap<String, Replacement>,
    /// Fingerprints of the Secrets that could be read just now.
    pub secrets: Fingerprints,
    /// The newest fence of this operator, unless a worker with a fenced id lives.
    pub fence: Option<FenceObserved>,
    /// Committed positions that were read when no worker lived, if none has lived since.
    pub positions: Option<PositionsObserved>,
    /// What the API server said when it refused to try the children of the newest spec.
    pub refused_children: Option<String>,
    /// What the API server said when it refused an act of the decision before.
    pub refused_act: Option<String>,
}

/// Plan pods of a job.
#[derive(Clone, Debug, Default)]
pub struct PlanObserved {
    /// All of them, those of superseded revisions too.
    pub pods: Vec<PlanPod>,
    /// How many plan pods of the newest spec failed before.
    pub failures: u32,
}

/// A plan pod.
#[derive(Clone, Debug)]
pub struct PlanPod {
    /// The pod.
    pub pod: Pod,
    /// Its answer, once it has ended: the report, or why there is none.
    pub report: Option<Result<PlanReport, String>>,
}

/// What the brokers said about the newest spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BrokerObserved {
    /// They were not asked yet.
    #[default]
    NotAsked,
    /// They answered.
    Facts(BrokerFacts),
    /// They did not, or refused.
    Failed(BrokerFailure),
}

/// Facts about a Kafka cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerFacts {
    /// Id of the cluster.
    pub cluster_id: Option<String>,
    /// Limits by broker id.
    pub limits: BTreeMap<i32, BrokerLimits>,
    /// The topics that the spec names.
    pub topics: BTreeMap<String, TopicFacts>,
    /// Whether they have the consumer protocol for groups. `None`: nobody asked.
    pub has_consumer_protocol: Option<bool>,
}

/// Limits of one broker. `None`: the broker did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// `transaction.max.timeout.ms`.
    pub transaction_max_timeout_ms: Option<i64>,
    /// `transactional.id.expiration.ms`.
    pub transactional_id_expiration_ms: Option<i64>,
}

/// A topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicFacts {
    /// It exists.
    Exists {
        /// Number of partitions.
        partitions: usize,
    },
    /// It does not.
    Missing,
}

/// Why the brokers could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerFailure {
    /// The reason of the condition.
    pub reason: Reason,
    /// For people: what failed, and what to change.
    pub message: String,
}

impl BrokerFailure {
    /// True when only a person can help. The others go away when the brokers come back.
    #[must_use]
    pub const fn needs_a_person(&self) -> bool {
        !matches!(self.reason, Reason::BrokerUnreachable | Reason::BrokerError)
    }
}

/// What came of a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceObserved {
    /// The operation that it was a step of.
    pub operation: String,
    /// The workers whose ids were to be fenced.
    pub ordinals: Range<u32>,
    /// The StatefulSet then: its uid and generation.
    pub set: Option<(String, i64)>,
    /// When it was tried last.
    pub at: Timestamp,
    /// The ids that are fenced.
    pub done: Vec<FencedId>,
    /// Why the last try did not fence all that it was to.
    pub failed: Option<BrokerFailure>,
}

impl FenceObserved {
    /// A worker lives whose ids were fenced: it has taken them again.
    #[must_use]
    pub fn is_over(&self, workers: &[PodFacts]) -> bool {
        workers.iter().any(|worker| worker.ordinal.is_none_or(|ordinal| self.ordinals.contains(&ordinal)))
    }

    /// With what an earlier try of the same has done.
    #[must_use]
    pub fn after(mut self, earlier: Option<Self>) -> Self {
        let same = |earlier: &Self| {
            (&earlier.operation, &earlier.ordinals, &earlier.set) == (&self.operation, &self.ordinals, &self.set)
        };
        if let Some(earlier) = earlier.filter(same) {
            self.done.splice(0..0, earlier.done);
        }
        self
    }
}

/// What a worker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerObserved {
    /// The start that it belongs to.
    pub epoch: i64,
    /// How often it has committed.
    pub commits: u64,
    /// There is something that it has not committed yet.
    pub has_input: bool,
    /// Its newest error.
    pub error: Option<WorkerError>,
}

impl From<WorkerStatus> for WorkerObserved {
    fn from(status: WorkerStatus) -> Self {
        let commits = status.slots.iter().map(|slot| slot.commits).sum();
        let is_behind = |slot: &SlotStatus| slot.partitions.iter().any(|partition| partition.lag > 0);
        // What was read and not committed is behind the position that the lag is counted from before the first commit.
        let has_begun = |slot: &SlotStatus| slot.records_in > 0 && slot.commits == 0;
        Self {
            epoch: status.epoch,
            commits,
            has_input: status.slots.iter().any(|slot| is_behind(slot) || has_begun(slot)),
            error: status.slots.into_iter().filter_map(|slot| slot.error).max_by_key(|error| error.at_ms),
        }
    }
}

/// What came of reading committed positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionsObserved {
    /// What they were read for.
    pub purpose: String,
    /// What they are, or why they could not be read.
    pub found: Result<Positions, BrokerFailure>,
}

/// Committed positions of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Hash of all of them.
    pub digest: String,
    /// Number of partitions that have one.
    pub partitions: i32,
}

impl Positions {
    /// Of all that the brokers know of a group.
    pub fn of<'a>(committed: impl IntoIterator<Item = (&'a str, i32, i64)>) -> Self {
        let sorted: BTreeMap<(&str, i32), i64> =
            committed.into_iter().map(|(topic, partition, offset)| ((topic, partition), offset)).collect();
        let mut hash = Sha256::new();
        for ((topic, partition), offset) in &sorted {
            // No name of a topic has a line break.
            hash.update(format!("{topic}\n{partition}\n{offset}\n"));
        }
        let digest = hex::encode(hash.finalize().get(..DIGEST_BYTES).unwrap_or_default());
        Self { digest, partitions: i32::try_from(sorted.len()).unwrap_or(i32::MAX) }
    }
}

/// How much of a hash tells two sets of positions apart.
const DIGEST_BYTES: usize = 16;

/// How often a worker was replaced in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Replacements since the pod was ready for long enough.
    pub count: u32,
    /// The newest.
    pub last: Timestamp,
}

impl BrokerFacts {
    /// The smallest of a limit over all brokers, and the broker that sets it.
    pub fn smallest(&self, limit: impl Fn(&BrokerLimits) -> Option<i64>) -> Option<(i32, i64)> {
        self.limits.iter().filter_map(|(id, limits)| Some((*id, limit(limits)?))).min_by_key(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use fencepost_crds::contract::PartitionStatus;
    use rstest::rstest;

    use super::*;

    fn slot(records_in: u64, commits: u64, lag: i64) -> SlotStatus {
        let partitions = vec![PartitionStatus { lag, ..PartitionStatus::default() }];
        SlotStatus { records_in, commits, partitions, ..SlotStatus::default() }
    }

    #[rstest]
    #[case::nothing_to_read(slot(0, 0, 0), false)]
    #[case::nobody_knows(slot(0, 0, -1), false)]
    #[case::something_to_read(slot(0, 0, 1), true)]
    #[case::something_read_and_not_committed(slot(1, 0, 0), true)]
    #[case::all_is_committed(slot(1, 1, 0), false)]
    fn a_worker_has_input_until_it_has_committed_it(#[case] slot: SlotStatus, #[case] wanted: bool) {
        let status = WorkerStatus { slots: vec![SlotStatus::default(), slot], ..WorkerStatus::default() };
        assert_eq!(WorkerObserved::from(status).has_input, wanted);
    }

    #[test]
    fn a_worker_has_committed_what_its_slots_have_and_has_their_newest_error() {
        let error = |at_ms| Some(WorkerError { at_ms, ..WorkerError::default() });
        let slots = vec![
            SlotStatus { error: error(2), ..slot(1, 3, 0) },
            SlotStatus { error: error(1), ..slot(1, 4, 0) },
            slot(0, 0, 0),
        ];
        let seen = WorkerObserved::from(WorkerStatus { epoch: 5, slots, ..WorkerStatus::default() });
        assert_eq!((seen.epoch, seen.commits, seen.error), (5, 7, error(2)));
    }

    #[test]
    fn positions_are_the_same_when_all_of_them_are() {
        let base = [("a", 0, 1), ("a", 1, 2), ("b", 0, 3)];
        let same = Positions::of([("b", 0, 3), ("a", 1, 2), ("a", 0, 1)]);
        assert_eq!((Positions::of(base), same.partitions, same.digest.len()), (same.clone(), 3, 32));
        for other in [
            vec![("a", 0, 1), ("a", 1, 2)],
            vec![("a", 0, 1), ("a", 1, 2), ("b", 0, 4)],
            vec![("a", 0, 2), ("a", 1, 1), ("b", 0, 3)],
            vec![("a", 0, 1), ("a", 1, 2), ("b0", 0, 3)],
            vec![],
        ] {
            assert_ne!(Positions::of(other.clone()), same, "{other:?}");
        }
    }
}
