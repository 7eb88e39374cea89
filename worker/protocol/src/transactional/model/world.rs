use std::collections::BTreeSet;

use crate::transactional::{Class, Event, Exit, Mode};
use crate::{Partition, Token};

use super::broker::{Broker, Membership, RECORDS, Record, all_partitions, is_filtered};
use super::worker::{Fault, Worker};

/// Static identities in the group.
const IDS: usize = 2;

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Action {
    /// A worker does its next effect.
    Step(usize),
    /// A worker polls this many records of each of its partitions.
    Poll(usize, i64),
    /// The commit interval passes.
    Tick(usize),
    /// The next call of a worker goes wrong.
    Fail(usize, Fault),
    /// The group begins a rebalance.
    Rebalance,
    /// The group throws a worker out; it learns of it later.
    Kick(usize),
    /// A worker that was thrown out learns of it.
    Discover(usize),
    /// A process dies and is started again.
    Crash(usize),
    /// A new process is started while the old one goes on.
    Zombie(usize),
    /// A process is asked to finish.
    Drain(usize),
    /// The brokers' transaction timeout.
    TimeOut(usize),
    /// What was delayed arrives.
    DeliverDelayed,
}

/// Everything.
#[derive(Debug)]
pub(in super::super) struct World {
    mode: Mode,
    broker: Broker,
    /// All processes that still run, newest of each identity last.
    workers: Vec<Worker>,
    incarnations: usize,
    next_token: u64,
    is_rebalancing: bool,
    assignment: Vec<(usize, Vec<Partition>)>,
    spread: usize,
}

impl World {
    pub(in super::super) fn new(mode: Mode) -> Self {
        let mut world = Self {
            mode,
            broker: Broker::default(),
            workers: Vec::new(),
            incarnations: 0,
            next_token: 0,
            is_rebalancing: false,
            assignment: Vec::new(),
            spread: 0,
        };
        for id in 0..IDS {
            world.start(id);
        }
        world
    }

    fn start(&mut self, id: usize) {
        self.incarnations += 1;
        self.workers.push(Worker::new(id, self.incarnations, self.mode));
        // A static member comes back under its old name: the old process is fenced from the group.
        if self.broker.members.insert(id, self.incarnations).is_some() && !self.is_rebalancing {
            self.assign_one(id);
        } else {
            self.rebalance();
        }
    }

    fn newest(&self, id: usize) -> Option<usize> {
        let incarnation = *self.broker.members.get(&id)?;
        self.workers.iter().position(|worker| worker.incarnation == incarnation)
    }

    /// Does one action and checks what must always hold.
    pub(in super::super) fn act(&mut self, action: Action) {
        let count = self.workers.len();
        let any = |n: usize| (count > 0).then(|| n % count);
        match action {
            Action::Step(n) => {
                if let Some(n) = any(n) {
                    self.step(n);
                }
            }
            Action::Poll(n, limit) => {
                if let Some(n) = any(n) {
                    self.workers[n].poll(limit);
                }
            }
            Action::Tick(n) => {
                if let Some(n) = any(n) {
                    self.workers[n].tell(Event::Tick);
                }
            }
            Action::Fail(n, fault) => {
                if let Some(n) = any(n) {
                    self.workers[n].fault = Some(fault);
                }
            }
            Action::Drain(n) => {
                if let Some(n) = any(n) {
                    self.workers[n].tell(Event::Drain);
                }
            }
            Action::Rebalance => self.rebalance(),
            Action::Kick(id) => self.kick(id % IDS),
            Action::Discover(n) => {
                if let Some(n) = any(n) {
                    self.discover(n);
                }
            }
            Action::Crash(id) => {
                self.workers.retain(|worker| worker.id != id % IDS);
                self.start(id % IDS);
            }
            Action::Zombie(id) => self.start(id % IDS),
            Action::TimeOut(id) => self.broker.time_out(id % IDS),
            Action::DeliverDelayed => self.broker.deliver_delayed(),
        }
        self.finish_rebalance();
        self.check_no_duplicate();
    }

    fn step(&mut self, n: usize) {
        self.workers[n].step(&mut self.broker);
        let worker = &self.workers[n];
        let Some(exit) = worker.exit else { return };
        let (id, incarnation) = (worker.id, worker.incarnation);
        let is_member = self.broker.members.get(&id) == Some(&incarnation);
        if exit == Exit::Fenced {
            assert_ne!(self.broker.owner(id), Some(incarnation), "fenced, but nobody else has the id");
        }
        self.workers.remove(n);
        if is_member {
            self.broker.members.remove(&id);
            self.rebalance();
        }
    }

