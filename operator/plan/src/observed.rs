//! Everything that a decision may depend on.

use std::{collections::BTreeMap, ops::Range};

use fencepost_crds::{
    StreamJob,
    conditions::Reason,
    contract::{PlanReport, WorkerError},
    v1alpha1::FencedId,
};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    jiff::Timestamp,
};

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
    /// The newest error of each worker that answers, by pod name.
    pub worker_errors: BTreeMap<String, WorkerError>,
    /// Workers that were replaced because they crash, by pod name.
    pub replacements: BTreeMap<String, Replacement>,
    /// Fingerprints of the Secrets that could be read just now.
    pub secrets: Fingerprints,
    /// The newest fence of this operator, unless a worker with a fenced id lives.
    pub fence: Option<FenceObserved>,
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
