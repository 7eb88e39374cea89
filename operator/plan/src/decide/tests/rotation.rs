//! Credentials that change.

use super::*;

/// Everything happens, but no worker becomes ready.
fn without_starts(world: &mut World) {
    for _ in 0..12 {
        world.operator(usize::MAX);
        world.informer();
        world.set_controller();
        world.kubelet_stops();
    }
}

/// ```text
///  Secret changes ─▶ template ─▶ spend-1 replaced ─▶ ready ─▶ spend-0 replaced ─▶ ready
/// ```
#[test]
fn changed_credentials_replace_workers_one_by_one_within_their_epoch() {
    let mut world = with_password();
    world.secret("kafka-user", "second");
    let (mut fewest, mut order) = (2, Vec::new());
    for _ in 0..12 {
        for happens in [World::informer, World::set_controller, World::kubelet_stops, World::kubelet_starts] {
            world.operator(usize::MAX);
            fewest = fewest.min(working(&world));
            happens(&mut world);
            order.extend(rotated(&world).into_iter().filter(|pod| !order.contains(pod)).collect::<Vec<_>>());
        }
    }
    assert_eq!((fewest, world.epoch()), (1, Some(1)));
    assert_eq!(order, ["spend-1", "spend-0"]);
    assert_eq!(world.condition(ConditionType::Reconciling).0, "False");
    assert_eq!(world.events, ["Rotating", "AllWorkersReady", "AllWorkersReady"]);
    let decision = world.decide();
    assert!(matches!(decision.acts.as_slice(), [Act::Apply { .. }]), "{:?}", decision.acts);
}

#[test]
fn credentials_that_do_not_work_stop_at_the_first_worker_and_newer_ones_go_to_it_at_once() {
    let mut world = with_password();
    world.secret("kafka-user", "wrong");
    without_starts(&mut world);
    assert_eq!((rotated(&world), working(&world)), (vec!["spend-1".to_owned()], 1));
    assert_eq!(world.condition(ConditionType::Reconciling), ("True".to_owned(), "Rotating".to_owned()));
    world.secret("kafka-user", "right");
    without_starts(&mut world);
    assert_eq!((rotated(&world), working(&world)), (vec!["spend-1".to_owned()], 1));
    world.settle();
    assert_eq!((rotated(&world).len(), working(&world)), (2, 2));
}

#[test]
fn no_worker_is_replaced_while_its_successor_could_still_get_the_old_credentials() {
    let replaced = |world: &World| {
        let acts = world.decide().acts;
        acts.iter().filter(|act| matches!(act, Act::Replace(_))).count()
    };
    let mut world = with_password();
    world.secret("kafka-user", "second");
    assert_eq!(replaced(&world), 0, "the template is not there");
    world.operator(usize::MAX);
    world.set_controller();
    assert_eq!(replaced(&world), 0, "the controller has not seen it");
    world.informer();
    world.set_controller();
    assert_eq!(replaced(&world), 1);
    world.operator(usize::MAX);
    // Not ready any more, but not gone either.
    world.pods.iter_mut().filter(|pod| pod.metadata.deletion_timestamp.is_some()).for_each(|pod| pod.status = None);
    assert_eq!(replaced(&world), 0, "it was asked to stop already");
}

#[test]
fn no_worker_is_replaced_before_the_brokers_have_taken_the_new_credentials() {
    let mut world = with_password();
    world.secret("kafka-user", "second");
    world.broker =
        BrokerObserved::Failed(BrokerFailure { reason: Reason::AuthenticationFailed, message: "refused".to_owned() });
    world.settle();
    assert_eq!((rotated(&world).len(), working(&world)), (0, 2));
    assert_eq!(world.condition(ConditionType::Degraded), ("True".to_owned(), "AuthenticationFailed".to_owned()));
    world.broker = BrokerObserved::Facts(facts());
    world.settle();
    assert_eq!((rotated(&world).len(), working(&world)), (2, 2));
}

#[test]
fn a_refused_newer_spec_does_not_keep_the_running_one_from_new_credentials() {
    let mut world = with_password();
    world.refuses_children = Some("spec.template: requests above limits".to_owned());
    world.edit(sql("INSERT INTO totals SELECT 'x' FROM orders"));
    world.broker = BrokerObserved::NotAsked;
    world.secret("kafka-user", "second");
    world.settle();
    assert_eq!((rotated(&world).len(), world.epoch()), (2, Some(1)));
}

#[test]
fn a_secret_that_cannot_be_read_restarts_nothing() {
    let mut world = with_password();
    world.secrets = Fingerprints::default();
    let decision = world.decide();
    assert_eq!(Some(decision.status), world.job.status);
    world.settle();
    assert!(world.events.is_empty(), "{:?}", world.events);
}
