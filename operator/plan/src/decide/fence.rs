//! Transactional ids of workers that are gone.
//!
//! A worker that was killed in a transaction leaves it open, and every `read_committed` reader waits behind it until the transaction
//! timeout. One that is gone for Kubernetes may still run on a node that was cut off. A fence (InitProducerId) ends both: open
//! transactions are aborted, and whatever an older producer still sends is refused.
//!
//! ```text
//!   a new revision:    all old pods gone ──▶ fence every id that ever was ──▶ epoch+1
//!   fewer workers:     surplus pods gone ──▶ fence their ids ──▶ the operation ends
//! ```
//!
//! `status.transactions.idsInUse` says for which ids this is owed. Only ids of workers without a pod are ever fenced, so a fence that is
//! done twice, because the operator died in between, harms nobody.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use fencepost_crds::{
    conditions::Reason,
    names,
    v1alpha1::{FenceStatus, FencedId, Guarantee, KafkaSpec, TransactionsStatus},
};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube_core::ResourceExt;

use super::{Case, Progress, rollout};
use crate::{
    observed::{BrokerFailure, BrokerObserved, FenceObserved},
    pods::elapsed,
    report,
    revision::{AcceptedRevision, RunSpec, newest_first},
};

/// How many ids are listed in the status.
const LISTED: usize = 100;
/// How many ids are fenced by one act. Each takes the brokers a write of their log.
const AT_ONCE: usize = 200;
/// How long the cluster that has the ids is looked for, when the newest spec leads to another one.
const SEARCH: Duration = Duration::from_mins(2);
/// The brokers' word for an open transaction.
const OPEN: &str = "Ongoing";

/// Ids to fence.
#[derive(Clone, Debug, PartialEq)]
pub struct Fence {
    /// The operation that it is a step of.
    pub operation: String,
    /// The workers whose ids they are.
    pub ordinals: Range<u32>,
    /// The ids.
    pub ids: Vec<String>,
    /// How to reach the brokers. The first that leads to the right cluster is taken.
    pub kafka: Vec<KafkaSpec>,
    /// The cluster on which the ids were used. `None`: it was never told.
    pub cluster_id: Option<String>,
    /// The StatefulSet as it was seen: who changes it may make workers that come and go between two looks.
    pub set: Option<(String, i64)>,
}

/// What a decision found out about fences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fencing {
    /// Done since the last decision.
    pub done: Option<FenceStatus>,
    /// Only ids of ordinals below this can have open transactions, as far as fences can tell.
    pub in_use: Option<i32>,
    /// Owed, and it failed.
    pub failed: Option<BrokerFailure>,
    /// Who may use ids from now on.
    pub used: Option<Used>,
}

/// Workers that are applied and have transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    workers: i32,
    slots: i32,
    /// They are another start than those before.
    fresh: bool,
}

/// Where a fence stands.
pub(super) enum Owed {
    /// There is none.
    Nothing,
    /// Workers have to go first.
    Later,
    /// It is to be done.
    Now(Fence),
}

/// The marks of the journal.
struct Marks {
    workers: i32,
    slots: i32,
    in_use: i32,
}

impl Marks {
    /// Operators that knew no fences kept only the number of workers, also for jobs without transactions.
    fn of(case: &Case<'_>) -> Self {
        let old = case.old.transactions.as_ref();
        let of_accepted = case.seen.accepted.iter().map(|accepted| accepted.spec.worker.slots).max();
        let workers = old.and_then(|old| old.ids_high_water).unwrap_or(0);
        let legacy = if running(case).is_some_and(is_transactional) { workers } else { 0 };
        Self {
            workers,
            slots: old.and_then(|old| old.slots_high_water).or(of_accepted).unwrap_or(1).max(1),
            in_use: old.and_then(|old| old.ids_in_use).unwrap_or(legacy),
        }
    }
}

fn is_transactional(accepted: &AcceptedRevision) -> bool {
    accepted.spec.processing.guarantee == Guarantee::ExactlyOnce
}

