//! The annotation `fencepost.dev/restart`: all workers begin anew, with what they were.

use super::*;

fn ask(world: &mut World, value: &str) {
    world.annotate(names::ANNOTATION_RESTART, value);
}

fn restarted(world: &World) -> Option<String> {
    world.job.status.clone().unwrap().restarted
}

fn started() -> World {
    let mut world = running();
    world.events.clear();
    world.fences.clear();
    world
}

/// ```text
///  epoch 1 ─▶ asked ─▶ workers commit and go ─▶ ids fenced ─▶ epoch 2 of the same revision
/// ```
#[test]
fn a_restart_is_done_once_each_time_it_is_asked_for() {
    let mut world = started();
    let revision = world.job.status.clone().unwrap().revision.unwrap();
    ask(&mut world, "monday");
    world.operator(usize::MAX);
    assert!(world.message(ConditionType::Reconciling).starts_with("a restart was asked for: workers commit and stop"));
    assert_eq!((world.condition(ConditionType::Ready).0.as_str(), restarted(&world)), ("False", None));
    world.settle();
    assert_eq!((world.epoch(), restarted(&world).as_deref()), (Some(2), Some("monday")));
    assert_eq!(world.events, ["Draining", "Fencing", "Starting", "AllWorkersReady"]);
    assert_eq!(world.fences, [("restart-2".to_owned(), 2)]);
    assert_eq!(world.job.status.clone().unwrap().revision.unwrap(), revision);
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    ask(&mut world, "monday");
    world.settle();
    assert_eq!(world.epoch(), Some(2), "it was done");
    ask(&mut world, "tuesday");
    world.settle();
    assert_eq!((world.epoch(), restarted(&world).as_deref()), (Some(3), Some("tuesday")));
    world.job.annotations_mut().clear();
    world.settle();
    assert_eq!(world.epoch(), Some(3), "nobody asks");
    ask(&mut world, "");
    world.settle();
    assert_eq!(world.epoch(), Some(3), "nobody asks for anything");
}

#[test]
fn any_start_is_as_good_as_the_one_that_was_asked_for() {
    // A manifest that was exported has it.
    let mut world = World::new();
    ask(&mut world, "monday");
    world.settle();
    assert_eq!((world.epoch(), restarted(&world).as_deref()), (Some(1), Some("monday")));
    // Together with a new spec.
    ask(&mut world, "tuesday");
    world.edit(sql("INSERT INTO totals SELECT 'b' FROM orders"));
    world.settle();
    assert_eq!((world.epoch(), restarted(&world).as_deref()), (Some(2), Some("tuesday")));
}

#[test]
fn a_restart_starts_no_job_that_is_suspended() {
    let mut world = started();
    world.edit(state("Suspended"));
    world.settle();
    ask(&mut world, "monday");
    world.settle();
    assert_eq!((world.pods.len(), world.epoch(), restarted(&world)), (0, Some(1), None));
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.pods.len(), world.epoch(), restarted(&world).as_deref()), (2, Some(2), Some("monday")));
}

/// A spec that is refused stops neither what runs nor its restart.
#[test]
fn what_runs_is_restarted_when_the_newest_spec_is_refused() {
    let mut world = started();
    let runs = world.job.status.clone().unwrap().revision.unwrap().current;
    world.edit(|spec| spec["processing"] = serde_json::json!({ "transactionTimeout": "2h" }));
    ask(&mut world, "monday");
    world.settle();
    assert_eq!(world.condition(ConditionType::Stalled).0, "True");
    let revision = world.job.status.clone().unwrap().revision.unwrap();
    assert_eq!((world.epoch(), revision.current), (Some(2), runs));
    assert_ne!(revision.target, revision.stable);
}

#[test]
fn a_long_wish_is_cut_and_done_once() {
    let mut world = started();
    ask(&mut world, &"ä".repeat(100));
    world.settle();
    world.settle();
    assert_eq!(world.epoch(), Some(2));
    assert!(restarted(&world).unwrap().len() <= 64);
}

/// What the stable revision is asked for is no rollback.
#[test]
fn the_revision_that_another_was_taken_back_to_is_restarted() {
    let mut world = started();
    world.commit(true);
    world.settle();
    world.edit(sql("INSERT INTO totals SELECT 'b' FROM orders"));
    world.settle();
    world.crash("spend-0", &Ended { code: 65, message: "" });
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::RolledBack).0.as_str()), (Some(3), "True"));
    ask(&mut world, "monday");
    world.operator(usize::MAX);
    let operation = world.job.status.clone().unwrap().operation.unwrap();
    assert_eq!(operation.operation_type, Some(OperationType::Restart));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::RolledBack).0.as_str()), (Some(4), "True"));
    let revision = world.job.status.clone().unwrap().revision.unwrap();
    assert!(revision.current == revision.stable && revision.failed.is_some());
}

/// With the brokers away, or a password that they do not take, it could not start again.
#[test]
fn workers_are_not_stopped_for_a_restart_that_the_brokers_do_not_allow() {
    let mut world = started();
    let answer = world.broker.clone();
    world.broker =
        BrokerObserved::Failed(BrokerFailure { reason: Reason::AuthenticationFailed, message: "no".to_owned() });
    ask(&mut world, "monday");
    world.settle();
    assert_eq!((world.pods.len(), world.epoch(), restarted(&world)), (2, Some(1), None));
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    world.broker = answer;
    world.settle();
    assert_eq!((world.epoch(), restarted(&world).as_deref()), (Some(2), Some("monday")));
}
