//! The loop: one pass per change of a job or of something that belongs to it.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use fencepost_crds::{StreamJob, names};
use fencepost_plan::{
    Decision, Identity, Observed, Revision, Settings, decide,
    events::{Note, NoteKind, note},
};
use futures::StreamExt;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::{ConfigMap, Pod, Service, ServiceAccount},
        policy::v1::PodDisruptionBudget,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{DeserializeGuard, NamespaceResourceScope, error_boundary::InvalidObject},
    runtime::{
        Controller,
        controller::{Action, Config, Error as ControllerError},
        reflector::ObjectRef,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    act::Acts,
    broker::BrokerProbe,
    error::{Error, chain},
    events::Events,
    jobs::AllJobs,
    memory::{JobKey, JobMemory, Memory},
    metrics::Metrics,
    observe, status,
    worker::WorkerProbe,
};

/// A reconciliation that takes longer is given up: the client retries by itself, possibly for a long time.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);
/// Changes that come in a burst are looked at once.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The next step can be done.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How soon a job is looked at again that someone else changed meanwhile.
const CHANGED: Duration = Duration::from_millis(150);

/// What reconciliations share.
pub struct Context {
    /// API server.
    pub client: Client,
    /// How the operator was installed.
    pub settings: Settings,
    /// Brokers.
    pub broker: Box<dyn BrokerProbe>,
    /// Workers.
    pub workers: Box<dyn WorkerProbe>,
    /// Events, without repetitions.
    pub events: Events,
    /// Who else is there.
    pub jobs: AllJobs,
    /// Hints that may be lost.
    pub memory: Memory,
    /// Metrics.
    pub metrics: Metrics,
    /// The clock.
    pub clock: fn() -> Timestamp,
}

impl Context {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    async fn publish(&self, job: &DeserializeGuard<StreamJob>, note: Note) {
        let (namespace, name) = key_of(job);
        match note.kind {
            NoteKind::Normal => tracing::info!(namespace, job = name, reason = note.reason, "{}", note.text),
            NoteKind::Warning => tracing::warn!(namespace, job = name, reason = note.reason, "{}", note.text),
        }
        if let Err(error) = self.events.publish(&job.object_ref(&()), &note, self.now()).await {
            tracing::warn!(
                namespace,
                job = name,
                error = chain(&error),
                reason = note.reason,
                "an event cannot be published"
            );
        }
    }
}

/// The controller of one namespace, or of all, which runs until `stop`. All are made before the first of them runs.
pub fn run<S>(
    context: Arc<Context>,
    namespace: Option<&str>,
    concurrency: u16,
    stop: S,
) -> impl Future<Output = ()> + Send + use<S>
where
    S: Future<Output = ()> + Send + Sync + 'static,
{
    let jobs = api::<DeserializeGuard<StreamJob>>(&context.client, namespace);
    let mut controller = Controller::new(jobs, watcher::Config::default())
        .with_config(Config::default().concurrency(concurrency).debounce(DEBOUNCE));
    controller = watch::<StatefulSet>(controller, &context, namespace);
    controller = watch::<Pod>(controller, &context, namespace);
    controller = watch::<ConfigMap>(controller, &context, namespace);
    controller = watch::<ControllerRevision>(controller, &context, namespace);
    controller = watch::<Service>(controller, &context, namespace);
    controller = watch::<ServiceAccount>(controller, &context, namespace);
    controller = watch::<PodDisruptionBudget>(controller, &context, namespace);
    context.jobs.add(controller.store());
    controller.graceful_shutdown_on(stop).run(reconcile, again, Arc::clone(&context)).for_each(move |outcome| {
        if let Err(ControllerError::ObjectNotFound(gone)) = &outcome {
            let key = (gone.namespace.clone().unwrap_or_default(), gone.name.clone());
            context.memory.forget(&key);
            context.metrics.forget(&key);
            tracing::debug!(namespace = key.0, job = key.1, "the job is gone");
        } else if let Err(ControllerError::QueueError(error)) = &outcome {
            context.memory.watch_interrupted();
            tracing::warn!(error = chain(error), "a watch was interrupted");
        }
        std::future::ready(())
    })
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// Watches the objects of one kind that the operator made. Only their metadata is kept. The label says whose they are: pods of a StatefulSet do
/// not have the job as their owner.
fn watch<K>(
    controller: Controller<DeserializeGuard<StreamJob>>,
    context: &Arc<Context>,
    namespace: Option<&str>,
) -> Controller<DeserializeGuard<StreamJob>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let context_of_watch = Arc::clone(context);
    let ours = watcher::Config::default().labels(&format!("{}={}", names::LABEL_MANAGED_BY, names::MANAGER));
    controller.watches(api::<kube::core::PartialObjectMeta<K>>(&context.client, namespace), ours, move |child| {
        let job = child.labels().get(names::LABEL_JOB)?;
        let namespace = child.namespace()?;
        context_of_watch.memory.child_changed(&(namespace.clone(), job.clone()));
        Some(ObjectRef::new(job).within(&namespace))
    })
}

