//! Scenarios: what a user does, what the world does, what the operator makes of it.

mod approval;
mod restart;
mod rollback;
mod rotation;

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use fencepost_crds::{
    conditions::{ConditionType, Reason},
    names,
    v1alpha1::{FencedId, JobState, OperationType, Phase, Violation},
};
use kube_core::ResourceExt;
use proptest::prelude::*;
use rstest::rstest;

use super::Act;
use crate::{
    observed::{BrokerFailure, BrokerObserved, FenceObserved, Replacement, TopicFacts},
    ownership::Rival,
    pods::{self, PodFacts},
    secrets::Fingerprints,
    testing::{Ended, World, at, facts},
};

fn running() -> World {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "AllWorkersReady".to_owned()));
    world
}

/// A job with a password, which runs.
fn with_password() -> World {
    let mut world = World::new();
    let reference = |key: &str| serde_json::json!({ "name": "kafka-user", "key": key });
    world.edit(|spec| {
        spec["kafka"]["sasl"] = serde_json::json!({
            "mechanism": "SCRAM-SHA-512",
            "usernameSecretRef": reference("username"),
            "passwordSecretRef": reference("password"),
        });
    });
    world.secret("kafka-user", "first");
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "AllWorkersReady".to_owned()));
    world.events.clear();
    world
}

fn working(world: &World) -> usize {
    world.pods.iter().filter(|pod| PodFacts::of(pod).works()).count()
}

/// Names of the pods that started with the newest Secrets.
fn rotated(world: &World) -> Vec<String> {
    let newest =
        |pod: &&k8s_openapi::api::core::v1::Pod| Fingerprints::read(pod.metadata.annotations.as_ref()) == world.secrets;
    world.pods.iter().filter(newest).map(ResourceExt::name_any).collect()
}

fn sql(text: &str) -> impl FnOnce(&mut serde_json::Value) {
    let text = text.to_owned();
    move |spec| spec["pipeline"]["sql"] = text.into()
}

/// ```text
///  apply ─▶ plan pod ─▶ answer ─▶ accepted ─▶ epoch 1 ─▶ ready
/// ```
#[test]
fn a_new_job_is_planned_accepted_and_started_as_epoch_one() {
    let world = running();
    let status = world.job.status.clone().unwrap();
    assert_eq!((status.epoch, status.phase), (Some(1), Some(Phase::Running)));
    assert_eq!(status.workers.as_deref(), Some("2/2"));
    assert_eq!(status.transactions.unwrap().ids_high_water, Some(2));
    let revision = status.revision.unwrap();
    assert_eq!(revision.current, revision.target);
    assert!(status.operation.is_none());
    assert!(world.plans.is_empty(), "the plan pod is deleted after its answer");
    assert_eq!(world.events, ["Starting", "AllWorkersReady"]);
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
}

#[test]
fn nothing_starts_before_plan_and_brokers_have_answered() {
    let mut world = World::new();
    world.broker = BrokerObserved::NotAsked;
    world.settle();
    assert!(world.set.is_none() && world.epoch().is_none());
    assert_eq!(world.condition(ConditionType::SpecValid).0, "True");
    assert_eq!(world.condition(ConditionType::BrokerCompatible).0, "Unknown");
    world.broker = BrokerObserved::Facts(facts());
    world.settle();
    assert_eq!(world.epoch(), Some(1));
}

#[test]
fn a_steady_job_asks_for_nothing_but_what_is_there() {
    let world = running();
    let decision = world.decide();
    assert_eq!(Some(decision.status), world.job.status);
    assert!(matches!(decision.acts.as_slice(), [Act::Apply { .. }]), "{:?}", decision.acts);
    assert!(decision.notes.is_empty());
}

/// ```text
///  epoch 1 ─▶ new spec ─▶ planned beside it ─▶ Draining ─▶ last old pod gone ─▶ epoch 2
/// ```
#[test]
fn a_new_revision_starts_only_when_every_old_pod_is_gone() {
    let mut world = running();
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    for _ in 0..4 {
        world.operator(usize::MAX);
        world.kubelet_starts();
    }
    assert_eq!(world.job.status.as_ref().unwrap().phase, Some(Phase::Draining));
    assert_eq!(world.epoch(), Some(1));
    let why = world.message(ConditionType::Reconciling);
    assert!(why.ends_with("commit and stop: spend-0, spend-1. spec.pipeline.sql has changed"), "{why}");
    // Asked to stop, still alive.
    for _ in 0..3 {
        world.informer();
        world.set_controller();
        world.operator(usize::MAX);
    }
    assert!(world.pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()));
    assert_eq!((world.pods.len(), world.epoch()), (2, Some(1)));
    world.settle();
    assert_eq!(world.epoch(), Some(2));
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.revisions.len(), 2);
}

#[test]
fn zero_pods_are_not_enough_while_the_controller_may_still_make_one() {
    let mut world = running();
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    for _ in 0..4 {
        world.operator(usize::MAX);
        world.kubelet_starts();
    }
    // Someone deletes the pods; the StatefulSet controller has not heard that none are wanted.
    world.pods.clear();
    world.operator(usize::MAX);
    assert_eq!(world.epoch(), Some(1));
    world.set_controller();
    world.operator(usize::MAX);
    assert_eq!((world.pods.len(), world.epoch()), (1, Some(1)), "it made one of the old epoch, which drains too");
    world.settle();
    assert_eq!(world.epoch(), Some(2));
}

