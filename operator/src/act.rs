//! Doing what was decided. Every act may be repeated: it finds what an earlier attempt did.

use std::{
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use fencepost_crds::{StreamJob, names};
use fencepost_plan::{
    Act, BrokerObserved, FenceObserved, Identity, Observed, PositionsObserved, Revision,
    build::{Children, PlanChildren, labels, plan_name},
    decide::{self, Cause, Fence, PlanOutcome, ReadPositions, Replace, Seen},
    events::{Note, NoteKind, note},
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    broker::{self, Fenced},
    controller::Context,
    error::{Error, chain, is_conflict, is_not_found},
    memory::{JobKey, JobMemory},
};

/// How long a look at what is there counts. Another leader would have to take over, look, decide and start workers in this time.
const FRESH: Duration = Duration::from_secs(5);

/// The acts of one decision about one job.
pub struct Acts<'a> {
    context: &'a Context,
    seen: &'a Observed,
    identity: Identity,
    key: JobKey,
    target: &'a Revision,
    /// Of the StreamJob with the status that was decided.
    version: Option<String>,
}

impl<'a> Acts<'a> {
    /// Acts for a job.
    #[must_use]
    pub fn new(
        context: &'a Context,
        seen: &'a Observed,
        identity: Identity,
        target: &'a Revision,
        version: Option<String>,
    ) -> Self {
        let key = (identity.namespace.clone(), identity.name.clone());
        Self { context, seen, identity, key, target, version }
    }

    /// Does one act. Returns what is worth an event.
    ///
    /// # Errors
    /// The API server or a broker refused, or something changed since it was seen.
    pub async fn perform(&self, act: Act) -> Result<Option<Note>, Error> {
        match act {
            Act::Plan(children) => self.plan(&children).await?,
            Act::DeletePlan { name, uid, outcome } => self.delete_plan(&name, uid, outcome).await?,
            Act::CreateTopics(topics) => return Ok(self.create_topics(topics).await),
            Act::Accept { revision, trial } => self.accept(&revision, &trial).await?,
            Act::ScaleToZero { name, uid, resource_version } => {
                self.scale_to_zero(&name, &uid, &resource_version).await?;
            }
            Act::Fence(fence) => return self.fence(*fence).await,
            Act::ReadPositions(question) => self.read_positions(*question).await,
            Act::Hold => self.set_finalizers(true).await?,
            Act::Release { warning } => {
                self.set_finalizers(false).await?;
                return Ok(warning.map(|text| note(NoteKind::Warning, "DeletionForced", "Delete", &text)));
            }
            Act::Apply { children, seen } => self.apply(*children, seen).await?,
            Act::Replace(replace) => return self.replace(replace).await,
            Act::ForgetRevisions(names) => {
                for name in names {
                    self.delete::<ControllerRevision>(&name, None, "forget a revision").await?;
                }
            }
        }
        Ok(None)
    }

    /// Nothing would be asked for: it was done, and nobody has touched what came of it.
    #[must_use]
    pub fn is_done(&self, act: &Act) -> bool {
        match act {
            Act::Apply { children, .. } => {
                let (now, digest) = (self.context.now(), digest(children));
                self.with_memory(|memory| memory.is_applied(digest, now))
            }
            _ => false,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.context.client.clone(), &self.identity.namespace)
    }

    async fn plan(&self, children: &PlanChildren) -> Result<(), Error> {
        tracing::info!(pod = children.pod.name_any(), "the worker image plans the pipeline");
        self.create(&children.config_map, "create the ConfigMap of the plan pod").await?;
        match self.api::<Pod>().create(&as_us(), &children.pod).await {
            Ok(_) => Ok(()),
            // Whose it is shows the next look.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Err(Error::Changed("the plan pod")),
            Err(source) => Err(Error::act("create the plan pod", "a child", source)),
        }
    }

