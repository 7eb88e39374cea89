//! A revision that fails before its first commit is taken back, and never after it.

use fencepost_crds::v1alpha1::{RevisionStatus, StreamJobStatus};
use serde_json::json;

use super::*;

const B: &str = "INSERT INTO totals SELECT 'b' FROM orders";
/// It does not plan in the worker, although the plan pod was content.
const NO_HOPE: Ended = Ended { code: 65, message: "the pipeline does not plan" };
const MINUTES: i64 = 60;

fn status(world: &World) -> StreamJobStatus {
    world.job.status.clone().unwrap()
}

fn revision(world: &World) -> RevisionStatus {
    status(world).revision.unwrap()
}

/// A job whose first revision has committed.
fn proven() -> World {
    let mut world = running();
    world.commit(true);
    world.settle();
    assert_eq!(revision(&world).stable, revision(&world).current);
    assert_eq!(status(&world).point_of_no_return.unwrap().epoch, 1);
    world.events.clear();
    world
}

/// Its second revision runs, and has not committed.
fn on_trial() -> World {
    let mut world = proven();
    world.edit(sql(B));
    world.settle();
    assert_eq!((world.epoch(), status(&world).restore.map(|restore| restore.epoch)), (Some(2), Some(2)));
    assert!(revision(&world).stable != revision(&world).current);
    world
}

/// A moment later, as the operator sees it.
fn later(world: &mut World, seconds: i64) {
    world.now += seconds;
    world.settle();
}

fn is_taken_back(world: &World) -> bool {
    let revision = revision(world);
    revision.failed.is_some() && revision.current == revision.stable && world.epoch() == Some(3)
}

/// ```text
///  epoch 1: a, commits ─▶ epoch 2: b, fails ─▶ gone, fenced, nothing committed ─▶ epoch 3: a
/// ```
#[test]
fn a_revision_that_fails_before_its_first_commit_is_taken_back() {
    let mut world = on_trial();
    world.events.clear();
    world.crash("spend-0", &NO_HOPE);
    world.operator(usize::MAX);
    let said = [ConditionType::Reconciling, ConditionType::Stalled, ConditionType::RolledBack];
    assert_eq!(
        said.map(|condition| world.condition(condition).0),
        ["True", "False", "False"],
        "it has not happened yet"
    );
    world.settle();
    assert!(is_taken_back(&world), "{:#?}", status(&world));
    assert_eq!(
        world.events,
        [
            "PipelineInvalid",
            "RevisionFailed",
            "Draining",
            "Healthy",
            "Fencing",
            "ReadingPositions",
            "RevisionFailed",
            "Starting",
        ]
    );
    assert_eq!(world.condition(ConditionType::RolledBack), ("True".to_owned(), "RevisionFailed".to_owned()));
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "RevisionFailed".to_owned()));
    assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "RevisionFailed".to_owned()));
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
    let told = world.message(ConditionType::Stalled);
    assert!(told.contains("worker spend-0: exit code 65: the pipeline does not plan"), "{told}");
    let failed = revision(&world).failed.unwrap();
    assert_eq!((failed.reason.as_str(), failed.number), ("PipelineInvalid", 2));
    assert_eq!((status(&world).restore, status(&world).verification), (None, None));
    // What runs is looked after.
    world.edit(|spec| spec["replicas"] = 3.into());
    world.settle();
    assert_eq!((world.pods.len(), world.epoch()), (3, Some(3)));
    // A spec that mends it runs.
    world.edit(sql("INSERT INTO totals SELECT 'c' FROM orders"));
    world.settle();
    assert_eq!((world.epoch(), revision(&world).failed), (Some(4), None));
    assert_eq!(world.condition(ConditionType::RolledBack).0, "False");
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
}

#[test]
fn the_spec_that_was_taken_back_is_tried_again_when_it_is_applied_again() {
    let mut world = on_trial();
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    world.edit(sql(A));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(3), "True"), "it runs already");
    world.edit(sql(B));
    world.settle();
    assert_eq!((world.epoch(), revision(&world).failed), (Some(4), None));
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!((world.epoch(), revision(&world).current), (Some(5), revision(&world).stable));
}

/// Its output is visible: going back would repeat what it has done with another meaning.
#[rstest]
#[case::the_operator_saw_it(true)]
#[case::nobody_saw_it(false)]
fn a_revision_that_fails_after_its_first_commit_stays(#[case] seen: bool) {
    let mut world = on_trial();
    world.commit(seen);
    if seen {
        world.settle();
    }
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!((revision(&world).failed, revision(&world).current), (None, revision(&world).target));
    assert_eq!(revision(&world).stable, revision(&world).current);
    assert_eq!(world.condition(ConditionType::RolledBack).0, "False");
    // Where nobody saw it, the positions told, when its workers were gone.
    assert_eq!(world.epoch(), Some(if seen { 2 } else { 3 }));
    assert_eq!(status(&world).point_of_no_return.unwrap().epoch, 2);
    assert!(world.events.contains(&"FirstCommit".to_owned()), "{:?}", world.events);
}

#[test]
fn a_revision_that_is_replaced_before_it_has_committed_is_not_gone_back_to() {
    let mut world = on_trial();
    world.edit(sql("INSERT INTO totals SELECT 'c' FROM orders"));
    world.settle();
    assert_eq!(world.epoch(), Some(3));
    world.crash("spend-1", &NO_HOPE);
    world.settle();
    assert_eq!((world.epoch(), world.ran.iter().last().map(|(epoch, _)| *epoch)), (Some(4), Some(4)));
    assert_eq!(revision(&world).current, world.last_commit.map(|(_, revision)| revision), "the first one");
}

