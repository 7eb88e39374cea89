//! What surrounds the operator, small enough to be taken step by step: the objects it makes, the StatefulSet controller with a copy
//! of the StatefulSet that may be old, the kubelet.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_crds::{
    StreamJob,
    conditions::{self, ConditionType},
    contract::PlanReport,
    names,
    v1alpha1::{FencedId, Guarantee, ProducerStatus},
};
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus},
        core::v1::{ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube_core::ResourceExt;
use serde_json::{Value, from_value, json};

use super::{at, job, observed};
use crate::{
    decide::{Act, Decision, Fence, Seen, decide},
    observed::{
        BrokerFailure, BrokerObserved, FenceObserved, Observed, PlanPod, Positions, PositionsObserved, Replacement,
        TopicFacts, WorkerObserved,
    },
    ownership::Rival,
    pods::{self, PodFacts, Restart},
    revision::AcceptedRevision,
    secrets::Fingerprints,
};

/// How a container ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub code: i32,
    pub message: &'static str,
}

#[derive(Clone)]
pub(crate) struct World {
    pub job: StreamJob,
    pub revisions: Vec<ControllerRevision>,
    pub set: Option<StatefulSet>,
    /// What the StatefulSet controller has seen of it.
    set_seen: Option<StatefulSet>,
    pub pods: Vec<Pod>,
    pub plans: Vec<PlanPod>,
    pub report: Result<PlanReport, String>,
    pub broker: BrokerObserved,
    pub refuses_children: Option<String>,
    /// Other jobs with the same names.
    pub rivals: Vec<Rival>,
    pub secrets: Fingerprints,
    pub now: i64,
    pub events: Vec<String>,
    /// Every (epoch, revision) that ever had a pod.
    pub ran: BTreeSet<(i64, String)>,
    /// Transactional ids that nobody fenced since a worker had them, and the epoch of that worker.
    pub unfenced: BTreeMap<String, i64>,
    /// Why the brokers do not fence.
    pub refuses_fences: Option<BrokerFailure>,
    /// What the operator remembers of its newest fence.
    pub fence: Option<FenceObserved>,
    /// Why the brokers do not tell positions.
    pub refuses_reads: Option<BrokerFailure>,
    /// What the operator remembers of the positions that it has read.
    pub positions: Option<PositionsObserved>,
    /// The position of the group.
    committed: i64,
    /// The epoch and the revision that have committed last.
    pub last_commit: Option<(i64, String)>,
    /// Workers tell that they have committed.
    tells: BTreeSet<i64>,
    /// There is something to read.
    pub has_input: bool,
    /// How often workers were replaced, by pod name.
    pub replacements: BTreeMap<String, Replacement>,
    /// The job was let go, and what was not ended.
    pub released: Option<Option<String>>,
    /// Every fence that was done: what for, and how many ids.
    pub fences: Vec<(String, usize)>,
    counter: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            job: job(|_| {}),
            revisions: Vec::new(),
            set: None,
            set_seen: None,
            pods: Vec::new(),
            plans: Vec::new(),
            report: Ok(PlanReport { contract_version: 1, signature: "s".to_owned(), ..PlanReport::default() }),
            broker: BrokerObserved::Facts(super::facts()),
            refuses_children: None,
            rivals: Vec::new(),
            secrets: Fingerprints::default(),
            now: 1_000,
            events: Vec::new(),
            ran: BTreeSet::new(),
            unfenced: BTreeMap::new(),
            refuses_fences: None,
            fence: None,
            refuses_reads: None,
            positions: None,
            committed: 0,
            last_commit: None,
            tells: BTreeSet::new(),
            has_input: false,
            replacements: BTreeMap::new(),
            released: None,
            fences: Vec::new(),
            counter: 0,
        }
    }

    fn next(&mut self) -> String {
        self.counter += 1;
        self.counter.to_string()
    }

    /// The user changes the spec.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut json = serde_json::to_value(&self.job).unwrap();
        change(&mut json["spec"]);
        let generation = self.job.metadata.generation.unwrap() + 1;
        json["metadata"]["generation"] = generation.into();
        self.job = from_value(json).unwrap();
    }

    /// The user annotates the job.
    pub(crate) fn annotate(&mut self, name: &str, value: &str) {
        self.job.annotations_mut().insert(name.to_owned(), value.to_owned());
    }

    /// The user deletes the job.
    pub(crate) fn delete(&mut self) {
        self.job.metadata.deletion_timestamp = Some(Time(at(self.now)));
    }

    pub(crate) fn observe(&self) -> Observed {
        Observed {
            now: at(self.now),
            newest_number: self.revisions.iter().map(|revision| revision.revision).max().unwrap_or(0),
            accepted: self.revisions.iter().filter_map(|revision| AcceptedRevision::read(revision).ok()).collect(),
            stateful_set: self.set.clone(),
            pods: self.pods.clone(),
            refused_children: self.refuses_children.clone(),
            secrets: self.secrets.clone(),
            fence: self.fence.clone(),
            positions: self.positions.clone(),
            workers: self.workers(),
            replacements: self.replacements.clone(),
            plan: crate::observed::PlanObserved { pods: self.plans.clone(), failures: 0 },
            broker: self.broker.clone(),
            rivals: self.rivals.clone(),
            ..observed(self.job.clone())
        }
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.observe()).unwrap()
    }

    /// The operator looks, and is killed after `survive` writes. `usize::MAX`: it is not killed.
    pub(crate) fn operator(&mut self, survive: usize) {
        if self.released.is_some() {
            return;
        }
        // A worker with a fenced id lives: that fence counts for nothing.
        let workers = pods::workers(&self.pods);
        self.fence = self.fence.take().filter(|fence| !fence.is_over(&workers));
        self.positions = self.positions.take().filter(|_| workers.is_empty());
        let decision = self.decide();
        if survive == 0 {
            return;
        }
        self.fence = self.fence.take().filter(|_| !decision.fence_is_over);
        self.job.status = Some(decision.status);
        self.events.extend(decision.notes.into_iter().map(|note| note.reason));
        let seen: Vec<_> = workers_in(&self.pods).flat_map(|pod| self.ids_of(pod)).collect();
        self.unfenced.extend(seen);
        let dies = survive <= decision.acts.len();
        for act in decision.acts.into_iter().take(survive - 1) {
            self.perform(act);
        }
        if dies {
            // The next one begins with what is written.
            self.fence = None;
            self.positions = None;
        }
        self.check();
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Plan(children) => {
                let pod = self.born(children.pod);
                self.plans.push(PlanPod { pod, report: None });
            }
            Act::DeletePlan { name, .. } => self.plans.retain(|plan| plan.pod.name_any() != name),
            Act::CreateTopics(topics) => {
                if let BrokerObserved::Facts(facts) = &mut self.broker {
                    for topic in topics {
                        let partitions = usize::try_from(topic.partitions).unwrap();
                        facts.topics.insert(topic.name, TopicFacts::Exists { partitions });
                    }
                }
            }
            Act::Accept { revision, .. } => {
                if self.revisions.iter().all(|old| old.name_any() != revision.name_any()) {
                    self.revisions.push(*revision);
                }
            }
            Act::ScaleToZero { resource_version, .. } => {
                let mut set = self.set.clone().unwrap();
                assert_eq!(set.resource_version().as_ref(), Some(&resource_version));
                set.spec.as_mut().unwrap().replicas = Some(0);
                self.store(set);
            }
            Act::Apply { children, seen } => {
                let mut set = children.stateful_set;
                self.goes_back_to_what_has_committed();
                assert_eq!(seen, self.set.as_ref().map(Seen::of));
                set.status = self.set.as_ref().and_then(|old| old.status.clone());
                set.metadata.generation = self.set.as_ref().and_then(|old| old.metadata.generation);
                set.metadata.uid = Some("set".to_owned());
                if self.set.as_ref().is_none_or(|old| old.spec != set.spec) {
                    self.store(set);
                }
            }
            Act::Fence(fence) => self.take_ids(*fence),
            Act::ReadPositions(question) => {
                assert!(self.pods.is_empty(), "positions are read while a worker may commit: {question:?}");
                assert_eq!(question.group, "shop.spend");
                let found = Positions::of([("orders", 0, self.committed)]);
                let found = self.refuses_reads.clone().map_or(Ok(found), Err);
                self.positions = Some(PositionsObserved { purpose: question.purpose, found });
            }
            Act::Hold => self.job.finalizers_mut().push(names::FINALIZER.to_owned()),
            Act::Release { warning } => {
                self.job.finalizers_mut().clear();
                self.released = Some(warning);
            }
            Act::Replace(replace) => self.terminate(&replace.pod),
            Act::ForgetRevisions(names) => self.revisions.retain(|old| !names.contains(&old.name_any())),
        }
    }

    /// What runs instead of a revision that has failed.
    fn goes_back_to_what_has_committed(&self) {
        let revision = self.job.status.as_ref().and_then(|status| status.revision.clone()).unwrap_or_default();
        if let (Some(failed), Some(current)) = (revision.failed, revision.current)
            && current != failed.revision
        {
            let committed = self.last_commit.as_ref().map(|(_, revision)| revision.as_str());
            assert_eq!(committed, Some(current.as_str()), "{} is taken back", failed.revision);
        }
    }

    /// What the workers say that are ready.
    fn workers(&self) -> BTreeMap<String, WorkerObserved> {
        let facts = pods::workers(&self.pods);
        let answers = facts.into_iter().filter(PodFacts::works).map(|pod| {
            let epoch = pod.epoch.unwrap();
            let commits = u64::from(self.tells.contains(&epoch));
            (pod.name, WorkerObserved { epoch, commits, has_input: self.has_input, error: None })
        });
        answers.collect()
    }

    /// A worker that lives commits. It tells of it if it is asked, or is gone before.
    pub(crate) fn commit(&mut self, tells: bool) {
        let Some(pod) = workers_in(&self.pods).next() else { return };
        let epoch = epoch_of(pod);
        self.last_commit = Some((epoch, pod.labels()[names::LABEL_REVISION].clone()));
        self.committed += 1;
        if tells {
            self.tells.insert(epoch);
        }
    }

    fn take_ids(&mut self, fence: Fence) {
        let journal = self.job.status.clone().unwrap();
        let step = journal.operation.as_ref().and_then(|operation| operation.step.clone());
        let is_last_try = step.as_deref() == Some("Releasing");
        for pod in self.pods.iter().filter(|_| !is_last_try) {
            let ordinal = names::ordinal_of_pod(&pod.name_any()).unwrap();
            assert!(!fence.ordinals.contains(&ordinal), "{} is alive and fenced: {fence:?}", pod.name_any());
        }
        let in_use = journal.transactions.and_then(|transactions| transactions.ids_in_use).unwrap();
        assert!(fence.ordinals.end >= in_use.unsigned_abs(), "{fence:?} leaves some of {in_use} workers out");
        // Before a start the step stands in the journal; ids of surplus workers are fenced beside whatever goes on.
        let step =
            journal.operation.filter(|operation| matches!(operation.step.as_deref(), Some("Fencing" | "Releasing")));
        assert_eq!(step.is_some(), fence.ordinals.start == 0, "{step:?}, {fence:?}");
        assert!(step.is_none_or(|step| step.id == fence.operation));
        let Fence { operation, ordinals, ids, set, .. } = fence;
        let failed = self.refuses_fences.clone();
        // Those that refuse have fenced a part.
        let number = if failed.is_some() { ids.len() / 2 } else { ids.len() };
        let producer = |producer_epoch, state: Option<&str>| {
            Some(ProducerStatus { producer_id: 7, producer_epoch, state: state.map(str::to_owned) })
        };
        let taken = |id| FencedId { id, before: producer(1, Some("CompleteCommit")), after: producer(2, None) };
        let done: Vec<FencedId> = ids.into_iter().take(number).map(taken).collect();
        self.unfenced.retain(|id, _| done.iter().all(|fenced| fenced.id != *id));
        self.fences.push((operation.clone(), done.len()));
        let newest = FenceObserved { operation, ordinals, set, at: at(self.now), done, failed };
        self.fence = Some(newest.after(self.fence.take()));
    }

    /// A worker is made, and takes its ids. Those of one that somebody else has asked for count when the operator has seen it: what comes and
    /// goes without a look, nobody can know.
    fn takes_ids(&mut self, pod: &Pod) {
        let epoch = epoch_of(pod);
        let foreign: Vec<_> = self.unfenced.iter().filter(|(_, of)| **of != epoch).collect();
        assert!(foreign.is_empty(), "epoch {epoch} starts and {foreign:?} were not fenced");
        let transactions = self.job.status.as_ref().and_then(|status| status.transactions.as_ref());
        let in_use = transactions.and_then(|transactions| transactions.ids_in_use).unwrap_or(0);
        let ordinal = names::ordinal_of_pod(&pod.name_any()).unwrap();
        if i64::from(ordinal) < i64::from(in_use) {
            self.unfenced.extend(self.ids_of(pod));
        }
    }

    /// The ids that a worker uses, if it has transactions.
    pub(crate) fn ids_of(&self, pod: &Pod) -> Vec<(String, i64)> {
        let ordinal = names::ordinal_of_pod(&pod.name_any()).unwrap();
        let of_pod = |accepted: &AcceptedRevision| accepted.revision.as_str() == pod.labels()[names::LABEL_REVISION];
        let mut revisions = self.revisions.iter().filter_map(|revision| AcceptedRevision::read(revision).ok());
        let Some(AcceptedRevision { spec, .. }) = revisions.rfind(of_pod) else { return Vec::new() };
        let transactional = spec.processing.guarantee == Guarantee::ExactlyOnce;
        let slots = if transactional { spec.worker.slots.unsigned_abs() } else { 0 };
        (0..slots).map(|slot| (names::transactional_id("shop.spend", ordinal, slot), epoch_of(pod))).collect()
    }

    /// Somebody scales the StatefulSet, which is the operator's.
    pub(crate) fn scale_set(&mut self, replicas: i32) {
        let Some(mut set) = self.set.clone() else { return };
        set.spec.as_mut().unwrap().replicas = Some(replicas);
        self.store(set);
    }

    fn store(&mut self, mut set: StatefulSet) {
        set.metadata.generation = Some(set.metadata.generation.unwrap_or(0) + 1);
        set.metadata.resource_version = Some(self.next());
        self.set = Some(set);
    }

    fn born(&mut self, mut pod: Pod) -> Pod {
        pod.metadata.uid = Some(self.next());
        pod
    }

    /// The StatefulSet controller hears of the newest StatefulSet.
    pub(crate) fn informer(&mut self) {
        self.set_seen.clone_from(&self.set);
    }

    /// The StatefulSet controller acts on what it has seen: one pod made or asked to stop, and its status.
    pub(crate) fn set_controller(&mut self) {
        let Some(seen) = self.set_seen.clone() else { return };
        let spec = seen.spec.clone().unwrap();
        let wanted = spec.replicas.unwrap();
        if let Some(missing) = (0..wanted).find(|n| !self.pods.iter().any(|pod| pod.name_any() == format!("spend-{n}")))
        {
            let mut metadata = spec.template.metadata.clone().unwrap();
            metadata.name = Some(format!("spend-{missing}"));
            let pod = self.born(Pod { metadata, spec: spec.template.spec, status: Some(PodStatus::default()) });
            self.ran.insert((epoch_of(&pod), pod.labels()[names::LABEL_REVISION].clone()));
            self.takes_ids(&pod);
            self.pods.push(pod);
        } else if let Some(extra) = self.pods.iter().rev().find(|pod| {
            let ordinal = names::ordinal_of_pod(&pod.name_any()).unwrap();
            i64::from(ordinal) >= i64::from(wanted) && pod.metadata.deletion_timestamp.is_none()
        }) {
            self.terminate(&extra.name_any());
        }
        if let Some(set) = self.set.as_mut() {
            let status = StatefulSetStatus {
                observed_generation: seen.metadata.generation,
                replicas: i32::try_from(self.pods.len()).unwrap(),
                ..StatefulSetStatus::default()
            };
            if set.status.as_ref() != Some(&status) {
                set.status = Some(status);
                self.counter += 1;
                set.metadata.resource_version = Some(self.counter.to_string());
            }
        }
        self.check();
    }

    fn terminate(&mut self, name: &str) {
        let now = Time(at(self.now));
        for pod in self.pods.iter_mut().filter(|pod| pod.name_any() == name) {
            pod.metadata.deletion_timestamp = Some(now.clone());
        }
    }

    /// Pods that were asked to stop are gone.
    pub(crate) fn kubelet_stops(&mut self) {
        self.pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    }

    /// Pods become ready, plan pods answer.
    pub(crate) fn kubelet_starts(&mut self) {
        let condition = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": at(self.now).to_string(),
        });
        for pod in self.pods.iter_mut().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let exit = PodFacts::of(pod).last_exit;
            let may_start = exit.is_none_or(|exit| exit.restart() == Restart::MayHelp);
            if may_start && pod.status.as_ref().is_none_or(|status| status.conditions.is_none()) {
                pod.status =
                    Some(PodStatus { conditions: from_value(json!([condition])).unwrap(), ..PodStatus::default() });
            }
        }
        self.kubelet_plans();
    }

    /// Plan pods answer, and nothing else comes up.
    pub(crate) fn kubelet_plans(&mut self) {
        for plan in &mut self.plans {
            plan.report = Some(self.report.clone());
        }
    }

    /// A worker crashed and the kubelet holds it back.
    pub(crate) fn crash(&mut self, name: &str, ended: &Ended) {
        let last = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: ended.code,
                message: (!ended.message.is_empty()).then(|| ended.message.to_owned()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
        let now = ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None }),
            ..ContainerState::default()
        };
        let container = ContainerStatus {
            name: fencepost_crds::names::WORKER_CONTAINER.to_owned(),
            state: Some(now),
            last_state: Some(last),
            ..ContainerStatus::default()
        };
        for pod in self.pods.iter_mut().filter(|pod| pod.name_any() == name) {
            pod.status = Some(PodStatus { container_statuses: Some(vec![container.clone()]), ..PodStatus::default() });
        }
    }

    /// Somebody writes a Secret.
    pub(crate) fn secret(&mut self, name: &str, content: &str) {
        self.secrets.insert(name, content.to_owned());
    }

    /// Everything happens until nothing changes any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..60 {
            self.operator(usize::MAX);
            self.informer();
            self.set_controller();
            self.kubelet_stops();
            self.kubelet_starts();
            self.now += 1;
        }
    }

    /// Never two generations of workers at once.
    fn check(&self) {
        let epochs: BTreeSet<i64> = self.pods.iter().map(epoch_of).collect();
        assert!(epochs.len() <= 1, "workers of several epochs live at once: {epochs:?}");
        let revisions: BTreeSet<&String> = self.pods.iter().map(|pod| &pod.labels()[names::LABEL_REVISION]).collect();
        assert!(revisions.len() <= 1, "workers of several revisions live at once: {revisions:?}");
        let told = self.job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let holds = |condition_type| conditions::get(told, condition_type).is_some_and(|told| told.status == "True");
        for excluded in [ConditionType::Reconciling, ConditionType::Ready] {
            assert!(!(holds(ConditionType::Stalled) && holds(excluded)), "stalled, and {excluded}: {told:#?}");
        }
    }

    pub(crate) fn condition(&self, condition_type: ConditionType) -> (String, String) {
        let status = self.job.status.as_ref().unwrap();
        let condition = conditions::get(&status.conditions, condition_type).unwrap();
        (condition.status.clone(), condition.reason.clone())
    }

    pub(crate) fn message(&self, condition_type: ConditionType) -> String {
        let status = self.job.status.as_ref().unwrap();
        conditions::get(&status.conditions, condition_type).unwrap().message.clone()
    }

    pub(crate) fn epoch(&self) -> Option<i64> {
        self.job.status.as_ref().and_then(|status| status.epoch)
    }
}

fn workers_in(pods: &[Pod]) -> impl Iterator<Item = &Pod> {
    pods.iter().filter(|pod| names::ordinal_of_pod(&pod.name_any()).is_some())
}

fn epoch_of(pod: &Pod) -> i64 {
    pod.annotations()[names::ANNOTATION_EPOCH].parse().unwrap()
}
