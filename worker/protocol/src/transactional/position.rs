use std::collections::BTreeMap;

use crate::{Offset, Partition};

use super::event::Start;

/// What is known about a partition that we own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Position {
    /// Newly assigned; nothing is read yet. When the group has no position, it is this one, if we knew one under the assignment before.
    New(Option<Offset>),
    /// It was read, but what is committed is in doubt: look again before reading on. When the group has no position, it is still
    /// this one: the start policy is asked once, since `Latest` would be a later place the second time.
    Doubtful(Offset),
    /// Everything is known.
    Known {
        /// Where a failed transaction goes back to.
        committed: Offset,
        /// After the last record processed.
        next: Offset,
        /// The group does not have `committed` yet.
        pinned: bool,
        /// Records were dropped after they were read: read again from `next`.
        rewind: bool,
    },
}

/// Why a batch cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale;

/// Positions of the partitions we own.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Positions(BTreeMap<Partition, Position>);

impl Positions {
    /// Takes over an assignment: these are all that we own, and all of them are to be read anew. Mostly nothing was owned before; but the
    /// group takes nothing back from a member that has not begun to read, and assigns anew.
    pub(super) fn own(&mut self, partitions: impl IntoIterator<Item = Partition>) {
        let before = std::mem::take(&mut self.0);
        let start = |partition: &Partition| match *before.get(partition)? {
            Position::New(start) => start,
            Position::Doubtful(committed) | Position::Known { committed, .. } => Some(committed),
        };
        self.0 = partitions.into_iter().map(|partition| (partition, Position::New(start(&partition)))).collect();
    }

    /// Takes over what comes on top of the rest, to be read anew.
    pub(super) fn own_too(&mut self, partitions: impl IntoIterator<Item = Partition>) {
        for partition in partitions {
            self.0.insert(partition, Position::New(None));
        }
    }

    pub(super) fn disown(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.0.remove(partition);
        }
    }

    pub(super) fn is_owned(&self, partition: Partition) -> bool {
        self.0.contains_key(&partition)
    }

    /// Advances by what a batch consumed; all of it or nothing.
    pub(super) fn advance(&mut self, consumed: &[(Partition, Offset, Offset)]) -> Result<(), Stale> {
        let fits = consumed.iter().all(|(partition, first, after)| match self.0.get(partition) {
            Some(Position::Known { next, rewind: false, .. }) => first >= next && after >= first,
            _ => false,
        });
        if !fits {
            return Err(Stale);
        }
        for (partition, _, after) in consumed {
            if let Some(Position::Known { next, .. }) = self.0.get_mut(partition) {
                *next = *after;
            }
        }
        Ok(())
    }

    /// Positions that the group does not have yet.
    pub(super) fn uncommitted(&self) -> Vec<(Partition, Offset)> {
        self.0
            .iter()
            .filter_map(|(partition, position)| match position {
                Position::Known { committed, next, pinned, .. } if *pinned || next != committed => {
                    Some((*partition, *next))
                }
                _ => None,
            })
            .collect()
    }

    pub(super) fn has_uncommitted(&self) -> bool {
        self.0.values().any(|position| match position {
            Position::Known { committed, next, pinned, .. } => *pinned || next != committed,
            Position::New(_) | Position::Doubtful(_) => false,
        })
    }

    /// The group has these now.
    pub(super) fn commit(&mut self, staged: &[(Partition, Offset)]) {
        for (partition, offset) in staged {
            if let Some(Position::Known { committed, pinned, .. }) = self.0.get_mut(partition) {
                *committed = *offset;
                *pinned = false;
            }
        }
    }

    /// What was processed since the last commit does not count.
    pub(super) fn roll_back(&mut self) {
        for position in self.0.values_mut() {
            if let Position::Known { committed, next, rewind, .. } = position {
                *next = *committed;
                *rewind = true;
            }
        }
    }

    /// A batch was dropped, or the client has lost its place: what comes after the last record processed has to be read again.
    pub(super) fn reread(&mut self) {
        for position in self.0.values_mut() {
            if let Position::Known { rewind, .. } = position {
                *rewind = true;
            }
        }
    }

    /// What is committed has to be looked up again.
    pub(super) fn doubt(&mut self) {
        for position in self.0.values_mut() {
            if let Position::Known { committed, .. } = *position {
                *position = Position::Doubtful(committed);
            }
        }
    }

    pub(super) fn unresolved(&self) -> Vec<Partition> {
        self.0
            .iter()
            .filter(|(_, position)| matches!(position, Position::New(_) | Position::Doubtful(_)))
            .map(|(partition, _)| *partition)
            .collect()
    }

    /// Takes over what was looked up; returns the partitions that have not been read before.
    pub(super) fn resolve(&mut self, found: &[(Partition, Start)]) -> Vec<(Partition, Offset)> {
        let mut fresh = Vec::new();
        for (partition, start) in found {
            let Some(position) = self.0.get_mut(partition) else { continue };
            let (at, rewind) = match (*position, *start) {
                (Position::New(before), start) => {
                    let at = match (before, start) {
                        (Some(before), Start::Chosen(_)) => before,
                        (_, start) => start.offset(),
                    };
                    fresh.push((*partition, at));
                    (at, false)
                }
                (Position::Doubtful(before), Start::Chosen(_)) => (before, true),
                (Position::Doubtful(_), Start::Committed(offset)) => (offset, true),
                (Position::Known { .. }, _) => continue,
            };
            *position = Position::Known { committed: at, next: at, pinned: matches!(start, Start::Chosen(_)), rewind };
        }
        fresh
    }

    /// Partitions that have to be read again, and from where.
    pub(super) fn take_rewinds(&mut self) -> Vec<(Partition, Offset)> {
        self.0
            .iter_mut()
            .filter_map(|(partition, position)| match position {
                Position::Known { next, rewind, .. } if *rewind => {
                    *rewind = false;
                    Some((*partition, *next))
                }
                _ => None,
            })
            .collect()
    }

    /// The last committed position of each partition, where it is known to be in the group.
    pub(super) fn committed(&self) -> impl Iterator<Item = (Partition, Option<Offset>, Option<Offset>)> + '_ {
        self.0.iter().map(|(partition, position)| match position {
            Position::Known { committed, next, pinned, .. } => {
                (*partition, (!pinned).then_some(*committed), Some(*next))
            }
            Position::New(_) | Position::Doubtful(_) => (*partition, None, None),
        })
    }
}