/// Some revision that is still known has used ids.
fn had_transactions(case: &Case<'_>) -> bool {
    case.seen.accepted.iter().any(is_transactional)
}

/// The number of workers that the pods there amount to, if they use ids.
fn there(case: &Case<'_>) -> Option<i32> {
    let ordinal = case.pods.iter().filter_map(|pod| pod.ordinal).max()?;
    let workers = i32::try_from(ordinal).map_or(i32::MAX, |ordinal| ordinal.saturating_add(1));
    running(case).map_or_else(|| had_transactions(case), is_transactional).then_some(workers)
}

/// The revision that is journaled as running.
fn running<'a>(case: &'a Case<'_>) -> Option<&'a AcceptedRevision> {
    let current = case.old.revision.as_ref()?.current.as_deref()?;
    case.seen.accepted.iter().find(|accepted| accepted.revision.as_str() == current)
}

/// All pods are gone: what is owed before workers of another start may come.
pub(super) fn before_a_start(case: &Case<'_>, run: &RunSpec, operation: String, progress: &mut Progress) -> Owed {
    let marks = Marks::of(case);
    if marks.in_use <= 0 {
        return Owed::Nothing;
    }
    owed(case, run, operation, &marks, 0..marks.workers.max(marks.in_use), progress)
}

/// What is owed because the number of workers fell.
pub(super) fn of_surplus(
    case: &Case<'_>,
    run: &RunSpec,
    set: Option<&StatefulSet>,
    operation: String,
    progress: &mut Progress,
) -> Owed {
    let marks = Marks::of(case);
    let wanted = progress.replicas;
    if marks.in_use <= wanted {
        return Owed::Nothing;
    }
    let is_surplus = |ordinal: Option<u32>| ordinal.is_none_or(|ordinal| i64::from(ordinal) >= i64::from(wanted));
    // Nobody may still make such a pod either.
    let none_comes = set.is_some_and(|set| rollout::wanted(set) == Some(wanted) && rollout::is_observed(set));
    if !none_comes || case.pods.iter().any(|pod| is_surplus(pod.ordinal)) {
        return Owed::Later;
    }
    owed(case, run, operation, &marks, wanted..marks.in_use, progress)
}

fn owed(
    case: &Case<'_>,
    run: &RunSpec,
    operation: String,
    marks: &Marks,
    workers: Range<i32>,
    progress: &mut Progress,
) -> Owed {
    let number = |number: i32| u32::try_from(number).unwrap_or(0);
    let ordinals = number(workers.start)..number(workers.end);
    let prefix = &run.resolved.transactional_id_prefix;
    let slots = 0..number(marks.slots);
    let of_worker = |ordinal: u32| slots.clone().map(move |slot| names::transactional_id(prefix, ordinal, slot));
    let mut ids: Vec<String> = ordinals.clone().flat_map(of_worker).collect();

    let set = case.seen.stateful_set.as_ref();
    let set = set.map(|set| (set.uid().unwrap_or_default(), set.metadata.generation.unwrap_or(0)));
    let of_this = |seen: &&FenceObserved| seen.operation == operation && seen.ordinals == ordinals && seen.set == set;
    let seen = case.seen.fence.as_ref().filter(of_this);
    let done = seen.map(|seen| seen.done.as_slice()).unwrap_or_default();
    let names: BTreeSet<&str> = done.iter().map(|done| done.id.as_str()).collect();
    ids.retain(|id| !names.contains(id.as_str()));
    let failed = seen.and_then(|seen| seen.failed.as_ref());
    let given_up = failed.filter(|failed| failed.reason == Reason::OtherCluster && has_lasted(case, SEARCH));
    if ids.is_empty() || given_up.is_some() {
        progress.fencing.done = Some(FenceStatus {
            operation: Some(operation),
            at: Some(report::time(seen.map_or(case.seen.now, |seen| seen.at))),
            ids: Some(count(done.len())),
            open: Some(count(open(done))),
            fenced: done.iter().take(LISTED).cloned().collect(),
            error: given_up.map(|failed| failed.message.clone()),
        });
        progress.fencing.in_use = Some(workers.start);
        return Owed::Nothing;
    }
    progress.fencing.failed = failed.cloned();
    ids.truncate(AT_ONCE);
    let cluster_id = case.old.transactions.as_ref().and_then(|old| old.cluster_id.clone());
    Owed::Now(Fence { operation, ids, ordinals, kafka: ways(case, progress, cluster_id.is_some()), cluster_id, set })
}