fn key_of(job: &DeserializeGuard<StreamJob>) -> JobKey {
    (job.namespace().unwrap_or_default(), job.name_any())
}

async fn reconcile(job: Arc<DeserializeGuard<StreamJob>>, context: Arc<Context>) -> Result<Action, Error> {
    let began = context.now();
    let outcome = tokio::time::timeout(RECONCILE_TIMEOUT, Box::pin(pass(&job, &context)))
        .await
        .unwrap_or(Err(Error::TimedOut(RECONCILE_TIMEOUT.as_secs())));
    if outcome.is_err() {
        // It ended somewhere on the way: what was to be applied may not be.
        context.memory.child_changed(&key_of(&job));
    }
    let took = fencepost_plan::pods::elapsed(began, context.now());
    context.metrics.reconciled(outcome.as_ref().map_or_else(Error::label, |_| "ok"), took);
    outcome
}

/// Chosen by the error: a change by someone else is looked at again at once, anything else ever later.
#[expect(clippy::needless_pass_by_value, reason = "the signature that the controller asks for")]
fn again(job: Arc<DeserializeGuard<StreamJob>>, error: &Error, context: Arc<Context>) -> Action {
    let key = key_of(&job);
    if let Error::Changed(what) = error {
        tracing::debug!(namespace = key.0, job = key.1, what, "changed meanwhile, looking again");
        return Action::requeue(CHANGED);
    }
    let pause = context.memory.failed(&key);
    tracing::warn!(
        namespace = key.0,
        job = key.1,
        error = chain(error),
        pause = pause.as_secs_f64(),
        "a reconciliation failed"
    );
    Action::requeue(pause)
}

/// A job that nobody has touched since there was nothing to do. Time passes for it all the same, and its workers and brokers are asked; only if that
/// leads to something, the API server is.
async fn rest(cached: &DeserializeGuard<StreamJob>, context: &Context, key: &JobKey) -> Option<Action> {
    let job = cached.0.as_ref().ok()?.clone();
    let (uid, version) = (job.uid()?, job.resource_version());
    let now = context.now();
    let objects = context.memory.with(key, &uid, |memory| memory.calm(version.as_deref(), now))?;
    let (seen, target) = Box::pin(observe::observe(context, job, objects)).await;
    let (identity, decision) = (Identity::of(&seen.job).ok()?, decide(&seen).ok()?);
    let acts = Acts::new(context, &seen, identity, &target, version);
    if !is_nothing(&seen, &decision) || !decision.acts.iter().all(|act| acts.is_done(act)) {
        return None;
    }
    let ask_again = judged(context, key, &seen, &decision);
    Some(settled(context, key, (&seen, &target), &decision, ask_again).await)
}

/// All is said, and as it was said.
fn is_nothing(seen: &Observed, decision: &Decision) -> bool {
    seen.job.status.as_ref() == Some(&decision.status) && decision.notes.is_empty()
}

async fn pass(cached: &DeserializeGuard<StreamJob>, context: &Context) -> Result<Action, Error> {
    let key = key_of(cached);
    if let Some(action) = rest(cached, context, &key).await {
        return Ok(action);
    }
    let api = Api::<DeserializeGuard<StreamJob>>::namespaced(context.client.clone(), &key.0);
    // The status is the journal: an old copy of it could start a second generation.
    let fresh =
        api.get_opt(&key.1).await.map_err(|source| Error::Read { what: "the StreamJob", source: Box::new(source) })?;
    let Some(fresh) = fresh else { return Ok(Action::await_change()) };
    let job = match &fresh.0 {
        Ok(job) => job.clone(),
        Err(invalid) => {
            if fresh.meta().deletion_timestamp.is_some() {
                return let_go(context, &key, invalid).await;
            }
            context.metrics.invalid_object(&key);
            tracing::warn!(namespace = key.0, job = key.1, error = invalid.error, "a StreamJob cannot be read");
            let text =
                format!("this operator cannot read the object, so its workers are left alone: {}", invalid.error);
            context.publish(&fresh, note(NoteKind::Warning, "InvalidObject", "Read", &text)).await;
            return Ok(Action::await_change());
        }
    };
    context.metrics.valid_object(&key);
    let held = job.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER);
    if job.metadata.deletion_timestamp.is_some() && !held {
        // It waits for somebody else.
        return Ok(Action::await_change());
    }
    Box::pin(step(&fresh, job, context, &key)).await
}

