use crate::transactional::Event;
use crate::{Partition, Token};

use super::broker::{Broker, Membership};
use super::worker::Worker;
use super::{IDS, Process};

/// The consumer group: static members, the eager protocol. Everyone gives up everything, then everyone gets a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Group {
    is_rebalancing: bool,
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
    /// A static member comes back under its old name: the old process is fenced from the group.
    pub(super) fn join(&mut self, id: usize, process: Process, broker: &mut Broker, workers: &mut [Worker]) {
        if broker.members.insert(id, process).is_some() && !self.is_rebalancing {
            self.assign_one(id, broker, workers);
        } else {
            self.rebalance(broker, workers);
        }
    }

    pub(super) fn rebalance(&mut self, broker: &Broker, workers: &mut [Worker]) {
        self.is_rebalancing = true;
        self.spread = (self.spread + 1) % IDS;
        for (id, partitions) in std::mem::take(&mut self.assignment) {
            if let Some(n) = member(id, broker, workers).filter(|n| !workers[*n].is_unanswered) {
                workers[n].tell(Event::Revoked(partitions));
            }
        }
    }

    pub(super) fn leave(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        broker.members.remove(&id);
        self.rebalance(broker, workers);
    }

    /// The group throws a member out for its silence.
    pub(super) fn kick(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        if broker.members.remove(&id).is_some() {
            self.assignment.retain(|(member, _)| *member != id);
            self.rebalance(broker, workers);
        }
    }

    /// Gives the shares out when everyone has given up what they had.
    pub(super) fn finish_rebalance(&mut self, broker: &mut Broker, workers: &mut [Worker]) {
        let mut ids: Vec<usize> = broker.members.keys().copied().collect();
        let all_in = ids.iter().all(|id| member(*id, broker, workers).is_none_or(|n| workers[n].owed == 0));
        if !self.is_rebalancing || !all_in || ids.is_empty() {
            return;
        }
        self.is_rebalancing = false;
        broker.generation += 1;
        let shift = self.spread % ids.len();
        ids.rotate_left(shift);
        self.assignment = ids.iter().map(|id| (*id, Vec::new())).collect();
        for (n, partition) in broker.log.keys().enumerate() {
            self.assignment[n % ids.len()].1.push(*partition);
        }
        for id in ids {
            self.assign_one(id, broker, workers);
        }
    }

    fn assign_one(&mut self, id: usize, broker: &mut Broker, workers: &mut [Worker]) {
        let Some((_, partitions)) = self.assignment.iter().find(|(member, _)| *member == id).cloned() else { return };
        let Some(n) = member(id, broker, workers) else { return };
        self.next_token += 1;
        let token = Token(self.next_token);
        let process = workers[n].process;
        let membership = Membership { process, generation: broker.generation, partitions: partitions.clone() };
        // Metadata of assignments that nothing refers to any more.
        let current = workers[n].current_token();
        let is_of_use = |token: &Token, old: &Membership| match old.process {
            of if of == process => Some(*token) >= current,
            of => workers.iter().any(|worker| worker.process == of),
        };
        broker.tokens.retain(|token, old| is_of_use(token, old));
        broker.tokens.insert(token, membership);
        workers[n].tell(Event::Assigned { token, partitions });
    }
}
