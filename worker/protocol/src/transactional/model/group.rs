use std::collections::BTreeSet;

use crate::transactional::Event;
use crate::{Partition, Token};

use super::broker::{Broker, Membership};
use super::worker::Worker;
use super::{IDS, Process};

/// How partitions change hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) enum Rebalances {
    /// Everyone gives up everything, then everyone gets a share.
    #[default]
    Eager,
    /// Members keep what stays theirs; what moves is given to its next owner when the one before has given it up (KIP-848).
    Incremental,
}

/// The consumer group, with static members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Group {
    rebalances: Rebalances,
    /// Only under the eager protocol.
    is_rebalancing: bool,
    /// Under the incremental protocol: what everyone shall have in the end.
    assignment: Vec<(usize, Vec<Partition>)>,
    /// Moves the shares, so that a rebalance changes something.
    spread: usize,
    next_token: u64,
}

/// The process that has the identity in the group, if it runs.
pub(super) fn member(id: usize, broker: &Broker, workers: &[Worker]) -> Option<usize> {
    let process = *broker.members.get(&id)?;
    workers.iter().position(|worker| worker.process == process)
}

impl Group {
    pub(super) fn new(rebalances: Rebalances) -> Self {
        Self { rebalances, ..Self::default() }
    }

    /// A static member comes back under its old name: the old process is fenced from the group.
    pub(super) fn join(&mut self, id: usize, process: Process, broker: &mut Broker, workers: &mut [Worker]) {
        let is_known = broker.members.insert(id, process).is_some() && !self.is_rebalancing;
        match self.rebalances {
            Rebalances::Eager if is_known => self.assign_one(id, broker, workers),
            // It is told of what its predecessor had.
            Rebalances::Incremental if is_known => {}
            _ => self.rebalance(broker, workers),
        }
    }

    /// A member that was thrown out comes back, once it has answered the loss of all it had.
    pub(super) fn join_again(&mut self, id: usize, process: Process, broker: &mut Broker, workers: &mut [Worker]) {
        self.forget(id, broker);
        broker.members.insert(id, process);
        if let Some(n) = member(id, broker, workers) {
            workers[n].told.clear();
            workers[n].asked_back.clear();
        }
        self.rebalance(broker, workers);
    }

    /// A client answers one change before it looks at the next. Under the eager protocol a loss may come on top of an assignment.
    pub(super) fn may_discover(&self, worker: &Worker) -> bool {
        self.rebalances == Rebalances::Eager || (!worker.is_unanswered && worker.owed == 0)
    }

    pub(super) fn forget(&mut self, id: usize, broker: &mut Broker) {
        broker.members.remove(&id);
        broker.holdings.remove(&id);
        self.assignment.retain(|(member, _)| *member != id);
    }

    pub(super) fn rebalance(&mut self, broker: &mut Broker, workers: &mut [Worker]) {
        self.spread = (self.spread + 1) % IDS;
        if self.rebalances == Rebalances::Incremental {
            broker.generation += 1;
            self.share_out(broker);
            return;
        }
        self.is_rebalancing = true;
        for (id, partitions) in std::mem::take(&mut self.assignment) {
            if let Some(n) = member(id, broker, workers).filter(|n| !workers[*n].is_unanswered) {
                workers[n].tell(Event::Revoked(partitions));
            }
        }
    }

    pub(super) fn leave(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        broker.members.remove(&id);
        broker.holdings.remove(&id);
        self.rebalance(broker, workers);
    }

    /// The group throws a member out for its silence.
    pub(super) fn kick(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        if broker.members.contains_key(&id) {
            self.forget(id, broker);
            self.rebalance(broker, workers);
        }
    }

    /// Goes on with what was waiting for answers.
    pub(super) fn go_on(&mut self, broker: &mut Broker, workers: &mut [Worker]) {
        match self.rebalances {
            Rebalances::Eager => self.finish_rebalance(broker, workers),
            Rebalances::Incremental => {
                for id in broker.members.keys().copied().collect::<Vec<_>>() {
                    self.reconcile(id, broker, workers);
                }
            }
        }
    }

