//! Long random sequences of what can happen, over the whole model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, prop};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use crate::Partition;
use crate::transactional::model::{Action, Fault, IDS, Process, Rebalances, World, outputs_of};
use crate::transactional::{Class, Mode};

/// Everything a call can end in.
const FAULTS: [Fault; 11] = [
    Fault::Refused(Class::Retry),
    Fault::Refused(Class::Refresh),
    Fault::Refused(Class::Abort),
    Fault::Refused(Class::Recreate),
    Fault::Refused(Class::Fenced),
    Fault::Refused(Class::Fatal),
    Fault::Refused(Class::Unknown),
    Fault::RequestLost,
    Fault::AnswerLost,
    Fault::Late,
    Fault::Twice,
];

/// Processes of one identity that may run at once.
const MAX_ALIVE: usize = 3;
const MAX_PARTITIONS: usize = 5;

/// What can be known without looking at any worker: which records there are, and which processes.
#[derive(Clone, Debug)]
struct Surroundings {
    /// Every partition's records: no position beyond them may ever be committed, and in the end every position is there.
    log: BTreeMap<Partition, i64>,
    /// Processes that were started and not killed, the oldest first. They may have ended by themselves.
    alive: Vec<(usize, Process)>,
    started: Process,
    /// Requests that may be late.
    late: usize,
}

impl Surroundings {
    fn start(&mut self, id: usize) {
        self.started += 1;
        self.alive.push((id, self.started));
    }

    fn is_alive(&self, process: Process) -> bool {
        self.alive.iter().any(|(_, alive)| *alive == process)
    }

    fn count(&self, id: usize) -> usize {
        self.alive.iter().filter(|(of, _)| *of == id).count()
    }
}

impl ReferenceStateMachine for Surroundings {
    type State = Self;
    type Transition = Action;

    fn init_state() -> BoxedStrategy<Self> {
        prop::collection::vec(0..10_i64, 1..=3)
            .prop_map(|ends| {
                let log = (0..).zip(ends).map(|(number, end)| (Partition::new(0, number), end)).collect();
                let mut state = Self { log, alive: Vec::new(), started: 0, late: 0 };
                (0..IDS).for_each(|id| state.start(id));
                state
            })
            .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Action> {
        let alive: Vec<Process> = state.alive.iter().map(|(_, process)| *process).collect();
        let process = || prop::sample::select(alive.clone());
        let partition = prop::sample::select(state.log.keys().copied().collect::<Vec<_>>());
        proptest::prop_oneof![
            48 => process().prop_map(Action::Step),
            12 => (process(), 1..6_i64).prop_map(|(process, limit)| Action::Poll(process, limit)),
            1 => (process(), 1..6_i64).prop_map(|(process, limit)| Action::PollBad(process, limit)),
            8 => process().prop_map(Action::Tick),
            8 => (process(), prop::sample::select(&FAULTS[..])).prop_map(|(process, fault)| Action::Fail(process, fault)),
            1 => process().prop_map(Action::Drain),
            3 => process().prop_map(Action::Discover),
            2 => Just(Action::Rebalance),
            1 => (0..IDS).prop_map(Action::Kick),
            1 => (0..IDS).prop_map(Action::Crash),
            1 => (0..IDS).prop_map(Action::Zombie),
            1 => (0..IDS).prop_map(Action::TimeOut),
            2 => (0..state.late.max(1)).prop_map(Action::Deliver),
            1 => (0..6_i64).prop_map(Action::AddPartition),
            1 => partition.prop_map(Action::Append),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, action: &Action) -> bool {
        match action {
            Action::Step(process)
            | Action::Fail(process, _)
            | Action::Poll(process, _)
            | Action::PollBad(process, _)
            | Action::Tick(process)
            | Action::Drain(process)
            | Action::Discover(process) => state.is_alive(*process),
            Action::Zombie(id) => state.count(*id) < MAX_ALIVE,
            Action::Deliver(n) => *n < state.late,
            Action::AddPartition(_) => state.log.len() < MAX_PARTITIONS,
            Action::Append(partition) => state.log.contains_key(partition),
            Action::Rebalance | Action::Kick(_) | Action::Crash(_) | Action::TimeOut(_) => true,
        }
    }

    fn apply(mut state: Self, action: &Action) -> Self {
        match action {
            Action::Crash(id) => {
                state.alive.retain(|(of, _)| of != id);
                state.start(*id);
            }
            Action::Zombie(id) => state.start(*id),
            Action::Fail(_, Fault::Late | Fault::Twice) => state.late += 1,
            Action::Deliver(_) => state.late -= 1,
            Action::AddPartition(records) => {
                let number = i32::try_from(state.log.len()).unwrap();
                state.log.insert(Partition::new(0, number), *records);
            }
            Action::Append(partition) => *state.log.entry(*partition).or_default() += 1,
            _ => {}
        }
        state
    }
}

struct Story<const IS_EXACTLY_ONCE: bool, const IS_INCREMENTAL: bool>;

impl<const IS_EXACTLY_ONCE: bool, const IS_INCREMENTAL: bool> StateMachineTest
    for Story<IS_EXACTLY_ONCE, IS_INCREMENTAL>
{
    type SystemUnderTest = World;
    type Reference = Surroundings;

    fn init_test(truth: &Surroundings) -> World {
        let mode = if IS_EXACTLY_ONCE { Mode::ExactlyOnce } else { Mode::AtLeastOnce };
        let rebalances = if IS_INCREMENTAL { Rebalances::Incremental } else { Rebalances::Eager };
        World::new(mode, rebalances, IDS, &truth.log)
    }

    fn apply(mut world: World, _: &Surroundings, action: Action) -> World {
        world.act(action);
        world
    }

    fn check_invariants(world: &World, truth: &Surroundings) {
        assert_eq!(world.violation(), None, "{world:#?}");
        for (partition, committed) in world.committed() {
            assert!(committed <= &truth.log[partition], "{partition} is committed beyond its end");
        }
        for (partition, process) in world.owners() {
            assert!(truth.is_alive(process), "{partition} is owned by a process that does not run");
        }
    }

    fn teardown(mut world: World, truth: Surroundings) {
        world.heal(IDS);
        assert_eq!(world.violation(), None, "{world:#?}");
        assert_eq!(world.committed(), &truth.log, "the end was not reached");
        let written: BTreeSet<_> = world.outputs().keys().copied().collect();
        assert_eq!(written, outputs_of(&truth.log).collect(), "outputs are lost");
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn exactly_once_holds_whatever_happens(sequential 1..250 => Story<true, false>);

    #[test]
    fn at_least_once_loses_nothing_whatever_happens(sequential 1..250 => Story<false, false>);

    #[test]
    fn exactly_once_holds_whatever_happens_to_a_group_that_moves_single_partitions(sequential 1..250 => Story<true, true>);

    #[test]
    fn at_least_once_loses_nothing_in_a_group_that_moves_single_partitions(sequential 1..250 => Story<false, true>);
}
