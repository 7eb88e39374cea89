//! `spec.upgrade.approval: Manual`: a new revision waits for a person, with everything checked and nothing done.

use serde_json::json;

use super::*;

const B: &str = "INSERT INTO totals SELECT 'b' FROM orders";

/// A job that runs, and wants to be asked.
fn asks() -> World {
    let mut world = World::new();
    world.edit(|spec| spec["upgrade"] = json!({ "approval": "Manual" }));
    world.settle();
    assert_eq!(world.epoch(), Some(1), "the first start needs no approval");
    assert_eq!(world.condition(ConditionType::Approved), ("True".to_owned(), "ApprovalNotNeeded".to_owned()));
    world.events.clear();
    world
}

fn target(world: &World) -> String {
    world.job.status.clone().unwrap().revision.unwrap().target.unwrap()
}

fn approve(world: &mut World, revision: &str) {
    world.annotate(names::ANNOTATION_APPROVE, revision);
}

/// ```text
///  new spec ─▶ planned, brokers asked ─▶ waits, says what would change ─▶ approved ─▶ topics, revision, restart
/// ```
#[test]
fn a_new_revision_waits_for_approval_with_everything_checked_and_nothing_done() {
    let mut world = asks();
    world.edit(|spec| {
        spec["pipeline"]["sql"] = B.into();
        spec["pipeline"]["sinks"][0]["kafka"] =
            json!({ "topic": "other", "format": { "json": {} }, "create": { "partitions": 2 } });
    });
    if let BrokerObserved::Facts(facts) = &mut world.broker {
        facts.topics.insert("other".to_owned(), TopicFacts::Missing);
    }
    world.settle();
    assert_eq!((world.epoch(), world.pods.len(), world.revisions.len()), (Some(1), 2, 1));
    assert_eq!(world.condition(ConditionType::Approved), ("False".to_owned(), "ApprovalNeeded".to_owned()));
    assert_eq!(world.condition(ConditionType::Reconciling), ("True".to_owned(), "ApprovalNeeded".to_owned()));
    assert_eq!(world.condition(ConditionType::Stalled).0, "False");
    assert_eq!(world.condition(ConditionType::SpecValid).0, "True");
    assert_eq!(world.condition(ConditionType::Ready), ("False".to_owned(), "ApprovalNeeded".to_owned()));
    assert_eq!(world.events, ["ApprovalNeeded"], "once");
    let revision = target(&world);
    let told = world.message(ConditionType::Approved);
    for part in [
        "- spec.pipeline.sql has changed",
        "- spec.pipeline.sinks[totals].kafka.topic is other, not totals",
        "- topics to create: other",
        &format!("kubectl --namespace shop annotate --overwrite streamjob spend fencepost.dev/approve={revision}"),
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // What runs is looked after, and what needs no restart needs no approval.
    world.edit(|spec| spec["replicas"] = 3.into());
    world.settle();
    assert_eq!((world.epoch(), world.pods.len()), (Some(1), 3));
    approve(&mut world, "0000000000");
    world.settle();
    assert_eq!(world.epoch(), Some(1), "that was another revision");
    let made = |world: &World| match &world.broker {
        BrokerObserved::Facts(facts) => matches!(facts.topics["other"], TopicFacts::Exists { .. }),
        _ => false,
    };
    assert!(!made(&world));
    approve(&mut world, &revision);
    world.settle();
    assert!(made(&world) && world.epoch() == Some(2));
    assert_eq!(world.condition(ConditionType::Ready).0, "True");
    assert_eq!(world.condition(ConditionType::Approved).0, "True");
    // The next one asks again.
    world.edit(sql("INSERT INTO totals SELECT 'c' FROM orders"));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Approved).0.as_str()), (Some(2), "False"));
    // Going back to what runs needs nothing.
    world.edit(sql(B));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(2), "True"));
}

#[test]
fn nobody_is_asked_about_a_spec_that_cannot_run() {
    let mut world = asks();
    world.edit(|spec| {
        spec["pipeline"]["sql"] = B.into();
        spec["processing"]["transactionTimeout"] = "4s".into();
    });
    world.settle();
    assert_eq!(world.condition(ConditionType::SpecValid).0, "False");
    assert_eq!(world.condition(ConditionType::Stalled), ("True".to_owned(), "SpecInvalid".to_owned()));
    assert_eq!(world.condition(ConditionType::Approved).1, "ApprovalNotNeeded");
    // Nor about one that nobody has to approve any more.
    world.edit(|spec| {
        spec["processing"]["transactionTimeout"] = "30s".into();
        spec["upgrade"] = json!({});
    });
    world.settle();
    assert_eq!(world.epoch(), Some(2));
}

/// The way back from a version that fails is not asked for: it is what was approved before.
#[test]
fn a_rollback_needs_no_approval() {
    let mut world = asks();
    world.commit(true);
    world.settle();
    world.edit(sql(B));
    world.settle();
    let revision = target(&world);
    approve(&mut world, &revision);
    world.settle();
    assert_eq!(world.epoch(), Some(2));
    world.crash("spend-0", &Ended { code: 65, message: "" });
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::RolledBack).0.as_str()), (Some(3), "True"));
}

/// Nothing would change: the spec that was taken back to runs.
#[test]
fn the_way_back_to_what_runs_needs_no_approval() {
    let mut world = asks();
    world.commit(true);
    world.settle();
    let first = world.job.spec.pipeline.sql.clone();
    world.edit(sql(B));
    world.settle();
    let revision = target(&world);
    approve(&mut world, &revision);
    world.settle();
    world.crash("spend-0", &Ended { code: 65, message: "" });
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::RolledBack).0.as_str()), (Some(3), "True"));
    world.edit(sql(&first));
    world.settle();
    assert_eq!((world.epoch(), world.condition(ConditionType::Ready).0.as_str()), (Some(3), "True"));
    assert_eq!(world.condition(ConditionType::Approved).0, "True");
}