#[test]
fn a_first_revision_has_nothing_to_go_back_to() {
    let mut world = running();
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!((world.epoch(), revision(&world).failed), (Some(1), None));
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "PipelineInvalid".to_owned()));
}

#[test]
fn nothing_is_taken_back_when_the_spec_says_never() {
    let mut world = proven();
    world.edit(|spec| {
        spec["pipeline"]["sql"] = B.into();
        spec["upgrade"] = json!({ "rollback": "Never" });
    });
    world.settle();
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!((world.epoch(), revision(&world).failed), (Some(2), None));
    // It is no part of the revision.
    world.edit(|spec| spec["upgrade"] = json!({}));
    world.settle();
    assert!(is_taken_back(&world));
}

#[test]
fn a_worker_with_a_rival_is_no_reason_to_go_back() {
    let mut world = on_trial();
    world.crash("spend-0", &Ended { code: 64, message: "a newer producer has the id" });
    world.settle();
    assert_eq!((world.epoch(), revision(&world).failed), (Some(2), None));
    assert_eq!(world.condition(ConditionType::Stalled).1, "Fenced");
}

#[test]
fn workers_that_crash_again_and_again_are_taken_back() {
    let mut world = on_trial();
    let crash = Ended { code: 137, message: "" };
    let replaced = |count| Replacement { count, last: at(0) };
    for (count, goes_back) in [(2, false), (3, true)] {
        world.replacements = [("spend-1".to_owned(), replaced(count))].into();
        world.kubelet_stops();
        world.set_controller();
        world.crash("spend-1", &crash);
        world.operator(usize::MAX);
        assert_eq!(revision(&world).failed.is_some(), goes_back, "replaced {count} times");
    }
    assert_eq!(revision(&world).failed.unwrap().reason, "WorkersRestarting");
}

/// Workers that never start: of which, and when, is said.
#[test]
fn a_revision_that_is_not_ready_in_time_is_taken_back() {
    let mut world = proven();
    world.edit(sql(B));
    let starts = |world: &mut World| {
        for _ in 0..20 {
            world.operator(usize::MAX);
            world.informer();
            world.set_controller();
            world.kubelet_stops();
            world.kubelet_plans();
            world.now += 1;
        }
    };
    starts(&mut world);
    assert_eq!((world.epoch(), world.pods.len()), (Some(2), 2));
    world.now += 4 * MINUTES;
    starts(&mut world);
    assert_eq!(revision(&world).failed, None);
    world.now += MINUTES;
    starts(&mut world);
    assert_eq!(revision(&world).failed.unwrap().reason, "WorkersNotReady");
    world.settle();
    assert!(is_taken_back(&world));
}

/// ```text
///  ready ── no input ── input ──────────────── deadline
///           │ does not count │ counts │ brokers away: does not │ counts
/// ```
#[test]
fn a_revision_that_does_not_commit_what_there_is_in_time_is_taken_back() {
    let mut world = on_trial();
    later(&mut world, 60 * MINUTES);
    assert_eq!(revision(&world).failed, None, "there is nothing to do");
    world.has_input = true;
    later(&mut world, 0);
    later(&mut world, 3 * MINUTES);
    let unreachable = BrokerFailure { reason: Reason::BrokerUnreachable, message: "no answer".to_owned() };
    world.broker = BrokerObserved::Failed(unreachable);
    later(&mut world, 0);
    later(&mut world, 30 * MINUTES);
    assert_eq!(revision(&world).failed, None, "the brokers are away");
    world.broker = BrokerObserved::Facts(facts());
    later(&mut world, 0);
    later(&mut world, 3 * MINUTES);
    assert_eq!(revision(&world).failed, None, "it begins anew when they are back");
    later(&mut world, 2 * MINUTES);
    assert!(is_taken_back(&world), "{:#?}", status(&world));
    assert_eq!(revision(&world).failed.unwrap().reason, "NoFirstCommit");
}

#[test]
fn the_way_back_waits_until_it_is_known_that_nothing_was_committed() {
    let mut world = on_trial();
    world.refuses_reads =
        Some(BrokerFailure { reason: Reason::BrokerUnreachable, message: "no answer in time".to_owned() });
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    later(&mut world, 30 * MINUTES);
    assert_eq!((world.epoch(), world.pods.len()), (Some(2), 0));
    assert_eq!(status(&world).operation.unwrap().step.as_deref(), Some("ReadingPositions"));
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "BrokerUnreachable".to_owned()));
    assert_eq!(world.condition(ConditionType::Reconciling), ("True".to_owned(), "ReadingPositions".to_owned()));
    world.refuses_reads = None;
    world.settle();
    assert!(is_taken_back(&world));
}

/// A suspension is no failure, and what was committed before it is seen.
#[rstest]
#[case::it_has_committed(true)]
#[case::it_has_not(false)]
fn a_suspended_revision_goes_on_as_what_it_was(#[case] commits: bool) {
    let mut world = on_trial();
    if commits {
        world.commit(false);
    }
    world.edit(state("Suspended"));
    world.settle();
    assert_eq!((status(&world).phase, status(&world).restore), (Some(Phase::Suspended), None));
    let stable = revision(&world).stable;
    assert_eq!(stable == revision(&world).target, commits);
    later(&mut world, 60 * MINUTES);
    world.edit(state("Running"));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(3), "True"));
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!(revision(&world).failed.is_some(), !commits);
}

#[test]
fn the_stable_revision_is_kept_however_long_ago_it_was_accepted() {
    let mut world = proven();
    let stable = revision(&world).stable.unwrap();
    for n in 0..12 {
        world.edit(sql(&format!("INSERT INTO totals SELECT '{n}' FROM orders")));
        world.settle();
    }
    world.crash("spend-0", &NO_HOPE);
    world.settle();
    assert_eq!(revision(&world).current, Some(stable));
}
