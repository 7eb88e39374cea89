//! Observing a job: everything is read from the API server itself, not from a cache, because decisions such as "no old worker is
//! left" must not rest on an old copy.

use std::collections::BTreeMap;

use fencepost_crds::{StreamJob, names};
use fencepost_plan::{
    AcceptedRevision, BrokerObserved, Fingerprints, Observed, PlanObserved, PlanPod, Revision, WorkerObserved,
    build::labels,
    revision::{self, newest_first, revision_of},
    secrets::SecretKeys,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::Pod,
};
use kube::{Api, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::{broker, controller::Context, error::Error, memory::JobKey, plan_pod, worker};

/// What the API server has of a job, besides the job.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    accepted: Vec<AcceptedRevision>,
    newest_number: i64,
    stateful_set: Option<StatefulSet>,
    pods: Vec<Pod>,
    plan_pods: Vec<Pod>,
}

/// Reads everything that belongs to a job.
///
/// # Errors
/// The API server does not answer.
pub async fn objects(context: &Context, job: &StreamJob) -> Result<Objects, Error> {
    let namespace = job.namespace().unwrap_or_default();
    let name = job.name_any();
    // First: a pod that its controller makes before it says that it has seen the newest spec must not be missed.
    let stateful_set = stateful_set(context, &namespace, &name).await?;
    let (revisions, pods, plan_pods) = tokio::try_join!(
        list::<ControllerRevision>(context, &namespace, labels::revision_selector_text(&name), "ControllerRevisions"),
        list::<Pod>(context, &namespace, labels::worker_selector_text(&name), "workers"),
        list::<Pod>(context, &namespace, labels::pod_selector_text(&name, names::ROLE_PLAN), "plan pods"),
    )?;
    let uid = job.uid().unwrap_or_default();
    let numbers = revisions.iter().filter(|revision| is_of(revision, &uid)).map(|revision| revision.revision);
    let newest_number = numbers.max().unwrap_or(0);
    Ok(Objects { accepted: accepted(&revisions, &uid), newest_number, stateful_set, pods, plan_pods })
}

/// The job as observed, and the revision that was asked about: brokers and workers are asked where it is time to.
pub async fn observe(context: &Context, job: StreamJob, objects: Objects) -> (Observed, Revision) {
    let Objects { accepted, newest_number, stateful_set, pods, plan_pods } = objects;
    let namespace = job.namespace().unwrap_or_default();
    let uid = job.uid().unwrap_or_default();
    let key: JobKey = (namespace.clone(), job.name_any());
    let now = context.now();
    let counts = job.status.as_ref().and_then(|status| status.verification.as_ref()?.since.as_ref()).is_some();
    context.memory.with(&key, &uid, |memory| memory.watch_brokers(counts));
    let target = revision_of(&job.spec, &accepted);
    let newest = newest_first(&accepted).into_iter().next();
    let is_running = newest.is_some_and(|newest| newest.revision == target);
    // Before the brokers are asked: an answer to old credentials says nothing about new ones.
    let wanted = revision::secrets(newest.map_or(&job.spec, |newest| &newest.spec));
    let secrets = credentials(context, &key, &uid, &wanted).await;
    let (broker, workers, plan_pods, rivals) = tokio::join!(
        broker(context, &key, &uid, &job, &target, is_running),
        workers(context, &key, &uid, &pods),
        answers(context, &namespace, plan_pods),
        context.jobs.rivals(&job),
    );
    let facts = fencepost_plan::pods::workers(&pods);
    let remembered = context.memory.with(&key, &uid, |memory| {
        let refusals = (memory.refused_act(), memory.refused_children(&target, now));
        let replacements = memory.replacements(&facts, job.spec.replicas, now);
        let gone = (memory.fence(&facts), memory.positions(&facts));
        (memory.plan_failures(&target), replacements, gone, refusals)
    });
    let (failures, replacements, (fence, positions), (refused_act, refused_children)) = remembered;
    let seen = Observed {
        now,
        settings: context.settings.clone(),
        job,
        accepted,
        newest_number,
        stateful_set,
        pods,
        plan: PlanObserved { pods: plan_pods, failures },
        broker,
        rivals,
        workers,
        replacements,
        secrets,
        fence,
        positions,
        refused_act,
        refused_children,
    };
    (seen, target)
}

