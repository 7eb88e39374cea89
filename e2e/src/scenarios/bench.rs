//! The place of one scenario: a namespace, topics with its name in front, and the means to act and to wait.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::conditions::{self, ConditionType, Reason};
use fencepost_crds::contract::WorkerStatus;
use fencepost_oracle::{Connection, Trial};
use futures::{StreamExt, pin_mut};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::failure::ensure;
use super::journal::Journal;
use super::{Failure, Lab, Meaning};
use crate::cluster::Cluster;
use crate::faults::PodProcess;
use crate::load::{Load, Plan};
use crate::{command, images, report};

mod topics;

/// How long things may take. Real machines that do much at once are slow; none of these is waited out.
pub struct Limits;

impl Limits {
    /// From a manifest to a judgement of the operator on it.
    pub const JUDGED: Duration = Duration::from_secs(90);
    /// From a manifest to working workers.
    pub const READY: Duration = Duration::from_secs(180);
    /// From the last input to the last output.
    pub const CAUGHT_UP: Duration = Duration::from_secs(120);
}

/// The place of one scenario.
pub struct Bench<'l> {
    lab: &'l Lab,
    name: String,
    namespace: String,
    client: Client,
    runtime: Runtime,
}

impl<'l> Bench<'l> {
    /// Makes the namespace. The calling thread must be inside the network of the cluster.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn open(lab: &'l Lab, name: &str, namespace: &str) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Failure::means("start a runtime"))?;
        let client = runtime.block_on(lab.cluster().kube_client()).map_err(Failure::means("reach the API server"))?;
        let bench = Self { lab, name: name.to_owned(), namespace: namespace.to_owned(), client, runtime };
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        bench.apply(&manifest)?;
        Ok(bench)
    }

    /// Removes everything the scenario has made.
    ///
    /// # Errors
    /// When Kubernetes or Kafka refuses.
    pub fn close(&self) -> Result<(), Failure> {
        self.kubectl(&[
            "delete",
            "streamjobs",
            "--all",
            "--ignore-not-found",
            "--timeout=60s",
            "--namespace",
            &self.namespace,
        ])?;
        self.kubectl(&["delete", "namespace", &self.namespace, "--ignore-not-found", "--wait=false"])?;
        self.delete_topics()
    }

    /// Name of the scenario.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.lab.cluster()
    }

    /// How to reach Kafka.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.lab.connection()
    }

    /// `spec.kafka` of a job, without security.
    #[must_use]
    pub fn kafka(&self) -> Value {
        json!({"bootstrapServers": self.cluster().bootstrap_name()})
    }

    /// Starts a load.
    ///
    /// # Errors
    /// When the producer cannot be made.
    pub fn load(&self, plan: Plan) -> Result<Load, Failure> {
        Load::start(&self.connection(), plan).map_err(Failure::means("start the load"))
    }

    /// Runs kubectl.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.cluster().kubectl(arguments).map_err(Failure::means("run kubectl"))
    }

    /// `kubectl fencepost ARGUMENTS`, with this on its standard input: kubectl finds the plugin as a user's would.
    ///
    /// # Errors
    /// When it fails.
    pub fn plugin(&self, arguments: &[&str], input: &str) -> Result<String, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(images::folder()).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).map_err(Failure::means("name the folder of the plugin"))?;
        let mut kubectl = self.cluster().kubectl_command().map_err(Failure::means("run kubectl"))?;
        kubectl.env("PATH", path).arg("fencepost").args(arguments).args(["--namespace", &self.namespace]);
        command::run_with_input(&mut kubectl, input.as_bytes()).map_err(Failure::means("run the plugin of kubectl"))
    }

    /// `kubectl apply`.
    ///
    /// # Errors
    /// When it fails.
    pub fn apply<M: serde::Serialize>(&self, manifest: &M) -> Result<(), Failure> {
        let text = serde_json::to_string(manifest).map_err(Failure::means("write a manifest"))?;
        self.cluster().apply(&text).map(drop).map_err(Failure::means("apply a manifest"))
    }

    /// The same, and gives what the API server made of it.
    ///
    /// # Errors
    /// When it fails.
    pub fn applied<M: serde::Serialize>(&self, manifest: &M) -> Result<Value, Failure> {
        let text = serde_json::to_string(manifest).map_err(Failure::means("write a manifest"))?;
        let mut kubectl = self.cluster().kubectl_command().map_err(Failure::means("run kubectl"))?;
        kubectl.args(["apply", "--server-side", "--field-manager=e2e", "--output=json", "-f", "-"]);
        let answer =
            command::run_with_input(&mut kubectl, text.as_bytes()).map_err(Failure::means("apply a manifest"))?;
        serde_json::from_str(&answer).map_err(Failure::means("read what the API server made of a manifest"))
    }

    /// Runs a command in a container, with this on its standard input, and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn execute(&self, pod: &str, command: &[&str], input: &str) -> Result<String, Failure> {
        let mut kubectl = self.cluster().kubectl_command().map_err(Failure::means("run kubectl"))?;
        kubectl.args(["exec", "--stdin", "--namespace", &self.namespace, pod, "--"]).args(command);
        command::run_with_input(&mut kubectl, input.as_bytes()).map_err(Failure::means("run a command in a container"))
    }

    /// What the API server says when it refuses a manifest; `None`: it does not refuse it. Nothing is stored.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub fn try_apply(&self, manifest: &Value) -> Result<Option<String>, Failure> {
        let mut kubectl = self.cluster().kubectl_command().map_err(Failure::means("run kubectl"))?;
        kubectl.args([
            "apply",
            "--server-side",
            "--field-manager=e2e",
            "--dry-run=server",
            "--namespace",
            &self.namespace,
        ]);
        match command::run_with_input(kubectl.args(["-f", "-"]), manifest.to_string().as_bytes()) {
            Ok(_) => Ok(None),
            Err(error @ command::Error::Failed { .. }) => Ok(Some(error.said().to_owned())),
            Err(error) => Err(Failure::means("run kubectl")(error)),
        }
    }

    /// Waits until an object is as wanted. `None`: it does not exist.
    ///
    /// # Errors
    /// When it does not come to that within `limit`.
    pub fn until<K>(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(Option<&K>) -> bool,
    ) -> Result<Option<K>, Failure>
    where
        K: Resource<Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Send
            + DeserializeOwned
            + serde::Serialize
            + 'static,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut last = None;
        let wait = async {
            let states = watch_object(api, name);
            pin_mut!(states);
            while let Some(state) = states.next().await {
                // A watch that breaks is begun again by itself.
                let Ok(state) = state else { continue };
                if wanted(state.as_ref()) {
                    return Some(state);
                }
                last = Some(state);
            }
            None
        };
        match self.runtime.block_on(async { tokio::time::timeout(limit, wait).await }) {
            Ok(Some(state)) => Ok(state),
            _ => Err(Failure::Late {
                what: what.to_owned(),
                seconds: limit.as_secs(),
                last: describe(last.flatten().as_ref()),
            }),
        }
    }

    /// Waits for a state of a job.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub fn until_job(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&StreamJob) -> bool,
    ) -> Result<StreamJob, Failure> {
        let job = self.until(name, what, limit, |job: Option<&StreamJob>| job.is_some_and(&wanted))?;
        job.ok_or_else(|| Failure::Expectation(format!("the StreamJob {name} is gone")))
    }

    /// Waits until the newest spec runs on all workers.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub fn until_ready(&self, name: &str) -> Result<StreamJob, Failure> {
        self.until_job(name, "the job to be Ready", Limits::READY, |job| {
            is_answered(job) && has(job, ConditionType::Ready, "True", None) && ready_replicas(job) == job.spec.replicas
        })
    }

    /// Waits for a condition of a job that answers the newest spec.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub fn until_condition(
        &self,
        name: &str,
        kind: ConditionType,
        status: &str,
        reason: Reason,
        limit: Duration,
    ) -> Result<StreamJob, Failure> {
        let what = format!("{kind}={status} with reason {reason}");
        self.until_job(name, &what, limit, |job| is_answered(job) && has(job, kind, status, Some(reason)))
    }

    /// The job now.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn job(&self, name: &str) -> Result<StreamJob, Failure> {
        let jobs: Api<StreamJob> = Api::namespaced(self.client.clone(), &self.namespace);
        self.runtime.block_on(jobs.get(name)).map_err(Failure::means("read the StreamJob"))
    }

    /// `kubectl scale`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn scale(&self, name: &str, replicas: i32) -> Result<(), Failure> {
        let replicas = format!("--replicas={replicas}");
        self.kubectl(&["scale", "streamjob", name, &replicas, "--namespace", &self.namespace]).map(drop)
    }

    /// Follows the pods of workers from now on.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal::start(self.runtime.handle(), self.client.clone(), &self.namespace)
    }

    /// The pods of a namespace that match a selector.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let list = self.runtime.block_on(pods.list(&ListParams::default().labels(selector)));
        Ok(list.map_err(Failure::means("list pods"))?.items)
    }

    /// What the events of a reason say.
    ///
    /// # Errors
    /// When kubectl fails.
    pub fn events(&self, reason: &str) -> Result<String, Failure> {
        let selector = format!("--field-selector=reason={reason}");
        let said = "--output=jsonpath={.items[*].message}";
        self.kubectl(&["get", "events", "--namespace", &self.namespace, &selector, said])
    }

    /// Names, uids of the workers of a job.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn workers(&self, job: &str) -> Result<BTreeMap<String, String>, Failure> {
        use fencepost_crds::names::{LABEL_JOB, LABEL_ROLE, ROLE_WORKER};
        let pods = self.pods(&self.namespace, &format!("{LABEL_JOB}={job},{LABEL_ROLE}={ROLE_WORKER}"))?;
        Ok(pods.iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
    }

    /// `kill -9` of the process of a pod. Says whether there was one.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn kill(&self, namespace: &str, pod: &str) -> Result<bool, Failure> {
        let found = PodProcess::of_pod(self.cluster(), namespace, pod, None).and_then(|process| process.kill());
        match found {
            Ok(()) => Ok(true),
            // Between two lives: nothing to kill.
            Err(error) => {
                report::detail(format!("{pod}: {}", report::chain(&error)));
                Ok(false)
            }
        }
    }

    /// The worker whose fault points can be armed.
    ///
    /// # Errors
    /// When the scenario is not marked as one that wants it.
    pub fn worker_with_faults(&self) -> Result<String, Failure> {
        self.lab.worker_with_faults().map(str::to_owned)
    }

    /// What a worker says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn worker_status(&self, pod: &str) -> Result<WorkerStatus, Failure> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:8080/proxy/v1/status", self.namespace);
        let request = http::Request::get(path).body(Vec::new()).map_err(Failure::means("ask a worker"))?;
        self.runtime.block_on(self.client.request(request)).map_err(Failure::means("ask a worker for its status"))
    }

    /// Arms a fault point of a worker.
    ///
    /// # Errors
    /// When the worker does not answer.
    pub fn arm(&self, pod: &str, point: &str, actions: &str) -> Result<(), Failure> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:8080/proxy/v1/fault-points/{point}", self.namespace);
        let request = http::Request::put(path).header("content-type", "text/plain").body(actions.as_bytes().to_vec());
        let request = request.map_err(Failure::means("ask a worker"))?;
        self.runtime.block_on(self.client.request_text(request)).map(drop).map_err(Failure::means("arm a fault point"))
    }

    /// A trial of a job of this namespace.
    #[must_use]
    pub fn trial(&self, job: &str, model: Meaning) -> Trial<Meaning> {
        let group = format!("{}.{job}", self.namespace);
        Trial::new(self.connection(), &group, model).patience(Limits::CAUGHT_UP)
    }

    /// Holds a trial. Gives the summary of a verdict that holds.
    ///
    /// # Errors
    /// When it does not hold.
    pub fn judge(&self, trial: Trial<Meaning>) -> Result<String, Failure> {
        let verdict = trial.verdict().map_err(Failure::means("read the topics"))?;
        let summary = verdict.summary();
        ensure!(verdict.expected > 0 || !verdict.holds(), "nothing was expected of the job: {summary}");
        if verdict.holds() { Ok(summary) } else { Err(Failure::Verdict(Box::new(verdict))) }
    }
}

