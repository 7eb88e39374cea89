use std::collections::{BTreeMap, BTreeSet};

use crate::transactional::Class;
use crate::{Partition, Token};

/// Input partitions of the model.
const PARTITIONS: i32 = 3;
/// Records in each of them.
pub(super) const RECORDS: i64 = 12;

/// A record of the input; its output carries the same identity.
pub(super) type Record = (Partition, i64);

/// Records whose identity says that the pipeline filters them out.
pub(super) fn is_filtered(record: Record) -> bool {
    (record.1 + i64::from(record.0.number)) % 4 == 3
}

pub(super) fn all_partitions() -> Vec<Partition> {
    (0..PARTITIONS).map(|number| Partition::new(0, number)).collect()
}

#[derive(Debug, Default)]
struct Transaction {
    outputs: Vec<Record>,
    offsets: BTreeMap<Partition, i64>,
}

#[derive(Debug, Default)]
struct Coordinated {
    epoch: u32,
    /// Epochs that ended because their transaction took too long, not because someone newer came.
    expired: BTreeSet<u32>,
    open: Option<Transaction>,
    /// Who initialised it last.
    owner: usize,
}

/// Who vouches for offsets: the incarnation of a worker, as a member of a generation.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) incarnation: usize,
    pub(super) generation: u32,
    pub(super) partitions: Vec<Partition>,
}

/// Brokers: transaction coordinator, log of outputs, group coordinator.
#[derive(Debug, Default)]
pub(super) struct Broker {
    ids: BTreeMap<usize, Coordinated>,
    pub(super) committed_outputs: Vec<Record>,
    pub(super) offsets: BTreeMap<Partition, i64>,
    /// EndTxn requests that are still somewhere in the network.
    delayed: Vec<(usize, u32)>,
    pub(super) generation: u32,
    /// Which incarnation is the member of each static identity.
    pub(super) members: BTreeMap<usize, usize>,
    /// Every metadata ever captured.
    pub(super) tokens: BTreeMap<Token, Membership>,
}

impl Broker {
    pub(super) fn owner(&self, id: usize) -> Option<usize> {
        self.ids.get(&id).map(|coordinated| coordinated.owner)
    }

    pub(super) fn init(&mut self, id: usize, incarnation: usize) -> u32 {
        let coordinated = self.ids.entry(id).or_default();
        coordinated.owner = incarnation;
        coordinated.epoch += 1;
        coordinated.open = None;
        coordinated.epoch
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

    pub(super) fn produce(&mut self, id: usize, epoch: u32, outputs: &[Record]) -> Result<(), Class> {
        self.check_producer(id, epoch)?;
        self.open_mut(id).outputs.extend_from_slice(outputs);
        Ok(())
    }

    pub(super) fn produce_without_transaction(&mut self, outputs: &[Record]) {
        self.committed_outputs.extend_from_slice(outputs);
    }

    /// The brokers check generation and member, and nothing else: ownership is the worker's duty.
    fn check_member(&self, token: Token) -> Result<(), Class> {
        let Some(membership) = self.tokens.get(&token) else { return Err(Class::Refresh) };
        let is_current = self.members.values().any(|incarnation| *incarnation == membership.incarnation);
        if is_current && membership.generation == self.generation { Ok(()) } else { Err(Class::Refresh) }
    }

    pub(super) fn send_offsets(
        &mut self,
        id: usize,
        epoch: u32,
        token: Token,
        offsets: &BTreeMap<Partition, i64>,
    ) -> Result<(), Class> {
        self.check_producer(id, epoch)?;
        self.check_member(token)?;
        self.open_mut(id).offsets.extend(offsets);
        Ok(())
    }

    pub(super) fn commit_offsets(&mut self, token: Token, offsets: &BTreeMap<Partition, i64>) -> Result<(), Class> {
        self.check_member(token)?;
        self.offsets.extend(offsets);
        Ok(())
    }

    pub(super) fn commit(&mut self, id: usize, epoch: u32) -> Result<(), Class> {
        self.check_producer(id, epoch)?;
        if let Some(transaction) = self.ids.get_mut(&id).and_then(|coordinated| coordinated.open.take()) {
            self.committed_outputs.extend(transaction.outputs);
            self.offsets.extend(transaction.offsets);
        }
        Ok(())
    }

    pub(super) fn delay_commit(&mut self, id: usize, epoch: u32) {
        self.delayed.push((id, epoch));
    }

    pub(super) fn deliver_delayed(&mut self) {
        for (id, epoch) in std::mem::take(&mut self.delayed) {
            let _refused_when_stale = self.commit(id, epoch);
        }
    }

    pub(super) fn abort(&mut self, id: usize, epoch: u32) -> Result<(), Class> {
        self.check_producer(id, epoch)?;
        if let Some(coordinated) = self.ids.get_mut(&id) {
            coordinated.open = None;
        }
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