#[test]
fn a_refused_spec_changes_nothing_and_the_old_one_is_still_looked_after() {
    let mut world = running();
    world.report = Ok(fencepost_crds::contract::PlanReport {
        contract_version: 1,
        violations: vec![Violation {
            reason: "SqlSyntax".to_owned(),
            field: "spec.pipeline.sql".to_owned(),
            message: "line 1, column 8: expected an expression".to_owned(),
        }],
        ..Default::default()
    });
    world.edit(|spec| {
        spec["pipeline"]["sql"] = "INSERT".into();
        spec["processing"]["transactionTimeout"] = "4s".into();
    });
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "NewRevisionRefused".to_owned()));
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "SpecInvalid".to_owned()));
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
    let message = world.message(ConditionType::SpecValid);
    assert!(message.contains("4000 ms") && message.contains("line 1, column 8"), "all problems at once: {message}");
    assert_eq!(world.epoch(), Some(1));
    // The old revision is scaled, and its StatefulSet comes back.
    world.edit(|spec| spec["replicas"] = 3.into());
    world.set = None;
    world.settle();
    assert_eq!((world.pods.len(), world.epoch()), (3, Some(1)));
    // Going back to what runs needs nothing.
    world.edit(|spec| {
        spec["pipeline"]["sql"] = A.into();
        spec["processing"]["transactionTimeout"] = "30s".into();
    });
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.epoch(), Some(1));
}

fn rival(is_older: bool) -> Vec<Rival> {
    vec![Rival {
        job: "shop/other".to_owned(),
        shares: vec!["spec.kafka.consumerGroup shop.spend".to_owned()],
        is_older,
        cluster_id: Some("c-1".to_owned()),
        bootstrap_servers: "kafka:9092".to_owned(),
    }]
}

#[test]
fn a_job_with_the_names_of_an_older_one_starts_when_that_is_gone() {
    let mut world = World::new();
    world.rivals = rival(true);
    world.edit(|spec| spec["pipeline"]["sinks"][0]["kafka"]["create"] = serde_json::json!({ "partitions": 4 }));
    if let BrokerObserved::Facts(facts) = &mut world.broker {
        facts.topics.insert("totals".to_owned(), TopicFacts::Missing);
    }
    world.settle();
    assert!(world.set.is_none() && world.revisions.is_empty() && world.epoch().is_none());
    let taken = || ("False".to_owned(), "IdsTaken".to_owned());
    assert_eq!(world.condition(ConditionType::TransactionalIdsOwned), taken());
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "IdsTaken".to_owned()));
    assert_eq!(world.condition(ConditionType::SpecValid).0, "True", "the other checks go on");
    assert_eq!(world.events, ["IdsTaken"], "once");
    assert!(world.decide().look_again <= Duration::from_secs(10), "nothing tells when it goes");
    let made = |world: &World| match &world.broker {
        BrokerObserved::Facts(facts) => matches!(facts.topics["totals"], TopicFacts::Exists { .. }),
        _ => false,
    };
    assert!(!made(&world), "nothing is made for it");
    let told = world.message(ConditionType::Ready);
    assert!(told.contains("shop/other has spec.kafka.consumerGroup shop.spend"), "{told}");
    world.rivals.clear();
    world.settle();
    assert!(made(&world) && world.epoch() == Some(1));
    assert_eq!(world.condition(ConditionType::TransactionalIdsOwned).1, "IdsOwned");
    assert_eq!(world.condition(ConditionType::Stalled).0, "False");
}

/// Two that run were there before anybody looked: which is right is for people to say.
#[test]
fn a_job_that_runs_is_not_stopped_because_another_has_its_names() {
    let mut world = running();
    world.rivals = rival(false);
    world.settle();
    assert_eq!(world.condition(ConditionType::TransactionalIdsOwned).1, "IdsOwned", "the other one is told");
    world.rivals = rival(true);
    world.settle();
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "IdsTaken".to_owned()));
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.condition(ConditionType::Stalled).0, "False");
    // A new spec of it waits until they have names of their own; the old one goes on.
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    assert_eq!((world.epoch(), world.pods.len()), (Some(1), 2));
    assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "NewRevisionRefused".to_owned()));
    world.delete();
    world.settle();
    assert_eq!(world.released, Some(None), "it can go");
}

/// ```text
///  A ─▶ B ─▶ A ─▶ B …   each change is a start of its own, and the log of acceptances stays short
/// ```
#[test]
fn going_back_and_forth_between_two_specs_starts_each_anew_and_keeps_the_log_short() {
    let mut world = running();
    for epoch in 2..20 {
        world.edit(sql(if epoch % 2 == 0 { "INSERT INTO totals SELECT 'b' FROM orders" } else { A }));
        world.settle();
        assert_eq!(world.condition(ConditionType::Ready).0, "True");
        assert_eq!(world.epoch(), Some(epoch));
        assert!(world.revisions.len() <= 6, "{}", world.revisions.len());
    }
}

const A: &str = "INSERT INTO totals SELECT user FROM orders";

#[test]
fn a_newer_spec_that_is_being_checked_is_no_bad_news() {
    let mut world = running();
    world.events.clear();
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    assert_eq!(world.events, ["Draining", "Fencing", "Starting", "AllWorkersReady"]);
}

#[test]
fn scaling_keeps_the_epoch_and_the_mark_never_falls() {
    let mut world = running();
    for (replicas, mark) in [(4, 4), (1, 4), (3, 4)] {
        world.edit(|spec| spec["replicas"] = replicas.into());
        world.operator(usize::MAX);
        let status = world.job.status.clone().unwrap();
        assert_eq!(status.operation.unwrap().step.as_deref(), Some("Scaling"));
        assert_eq!(status.transactions.unwrap().ids_high_water, Some(mark), "written before a pod can exist");
        world.settle();
        assert_eq!(i32::try_from(world.pods.len()), Ok(replicas));
        assert_eq!(world.epoch(), Some(1));
    }
    assert_eq!(world.ran.len(), 1, "no pod of another start: {:?}", world.ran);
}

