use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use fencepost_apiserver::{ApiServer, Kind};
use fencepost_crds::{
    StreamJob,
    contract::{PlanReport, SlotStatus, WorkerStatus},
    names, resolve,
};
use fencepost_plan::Settings;
use futures::future::BoxFuture;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
        events::v1::Event,
        policy::v1::PodDisruptionBudget,
    },
    jiff::Timestamp,
};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Brokers, Life,
    brokers::{self, Network},
    life::Fate,
    now,
};
use crate::{
    controller::{self, Context},
    events::Events,
    jobs::AllJobs,
    memory::Memory,
    metrics::Metrics,
    worker::{AskError, WorkerProbe},
};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const JOB: &str = "spend";

/// SQL that plans, and that no worker can run.
pub(crate) const BROKEN: &str = "broken";

/// How often everything but the operator looks around.
const TICK: Duration = Duration::from_millis(250);
/// Nothing has changed for so long: nothing will. Longer than the operator's pause when all is well, or nothing runs.
const QUIET: Duration = Duration::from_secs(75);
/// Nothing has changed for so long: a step is done.
const CALM: Duration = Duration::from_secs(8);
/// Longer than anything may take.
const LIMIT: Duration = Duration::from_mins(30);

/// Everything around the operator.
pub(crate) struct Cluster {
    pub server: ApiServer,
    pub brokers: Brokers,
    /// Pods whose workers have taken their ids.
    begun: BTreeSet<String>,
    /// Epochs of which a worker has begun.
    epochs: BTreeSet<i64>,
    /// Ordinals whose workers die without a commit when they are asked to stop.
    pub killed: BTreeSet<u32>,
    violations: Vec<String>,
    /// The version at which everything else had nothing to do.
    idle: Option<u64>,
}

/// What a run of an operator, or of several one after another, has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    /// What was changed, in order.
    pub effects: Vec<String>,
    /// Steps of the first operator.
    pub steps: u64,
}

/// What an operator took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Virtual time until everything was as asked.
    pub until_quiet: Duration,
    /// Requests to the API server and to brokers until then.
    pub requests: u64,
    /// The same from then on.
    pub steady: u64,
}

