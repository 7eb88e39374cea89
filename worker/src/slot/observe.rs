use std::time::Duration;

use fencepost_kafka::error::ErrorClass;
use strum::IntoStaticStr;

/// How a transaction ended. With at-least-once, a commit of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Committed.
    Committed,
    /// Aborted, by us.
    Aborted,
    /// Left to the next initialisation or to the brokers' timeout.
    Abandoned,
}

/// What the group did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RebalanceKind {
    /// Partitions came.
    Assigned,
    /// Partitions were asked back.
    Revoked,
    /// Partitions were lost.
    Lost,
}

/// Something that metrics are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observation {
    /// A batch was read and processed.
    Batch {
        /// Records read.
        records_in: u64,
        /// Bytes of their keys and values.
        bytes_in: u64,
        /// Records to write.
        records_out: u64,
        /// Bytes of their keys and values.
        bytes_out: u64,
        /// Bad records among those read.
        bad: u64,
        /// Time in the pipeline.
        took: Duration,
    },
    /// A transaction ended.
    Transaction {
        /// How.
        outcome: Outcome,
        /// Since its first output or position.
        open_for: Duration,
        /// From the decision to end it to its end.
        took: Duration,
        /// Records written in it.
        records_out: u64,
        /// Bytes of their keys and values.
        bytes_out: u64,
    },
    /// The group changed the assignment.
    Rebalance(RebalanceKind),
    /// Something failed.
    Error(ErrorClass),
}

/// Turns what slots do into metrics. Called on the slot's thread: be quick.
pub trait Observer: Send + Sync {
    /// Something happened in a slot.
    fn observe(&self, slot: u32, observation: Observation);
}

/// Looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: u32, _: Observation) {}
}