/// ```text
///  old pods gone ─▶ Fencing journaled ─▶ ids of all workers that ever ran are fenced ─▶ epoch 2
/// ```
#[test]
fn a_new_revision_starts_only_when_every_id_that_ever_was_is_fenced() {
    let mut world = running();
    world.edit(|spec| spec["replicas"] = 4.into());
    world.settle();
    world.edit(|spec| spec["replicas"] = 1.into());
    world.settle();
    world.fences.clear();
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::BrokerUnreachable, message: "connection refused".to_owned() });
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    let status = world.job.status.clone().unwrap();
    assert_eq!((status.epoch, world.pods.len(), status.phase), (Some(1), 0, Some(Phase::Draining)));
    assert_eq!(status.operation.unwrap().step.as_deref(), Some("Fencing"));
    assert_eq!(world.condition(ConditionType::Reconciling), ("True".to_owned(), "Fencing".to_owned()));
    assert_eq!(world.condition(ConditionType::Stalled).0, "False", "brokers come back");
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "BrokerUnreachable".to_owned()));
    assert!(world.message(ConditionType::Degraded).contains("connection refused"));
    let before: usize = world.fences.drain(..).map(|(_, ids)| ids).sum();
    world.refuses_fences = None;
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(2), "True"));
    assert_eq!(world.condition(ConditionType::Degraded).0, "False");
    assert_eq!(world.fences, [("restart-2".to_owned(), 4 - before)], "the rest of every worker that ever ran, once");
    let transactions = world.job.status.unwrap().transactions.unwrap();
    let fence = transactions.last_fence.unwrap();
    assert_eq!((fence.operation.as_deref(), fence.ids, fence.open), (Some("restart-2"), Some(4), Some(0)));
    assert_eq!(fence.fenced[3].id, "shop.spend-3-0");
    assert_eq!((transactions.ids_high_water, transactions.ids_in_use), (Some(4), Some(1)));
    assert_eq!(transactions.cluster_id.as_deref(), Some("c-1"));
}

#[test]
fn ids_of_workers_that_were_scaled_away_are_fenced_when_the_last_of_them_is_gone() {
    let mut world = running();
    world.edit(|spec| spec["replicas"] = 4.into());
    world.settle();
    assert_eq!(world.fences, [], "more workers: nothing to fence");
    world.events.clear();
    world.edit(|spec| spec["replicas"] = 2.into());
    for _ in 0..6 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
    }
    assert_eq!((world.pods.len(), world.fences.len()), (4, 0), "they were asked to stop, and live");
    world.settle();
    let generation = world.job.metadata.generation.unwrap();
    assert_eq!(world.fences, [(format!("scale-1-{generation}"), 2)]);
    assert_eq!(world.events, ["Scaling", "AllWorkersReady"]);
    let status = world.job.status.clone().unwrap();
    assert!(status.operation.is_none());
    assert_eq!(status.transactions.unwrap().ids_in_use, Some(2));
}

/// The result of a fence counts for the workers that were gone then, and for no others of the same name.
#[test]
fn a_fence_is_over_when_a_worker_has_taken_its_id_again() {
    let mut world = running();
    world.edit(state("Suspended"));
    world.settle();
    world.edit(state("Running"));
    world.settle();
    let done = |operation: &str| FenceObserved {
        operation: operation.to_owned(),
        ordinals: 0..2,
        set: None,
        at: at(0),
        done: ["shop.spend-0-0", "shop.spend-1-0"]
            .map(|id| FencedId { id: id.to_owned(), ..FencedId::default() })
            .into(),
        failed: None,
    };
    world.fence = Some(done("suspend-2"));
    world.edit(state("Suspended"));
    world.fences.clear();
    world.settle();
    assert_eq!(world.fences, [("suspend-2".to_owned(), 2)], "its workers lived when it was looked at");
    // A copy for debugging is no worker.
    world.edit(state("Running"));
    world.settle();
    let mut copy = world.pods[0].clone();
    copy.metadata.name = Some("spend-debug".to_owned());
    copy.metadata.annotations = None;
    copy.metadata.owner_references = None;
    world.edit(state("Suspended"));
    world.settle();
    let workers = pods::workers(&[copy]);
    assert!(!done("suspend-3").is_over(&workers));
    assert_eq!(world.job.status.unwrap().phase, Some(Phase::Suspended));
}

/// One act is as much as brokers do in a moment; what is done is not done again.
#[test]
fn a_thousand_workers_are_fenced_in_parts() {
    let mut world = running();
    world.edit(|spec| spec["worker"]["slots"] = 4.into());
    world.settle();
    let transactions = world.job.status.as_mut().unwrap().transactions.as_mut().unwrap();
    (transactions.ids_high_water, transactions.ids_in_use) = (Some(1000), Some(1000));
    world.fences.clear();
    world.settle();
    let ids: Vec<usize> = world.fences.iter().map(|(_, ids)| *ids).collect();
    assert_eq!(ids.iter().sum::<usize>(), 998 * 4);
    assert!(ids.iter().all(|ids| *ids <= 200), "{ids:?}");
    let fence = world.job.status.unwrap().transactions.unwrap().last_fence.unwrap();
    assert_eq!((fence.ids, fence.fenced.len()), (Some(998 * 4), 100), "all are counted, some are listed");
}

/// The old cluster is gone for good: nobody can fence there, and nothing there can disturb the new one.
#[test]
fn a_cluster_that_is_gone_for_good_does_not_hold_a_job_for_ever() {
    let mut world = running();
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::OtherCluster, message: "b:9092 is cluster c-2".to_owned() });
    world.edit(|spec| spec["kafka"]["bootstrapServers"] = "b:9092".into());
    for _ in 0..12 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.kubelet_stops();
        world.kubelet_starts();
        world.now += 1;
    }
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "OtherCluster".to_owned()));
    assert_eq!(world.epoch(), Some(1), "the network may come back");
    world.now += 120;
    world.events.clear();
    // What is left on the other cluster is none of the new workers' business.
    world.unfenced.clear();
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(2), "True"));
    assert!(world.events.contains(&"FenceGivenUp".to_owned()), "{:?}", world.events);
    let fence = world.job.status.unwrap().transactions.unwrap().last_fence.unwrap();
    assert_eq!(fence.error.as_deref(), Some("b:9092 is cluster c-2"));
}

