//! Every order in which a few things can happen, over a small model.
//!
//! One step is a call arriving, its answer arriving, or something from outside; between any two of them each process may die. The
//! real machine is part of the state. Explored to the end: there is no limit but the number of disturbances, and that nothing
//! new comes after four failures in a row.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rstest::rstest;
use stateright::{Checker, Model, Property};

use crate::Partition;
use crate::transactional::model::{Action, Fault, Rebalances, Violation, World};
use crate::transactional::{Class, Mode};

/// What a call can end in. The machine treats every other class like one of these.
const FAULTS: [Fault; 7] = [
    Fault::Refused(Class::Retry),
    Fault::Refused(Class::Abort),
    Fault::Refused(Class::Fenced),
    Fault::RequestLost,
    Fault::AnswerLost,
    Fault::Late,
    Fault::Twice,
];

/// Failures in a row after which nothing new comes.
const MAX_FAILURES: u32 = 3;

/// How far it goes.
#[derive(Clone, Debug)]
struct Bounds {
    mode: Mode,
    rebalances: Rebalances,
    workers: usize,
    partitions: i32,
    records: i64,
    /// Faults, crashes, rebalances, timeouts: all that does not happen by itself.
    disturbances: u8,
    /// Processes of one worker at once.
    alive: usize,
    /// Of this many states one is healed.
    heal_one_in: u64,
}

/// A state: the world, and how many more disturbances there may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bounded {
    world: World,
    left: u8,
}

impl Model for Bounds {
    type State = Bounded;
    type Action = Action;

    fn init_states(&self) -> Vec<Bounded> {
        let log: BTreeMap<_, _> = (0..self.partitions).map(|n| (Partition::new(0, n), self.records)).collect();
        let mut world = World::new(self.mode, self.rebalances, self.workers, &log);
        world.do_private();
        vec![Bounded { world, left: self.disturbances }]
    }

    fn actions(&self, state: &Bounded, actions: &mut Vec<Action>) {
        let world = &state.world;
        if world.violation().is_some() {
            return;
        }
        for (_, process) in world.running() {
            actions.extend([
                Action::Step(process),
                Action::Poll(process, 1),
                Action::Tick(process),
                Action::Discover(process),
            ]);
        }
        actions.extend((0..world.late()).map(Action::Deliver));
        if state.left > 0 {
            self.disturbances(world, actions);
        }
        actions.retain(|action| world.may(*action));
    }

    fn next_state(&self, state: &Bounded, action: Action) -> Option<Bounded> {
        let mut state = state.clone();
        let is_free = matches!(
            action,
            Action::Step(_) | Action::Poll(..) | Action::Tick(_) | Action::Discover(_) | Action::Deliver(_)
        );
        state.left -= u8::from(!is_free);
        state.world.act(action);
        // What changes only a process's own memory is seen by nobody else and forgotten when it dies: a crash in between is the
        // same as a crash before.
        state.world.do_private();
        Some(state)
    }

    fn within_boundary(&self, state: &Bounded) -> bool {
        state.world.failures() <= MAX_FAILURES
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no output is committed twice", |_, state: &Bounded| !state.has(Violation::Duplicate)),
            Property::always("outputs and positions are committed together", |_, state: &Bounded| {
                !state.has(Violation::Torn) && !state.has(Violation::Loss)
            }),
            Property::always("no position of a foreign partition", |_, state: &Bounded| !state.has(Violation::Foreign)),
            Property::always("the machine never breaks", |_, state: &Bounded| !state.has(Violation::Broken)),
            Property::always("promises are kept", |_, state: &Bounded| {
                !matches!(state.world.violation(), Some(Violation::Promise(_)))
            }),
            Property::always("without faults it comes to its end", Self::heals),
            // That these are reached shows that the others are not kept for want of an occasion.
            Property::sometimes("everything is committed", |_, state: &Bounded| state.world.is_finished()),
        ];
        if self.mode == Mode::ExactlyOnce {
            properties.extend([
                Property::sometimes("a transaction expires", |_, state: &Bounded| state.world.has_expired()),
                Property::sometimes("a late end finds a later transaction", |_, state: &Bounded| {
                    state.world.has_stale_end()
                }),
            ]);
        }
        if self.alive > 1 {
            properties.push(Property::sometimes("two take a partition for their own", |_, state: &Bounded| {
                let mut owned: Vec<_> = state.world.owners().map(|(partition, _)| partition).collect();
                let all = owned.len();
                owned.sort_unstable();
                owned.dedup();
                owned.len() < all
            }));
        }
        properties
    }
}