/// The step that is under way began so long ago.
fn has_lasted(case: &Case<'_>, limit: Duration) -> bool {
    let began = case.old.operation.as_ref().and_then(|operation| operation.started_at.as_deref()?.parse().ok());
    began.is_some_and(|began| elapsed(began, case.seen.now) >= limit)
}

/// The newest settings are known to work, but may lead to another cluster than the one that the ids are on. When that was never told, only the
/// settings of the workers lead there for sure.
fn ways(case: &Case<'_>, progress: &Progress, is_known: bool) -> Vec<KafkaSpec> {
    let ranked = newest_first(&case.seen.accepted);
    let current = ranked.iter().find(|old| Some(&old.revision) == progress.current.as_ref()).copied();
    let newest = ranked.first().copied().filter(|_| is_known || current.is_none());
    let mut ways: Vec<KafkaSpec> = newest.into_iter().chain(current).map(|it| it.spec.kafka.clone()).collect();
    if ways.is_empty() {
        // A job that is deleted may have lost its revisions to the garbage collector.
        ways.push(case.seen.job.spec.kafka.clone());
    }
    ways.dedup();
    ways
}

/// Number of ids whose transaction was open.
#[must_use]
pub fn open(ids: &[FencedId]) -> usize {
    let is_open = |id: &&FencedId| id.before.as_ref().is_some_and(|before| before.state.as_deref() == Some(OPEN));
    ids.iter().filter(is_open).count()
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Workers of this revision are applied: what they may use.
pub(super) fn uses(run: &RunSpec, workers: i32, fresh: bool) -> Option<Used> {
    let slots = i32::try_from(run.resolved.slots).unwrap_or(i32::MAX);
    (run.resolved.guarantee == Guarantee::ExactlyOnce).then_some(Used { workers, slots, fresh })
}

/// The marks rise before more workers are asked for, so that they cover every id that ever reached a broker. Pods that somebody else has
/// asked for count too.
pub(crate) fn journal(case: &Case<'_>, progress: &Progress) -> TransactionsStatus {
    let old = case.old.transactions.clone().unwrap_or_default();
    let Fencing { done, in_use, used, .. } = progress.fencing.clone();
    let rise = |mark: Option<i32>, to: Option<i32>| mark.into_iter().chain(to).max();
    let workers = rise(used.map(|used| used.workers), there(case));
    let legacy = old.ids_high_water.filter(|_| running(case).is_some_and(is_transactional));
    TransactionsStatus {
        prefix: Some(case.target.resolved.transactional_id_prefix.clone()),
        ids_high_water: rise(old.ids_high_water, workers),
        slots_high_water: rise(old.slots_high_water, used.map(|used| used.slots)),
        ids_in_use: rise(in_use.or(old.ids_in_use).or(legacy), workers),
        cluster_id: match used {
            // Ids of workers before are fenced: where those were does not matter any more.
            Some(used) if used.fresh => cluster_of(case, progress),
            Some(_) => cluster_of(case, progress).or(old.cluster_id),
            None => old.cluster_id,
        },
        last_fence: done.or(old.last_fence),
    }
}

/// What the brokers said concerns the newest spec; only when that runs it says where its ids are.
fn cluster_of(case: &Case<'_>, progress: &Progress) -> Option<String> {
    let newest_runs = case.target_is_accepted && progress.current.as_ref() == Some(&case.target.revision);
    match &case.seen.broker {
        BrokerObserved::Facts(facts) if newest_runs => facts.cluster_id.clone(),
        _ => None,
    }
}