#[test]
fn a_fence_that_is_not_allowed_needs_a_person() {
    let mut world = running();
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::AuthorizationFailed, message: "not authorized".to_owned() });
    world.edit(state("Suspended"));
    world.settle();
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "AuthorizationFailed".to_owned()));
}

/// Somebody scales the StatefulSet itself: workers that nobody journaled have used ids.
#[test]
fn ids_of_workers_that_somebody_else_asked_for_are_fenced_too() {
    let mut world = running();
    world.edit(state("Suspended"));
    world.settle();
    world.fences.clear();
    world.scale_set(3);
    for _ in 0..3 {
        world.informer();
        world.set_controller();
    }
    world.settle();
    assert_eq!((world.pods.len(), world.unfenced.len()), (0, 0), "{:?}", world.unfenced);
    assert_eq!(world.fences.iter().map(|(_, ids)| *ids).sum::<usize>(), 3);
}

#[test]
fn workers_go_on_while_the_brokers_do_not_fence() {
    let mut world = running();
    world.edit(|spec| spec["replicas"] = 1.into());
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::AuthorizationFailed, message: "not authorized".to_owned() });
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.condition(ConditionType::Reconciling), ("True".to_owned(), "Scaling".to_owned()));
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "AuthorizationFailed".to_owned()));
    assert_eq!(world.job.status.clone().unwrap().transactions.unwrap().ids_in_use, Some(2), "still owed");
    world.refuses_fences = None;
    world.settle();
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
    assert_eq!(world.fences.iter().map(|(_, ids)| *ids).sum::<usize>(), 1);
}

#[test]
fn a_job_without_transactions_has_no_ids() {
    let mut world = World::new();
    world.edit(|spec| spec["processing"]["guarantee"] = "AtLeastOnce".into());
    world.settle();
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    let status = world.job.status.clone().unwrap();
    assert_eq!((status.epoch, status.transactions.unwrap().ids_high_water), (Some(2), None));
    assert_eq!(world.fences, []);
    // Its ids were used before: whoever changes the guarantee gets rid of them.
    world.edit(|spec| spec["processing"]["guarantee"] = "ExactlyOnce".into());
    world.settle();
    world.edit(|spec| spec["processing"]["guarantee"] = "AtLeastOnce".into());
    world.settle();
    assert_eq!(world.fences, [("restart-4".to_owned(), 2)]);
    assert_eq!(world.job.status.unwrap().transactions.unwrap().ids_in_use, Some(0));
}

#[test]
fn a_fence_goes_to_the_cluster_that_has_the_ids() {
    let mut world = running();
    world.edit(|spec| spec["kafka"]["bootstrapServers"] = "elsewhere:9092".into());
    let mut elsewhere = facts();
    elsewhere.cluster_id = Some("c-2".to_owned());
    world.broker = BrokerObserved::Facts(elsewhere);
    let fence = loop {
        let fence = world.decide().acts.into_iter().find_map(|act| match act {
            Act::Fence(fence) => Some(fence),
            _ => None,
        });
        if let Some(fence) = fence {
            break fence;
        }
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.kubelet_stops();
        world.kubelet_starts();
    };
    let ways: Vec<&str> = fence.kafka.iter().map(|kafka| kafka.bootstrap_servers.as_str()).collect();
    assert_eq!(
        (ways.as_slice(), fence.cluster_id.as_deref()),
        (["elsewhere:9092", "kafka:9092"].as_slice(), Some("c-1"))
    );
    world.settle();
    assert_eq!(world.job.status.unwrap().transactions.unwrap().cluster_id.as_deref(), Some("c-2"));
}

/// An operator that knew no fences left a status without their marks.
#[test]
fn a_status_of_an_older_operator_owes_the_fence_of_all_workers_that_ever_ran() {
    let mut world = running();
    let transactions = world.job.status.as_mut().unwrap().transactions.as_mut().unwrap();
    (transactions.ids_high_water, transactions.ids_in_use, transactions.slots_high_water) = (Some(3), None, None);
    transactions.cluster_id = None;
    world.settle();
    assert_eq!(world.fences.iter().map(|(_, ids)| *ids).sum::<usize>(), 1, "{:?}", world.fences);
    assert_eq!(world.job.status.unwrap().transactions.unwrap().ids_in_use, Some(2));
    // It kept the mark for jobs without transactions too, which may not even be allowed to fence.
    let mut world = World::new();
    world.edit(|spec| spec["processing"]["guarantee"] = "AtLeastOnce".into());
    world.settle();
    world.job.status.as_mut().unwrap().transactions.as_mut().unwrap().ids_high_water = Some(3);
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    assert_eq!((world.epoch(), world.fences.len()), (Some(2), 0));
}

fn state(state: &str) -> impl FnOnce(&mut serde_json::Value) {
    let state = state.to_owned();
    move |spec| spec["state"] = state.into()
}

/// ```text
///  Suspended ─▶ Draining ─▶ all pods gone ─▶ ids fenced ─▶ nothing runs          Running ─▶ epoch 2
/// ```
#[test]
fn a_suspended_job_has_no_workers_and_no_open_transaction_and_goes_on_where_it_was() {
    let mut world = running();
    world.events.clear();
    world.edit(state("Suspended"));
    world.operator(usize::MAX);
    let status = world.job.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Draining));
    assert_eq!(status.operation.map(|operation| operation.id).as_deref(), Some("suspend-1"));
    assert_eq!(world.revisions.len(), 1, "no other revision");
    world.settle();
    let status = world.job.status.clone().unwrap();
    assert_eq!((world.pods.len(), status.phase, status.epoch), (0, Some(Phase::Suspended), Some(1)));
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "Suspended".to_owned()));
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
    assert!(status.operation.is_none());
    assert_eq!(status.workers.as_deref(), Some("0/0"));
    assert_eq!(world.fences, [("suspend-1".to_owned(), 2)]);
    assert_eq!(world.events, ["Draining", "Fencing", "Suspended"]);
    let steady = world.decide();
    assert_eq!((Some(steady.status), steady.acts), (world.job.status.clone(), vec![]));
    world.edit(state("Running"));
    world.operator(usize::MAX);
    let operation = world.job.status.clone().unwrap().operation.unwrap();
    assert_eq!(operation.id, "resume-2");
    world.settle();
    assert_eq!((world.epoch(), world.pods.len()), (Some(2), 2));
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "AllWorkersReady".to_owned()));
    assert_eq!(world.fences.len(), 1, "what is fenced is fenced");
}