async fn list<K>(context: &Context, namespace: &str, selector: String, what: &'static str) -> Result<Vec<K>, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::namespaced(context.client.clone(), namespace);
    let found = api.list(&ListParams::default().labels(&selector)).await;
    found.map(|list| list.items).map_err(|source| Error::Read { what, source: Box::new(source) })
}

async fn stateful_set(context: &Context, namespace: &str, name: &str) -> Result<Option<StatefulSet>, Error> {
    let api = Api::<StatefulSet>::namespaced(context.client.clone(), namespace);
    api.get_opt(&names::child(name))
        .await
        .map_err(|source| Error::Read { what: "the StatefulSet", source: Box::new(source) })
}

fn is_of(revision: &ControllerRevision, uid: &str) -> bool {
    revision.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Revisions of this job. One that cannot be read is as good as none: the newest spec is checked again and kept anew.
fn accepted(revisions: &[ControllerRevision], uid: &str) -> Vec<AcceptedRevision> {
    revisions
        .iter()
        .filter(|revision| is_of(revision, uid))
        .filter_map(|revision| {
            AcceptedRevision::read(revision)
                .inspect_err(|error| {
                    tracing::warn!(error = crate::error::chain(error), "a kept revision is not readable");
                })
                .ok()
        })
        .collect()
}

async fn broker(
    context: &Context,
    key: &JobKey,
    uid: &str,
    job: &StreamJob,
    target: &Revision,
    is_running: bool,
) -> BrokerObserved {
    if job.metadata.deletion_timestamp.is_some() {
        // They have nothing to allow any more.
        return BrokerObserved::NotAsked;
    }
    let now = context.now();
    if let Some(known) = context.memory.with(key, uid, |memory| memory.broker(target, now)) {
        return known;
    }
    // What runs already is looked after first: brokers that are away take their time to say nothing.
    let last = context.memory.with(key, uid, |memory| memory.last_broker(target));
    match last.filter(|_| is_running) {
        Some(last) => last,
        None => ask(context, key, uid, job, target).await,
    }
}

/// Asks brokers whose answer about a running revision is old. True: they answered something else than before.
pub async fn refresh(context: &Context, job: &StreamJob, target: &Revision) -> bool {
    if job.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let key: JobKey = (job.namespace().unwrap_or_default(), job.name_any());
    let uid = job.uid().unwrap_or_default();
    let now = context.now();
    let (fresh, last) =
        context.memory.with(&key, &uid, |memory| (memory.broker(target, now), memory.last_broker(target)));
    let Some(last) = last.filter(|_| fresh.is_none()) else { return false };
    ask(context, &key, &uid, job, target).await != last
}

async fn ask(context: &Context, key: &JobKey, uid: &str, job: &StreamJob, target: &Revision) -> BrokerObserved {
    let (answer, known) = broker::observe(&context.client, context.broker.as_ref(), &key.0, &key.1, &job.spec).await;
    context.metrics.broker_checked(&answer);
    context.memory.with(key, uid, |memory| {
        memory.broker_answered(target, context.now(), answer.clone());
        memory.reached(known);
    });
    answer
}

async fn credentials(context: &Context, key: &JobKey, uid: &str, wanted: &SecretKeys) -> Fingerprints {
    let now = context.now();
    if let Some(known) = context.memory.with(key, uid, |memory| memory.secrets(wanted, now)) {
        return known;
    }
    let seen = broker::fingerprints(&context.client, &key.0, wanted).await;
    context.memory.with(key, uid, |memory| memory.secrets_read(wanted, now, seen.clone()));
    seen
}

async fn workers(context: &Context, key: &JobKey, uid: &str, pods: &[Pod]) -> BTreeMap<String, WorkerObserved> {
    let now = context.now();
    if let Some(known) = context.memory.with(key, uid, |memory| memory.workers(now)) {
        return known;
    }
    let answers = worker::ask(context.workers.as_ref(), pods).await;
    context.memory.with(key, uid, |memory| memory.workers_answered(now, answers.clone()));
    answers
}

async fn answers(context: &Context, namespace: &str, pods: Vec<Pod>) -> Vec<PlanPod> {
    let api = Api::<Pod>::namespaced(context.client.clone(), namespace);
    let api = &api;
    stream::iter(pods)
        .then(|pod| async move { PlanPod { report: plan_pod::answer(api, &pod).await, pod } })
        .collect()
        .await
}
