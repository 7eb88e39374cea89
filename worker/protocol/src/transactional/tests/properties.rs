use proptest::prelude::{ProptestConfig, Strategy, prop, prop_oneof, proptest};

use crate::transactional::Mode;
use crate::transactional::model::{Action, FAULTS, World};

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        30 => (0..4_usize).prop_map(Action::Step),
        12 => (0..4_usize, 1..6_i64).prop_map(|(n, limit)| Action::Poll(n, limit)),
        8 => (0..4_usize).prop_map(Action::Tick),
        6 => (0..4_usize, prop::sample::select(FAULTS.to_vec())).prop_map(|(n, fault)| Action::Fail(n, fault)),
        2 => prop::strategy::Just(Action::Rebalance),
        1 => (0..2_usize).prop_map(Action::Kick),
        3 => (0..4_usize).prop_map(Action::Discover),
        1 => (0..2_usize).prop_map(Action::Crash),
        1 => (0..2_usize).prop_map(Action::Zombie),
        1 => (0..4_usize).prop_map(Action::Drain),
        1 => (0..2_usize).prop_map(Action::TimeOut),
        2 => prop::strategy::Just(Action::DeliverDelayed),
    ]
}

fn run(mode: Mode, actions: &[Action]) {
    let mut world = World::new(mode);
    for action in actions {
        world.act(*action);
    }
    world.heal();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_once_holds_whatever_happens(actions in prop::collection::vec(action(), 0..200)) {
        run(Mode::ExactlyOnce, &actions);
    }

    #[test]
    fn at_least_once_loses_nothing_whatever_happens(actions in prop::collection::vec(action(), 0..200)) {
        run(Mode::AtLeastOnce, &actions);
    }
}