#[test]
fn a_spec_that_changes_while_the_job_is_suspended_is_checked_and_starts_with_it() {
    let mut world = running();
    world.edit(state("Suspended"));
    world.settle();
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.edit(|spec| spec["replicas"] = 3.into());
    world.settle();
    assert_eq!((world.pods.len(), world.epoch(), world.revisions.len()), (0, Some(1), 2));
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "Suspended".to_owned()));
    world.refuses_children = Some("no".to_owned());
    world.edit(sql("INSERT INTO totals SELECT 'y' FROM orders"));
    world.settle();
    assert_eq!(world.condition(ConditionType::Stalled).0, "True", "a refused one is told");
    assert_eq!(world.condition(ConditionType::Ready).0, "False");
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.pods.len(), world.epoch()), (3, Some(2)), "the last good one");
    assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "NewRevisionRefused".to_owned()));
}

#[test]
fn a_job_may_begin_suspended() {
    let mut world = World::new();
    world.edit(state("Suspended"));
    world.settle();
    assert!(world.set.is_none() && world.epoch().is_none() && world.fences.is_empty());
    assert_eq!(world.job.status.clone().unwrap().phase, Some(Phase::Suspended));
    assert_eq!(world.condition(ConditionType::SpecValid).0, "True");
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.epoch(), world.pods.len()), (Some(1), 2));
}

#[test]
fn a_change_of_mind_in_the_middle_of_a_suspension_brings_the_workers_back() {
    let mut world = running();
    world.edit(state("Suspended"));
    for _ in 0..2 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
    }
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.epoch(), world.pods.len()), (Some(1), 2));
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "AllWorkersReady".to_owned()));
    assert!(world.job.status.unwrap().operation.is_none());
}

#[test]
fn a_suspension_waits_for_its_fence() {
    let mut world = running();
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::BrokerUnreachable, message: "connection refused".to_owned() });
    world.edit(state("Suspended"));
    world.settle();
    assert_eq!(world.job.status.clone().unwrap().phase, Some(Phase::Draining));
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "BrokerUnreachable".to_owned()));
    world.refuses_fences = None;
    world.settle();
    assert_eq!(world.job.status.unwrap().phase, Some(Phase::Suspended));
}

#[test]
fn brokers_that_are_away_never_stop_workers() {
    let mut world = running();
    world.broker = BrokerObserved::Failed(BrokerFailure {
        reason: Reason::BrokerUnreachable,
        message: "connection refused".to_owned(),
    });
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.condition(ConditionType::Stalled).0, "False");
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "BrokerUnreachable".to_owned()));
    assert_eq!(world.pods.len(), 2);
    assert!(world.job.status.unwrap().broker.unwrap().transaction_max_timeout_ms.is_some(), "what was known stays");
}

#[rstest]
#[case(Reason::AuthenticationFailed, "True")]
#[case(Reason::AuthorizationFailed, "True")]
#[case(Reason::TlsFailed, "True")]
#[case(Reason::SecretMissing, "True")]
#[case(Reason::BrokerUnreachable, "False")]
fn a_first_start_waits_for_brokers_and_is_stalled_where_only_a_person_can_help(
    #[case] reason: Reason,
    #[case] stalled: &str,
) {
    let mut world = World::new();
    world.broker = BrokerObserved::Failed(BrokerFailure { reason, message: "no".to_owned() });
    world.settle();
    assert_eq!(world.condition(ConditionType::Stalled).0, stalled);
    assert_eq!(world.condition(ConditionType::BrokerCompatible), ("False".to_owned(), reason.to_string()));
    assert!(world.set.is_none());
    world.broker = BrokerObserved::Facts(facts());
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
}

#[test]
fn topics_are_created_only_for_a_spec_that_passed_everything_else() {
    let mut world = World::new();
    world.edit(|spec| spec["pipeline"]["sinks"][0]["kafka"]["create"] = serde_json::json!({ "partitions": 7 }));
    let mut absent = facts();
    absent.topics.insert("totals".to_owned(), TopicFacts::Missing);
    world.broker = BrokerObserved::Facts(absent);
    let creates = |world: &World| world.decide().acts.iter().any(|act| matches!(act, Act::CreateTopics(_)));
    assert!(!creates(&world), "not planned yet");
    world.operator(usize::MAX);
    world.kubelet_starts();
    assert!(creates(&world));
    world.settle();
    assert_eq!(world.epoch(), Some(1));
    let BrokerObserved::Facts(after) = &world.broker else { panic!() };
    assert_eq!(after.topics["totals"], TopicFacts::Exists { partitions: 7 });
}

#[test]
fn a_plan_pod_without_an_answer_is_tried_again_and_a_newer_spec_does_not_wait_for_it() {
    let mut world = World::new();
    world.report = Err("the plan pod ended with exit code 1".to_owned());
    world.operator(usize::MAX);
    world.kubelet_starts();
    let first = world.plans[0].pod.name_any();
    world.operator(usize::MAX);
    assert_eq!(world.condition(ConditionType::SpecValid), ("Unknown".to_owned(), "PlanFailed".to_owned()));
    assert!(world.plans.is_empty(), "the backoff of the first failure is over when nobody knows when it ended");
    world.edit(sql("INSERT INTO totals SELECT 'y' FROM orders"));
    world.operator(usize::MAX);
    assert_ne!(world.plans[0].pod.name_any(), first);
    world.report = World::new().report;
    world.settle();
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
}