    async fn delete_plan(&self, name: &str, uid: Option<String>, outcome: PlanOutcome) -> Result<(), Error> {
        // The pod last: as long as it is there, whoever takes over from a killed operator sees that both have to go.
        self.delete::<ConfigMap>(name, None, "delete the ConfigMap of the plan pod").await?;
        self.delete::<Pod>(name, uid, "delete the plan pod").await?;
        self.context.metrics.planned(outcome);
        if outcome == PlanOutcome::Failed {
            self.with_memory(|memory| memory.plan_failed(self.target));
        }
        Ok(())
    }

    /// Brokers that refuse are reported like brokers that cannot be asked: by `BrokerCompatible`, and again after its backoff.
    async fn create_topics(&self, topics: Vec<fencepost_plan::validate::TopicToCreate>) -> Option<Note> {
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        let broker = self.context.broker.as_ref();
        match broker::create_topics(&self.context.client, broker, &self.key.0, &self.seen.job.spec, topics).await {
            Ok(()) => {
                self.with_memory(JobMemory::forget_broker);
                let text = format!("created: {}", names.join(", "));
                Some(note(NoteKind::Normal, "TopicsCreated", "CreateTopics", &text))
            }
            Err(mut failure) => {
                failure.message = format!("cannot create topics {}: {}", names.join(", "), failure.message);
                let answer = BrokerObserved::Failed(failure);
                self.with_memory(|memory| memory.broker_answered(self.target, self.context.now(), answer));
                None
            }
        }
    }