    /// Eager: everyone is asked to give up everything.
    fn rebalance(&mut self) {
        self.is_rebalancing = true;
        self.spread += 1;
        for (id, partitions) in std::mem::take(&mut self.assignment) {
            if let Some(n) = self.newest(id) {
                self.workers[n].tell(Event::Revoked(partitions));
            }
        }
    }

    fn finish_rebalance(&mut self) {
        if !self.is_rebalancing {
            return;
        }
        let mut ids: Vec<usize> = self.broker.members.keys().copied().collect();
        let all_in = ids.iter().all(|id| self.newest(*id).is_none_or(|n| self.workers[n].owed == 0));
        if !all_in || ids.is_empty() {
            return;
        }
        self.is_rebalancing = false;
        self.broker.generation += 1;
        let shift = self.spread % ids.len();
        ids.rotate_left(shift);
        self.assignment = ids.iter().map(|id| (*id, Vec::new())).collect();
        for (n, partition) in all_partitions().into_iter().enumerate() {
            let share = n % ids.len();
            self.assignment[share].1.push(partition);
        }
        for id in ids {
            self.assign_one(id);
        }
    }

    fn assign_one(&mut self, id: usize) {
        let Some((_, partitions)) = self.assignment.iter().find(|(member, _)| *member == id).cloned() else { return };
        let Some(n) = self.newest(id) else { return };
        self.next_token += 1;
        let token = Token(self.next_token);
        let generation = self.broker.generation;
        let incarnation = self.workers[n].incarnation;
        self.broker.tokens.insert(token, Membership { incarnation, generation, partitions: partitions.clone() });
        self.workers[n].tell(Event::Assigned { token, partitions });
    }

    fn kick(&mut self, id: usize) {
        if self.broker.members.len() > 1 && self.broker.members.remove(&id).is_some() {
            self.assignment.retain(|(member, _)| *member != id);
            self.rebalance();
        }
    }

    fn discover(&mut self, n: usize) {
        let (id, incarnation) = (self.workers[n].id, self.workers[n].incarnation);
        match self.broker.members.get(&id) {
            Some(member) if *member == incarnation => {}
            // Somebody newer has our name.
            Some(_) => {
                self.workers.remove(n);
            }
            None => {
                // Everything it was ever told is lost, also what waits to be looked at.
                self.workers[n].tell(Event::Lost(all_partitions()));
                self.broker.members.insert(id, incarnation);
                self.rebalance();
            }
        }
    }

    fn expected() -> BTreeSet<Record> {
        all_partitions()
            .into_iter()
            .flat_map(|partition| (0..RECORDS).map(move |offset| (partition, offset)))
            .filter(|record| !is_filtered(*record))
            .collect()
    }

    fn check_no_duplicate(&self) {
        if self.mode == Mode::ExactlyOnce {
            let distinct: BTreeSet<_> = self.broker.committed_outputs.iter().collect();
            assert_eq!(distinct.len(), self.broker.committed_outputs.len(), "a record's output was committed twice");
        }
    }

    fn is_finished(&self) -> bool {
        all_partitions().iter().all(|partition| self.broker.offsets.get(partition) == Some(&RECORDS))
    }

    /// No more faults: everything must come to its end.
    pub(in super::super) fn heal(&mut self) {
        self.broker.deliver_delayed();
        for id in 0..IDS {
            // What a process left behind that nobody restarted.
            if self.newest(id).is_none() {
                self.broker.members.remove(&id);
                self.start(id);
            }
        }
        for _ in 0..5_000 {
            for worker in &mut self.workers {
                worker.fault = None;
            }
            for n in (0..self.workers.len()).rev() {
                self.act(Action::Step(n));
            }
            for n in 0..self.workers.len() {
                self.act(Action::Poll(n, 5));
                self.act(Action::Tick(n));
            }
            for n in (0..self.workers.len()).rev() {
                self.act(Action::Discover(n));
            }
            for id in 0..IDS {
                if self.newest(id).is_none() {
                    self.start(id);
                }
            }
            if self.is_finished() && !(0..IDS).any(|id| self.broker.is_open(id)) {
                break;
            }
        }
        assert!(self.is_finished(), "stuck: {self:#?}");
        for id in 0..IDS {
            assert!(!self.broker.is_open(id), "a transaction was left open: {self:#?}");
        }
        let outputs: BTreeSet<_> = self.broker.committed_outputs.iter().copied().collect();
        assert_eq!(outputs, Self::expected(), "outputs are lost");
    }
}

/// Faults that real calls can end in.
pub(in super::super) const FAULTS: [Fault; 8] = [
    Fault::Refused(Class::Retry),
    Fault::Refused(Class::Refresh),
    Fault::Refused(Class::Abort),
    Fault::Refused(Class::Recreate),
    Fault::Refused(Class::Fatal),
    Fault::AnswerLost,
    Fault::RequestLost,
    Fault::Delayed,
];