#[test]
fn a_plan_of_a_superseded_spec_is_deleted() {
    let mut world = World::new();
    world.operator(usize::MAX);
    world.edit(sql("INSERT INTO totals SELECT 'y' FROM orders"));
    world.operator(usize::MAX);
    assert_eq!(world.plans.len(), 1);
}

#[rstest]
#[case(137, "", true)]
#[case(1, "", true)]
#[case(0, "", true)]
#[case(64, "", false)]
#[case(65, "", false)]
#[case(66, "", false)]
fn a_crashing_worker_is_replaced_unless_it_would_meet_the_same_end(
    #[case] code: i32,
    #[case] message: &'static str,
    #[case] replaced: bool,
) {
    let mut world = running();
    world.crash("spend-1", &Ended { code, message });
    let acts = world.decide().acts;
    assert_eq!(acts.iter().any(|act| matches!(act, Act::Replace(one) if one.pod == "spend-1")), replaced);
}

#[test]
fn replacements_of_a_worker_come_ever_later() {
    let mut world = running();
    world.crash("spend-0", &Ended { code: 137, message: "" });
    let mut seen = world.observe();
    let mut due = |count: u32, waited: i64| {
        seen.replacements.insert("spend-0".to_owned(), Replacement { count, last: at(world.now - waited) });
        super::decide(&seen).unwrap().acts.iter().any(|act| matches!(act, Act::Replace(_)))
    };
    assert_eq!([due(1, 0), due(1, 1)], [false, true]);
    assert_eq!([due(4, 7), due(4, 8)], [false, true]);
    assert_eq!([due(99, 59), due(99, 60)], [false, true]);
}

#[test]
fn a_bad_record_stalls_the_job_and_the_workers_own_words_are_shown() {
    let mut world = running();
    let message = r#"{"reason":"BadRecord","message":"orders-3 offset 17: not JSON","atMs":1}"#;
    world.crash("spend-0", &Ended { code: 66, message });
    world.operator(usize::MAX);
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "BadRecord".to_owned()));
    assert!(world.message(ConditionType::Stalled).contains("orders-3 offset 17: not JSON"));
    assert_eq!(world.job.status.unwrap().phase, Some(Phase::Stalled));
}

#[test]
fn workers_of_an_earlier_job_of_the_same_name_are_waited_for() {
    let mut old = running();
    let mut world = World::new();
    world.pods = std::mem::take(&mut old.pods);
    for _ in 0..5 {
        world.operator(usize::MAX);
        world.kubelet_starts();
    }
    assert!(world.set.is_none() && world.epoch().is_none());
    assert!(world.message(ConditionType::Reconciling).contains("earlier StreamJob"));
    world.pods.clear();
    world.settle();
    assert_eq!(world.epoch(), Some(1));
}

#[test]
fn a_foreign_stateful_set_is_never_touched() {
    let mut world = running();
    world.set.as_mut().unwrap().metadata.owner_references.as_mut().unwrap()[0].uid = "someone".to_owned();
    let decision = world.decide();
    assert!(decision.acts.is_empty(), "{:?}", decision.acts);
}

#[test]
fn a_pod_that_only_carries_our_labels_neither_stops_a_job_nor_is_waited_for() {
    let mut world = running();
    let mut copy = world.pods[0].clone();
    copy.metadata.name = Some("spend-debug".to_owned());
    copy.metadata.annotations = None;
    copy.metadata.owner_references = None;
    world.pods.push(copy);
    let decision = world.decide();
    assert_eq!(Some(decision.status), world.job.status);
    assert!(matches!(decision.acts.as_slice(), [Act::Apply { .. }]), "{:?}", decision.acts);
}

#[test]
fn a_spec_whose_workers_the_api_server_refuses_leaves_the_running_one_alone() {
    let mut world = running();
    world.refuses_children = Some("spec.template: requests above limits".to_owned());
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.settle();
    assert_eq!(world.epoch(), Some(1));
    assert_eq!(world.condition(ConditionType::SpecValid), ("False".to_owned(), "InvalidSpec".to_owned()));
    assert!(world.message(ConditionType::SpecValid).contains("requests above limits"));
    assert!(world.message(ConditionType::Ready).contains("goes on"));
    world.refuses_children = None;
    world.settle();
    assert_eq!(world.epoch(), Some(2));
}

#[test]
fn a_kept_revision_that_cannot_be_read_is_kept_anew_under_the_next_number() {
    let mut world = running();
    let kept = world.revisions.last_mut().unwrap();
    kept.data = None;
    let number = kept.revision;
    world.settle();
    assert_eq!(world.revisions.last().unwrap().revision, number + 1);
    assert_eq!(world.condition(ConditionType::Ready), ("True".to_owned(), "AllWorkersReady".to_owned()));
}

#[test]
fn a_new_default_image_restarts_nothing() {
    let world = running();
    let mut seen = world.observe();
    seen.settings.worker_image = "worker:2".to_owned();
    let decision = super::decide(&seen).unwrap();
    assert_eq!(Some(&decision.status), world.job.status.as_ref());
    let image = |act: &Act| match act {
        Act::Apply { children, .. } => {
            let spec = children.stateful_set.spec.clone().unwrap().template.spec.unwrap();
            spec.containers[0].image.clone()
        }
        _ => None,
    };
    assert_eq!(decision.acts.iter().find_map(image).as_deref(), Some("worker:1"));
}

#[test]
fn events_tell_transitions_and_nothing_twice() {
    let mut world = running();
    world.events.clear();
    world.broker =
        BrokerObserved::Failed(BrokerFailure { reason: Reason::AuthenticationFailed, message: "refused".to_owned() });
    world.settle();
    world.broker = BrokerObserved::Facts(facts());
    world.settle();
    assert_eq!(world.events, ["AuthenticationFailed", "AuthenticationFailed", "Compatible", "Healthy"]);
}