    /// Nothing is kept that could not start: the API server checks what the schema of a StreamJob cannot, such as limits below
    /// requests, and what admission policies say.
    async fn accept(&self, revision: &ControllerRevision, trial: &Children) -> Result<(), Error> {
        match self.dry_run(trial).await {
            Ok(()) => self.create(revision, "keep the revision").await,
            Err(error) if error.is_refusal() => {
                tracing::warn!(error = chain(&error), "the newest spec is refused");
                self.with_memory(|memory| memory.children_refused(self.target, self.context.now(), chain(&error)));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn dry_run(&self, trial: &Children) -> Result<(), Error> {
        let Children { service_account, config_map: _, service, disruption_budget, stateful_set } = trial;
        self.try_patch(service_account, "have a ServiceAccount").await?;
        self.try_patch(service, "have a Service").await?;
        self.try_patch(disruption_budget, "have a PodDisruptionBudget").await?;
        self.try_patch(stateful_set, "have a StatefulSet").await
    }

    async fn scale_to_zero(&self, name: &str, uid: &str, resource_version: &str) -> Result<(), Error> {
        tracing::info!(stateful_set = name, "workers commit and stop");
        let patch = json!({
            "metadata": { "uid": uid, "resourceVersion": resource_version },
            "spec": { "replicas": 0 },
        });
        self.api::<StatefulSet>()
            .patch(
                name,
                &PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() },
                &Patch::Merge(&patch),
            )
            .await
            .map(|_| ())
            .map_err(|source| Error::act("stop the workers", "the StatefulSet", source))
    }

    /// Brokers that refuse are reported by `Degraded`, and asked again with the next decision.
    async fn fence(&self, fence: Fence) -> Result<Option<Note>, Error> {
        let (client, broker) = (&self.context.client, self.context.broker.as_ref());
        let is_deleted = self.seen.job.metadata.deletion_timestamp.is_some();
        // With the job, its Secrets may have been deleted, as they are with a namespace.
        let known = if is_deleted { self.with_memory(|memory| memory.known()) } else { None };
        let Fenced { ids, failed } =
            broker::fence(client, broker, &self.key.0, known, &fence, || Box::pin(self.look())).await?;
        let told = (!ids.is_empty()).then(|| {
            let aborted = match decide::open(&ids) {
                0 => "no transaction was open".to_owned(),
                1 => "1 open transaction is aborted".to_owned(),
                open => format!("{open} open transactions are aborted"),
            };
            let text = format!("{} transactional ids of workers that are gone are fenced, {aborted}", ids.len());
            note(NoteKind::Normal, "IdsFenced", "Fence", &text)
        });
        let Fence { operation, ordinals, set, .. } = fence;
        let observed = FenceObserved { operation, ordinals, set, at: self.context.now(), done: ids, failed };
        self.with_memory(|memory| memory.fenced(observed));
        Ok(told)
    }

    /// Brokers that do not answer are reported by `Degraded`, and asked again with the next decision.
    async fn read_positions(&self, question: ReadPositions) {
        let (client, broker) = (&self.context.client, self.context.broker.as_ref());
        let ReadPositions { purpose, kafka, group } = question;
        let found = broker::positions(client, broker, &self.key.0, &kafka, group).await;
        self.with_memory(|memory| memory.positions_read(PositionsObserved { purpose, found }));
    }

    /// Brokers know no precondition, so the journal is looked at just before the ids are fenced: whoever has changed it may have started workers with
    /// them. The look counts until the moment that it gives: this process may stand still after it, and somebody else take over.
    async fn look(&self) -> Result<Instant, Error> {
        let until = Instant::now() + FRESH;
        let there = self.api::<StreamJob>().get_metadata_opt(&self.identity.name).await;
        let there = there.map_err(|source| Error::Read { what: "the StreamJob", source: Box::new(source) })?;
        if there.and_then(|job| job.resource_version()) != self.version {
            return Err(Error::Changed("the StreamJob"));
        }
        Ok(until)
    }

    /// Adds or removes ours. Nothing but metadata is written.
    async fn set_finalizers(&self, held: bool) -> Result<(), Error> {
        let what = if held { "hold the StreamJob" } else { "let the StreamJob go" };
        let others = self.seen.job.finalizers().iter().filter(|finalizer| *finalizer != names::FINALIZER);
        let ours = held.then(|| names::FINALIZER.to_owned());
        let finalizers: Vec<String> = others.cloned().chain(ours).collect();
        let patch = json!({ "metadata": { "resourceVersion": self.version, "finalizers": finalizers } });
        let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
        match self.api::<StreamJob>().patch_metadata(&self.identity.name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(error) if !held && is_not_found(&error) => Ok(()),
            Err(source) => Err(Error::act(what, "the StreamJob", source)),
        }
    }

    async fn apply(&self, children: Children, seen: Option<Seen>) -> Result<(), Error> {
        let now = self.context.now();
        let digest = digest(&children);
        if self.with_memory(|memory| memory.is_applied(digest, now)) {
            return Ok(());
        }
        self.with_memory(|memory| memory.applying(digest, now));
        self.patch(&children.service_account, "apply the ServiceAccount").await?;
        self.create(&children.config_map, "create the ConfigMap").await?;
        self.patch(&children.service, "apply the Service").await?;
        self.patch(&children.disruption_budget, "apply the PodDisruptionBudget").await?;
        let mut stateful_set = children.stateful_set;
        let what = "apply the StatefulSet";
        match seen {
            Some(Seen { uid, resource_version }) => {
                stateful_set.metadata.uid = Some(uid);
                stateful_set.metadata.resource_version = Some(resource_version);
                self.patch(&stateful_set, what).await?;
            }
            None => {
                self.expect_none(&stateful_set.name_any()).await?;
                // Nothing is asked in between: the look would be old.
                self.send(&stateful_set, &as_applied(), what).await?;
            }
        }
        self.prune(&children.config_map.name_any()).await
    }

    /// An apply cannot say that there must be nothing yet, and would go over what another leader has made meanwhile. So it is looked at once more, and
    /// that look counts for a moment only.
    async fn expect_none(&self, name: &str) -> Result<(), Error> {
        let until = Instant::now() + FRESH;
        let there = self.api::<StatefulSet>().get_metadata_opt(name).await;
        let there = there.map_err(|source| Error::Read { what: "the StatefulSet", source: Box::new(source) })?;
        if there.is_some() || Instant::now() > until {
            return Err(Error::Changed("the StatefulSet"));
        }
        Ok(())
    }

    /// Other children have one name for ever. ConfigMaps carry the revision; when this runs, no worker of another revision lives. Those of plan pods
    /// are left over when the operator was killed before it made the pod.
    async fn prune(&self, keep: &str) -> Result<(), Error> {
        let planning = plan_name(&self.identity.name, self.target);
        let keep = [keep, planning.as_str()];
        let selector = labels::job_selector_text(&self.identity.name);
        let found = self
            .api::<ConfigMap>()
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|source| Error::Read { what: "ConfigMaps", source: Box::new(source) })?;
        for old in found.items {
            let name = old.name_any();
            if !keep.contains(&name.as_str()) && self.identity.owns(old.owner_references()) {
                self.delete::<ConfigMap>(&name, old.uid(), "delete the ConfigMap of an old revision").await?;
            }
        }
        Ok(())
    }

    async fn replace(&self, replace: Replace) -> Result<Option<Note>, Error> {
        tracing::warn!(pod = replace.pod, why = replace.why, "a worker is replaced");
        self.delete::<Pod>(&replace.pod, Some(replace.uid), "replace a worker").await?;
        self.context.metrics.replaced(replace.cause);
        let text = format!("worker {} is replaced: {}", replace.pod, replace.why);
        Ok(Some(match replace.cause {
            Cause::Crash => {
                self.with_memory(|memory| memory.replaced(&replace.pod, self.context.now()));
                note(NoteKind::Warning, "WorkerReplaced", "Replace", &text)
            }
            Cause::Credentials => note(NoteKind::Normal, "CredentialsChanged", "Replace", &text),
        }))
    }

    fn with_memory<T>(&self, work: impl FnOnce(&mut JobMemory) -> T) -> T {
        self.context.memory.with(&self.key, &self.identity.uid, work)
    }

    async fn patch<K>(&self, child: &K, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply_as(child, &as_applied(), what).await
    }

    async fn try_patch<K>(&self, child: &K, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply_as(child, &as_applied().dry_run(), what).await
    }

    async fn apply_as<K>(&self, child: &K, params: &PatchParams, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.refuse_foreign(child).await?;
        self.send(child, params, what).await
    }

    async fn send<K>(&self, child: &K, params: &PatchParams, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.api::<K>()
            .patch(&child.name_any(), params, &Patch::Apply(child))
            .await
            .map(|_| ())
            .map_err(|source| Error::act(what, "a child", source))
    }

    /// Server-side apply takes over whatever has the name: the ServiceAccount `default` for a job of that name. What somebody else made
    /// stays as it is.
    async fn refuse_foreign<K>(&self, child: &K) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let name = child.name_any();
        let there = self.api::<K>().get_metadata_opt(&name).await;
        let there = there.map_err(|source| Error::Read { what: "a child", source: Box::new(source) })?;
        match there {
            Some(there) if !self.identity.owns(there.owner_references()) => {
                Err(Error::Foreign { kind: K::kind(&()).into_owned(), name })
            }
            _ => Ok(()),
        }
    }