impl Bounded {
    fn has(&self, violation: Violation) -> bool {
        self.world.violation() == Some(violation)
    }
}

impl Bounds {
    fn disturbances(&self, world: &World, actions: &mut Vec<Action>) {
        for (_, process) in world.running() {
            actions.extend(FAULTS.map(|fault| Action::Fail(process, fault)));
            actions.extend([Action::Drain(process), Action::PollBad(process, 1)]);
        }
        for id in 0..self.workers {
            actions.extend([Action::Kick(id), Action::Crash(id), Action::TimeOut(id)]);
            if world.running().filter(|(of, _)| *of == id).count() < self.alive {
                actions.push(Action::Zombie(id));
            }
        }
        actions.push(Action::Rebalance);
    }

    fn heals(&self, state: &Bounded) -> bool {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if !hasher.finish().is_multiple_of(self.heal_one_in) {
            return true;
        }
        let mut world = state.world.clone();
        world.heal(self.workers);
        world.violation().is_none()
    }

    /// Goes through all states, which are at least so many.
    fn explore(self, states: usize) {
        let checker = self.checker().spawn_bfs().join();
        checker.assert_properties();
        let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{unique} states, {depth} steps deep");
        assert!(unique >= states, "only {unique} states: something cannot happen any more");
    }
}

const ONE: Bounds = Bounds {
    mode: Mode::ExactlyOnce,
    rebalances: Rebalances::Eager,
    workers: 1,
    partitions: 1,
    records: 3,
    disturbances: 2,
    alive: 1,
    heal_one_in: 1,
};
const ZOMBIE: Bounds = Bounds { records: 1, alive: 2, heal_one_in: 10, ..ONE };
const TWO: Bounds = Bounds { workers: 2, partitions: 2, records: 1, disturbances: 1, heal_one_in: 10, ..ONE };
const TWO_AND_ZOMBIE: Bounds = Bounds { partitions: 1, records: 2, alive: 2, ..TWO };

#[rstest]
#[case::one_worker(ONE, 140_000)]
#[case::one_worker_and_its_zombie(ZOMBIE, 790_000)]
#[case::two_workers(TWO, 480_000)]
#[case::two_workers_and_a_zombie(TWO_AND_ZOMBIE, 300_000)]
#[case::one_worker_at_least_once(Bounds { mode: Mode::AtLeastOnce, ..ONE }, 85_000)]
#[case::two_workers_at_least_once(Bounds { mode: Mode::AtLeastOnce, ..TWO }, 250_000)]
#[case::one_worker_incremental(Bounds { rebalances: Rebalances::Incremental, ..ONE }, 135_000)]
#[case::two_workers_incremental(Bounds { rebalances: Rebalances::Incremental, ..TWO }, 200_000)]
#[case::two_workers_and_a_zombie_incremental(Bounds { rebalances: Rebalances::Incremental, ..TWO_AND_ZOMBIE }, 200_000)]
fn nothing_that_can_happen_breaks_the_guarantee(#[case] bounds: Bounds, #[case] states: usize) {
    bounds.explore(states);
}

#[rstest]
#[case::one_worker(Bounds { disturbances: 3, heal_one_in: 10, ..ONE }, 1_650_000)]
#[case::one_worker_and_its_zombie(Bounds { records: 2, ..ZOMBIE }, 1_800_000)]
#[case::two_workers_and_a_zombie(Bounds { alive: 2, ..TWO }, 1_220_000)]
#[ignore = "a minute of CPU each"]
fn nothing_that_can_happen_breaks_the_guarantee_deep(#[case] bounds: Bounds, #[case] states: usize) {
    bounds.explore(states);
}