#[derive(Clone, Debug)]
enum Happening {
    Operator {
        survives: usize,
    },
    Informer,
    SetController,
    Stops,
    Starts,
    Edit(u8),
    Scale(i32),
    State(&'static str),
    Slots(i32),
    Fences(bool),
    ScaleSet(i32),
    PodLost(u8),
    SetDeleted,
    Secret(u8),
    Commits {
        tells: bool,
    },
    Crashes(u8),
    Reads(bool),
    /// Somebody asks for a restart.
    Restart(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0_usize..8).prop_map(|survives| Happening::Operator { survives }),
        3 => Just(Happening::Informer),
        6 => Just(Happening::SetController),
        3 => Just(Happening::Stops),
        3 => Just(Happening::Starts),
        1 => (0_u8..3).prop_map(Happening::Edit),
        1 => (1_i32..4).prop_map(Happening::Scale),
        1 => prop_oneof![Just("Suspended"), Just("Running")].prop_map(Happening::State),
        1 => (1_i32..3).prop_map(Happening::Slots),
        1 => any::<bool>().prop_map(Happening::Fences),
        1 => (0_i32..5).prop_map(Happening::ScaleSet),
        1 => (0_u8..3).prop_map(Happening::PodLost),
        1 => Just(Happening::SetDeleted),
        1 => (0_u8..3).prop_map(Happening::Secret),
        2 => any::<bool>().prop_map(|tells| Happening::Commits { tells }),
        1 => (0_u8..3).prop_map(Happening::Crashes),
        1 => any::<bool>().prop_map(Happening::Reads),
        1 => (0_u8..3).prop_map(Happening::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Killed after any write, with a StatefulSet controller that acts on old copies, pods that vanish and users that change their
    /// mind: there are never two generations at once (checked by the world after each step), an epoch never names two
    /// revisions, and when the storm is over the newest spec runs.
    #[test]
    fn no_order_of_events_makes_two_generations_and_every_order_ends_well(
        story in proptest::collection::vec(happening(), 0..150),
    ) {
        static BEGUN: LazyLock<World> = LazyLock::new(with_password);
        let mut world = BEGUN.clone();
        for happens in story {
            match happens {
                Happening::Operator { survives } => world.operator(survives),
                Happening::Informer => world.informer(),
                Happening::SetController => world.set_controller(),
                Happening::Stops => world.kubelet_stops(),
                Happening::Starts => world.kubelet_starts(),
                Happening::Edit(n) => world.edit(sql(&format!("INSERT INTO totals SELECT '{n}' FROM orders"))),
                Happening::Scale(n) => world.edit(|spec| spec["replicas"] = n.into()),
                Happening::State(one) => world.edit(state(one)),
                Happening::Slots(n) => world.edit(|spec| spec["worker"]["slots"] = n.into()),
                Happening::Fences(work) => {
                    let refused = BrokerFailure { reason: Reason::BrokerError, message: "not now".to_owned() };
                    world.refuses_fences = (!work).then_some(refused);
                }
                Happening::ScaleSet(n) => world.scale_set(n),
                Happening::PodLost(n) => world.pods.retain(|pod| pod.name_any() != format!("spend-{n}")),
                Happening::Commits { tells } => world.commit(tells),
                Happening::Crashes(n) => world.crash(&format!("spend-{n}"), &Ended { code: 65, message: "" }),
                Happening::Reads(work) => {
                    let refused = BrokerFailure { reason: Reason::BrokerError, message: "not now".to_owned() };
                    world.refuses_reads = (!work).then_some(refused);
                }
                Happening::Restart(n) => world.annotate(names::ANNOTATION_RESTART, &n.to_string()),
                Happening::Secret(n) => world.secret("kafka-user", &n.to_string()),
                Happening::SetDeleted => {
                    // Its pods are deleted with it, and its controller hears of that at once.
                    world.set = None;
                    world.informer();
                    world.pods.clear();
                }
            }
            world.now += 1;
        }
        world.refuses_fences = None;
        world.refuses_reads = None;
        // Whoever has crashed is deleted by a person.
        world.settle();
        world.pods.retain(|pod| PodFacts::of(pod).last_exit.is_none());
        if world.job.spec.state == JobState::Suspended {
            world.settle();
            prop_assert!(world.pods.is_empty() && world.unfenced.is_empty(), "{:?}", &world.unfenced);
            world.edit(state("Running"));
        }
        world.settle();
        prop_assert_eq!(rotated(&world).len(), world.pods.len(), "every worker has the newest credentials");
        let revision = world.job.status.clone().unwrap().revision.unwrap();
        if revision.failed.is_some() {
            prop_assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "RevisionFailed".to_owned()));
            prop_assert_eq!(revision.current, revision.stable);
        } else {
            prop_assert_eq!(world.condition(ConditionType::Ready).0, "True");
            prop_assert_eq!(revision.current, revision.target);
        }
        prop_assert_eq!(i32::try_from(world.pods.len()), Ok(world.job.spec.replicas));
        let epochs: std::collections::BTreeSet<i64> = world.ran.iter().map(|(epoch, _)| *epoch).collect();
        prop_assert_eq!(epochs.len(), world.ran.len(), "an epoch names one revision: {:?}", &world.ran);
        let asked = world.job.annotations().get(names::ANNOTATION_RESTART).cloned();
        prop_assert!(asked.is_none() || asked == world.job.status.as_ref().unwrap().restarted, "a restart was asked for");
        let used: BTreeMap<String, i64> = world.pods.iter().flat_map(|pod| world.ids_of(pod)).collect();
        prop_assert_eq!(&world.unfenced, &used, "only running workers have ids");
    }
}

/// What is left of a fence that has begun may still reach the brokers: workers that started with the same ids would be hit.
#[test]
fn a_suspension_that_is_taken_back_while_ids_are_fenced_ends_in_another_epoch() {
    let mut world = running();
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::BrokerUnreachable, message: "no answer in time".to_owned() });
    world.edit(state("Suspended"));
    world.settle();
    let status = world.job.status.clone().unwrap();
    assert_eq!(status.operation.unwrap().step.as_deref(), Some("Fencing"));
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.pods.len(), world.epoch()), (0, Some(1)), "first the fence");
    world.refuses_fences = None;
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(2), "True"));
}