/// A cluster that is put away.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    at: Timestamp,
    version: u64,
    objects: Vec<Value>,
    brokers: brokers::State,
    begun: BTreeSet<String>,
    epochs: BTreeSet<i64>,
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind::of::<StreamJob>().with_status(),
        Kind::of::<StatefulSet>().with_status(),
        Kind::of::<Pod>().with_status().with_grace(30),
        Kind::of::<PodDisruptionBudget>().with_status(),
        Kind::of::<Service>().with_status(),
        Kind::of::<ControllerRevision>(),
        Kind::of::<ConfigMap>(),
        Kind::of::<ServiceAccount>(),
        Kind::of::<Secret>(),
        Kind::of::<Event>(),
    ]
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            server: ApiServer::new(kinds(), now),
            brokers: Brokers::default(),
            begun: BTreeSet::new(),
            epochs: BTreeSet::new(),
            killed: BTreeSet::new(),
            violations: Vec::new(),
            idle: None,
        }
    }

    /// The same, from here on apart.
    pub(crate) fn fork(&self) -> Self {
        Self {
            server: self.server.fork(),
            brokers: self.brokers.fork(),
            begun: self.begun.clone(),
            epochs: self.epochs.clone(),
            killed: self.killed.clone(),
            violations: self.violations.clone(),
            idle: None,
        }
    }

    /// Everything that another operator needs to go on from here.
    pub(crate) fn keep(&self) -> Kept {
        let objects = self.server.everything().into_iter().map(|(_, object)| object);
        Kept {
            at: now(),
            version: self.server.version(),
            objects: objects.filter(|object| object["kind"] != "Event").collect(),
            brokers: self.brokers.keep(),
            begun: self.begun.clone(),
            epochs: self.epochs.clone(),
        }
    }

    /// Goes on where another cluster was, when it is as late as there.
    pub(crate) async fn of(kept: Kept) -> Self {
        let Kept { at, version, objects, brokers, begun, epochs } = kept;
        let ahead = Duration::try_from(at.duration_since(now())).unwrap_or_default();
        tokio::time::sleep(ahead).await;
        let server = ApiServer::restored(kinds(), now, (version, names::MANAGER), objects).unwrap();
        Self { server, brokers: Brokers::of(brokers), begun, epochs, ..Self::new() }
    }

    pub(crate) fn job(&self) -> Option<StreamJob> {
        self.server.get(NAMESPACE, JOB)
    }

    /// A user's manifest arrives, and the Secret that it names.
    pub(crate) fn submit(&self) {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "kafka", "namespace": NAMESPACE },
            "data": { "user": "dXNlcg==", "password": "c2VjcmV0" },
        });
        self.server.create::<Secret>("user", secret).unwrap();
        let job = json!({
            "apiVersion": "fencepost.dev/v1alpha1",
            "kind": "StreamJob",
            "metadata": { "name": JOB, "namespace": NAMESPACE },
            "spec": {
                "replicas": 2,
                "kafka": {
                    "bootstrapServers": "kafka:9092",
                    "sasl": {
                        "mechanism": "SCRAM-SHA-512",
                        "usernameSecretRef": { "name": "kafka", "key": "user" },
                        "passwordSecretRef": { "name": "kafka", "key": "password" },
                    },
                },
                "pipeline": {
                    "sources": [{
                        "name": "orders",
                        "kafka": { "topic": "orders", "format": { "json": {} } },
                        "columns": [{ "name": "user", "type": "STRING" }],
                    }],
                    "sql": "INSERT INTO totals SELECT user FROM orders",
                    "sinks": [{
                        "name": "totals",
                        "kafka": { "topic": "totals", "create": { "partitions": 4 }, "format": { "json": {} } },
                    }],
                },
            },
        });
        self.server.create::<StreamJob>("user", job).unwrap();
    }

    /// The same job once more under another name, with the transactional ids of the first.
    pub(crate) fn submit_again(&self, name: &str) {
        self.submit_as(name, |spec| spec["kafka"]["transactionalIdPrefix"] = format!("{NAMESPACE}.{JOB}").into());
    }

    /// Another job like the first, with ids of its own.
    pub(crate) fn submit_like(&self, name: &str) {
        self.submit_as(name, |_| {});
    }

    fn submit_as(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut spec = serde_json::to_value(self.job().unwrap().spec).unwrap();
        change(&mut spec);
        let job = json!({
            "apiVersion": "fencepost.dev/v1alpha1",
            "kind": "StreamJob",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": spec,
        });
        self.server.create::<StreamJob>("user", job).unwrap();
    }

    /// A user changes the spec.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.server.update::<StreamJob>("user", (NAMESPACE, JOB), |job| change(&mut job["spec"])).unwrap();
    }

    /// A user annotates the job.
    pub(crate) fn annotate(&self, name: &str, value: &str) {
        let set = |job: &mut Value| job["metadata"]["annotations"][name] = value.into();
        self.server.update::<StreamJob>("user", (NAMESPACE, JOB), set).unwrap();
    }

    /// A worker is gone with its node, in a transaction.
    pub(crate) fn lose_worker(&self, ordinal: u8) {
        let name = format!("{JOB}-{ordinal}");
        if let Some(pod) = self.server.get::<Pod>(NAMESPACE, &name) {
            self.brokers.gone(&pod.uid().unwrap(), false);
            self.server.remove::<Pod>(NAMESPACE, &name).unwrap();
        }
    }

    /// Runs one operator after another until nothing changes any more: the first dies in its step `cut`, the next lives on.
    pub(crate) async fn run(&mut self, cut: Option<u64>) -> Story {
        let first = Arc::new(Life::new(&self.server, cut.map(|step| (step, Fate::Dies))));
        let rests = self.until_quiet(&first).await;
        let mut effects = first.effects();
        if !rests {
            let second = Arc::new(Life::new(&self.server, None));
            assert!(self.until_quiet(&second).await, "it lives for ever");
            effects.extend(second.effects());
        }
        Story { effects, steps: first.steps() }
    }

    /// Runs an operator that dies in its step `cut`. False: it has no such step.
    pub(crate) async fn run_until(&mut self, cut: u64) -> bool {
        let life = Arc::new(Life::new(&self.server, Some((cut, Fate::Dies))));
        !self.until_quiet(&life).await
    }

    /// Something happens to an operator that has been there for a while.
    pub(crate) async fn run_through(&mut self, what: impl FnOnce(&mut Self)) {
        let operator = self.operator(&Arc::new(Life::new(&self.server, None)));
        tokio::select! {
            () = operator => panic!("the controller ended"),
            () = async {
                self.ticks(QUIET).await;
                what(self);
                self.ticks(QUIET).await;
            } => {}
        }
    }

    /// Runs an operator until nothing changes any more, and then for so long.
    pub(crate) async fn measure(&mut self, steady: Duration) -> Measured {
        let life = Arc::new(Life::new(&self.server, None));
        let operator = self.operator(&life);
        let begun = Instant::now();
        tokio::select! {
            () = operator => panic!("the controller ended"),
            measured = async {
                self.ticks(QUIET).await;
                let (until_quiet, requests) = (begun.elapsed().saturating_sub(QUIET), life.requests());
                let mut ticks = tokio::time::interval(TICK);
                let until = Instant::now() + steady;
                while Instant::now() < until {
                    ticks.tick().await;
                    self.tick();
                }
                Measured { until_quiet, requests, steady: life.requests() - requests }
            } => measured,
        }
    }

    /// False: the operator died.
    async fn until_quiet(&mut self, life: &Arc<Life>) -> bool {
        let operator = self.operator(life);
        tokio::select! {
            biased;
            () = life.fate() => false,
            () = operator => panic!("the controller ended"),
            () = self.ticks(QUIET) => true,
        }
    }

    /// The operator stands still in a step, another one takes over, the user does something, and after the pause the first one wakes up and
    /// goes on as if nothing had happened, beside the other. False: it has no such step.
    pub(crate) async fn run_beside(&mut self, step: u64, pause: Duration, meanwhile: fn(&mut Self)) -> bool {
        let first = Arc::new(Life::new(&self.server, Some((step, Fate::Pauses(pause)))));
        let (sleeper, other) = (self.operator(&first), self.operator(&Arc::new(Life::new(&self.server, None))));
        tokio::pin!(sleeper, other);
        tokio::select! {
            biased;
            () = first.fate() => {}
            () = &mut sleeper => panic!("the controller ended"),
            () = self.ticks(QUIET) => return false,
        }
        tokio::select! {
            () = &mut sleeper => panic!("the controller ended"),
            () = &mut other => panic!("the controller ended"),
            () = async {
                self.ticks(CALM).await;
                meanwhile(self);
                self.ticks(pause + QUIET).await;
            } => {}
        }
        true
    }

    /// Lets everything but the operator do its work until nothing has changed for so long.
    async fn ticks(&mut self, enough: Duration) {
        let mut ticks = tokio::time::interval(TICK);
        let (mut version, mut quiet, mut waited) = (self.server.version(), Duration::ZERO, Duration::ZERO);
        while quiet < enough {
            ticks.tick().await;
            self.tick();
            waited += TICK;
            quiet = if self.server.version() == version { quiet + TICK } else { Duration::ZERO };
            version = self.server.version();
            assert!(waited < LIMIT, "it does not come to rest: {:#?}", self.job().map(|job| job.status));
        }
    }

    /// A process of the operator. It borrows nothing.
    fn operator(&self, life: &Arc<Life>) -> impl Future<Output = ()> + use<> {
        controller::run(Arc::new(self.context(life)), None, 4, std::future::pending())
    }

    fn context(&self, life: &Arc<Life>) -> Context {
        let client = self.server.client(Arc::clone(life) as Arc<dyn fencepost_apiserver::Gate>);
        Context {
            events: Events::new(client.clone(), "operator-0".to_owned()),
            client,
            settings: Settings { worker_image: "worker:1".to_owned() },
            broker: Box::new(Network { brokers: self.brokers.clone(), life: Arc::clone(life) }),
            workers: Box::new(Workers(self.server.clone())),
            jobs: AllJobs::default(),
            memory: Memory::default(),
            metrics: Metrics::default(),
            clock: now,
        }
    }

    /// Everything else does what it has to do.
    fn tick(&mut self) {
        let version = self.server.version();
        if self.idle == Some(version) {
            return;
        }
        self.kubelet();
        self.stateful_sets();
        self.collect_garbage();
        self.check();
        self.idle = (self.server.version() == version).then_some(version);
    }

    fn stateful_sets(&mut self) {
        let mut all = self.pods_by_set();
        for set in self.server.list::<StatefulSet>() {
            let (name, uid) = (set.name_any(), set.uid().unwrap());
            let spec = set.spec.clone().unwrap();
            let wanted = spec.replicas.unwrap_or(1);
            let version = self.server.version();
            let mut pods = all.remove(&name).unwrap_or_default();
            for ordinal in 0..wanted {
                let pod = format!("{name}-{ordinal}");
                if pods.iter().any(|there| there.name_any() == pod) {
                    continue;
                }
                let mut metadata = serde_json::to_value(spec.template.metadata.clone().unwrap_or_default()).unwrap();
                metadata["name"] = pod.into();
                metadata["namespace"] = NAMESPACE.into();
                metadata["ownerReferences"] = json!([
                    { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": true },
                ]);
                let made =
                    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec.template.spec });
                self.server.create::<Pod>("statefulset-controller", made).unwrap();
            }
            for pod in &pods {
                let ordinal = names::ordinal_of_pod(&pod.name_any()).unwrap();
                if i64::from(ordinal) >= i64::from(wanted) && pod.metadata.deletion_timestamp.is_none() {
                    self.server.delete::<Pod>(NAMESPACE, &pod.name_any()).unwrap();
                }
            }
            if self.server.version() != version {
                pods = self.pods_by_set().remove(&name).unwrap_or_default();
            }
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let status = json!({
                "observedGeneration": set.metadata.generation, "replicas": pods.len(), "readyReplicas": ready,
            });
            self.server
                .update::<StatefulSet>("statefulset-controller", (NAMESPACE, &name), |set| set["status"] = status)
                .unwrap();
        }
    }

    fn pods_by_set(&self) -> BTreeMap<String, Vec<Pod>> {
        let mut all: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
        for pod in self.server.list::<Pod>() {
            let set = pod.owner_references().iter().find(|owner| owner.kind == "StatefulSet");
            if let Some(name) = set.map(|owner| owner.name.clone()) {
                all.entry(name).or_default().push(pod);
            }
        }
        all
    }

    fn kubelet(&mut self) {
        for pod in self.server.list::<Pod>() {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap());
            let worker = names::ordinal_of_pod(&name).filter(|_| pod.labels()[names::LABEL_ROLE] == names::ROLE_WORKER);
            if pod.metadata.deletion_timestamp.is_some() {
                let kills = worker.is_some_and(|ordinal| self.killed.contains(&ordinal));
                self.brokers.gone(&uid, !kills);
                self.server.remove::<Pod>(NAMESPACE, &name).unwrap();
            } else if let Some(ordinal) = worker {
                if self.begun.insert(uid.clone()) {
                    let epoch = pod.annotations()[names::ANNOTATION_EPOCH].parse().unwrap();
                    let job = pod.labels()[names::LABEL_JOB].as_str();
                    if job == JOB {
                        self.begins(epoch);
                    }
                    let id = names::transactional_id(&self.prefix_of(job), ordinal, 0);
                    self.brokers.take(&id, &uid, epoch);
                    let status = if self.is_broken(&pod) {
                        gave_up()
                    } else {
                        self.brokers.commit();
                        ready(&uid)
                    };
                    self.server.update::<Pod>("kubelet", (NAMESPACE, &name), |pod| pod["status"] = status).unwrap();
                }
            } else if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Succeeded") {
                let report = PlanReport { contract_version: 1, signature: "s".to_owned(), ..PlanReport::default() };
                self.server.set_log(NAMESPACE, &name, &serde_json::to_string(&report).unwrap());
                let ended = json!({ "phase": "Succeeded" });
                self.server.update::<Pod>("kubelet", (NAMESPACE, &name), |pod| pod["status"] = ended).unwrap();
            }
        }
    }

    /// The ids of a job begin with this, also when it is gone already.
    fn prefix_of(&self, job: &str) -> String {
        let object = self.server.get::<StreamJob>(NAMESPACE, job);
        let kafka = object.map(|object| object.spec.kafka);
        kafka.map_or_else(
            || format!("{NAMESPACE}.{job}"),
            |kafka| resolve::transactional_id_prefix(&kafka, NAMESPACE, job),
        )
    }

    /// The first worker of a start must find the positions that the journal says it began with.
    fn begins(&mut self, epoch: i64) {
        if !self.epochs.insert(epoch) {
            return;
        }
        let restore = self.job().and_then(|job| job.status?.restore).filter(|restore| restore.epoch == epoch);
        let there = self.brokers.positions();
        if let Some(restore) = restore.filter(|restore| restore.digest != there.digest) {
            self.violations.push(format!("epoch {epoch} begins at {there:?}, and the journal says {restore:?}"));
        }
    }

    /// Its worker cannot run this SQL.
    fn is_broken(&self, pod: &Pod) -> bool {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let maps =
            volumes.filter_map(|volume| self.server.get::<ConfigMap>(NAMESPACE, &volume.config_map.as_ref()?.name));
        maps.flat_map(|map| map.data.unwrap_or_default().into_values()).any(|job| job.contains(BROKEN))
    }

    fn collect_garbage(&self) {
        let mut uids = BTreeSet::new();
        self.server.each(|object| uids.extend(object["metadata"]["uid"].as_str().map(str::to_owned)));
        let mut orphans = Vec::new();
        self.server.each(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            let lives = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid));
            if owners.is_some_and(|owners| !owners.is_empty() && !owners.iter().any(lives)) {
                orphans.push(object.clone());
            }
        });
        for orphan in orphans {
            self.delete(&orphan);
        }
    }

    /// Somebody deletes the namespace, and all that is in it at once.
    pub(crate) fn delete_namespace(&self) {
        let everything = self.server.everything();
        for (_, object) in everything.iter().filter(|(_, object)| object["kind"] != "Event") {
            self.delete(object);
        }
    }

    fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        match object["kind"].as_str().unwrap() {
            "StreamJob" => self.server.delete::<StreamJob>(NAMESPACE, name),
            "Secret" => self.server.delete::<Secret>(NAMESPACE, name),
            "StatefulSet" => self.server.delete::<StatefulSet>(NAMESPACE, name),
            "Pod" => self.server.delete::<Pod>(NAMESPACE, name),
            "PodDisruptionBudget" => self.server.delete::<PodDisruptionBudget>(NAMESPACE, name),
            "Service" => self.server.delete::<Service>(NAMESPACE, name),
            "ControllerRevision" => self.server.delete::<ControllerRevision>(NAMESPACE, name),
            "ConfigMap" => self.server.delete::<ConfigMap>(NAMESPACE, name),
            "ServiceAccount" => self.server.delete::<ServiceAccount>(NAMESPACE, name),
            other => panic!("who made a {other}?"),
        }
        .unwrap();
    }

    /// Never workers of two epochs at once.
    fn check(&mut self) {
        let mut epochs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.server.list::<Pod>() {
            if pod.labels()[names::LABEL_ROLE] == names::ROLE_WORKER {
                let job = epochs.entry(pod.labels()[names::LABEL_JOB].clone()).or_default();
                job.insert(pod.annotations()[names::ANNOTATION_EPOCH].clone());
            }
        }
        let mixed = epochs.iter().filter(|(_, epochs)| epochs.len() > 1);
        let told = mixed.map(|(job, epochs)| format!("workers of the epochs {epochs:?} of {job} live at once"));
        self.violations.extend(told);
    }

    /// What must not have happened.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.iter().cloned().chain(self.brokers.violations()).collect()
    }

    /// All objects, without what differs between two runs that came to the same: identities, versions, times, and how often an id was fenced.
    pub(crate) fn end(&self) -> BTreeMap<String, Value> {
        let kept = self.server.everything().into_iter().filter(|(name, _)| !name.starts_with("Event "));
        kept.map(|(name, mut object)| {
            plain(&mut object);
            (name, object)
        })
        .collect()
    }
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let of_a_run = [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "lastTransitionTime",
                "at",
                "before",
                "after",
                "open",
                "since",
                "podIP",
            ];
            object.retain(|name, _| !of_a_run.contains(&name.as_str()));
            object.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// Pods have addresses of their own: their uids are numbered.