    /// Gives the shares out when everyone has given up what they had.
    fn finish_rebalance(&mut self, broker: &mut Broker, workers: &mut [Worker]) {
        let all_in = broker.members.keys().all(|id| member(*id, broker, workers).is_none_or(|n| workers[n].owed == 0));
        if !self.is_rebalancing || !all_in || broker.members.is_empty() {
            return;
        }
        self.is_rebalancing = false;
        broker.generation += 1;
        self.share_out(broker);
        for id in self.assignment.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.assign_one(id, broker, workers);
        }
    }

    fn share_out(&mut self, broker: &Broker) {
        let mut ids: Vec<usize> = broker.members.keys().copied().collect();
        if ids.is_empty() {
            self.assignment.clear();
            return;
        }
        let shift = self.spread % ids.len();
        ids.rotate_left(shift);
        self.assignment = ids.iter().map(|id| (*id, Vec::new())).collect();
        for (n, partition) in broker.log.keys().enumerate() {
            self.assignment[n % ids.len()].1.push(*partition);
        }
    }

    fn assign_one(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        let Some((_, partitions)) = self.assignment.iter().find(|(member, _)| *member == id).cloned() else { return };
        let Some(n) = member(id, broker, workers) else { return };
        let token = self.capture(broker.generation, partitions.clone(), n, broker, workers);
        workers[n].tell(Event::Assigned { token, partitions });
    }

    /// Brings a member nearer to what it shall have, when it has answered what it was told last.
    fn reconcile(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        let Some(n) = member(id, broker, workers).filter(|n| workers[*n].owed == 0 && !workers[*n].is_unanswered)
        else {
            return;
        };
        let target: BTreeSet<Partition> =
            self.assignment.iter().filter(|(of, _)| *of == id).flat_map(|(_, partitions)| partitions.clone()).collect();
        let worker = &mut workers[n];
        let is_new = !broker.holdings.contains_key(&id) || !worker.has_joined();
        let holding = broker.holdings.entry(id).or_default();
        for partition in std::mem::take(&mut worker.asked_back) {
            worker.told.remove(&partition);
            holding.partitions.remove(&partition);
        }
        // What a process was never told of, it need not give up.
        holding.partitions.retain(|partition, _| target.contains(partition) || worker.told.contains(partition));
        let back: Vec<Partition> = worker.told.difference(&target).copied().collect();
        if !back.is_empty() {
            worker.asked_back.clone_from(&back);
            worker.tell(Event::Revoked(back));
            return;
        }
        let is_free = |partition: &Partition| {
            broker.holdings.iter().all(|(of, other)| *of == id || !other.partitions.contains_key(partition))
        };
        let added: Vec<Partition> = target
            .iter()
            .filter(|partition| !workers[n].told.contains(partition) && is_free(partition))
            .copied()
            .collect();
        workers[n].told.extend(&added);
        let generation = broker.generation;
        if let Some(holding) = broker.holdings.get_mut(&id) {
            for partition in &added {
                holding.partitions.entry(*partition).or_insert(generation);
            }
            holding.generation = generation;
        }
        if !added.is_empty() || is_new {
            let told = workers[n].told.iter().copied().collect();
            let token = self.capture(generation, told, n, broker, workers);
            workers[n].tell(Event::Added { token, partitions: added });
        }
    }

    /// The metadata of a member at this moment.
    fn capture(
        &mut self,
        generation: u32,
        partitions: Vec<Partition>,
        n: usize,
        broker: &mut Broker,
        workers: &[Worker],
    ) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        let process = workers[n].process;
        // Metadata of assignments that nothing refers to any more.
        let current = workers[n].current_token();
        let is_of_use = |token: &Token, old: &Membership| match old.process {
            of if of == process => Some(*token) >= current,
            of => workers.iter().any(|worker| worker.process == of),
        };
        broker.tokens.retain(|token, old| is_of_use(token, old));
        broker.tokens.insert(token, Membership { process, generation, partitions });
        token
    }
}
