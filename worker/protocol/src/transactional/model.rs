//! A model of what surrounds the machine: brokers with transactions, a consumer group with static members and the eager
//! or the incremental protocol, processes that crash, are kicked out, or live on as zombies, and a network that loses answers, and delays and
//! repeats requests.
//!
//! The machine under test is the real one. The model knows the truth and looks after every action for a [`Violation`]; when the
//! faults stop, [`World::heal`] must bring everything to its end. What acts on it is in `tests`.
//!
//! Two things that brokers and clients do are not in it:
//! - A request that the client repeats by itself and whose first copy arrives after a *successful* answer: whoever makes the calls must
//!   turn such a success into [`Class::Unknown`](super::Class::Unknown). [`Class::Retry`](super::Class::Retry) stands for "not done,
//!   and no copy is left".
//! - A position that is committed without a transaction and arrives late puts the group's position back: at-least-once allows it.

mod broker;
mod group;
mod truth;
mod worker;
mod world;

use crate::Partition;

pub(super) use group::Rebalances;
pub(super) use truth::{Violation, outputs_of};
pub(super) use worker::Fault;
pub(super) use world::{Action, World};

/// A record of the input; its output carries the same identity.
pub(super) type Record = (Partition, i64);

/// Names one process; a later one has a higher number.
pub(super) type Process = usize;

/// Static identities in the group. Each is a transactional id, too.
pub(super) const IDS: usize = 2;