    /// Creates an object that never changes. One that is there already and ours is as good.
    async fn create<K>(&self, child: &K, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api = self.api::<K>();
        match api.create(&as_us(), child).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get_opt(&child.name_any()).await.map_err(|source| Error::Read {
                    what: "an object that is there already",
                    source: Box::new(source),
                })?;
                // An object of an earlier job of this name goes away with it.
                let ours = there.is_some_and(|there| self.identity.owns(there.owner_references()));
                if ours { Ok(()) } else { Err(Error::Changed("an object of an earlier job")) }
            }
            Err(source) => Err(Error::act(what, "a child", source)),
        }
    }

    async fn delete<K>(&self, name: &str, uid: Option<String>, what: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.api::<K>().delete(name, &params).await {
            Ok(_) => Ok(()),
            // Gone, or another instance: what was meant does not exist any more.
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(source) => Err(Error::act(what, "a child", source)),
        }
    }
}

fn as_applied() -> PatchParams {
    PatchParams::apply(names::MANAGER).force()
}

fn as_us() -> PostParams {
    PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() }
}

fn digest(children: &Children) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Children { service_account, config_map, service, disruption_budget, stateful_set } = children;
    for text in [
        serde_json::to_string(service_account),
        serde_json::to_string(config_map),
        serde_json::to_string(service),
        serde_json::to_string(disruption_budget),
        serde_json::to_string(stateful_set),
    ] {
        text.unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}