fn address(uid: &str) -> String {
    let number: u32 = uid.trim_start_matches("uid-").parse().unwrap();
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_string()
}

fn ready(uid: &str) -> Value {
    let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": now().to_string() });
    json!({ "phase": "Running", "podIP": address(uid), "conditions": [condition] })
}

/// The worker has ended, and a restart does not help.
fn gave_up() -> Value {
    let ended = json!({ "terminated": { "exitCode": 65, "reason": "Error" } });
    let container = json!({
        "name": names::WORKER_CONTAINER, "image": "worker:1", "imageID": "", "ready": false, "restartCount": 1,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": ended,
    });
    json!({ "phase": "Running", "containerStatuses": [container] })
}

/// Workers that are ready, have committed, and have nothing to complain about.
struct Workers(ApiServer);

impl WorkerProbe for Workers {
    fn status(&self, asked: IpAddr) -> BoxFuture<'_, Result<WorkerStatus, AskError>> {
        let has_address =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()) == Some(&asked.to_string());
        let answer = self.0.list::<Pod>().into_iter().find(has_address).map(|pod| WorkerStatus {
            epoch: pod.annotations()[names::ANNOTATION_EPOCH].parse().unwrap(),
            slots: vec![SlotStatus { commits: 1, ..SlotStatus::default() }],
            ..WorkerStatus::default()
        });
        Box::pin(std::future::ready(answer.ok_or(AskError::Timeout)))
    }
}
