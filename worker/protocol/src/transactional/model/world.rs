use std::collections::BTreeMap;

use crate::Partition;
use crate::transactional::{Event, Mode};

use super::broker::{Broker, Written};
use super::group::{Group, Rebalances, member};
use super::truth;
use super::worker::{Fault, Worker};
use super::{IDS, Process, Violation};

/// One thing that happens. Of a process that has ended, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Action {
    /// A process does its next effect, or gets the answer to the last one.
    Step(Process),
    /// It goes wrong.
    Fail(Process, Fault),
    /// A process polls this many records of each of its partitions.
    Poll(Process, i64),
    /// The same, and the next record cannot be processed.
    PollBad(Process, i64),
    /// The commit interval passes.
    Tick(Process),
    /// A process is asked to finish.
    Drain(Process),
    /// A process that was thrown out of the group learns of it.
    Discover(Process),
    /// The group begins a rebalance.
    Rebalance,
    /// The group throws a member out.
    Kick(usize),
    /// All processes of an identity die, and a new one is started.
    Crash(usize),
    /// A new process is started while the old one goes on.
    Zombie(usize),
    /// The brokers' transaction timeout.
    TimeOut(usize),
    /// A late request arrives.
    Deliver(usize),
    /// The topic gets one more partition, with this many records.
    AddPartition(i64),
    /// A partition gets one more record.
    Append(Partition),
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct World {
    mode: Mode,
    broker: Broker,
    group: Group,
    /// All processes that still run, the oldest first.
    workers: Vec<Worker>,
    started: Process,
    violation: Option<Violation>,
}

impl World {
    /// Identities that have just started a process each, and a topic with these partitions.
    pub(in super::super) fn new(
        mode: Mode,
        rebalances: Rebalances,
        ids: usize,
        log: &BTreeMap<Partition, i64>,
    ) -> Self {
        let mut world = Self {
            mode,
            broker: Broker::new(log.clone()),
            group: Group::new(rebalances),
            workers: Vec::new(),
            started: 0,
            violation: None,
        };
        for id in 0..ids {
            world.start(id);
        }
        world.look();
        world
    }

    pub(in super::super) const fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// The group's positions.
    pub(in super::super) const fn committed(&self) -> &BTreeMap<Partition, i64> {
        &self.broker.offsets
    }

    /// What a reader of the output sees, and how often.
    pub(in super::super) const fn outputs(&self) -> &Written {
        &self.broker.outputs
    }

