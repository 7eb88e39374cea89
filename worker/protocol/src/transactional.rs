//! The `transactional` protocol: one Kafka transaction per commit interval holds outputs and input positions.
//!
//! ```text
//!             ┌──────────────────────── a call failed: the producer is dropped ───────────────────────┐
//!             ▼                                                                                        │
//!  Closed ─▶ Opening ─▶ Idle ◀──▶ Resolving          positions of new, or doubtful, partitions         │
//!             ▲          │ ▲                                                                           │
//!             │          │ └───────────────────────────────────────────────────────────┐               │
//!             │          ├─ first output ─▶ Beginning ─▶ Producing ◀─▶ Open            │               │
//!             │          │                     ▲                         │ commit due   │               │
//!             │          │ only positions      │                         ▼              │               │
//!             │          └─────────────────────┴─ Beginning           Flushing          │               │
//!             │                                      │                   ▼              │               │
//!             │                                      └────────────▶ SendingOffsets ─▶ Committing        │
//!             │                                                          │              │               │
//!          Waiting ◀── Aborting ◀── abortable error, or partitions lost ─┘              │               │
//!             ▲                                                                         ▼               │
//!             └─────────────────────────────────────────────────────────────────── (outcome unknown) ◀──┘
//! ```
//!
//! Rules, each with the place that keeps it:
//! - A position comes from consumed records or from a resolved start, never from the client's idea of a position
//!   ([`Machine::on`] with [`Event::Batch`], [`Event::Resolved`]).
//! - Offsets go into a transaction only for partitions that are owned, with the group metadata captured with the assignment
//!   they were polled under ([`Token`](crate::Token)).
//! - Offsets are sent after the deliveries are confirmed, because an offset sent first fences nothing and costs a retry.
//! - A transaction begins with the first output or offset: an idle job sends nothing.
//! - On revoke the transaction is finished, then the partitions are given up. On lost it is aborted.
//! - When the outcome of a call is not known, the producer is replaced (its initialisation ends the old transaction one way or
//!   the other) and *then* the committed positions are read again: they tell what became of it.
//!
//! With [`Mode::AtLeastOnce`] the same machine runs without transactions: deliveries are confirmed, then the group's positions
//! are committed.

mod event;
mod machine;
mod position;
mod state;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use event::{Batch, Call, Class, Effect, Event, Exit, Mode, Outputs, Start};
pub use machine::{MAX_RETRIES, Machine};
pub use state::{IllegalTransition, State};