fn describe<K: serde::Serialize>(state: Option<&K>) -> String {
    let Some(state) = state else { return "no such object".to_owned() };
    let value = serde_json::to_value(state).unwrap_or_default();
    value.get("status").map_or_else(|| "no status".to_owned(), ToString::to_string)
}

/// Whether the status answers the newest spec.
#[must_use]
pub fn is_answered(job: &StreamJob) -> bool {
    job.status.as_ref().and_then(|status| status.observed_generation) == job.metadata.generation
}

/// Whether a job has a condition.
#[must_use]
pub fn has(job: &StreamJob, kind: ConditionType, status: &str, reason: Option<Reason>) -> bool {
    let conditions = job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::get(conditions, kind).is_some_and(|condition| {
        condition.status == status && reason.is_none_or(|reason| condition.reason == <&str>::from(reason))
    })
}

/// The message of a condition.
#[must_use]
pub fn message(job: &StreamJob, kind: ConditionType) -> String {
    let conditions = job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::get(conditions, kind).map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Workers that process.
#[must_use]
pub fn ready_replicas(job: &StreamJob) -> i32 {
    job.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
}

/// The epoch of a job.
#[must_use]
pub fn epoch(job: &StreamJob) -> i64 {
    job.status.as_ref().and_then(|status| status.epoch).unwrap_or_default()
}

/// Whether a pod is ready.
#[must_use]
pub fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The ready pod `name` that takes the place of one that is deleted now. The kubelet lets a container that died several times wait
/// longer and longer; in a new pod it starts at once.
///
/// # Errors
/// When it does not come.
pub fn renew(bench: &Bench<'_>, job: &str, name: &str) -> Result<(), Failure> {
    let old = bench.workers(job)?.remove(name);
    bench.kubectl(&["delete", "pod", name, "--namespace", bench.namespace()])?;
    let is_new = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.uid != old && is_pod_ready(pod));
    bench.until(name, &format!("a new {name}"), Limits::READY, is_new).map(drop)
}

/// How often the containers of a pod were started again.
#[must_use]
pub fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.into_iter().flatten().map(|container| container.restart_count).sum()
}