    /// Who takes which partition for its own.
    pub(in super::super) fn owners(&self) -> impl Iterator<Item = (Partition, Process)> + '_ {
        self.workers.iter().flat_map(|worker| worker.owned().map(|partition| (partition, worker.process)))
    }

    fn start(&mut self, id: usize) {
        self.started += 1;
        self.workers.push(Worker::new(id, self.started, self.mode));
        self.group.join(id, self.started, &mut self.broker, &mut self.workers);
    }

    /// Does one action and looks whether what must always hold still does.
    pub(in super::super) fn act(&mut self, action: Action) {
        match action {
            Action::Rebalance => self.group.rebalance(&mut self.broker, &mut self.workers),
            Action::Kick(id) => self.group.kick(id, &mut self.broker, &mut self.workers),
            Action::Crash(id) => {
                self.workers.retain(|worker| worker.id != id);
                self.start(id);
            }
            Action::Zombie(id) => self.start(id),
            Action::TimeOut(id) => self.broker.time_out(id),
            Action::Deliver(n) if n < self.broker.late() => self.broker.deliver(n),
            Action::Deliver(_) => {}
            Action::AddPartition(records) => {
                let number = i32::try_from(self.broker.log.len()).unwrap();
                self.broker.log.insert(Partition::new(0, number), records);
                self.group.rebalance(&mut self.broker, &mut self.workers);
            }
            Action::Append(partition) => *self.broker.log.entry(partition).or_default() += 1,
            Action::Step(process)
            | Action::Fail(process, _)
            | Action::Poll(process, _)
            | Action::PollBad(process, _)
            | Action::Tick(process)
            | Action::Drain(process)
            | Action::Discover(process) => {
                if let Some(n) = self.workers.iter().position(|worker| worker.process == process) {
                    self.act_on(n, action);
                }
            }
        }
        self.group.go_on(&mut self.broker, &mut self.workers);
        self.look();
    }

    fn act_on(&mut self, n: usize, action: Action) {
        let worker = &mut self.workers[n];
        match action {
            Action::Step(_) => {
                worker.step(&mut self.broker);
                if worker.exit.is_some() {
                    self.exited(n);
                }
            }
            Action::Fail(_, fault) => worker.fail(fault, &mut self.broker),
            Action::Poll(_, limit) => worker.poll(limit, false, &self.broker),
            Action::PollBad(_, limit) => worker.poll(limit, true, &self.broker),
            Action::Tick(_) => worker.tick(),
            Action::Drain(_) => worker.tell(Event::Drain),
            Action::Discover(_) => self.discover(n),
            _ => {}
        }
    }

    fn exited(&mut self, n: usize) {
        let worker = self.workers.remove(n);
        self.violation = self.violation.or(worker.violation);
        let is_member = self.broker.members.get(&worker.id) == Some(&worker.process);
        if is_member {
            self.group.leave(worker.id, &mut self.broker, &mut self.workers);
        }
    }

    fn discover(&mut self, n: usize) {
        let (id, process) = (self.workers[n].id, self.workers[n].process);
        match self.broker.members.get(&id) {
            Some(member) if *member == process => {}
            // Somebody newer has our name.
            Some(_) => {
                let worker = self.workers.remove(n);
                self.violation = self.violation.or(worker.violation);
            }
            None if !self.group.may_discover(&self.workers[n]) => {}
            None => {
                // Everything it was ever told is lost, also what waits to be looked at.
                let all = self.broker.log.keys().copied().collect();
                self.workers[n].tell(Event::Lost(all));
                self.group.join_again(id, process, &mut self.broker, &mut self.workers);
            }
        }
    }

    fn look(&mut self) {
        let (outputs, offsets) = (&self.broker.outputs, &self.broker.offsets);
        let truth = match self.mode {
            Mode::ExactlyOnce => truth::exactly_once(outputs, offsets),
            Mode::AtLeastOnce => truth::at_least_once(outputs, offsets),
        };
        let by_workers = self.workers.iter().find_map(|worker| worker.violation);
        self.violation = self.violation.or(by_workers).or(truth);
    }

    pub(in super::super) fn is_finished(&self) -> bool {
        self.broker.offsets == self.broker.log && !(0..IDS).any(|id| self.broker.is_open(id))
    }

    /// The processes that run, with their identities, the oldest first.
    pub(in super::super) fn running(&self) -> impl Iterator<Item = (usize, Process)> + '_ {
        self.workers.iter().map(|worker| (worker.id, worker.process))
    }

    /// Failures in a row that are being waited out.
    pub(in super::super) fn failures(&self) -> u32 {
        self.workers.iter().map(Worker::waiting).max().unwrap_or(0)
    }

    pub(in super::super) fn late(&self) -> usize {
        self.broker.late()
    }

    pub(in super::super) fn has_stale_end(&self) -> bool {
        self.broker.has_stale_end()
    }

    pub(in super::super) fn has_expired(&self) -> bool {
        self.broker.has_expired()
    }

    /// Whether the action can change anything.
    pub(in super::super) fn may(&self, action: Action) -> bool {
        let of = |process: Process| self.workers.iter().find(|worker| worker.process == process);
        match action {
            Action::Step(process) => of(process).is_some_and(Worker::may_step),
            Action::Fail(process, fault) => of(process).is_some_and(|worker| worker.may_fail(fault)),
            Action::Poll(process, _) | Action::PollBad(process, _) => {
                of(process).is_some_and(|worker| worker.may_poll() && worker.has_records(&self.broker))
            }
            Action::Tick(process) => of(process).is_some_and(Worker::may_tick),
            Action::Drain(process) => of(process).is_some_and(|worker| !worker.is_draining()),
            Action::Discover(process) => of(process).is_some_and(|worker| {
                self.broker.members.get(&worker.id) != Some(&process) && self.group.may_discover(worker)
            }),
            Action::Kick(id) => self.broker.members.contains_key(&id),
            Action::TimeOut(id) => self.broker.is_open(id),
            Action::Deliver(n) => n < self.broker.late(),
            Action::Rebalance | Action::Crash(_) | Action::Zombie(_) | Action::AddPartition(_) | Action::Append(_) => {
                true
            }
        }
    }

    /// Each process does what only changes its own memory.
    pub(in super::super) fn do_private(&mut self) {
        while let Some(worker) = self.workers.iter().find(|worker| worker.is_next_private()) {
            self.act(Action::Step(worker.process));
        }
    }

    /// One round without faults: everybody gets to do something, and what was left behind is started again.
    fn round(&mut self, ids: usize) {
        let running: Vec<Process> = self.workers.iter().map(|worker| worker.process).collect();
        for process in running {
            self.act(Action::Step(process));
            self.act(Action::Poll(process, 5));
            self.act(Action::Tick(process));
            self.act(Action::Discover(process));
        }
        for id in 0..ids {
            // Of a process that is gone, and that nobody came after.
            let is_held = self.workers.iter().any(|worker| worker.id == id && worker.holds_open(&self.broker));
            if self.broker.is_open(id) && !is_held {
                self.act(Action::TimeOut(id));
            }
            if self.broker.members.contains_key(&id) && member(id, &self.broker, &self.workers).is_some() {
                continue;
            }
            if self.workers.iter().all(|worker| worker.id != id) {
                self.group.forget(id, &mut self.broker);
                self.start(id);
            }
        }
    }

    /// No more faults: everything must come to its end.
    pub(in super::super) fn heal(&mut self, ids: usize) {
        while self.broker.late() > 0 {
            self.act(Action::Deliver(0));
        }
        for _ in 0..500 {
            if self.is_finished() || self.violation.is_some() {
                break;
            }
            self.round(ids);
        }
        let outcome = match () {
            () if self.broker.offsets != self.broker.log => Some(Violation::Stuck),
            () if !self.is_finished() => Some(Violation::LeftOpen),
            () => None,
        };
        self.violation = self.violation.or(outcome);
    }
}