/// Nobody can tell what an object that cannot be read has begun, and it must not stay for ever.
async fn let_go(context: &Context, key: &JobKey, invalid: &InvalidObject) -> Result<Action, Error> {
    let others = invalid.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != names::FINALIZER);
    let finalizers: Vec<&String> = others.collect();
    if Some(finalizers.len()) == invalid.metadata.finalizers.as_ref().map(Vec::len) {
        return Ok(Action::await_change());
    }
    tracing::warn!(
        namespace = key.0,
        job = key.1,
        "a StreamJob that cannot be read is deleted: its ids are not fenced"
    );
    let patch =
        json!({ "metadata": { "resourceVersion": invalid.metadata.resource_version, "finalizers": finalizers } });
    let api = Api::<StreamJob>::namespaced(context.client.clone(), &key.0);
    let done = api.patch_metadata(&key.1, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map(|_| Action::await_change()).map_err(|source| Error::act("let the StreamJob go", "the StreamJob", source))
}

async fn step(
    fresh: &DeserializeGuard<StreamJob>,
    job: StreamJob,
    context: &Context,
    key: &JobKey,
) -> Result<Action, Error> {
    let identity = Identity::of(&job).map_err(fencepost_plan::decide::DecideError::from)?;
    let uid = identity.uid.clone();
    let changes = context.memory.with(key, &uid, |memory| memory.changes());
    let objects = observe::objects(context, &job).await?;
    let (seen, target) = Box::pin(observe::observe(context, job, objects.clone())).await;
    let decision = decide(&seen)?;

    // First the journal, then the acts.
    let version = status::write(&context.client, &seen.job, &decision.status).await?;
    if decision.fence_is_over {
        context.memory.with(key, &uid, JobMemory::fence_journaled);
    }
    for note in &decision.notes {
        context.publish(fresh, note.clone()).await;
    }
    // Before the acts: making topics makes the answer out of date.
    let ask_again = judged(context, key, &seen, &decision);
    let acts = Acts::new(context, &seen, identity, &target, version.clone());
    let is_calm = is_nothing(&seen, &decision) && decision.acts.iter().all(|act| acts.is_done(act));
    let now = context.now();
    context.memory.with(key, &uid, |memory| match is_calm {
        true => memory.is_calm(version, changes, objects, now),
        false => memory.is_busy(),
    });
    let mut failed = None;
    for act in &decision.acts {
        match acts.perform(act.clone()).await {
            Ok(Some(note)) => context.publish(fresh, note).await,
            Ok(None) => {}
            // The rest was decided on what is not so any more.
            Err(error @ Error::Changed(_)) => return Err(error),
            // What is refused for the newest spec must not keep the running one from being looked after.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        context.memory.with(key, &uid, |memory| memory.act_refused(chain(&error)));
        return Err(error);
    }
    Ok(settled(context, key, (&seen, &target), &decision, ask_again).await)
}

/// What the brokers' answer amounts to, and when they are worth asking again.
fn judged(context: &Context, key: &JobKey, seen: &Observed, decision: &Decision) -> Option<Duration> {
    context.metrics.job(key, decision.replicas, &decision.status);
    let uid = seen.job.uid().unwrap_or_default();
    context.memory.with(key, &uid, |memory| memory.broker_judged(decision.brokers_allow, context.now()))
}

/// Everything that was decided is done: when to look again.
async fn settled(
    context: &Context,
    key: &JobKey,
    (seen, target): (&Observed, &Revision),
    decision: &Decision,
    ask_again: Option<Duration>,
) -> Action {
    let uid = seen.job.uid().unwrap_or_default();
    context.memory.with(key, &uid, JobMemory::succeeded);
    if observe::refresh(context, &seen.job, target).await {
        return Action::requeue(AT_ONCE);
    }
    let pause = ask_again.into_iter().fold(decision.look_again, Duration::min);
    Action::requeue(pause.max(AT_ONCE))
}

#[cfg(test)]
mod tests;
