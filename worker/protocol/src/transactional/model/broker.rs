use std::collections::{BTreeMap, BTreeSet};

use crate::transactional::Class;
use crate::{Partition, Token};

use super::{Process, Record};

/// How often each output was written.
pub(in super::super) type Written = BTreeMap<Record, u8>;

fn write(to: &mut Written, outputs: impl IntoIterator<Item = (Record, u8)>) {
    for (record, times) in outputs {
        *to.entry(record).or_default() += times;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Transaction {
    outputs: Written,
    offsets: BTreeMap<Partition, i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Coordinated {
    epoch: u32,
    /// Epochs that ended because their transaction took too long, not because someone newer came.
    expired: BTreeSet<u32>,
    open: Option<Transaction>,
}

/// Who vouches for offsets: a process, as a member of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Membership {
    pub(super) process: Process,
    pub(super) generation: u32,
    pub(super) partitions: Vec<Partition>,
}

/// What the group takes a member of the incremental protocol to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Holding {
    /// Since which generation it has each partition.
    pub(super) partitions: BTreeMap<Partition, u32>,
    /// The generation that it has caught up with.
    pub(super) generation: u32,
}

/// How a transaction is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Commit,
    Abort,
}

/// What goes over the network to the transaction coordinator and the logs. `id` is the transactional id. An init brings no epoch:
/// it is of a new producer, and fences whoever was there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Init { id: usize },
    Produce { id: usize, epoch: u32, outputs: Vec<Record> },
    Offsets { id: usize, epoch: u32, token: Token, offsets: BTreeMap<Partition, i64> },
    End { id: usize, epoch: u32, end: End },
}

/// Brokers: input and output logs, transaction coordinator, group coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Broker {
    ids: BTreeMap<usize, Coordinated>,
    /// Input partitions, and how many records they have.
    pub(super) log: BTreeMap<Partition, i64>,
    /// What a reader with `read_committed` sees.
    pub(super) outputs: Written,
    pub(super) offsets: BTreeMap<Partition, i64>,
    /// Requests that are still somewhere in the network, and that nobody waits for.
    late: Vec<Request>,
    pub(super) generation: u32,
    /// Which process is the member of each static identity.
    pub(super) members: BTreeMap<usize, Process>,
    /// By static identity. Empty under the eager protocol.
    pub(super) holdings: BTreeMap<usize, Holding>,
    /// Every metadata ever captured.
    pub(super) tokens: BTreeMap<Token, Membership>,
}

impl Broker {
    pub(super) fn new(log: BTreeMap<Partition, i64>) -> Self {
        Self { log, ..Self::default() }
    }

    /// A request arrives. An init is answered with an epoch.
    pub(super) fn handle(&mut self, request: Request) -> Result<Option<u32>, Class> {
        match request {
            Request::Init { id } => {
                let coordinated = self.ids.entry(id).or_default();
                coordinated.epoch += 1;
                coordinated.open = None;
                return Ok(Some(coordinated.epoch));
            }
            Request::Produce { id, epoch, outputs } => {
                self.check_producer(id, epoch)?;
                write(&mut self.open_mut(id).outputs, outputs.into_iter().map(|record| (record, 1)));
            }
            Request::Offsets { id, epoch, token, offsets } => {
                self.check_producer(id, epoch)?;
                self.check_member(token, &offsets)?;
                self.open_mut(id).offsets.extend(offsets);
            }
            Request::End { id, epoch, end } => {
                self.check_producer(id, epoch)?;
                let open = self.ids.get_mut(&id).and_then(|coordinated| coordinated.open.take());
                if let (Some(transaction), End::Commit) = (open, end) {
                    write(&mut self.outputs, transaction.outputs);
                    self.offsets.extend(transaction.offsets);
                }
            }
        }
        Ok(None)
    }

    pub(super) fn delay(&mut self, request: Request) {
        self.late.push(request);
    }

    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    /// One of the late requests arrives.
    pub(super) fn deliver(&mut self, n: usize) {
        let request = self.late.remove(n);
        let _nobody_learns_of_it = self.handle(request);
    }

    /// Whether a late request would end a transaction, were it not for the epoch.
    pub(super) fn has_stale_end(&self) -> bool {
        self.late.iter().any(|request| match request {
            Request::End { id, epoch, .. } => self.is_open(*id) && !self.is_open_at(*id, *epoch),
            _ => false,
        })
    }

    /// Whether a transaction took too long for the brokers.
    pub(super) fn has_expired(&self) -> bool {
        self.ids.values().any(|coordinated| !coordinated.expired.is_empty())
    }

    /// The brokers end a transaction that takes too long and fence its producer.
    pub(super) fn time_out(&mut self, id: usize) {
        if let Some(coordinated) = self.ids.get_mut(&id)
            && coordinated.open.take().is_some()
        {
            coordinated.expired.insert(coordinated.epoch);
            coordinated.epoch += 1;
        }
    }

    pub(super) fn check_producer(&self, id: usize, epoch: u32) -> Result<(), Class> {
        let Some(coordinated) = self.ids.get(&id) else { return Err(Class::Recreate) };
        if coordinated.epoch == epoch {
            return Ok(());
        }
        // The worker asks the brokers which of the two it was.
        if coordinated.expired.contains(&epoch) && coordinated.epoch == epoch + 1 {
            Err(Class::Recreate)
        } else {
            Err(Class::Fenced)
        }
    }

    fn open_mut(&mut self, id: usize) -> &mut Transaction {
        self.ids.entry(id).or_default().open.get_or_insert_default()
    }

    pub(super) fn produce_without_transaction(&mut self, outputs: Vec<Record>) {
        write(&mut self.outputs, outputs.into_iter().map(|record| (record, 1)));
    }

    /// The brokers check generation and member, and nothing else: ownership is the worker's duty. Under the incremental protocol they also
    /// take an older generation for partitions that the member has had since then (KIP-1251).
    fn check_member(&self, token: Token, offsets: &BTreeMap<Partition, i64>) -> Result<(), Class> {
        let Some(membership) = self.tokens.get(&token) else { return Err(Class::Refresh) };
        let member = self.members.iter().find(|(_, process)| **process == membership.process);
        let Some((id, _)) = member else { return Err(Class::Refresh) };
        let is_current = match self.holdings.get(id) {
            None => membership.generation == self.generation,
            Some(holding) => {
                let has = |partition| holding.partitions.get(partition).is_some_and(|at| *at <= membership.generation);
                membership.generation == holding.generation || offsets.keys().all(has)
            }
        };
        if is_current { Ok(()) } else { Err(Class::Refresh) }
    }

    pub(super) fn commit_offsets(&mut self, token: Token, offsets: BTreeMap<Partition, i64>) -> Result<(), Class> {
        self.check_member(token, &offsets)?;
        self.offsets.extend(offsets);
        Ok(())
    }

    pub(super) fn is_open(&self, id: usize) -> bool {
        self.ids.get(&id).is_some_and(|coordinated| coordinated.open.is_some())
    }

    pub(super) fn is_open_at(&self, id: usize, epoch: u32) -> bool {
        self.ids.get(&id).is_some_and(|coordinated| coordinated.open.is_some() && coordinated.epoch == epoch)
    }

    /// Committed position; not while a transaction holds one that is undecided (KIP-447).
    pub(super) fn fetch(&self, partition: Partition) -> Result<Option<i64>, Class> {
        let undecided = self
            .ids
            .values()
            .any(|coordinated| coordinated.open.as_ref().is_some_and(|t| t.offsets.contains_key(&partition)));
        if undecided { Err(Class::Retry) } else { Ok(self.offsets.get(&partition).copied()) }
    }
}