/// A job that never had transactions has no ids, whatever its operator has counted, and its user may not be allowed to fence.
#[test]
fn marks_of_an_older_operator_count_only_for_workers_with_transactions() {
    let mut world = World::new();
    world.edit(|spec| spec["processing"]["guarantee"] = "AtLeastOnce".into());
    world.settle();
    let transactions = world.job.status.as_mut().unwrap().transactions.as_mut().unwrap();
    (transactions.ids_high_water, transactions.ids_in_use, transactions.slots_high_water) = (Some(3), None, None);
    world.edit(|spec| spec["processing"]["guarantee"] = "ExactlyOnce".into());
    world.settle();
    assert_eq!((world.epoch(), world.fences.clone()), (Some(2), vec![]));
}

#[test]
fn a_job_is_held_before_its_first_worker_is_asked_for() {
    let mut world = World::new();
    world.job.metadata.finalizers = None;
    while world.job.finalizers().is_empty() {
        assert!(world.set.is_none() && world.epoch().is_none(), "nothing to end yet");
        world.operator(usize::MAX);
        world.kubelet_starts();
    }
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(1), "True"));
    // One that an older operator has started is held from now on, and goes on.
    world.job.metadata.finalizers = None;
    let acts = world.decide().acts;
    assert!(matches!(acts.as_slice(), [Act::Hold, Act::Apply { .. }]), "{acts:?}");
}

#[test]
fn a_job_that_is_deleted_ends_in_order() {
    let mut world = running();
    world.events.clear();
    world.delete();
    // A spec that changes now is looked at by nobody.
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.operator(usize::MAX);
    let status = world.job.status.clone().unwrap();
    assert_eq!((status.phase, world.released.clone()), (Some(Phase::Deleting), None));
    let told = |world: &World| {
        let types = [ConditionType::Reconciling, ConditionType::Ready, ConditionType::BrokerCompatible];
        types.map(|condition_type| world.condition(condition_type).1)
    };
    assert_eq!(told(&world), ["Draining", "Deleting", "Compatible"]);
    world.settle();
    assert_eq!(told(&world), ["Deleting", "Deleting", "Compatible"]);
    assert_eq!((world.pods.len(), world.released.clone()), (0, Some(None)));
    assert_eq!(world.fences, [("delete-1".to_owned(), 2)]);
    assert!(world.unfenced.is_empty() && world.plans.is_empty());
    assert_eq!(world.events, ["Draining", "Fencing", "Releasing"]);
}

#[test]
fn a_job_that_has_begun_nothing_goes_at_once() {
    let mut world = World::new();
    world.broker = BrokerObserved::NotAsked;
    world.settle();
    world.delete();
    world.operator(usize::MAX);
    assert_eq!((world.released, world.fences), (Some(None), vec![]));
}

#[test]
fn neither_a_dead_worker_nor_dead_brokers_hold_a_deleted_job_for_ever() {
    // The node of the workers is lost: nobody stops them.
    let mut world = running();
    world.delete();
    for _ in 0..6 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.now += 1;
    }
    assert_eq!(world.released, None);
    world.now += 300;
    world.operator(usize::MAX);
    let text = "the job is deleted, spec.deletion.deadline has passed, and workers are still there: spend-0, spend-1";
    assert_eq!(world.released, Some(Some(text.to_owned())));
    assert_eq!(world.fences, [("delete-1".to_owned(), 2)], "a last try, so that they can commit nothing more");
    // The brokers are away.
    let mut world = running();
    world.edit(|spec| spec["deletion"]["deadline"] = "10s".into());
    world.refuses_fences =
        Some(BrokerFailure { reason: Reason::BrokerUnreachable, message: "connection refused".to_owned() });
    world.delete();
    for _ in 0..8 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.kubelet_stops();
    }
    assert_eq!((world.released.clone(), world.pods.len()), (None, 0));
    world.now += 10;
    world.operator(usize::MAX);
    let warning = world.released.unwrap().unwrap();
    assert!(warning.ends_with("transactional ids are not fenced: connection refused"), "{warning}");
}

/// `kubectl delete --cascade=orphan`, before and after the garbage collector has cut the workers off.
#[test]
fn the_workers_of_a_job_that_is_deleted_without_them_go_on() {
    for is_cut_off in [false, true] {
        let mut world = running();
        world.delete();
        if is_cut_off {
            world.set.as_mut().unwrap().metadata.owner_references = None;
        } else {
            world.job.finalizers_mut().push("orphan".to_owned());
        }
        world.operator(usize::MAX);
        assert!(world.released.clone().unwrap().unwrap().contains("as asked"), "{:?}", world.released);
        assert_eq!((world.fences.len(), world.set.unwrap().spec.unwrap().replicas), (0, Some(2)));
    }
}

/// Its revisions are collected before it, as they are with a namespace.
#[test]
fn a_job_without_its_revisions_is_fenced_too() {
    let mut world = running();
    world.delete();
    world.revisions.clear();
    world.settle();
    assert_eq!((world.released.clone(), world.fences.clone()), (Some(None), vec![("delete-1".to_owned(), 2)]));
    assert!(world.unfenced.is_empty());
}

/// Somebody scales the StatefulSet while its ids are fenced, and the worker is gone before anybody looks.
#[test]
fn a_fence_is_over_when_the_stateful_set_has_changed_since() {
    let mut world = running();
    world.edit(state("Suspended"));
    while world.fences.is_empty() {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.kubelet_stops();
    }
    world.scale_set(1);
    world.informer();
    world.set_controller();
    world.pods.clear();
    world.settle();
    assert!(world.unfenced.is_empty(), "{:?}", world.unfenced);
    assert_eq!(world.fences.len(), 2);
}
