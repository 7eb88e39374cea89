use strum::{Display, IntoStaticStr};

use crate::{Offset, Partition, Token};

/// How a job commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum Mode {
    /// Outputs and positions in one transaction.
    ExactlyOnce,
    /// Positions after confirmed outputs.
    AtLeastOnce,
}

/// What an error asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum Class {
    /// The same call may be made again: it had no effect, and no copy of it is still under way that could have one.
    Retry,
    /// The group has moved on: the metadata is of no use any more.
    Refresh,
    /// The transaction is lost, the producer is not.
    Abort,
    /// The producer is lost.
    Recreate,
    /// A newer producer or member has our name.
    Fenced,
    /// Something outside must change (permissions, configuration). Tried again, slowly: it may change.
    Fatal,
    /// It is not known whether the call took effect.
    Unknown,
}

/// A call to the outside whose result the machine waits for. At most one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum Call {
    /// Create a producer and initialise it: fences its predecessors, ends their transaction.
    OpenProducer,
    /// Find the positions of partitions.
    Resolve,
    /// Begin a transaction.
    Begin,
    /// Hand the outputs of the held batch to the producer.
    Produce,
    /// Wait until all outputs are confirmed.
    Flush,
    /// Put positions into the transaction.
    SendOffsets,
    /// Commit the transaction.
    Commit,
    /// Commit positions to the group, without a transaction.
    CommitOffsets,
    /// Abort the transaction.
    Abort,
}

impl Call {
    /// Name of the point *after* this call, before its result is told, for fault injection: stable, lower case.
    #[must_use]
    pub const fn fault_point(self) -> &'static str {
        match self {
            Self::OpenProducer => "after-open-producer",
            Self::Resolve => "after-resolve",
            Self::Begin => "after-begin",
            Self::Produce => "after-produce",
            Self::Flush => "after-flush",
            Self::SendOffsets => "after-send-offsets",
            Self::Commit => "after-commit",
            Self::CommitOffsets => "after-commit-offsets",
            Self::Abort => "after-abort",
        }
    }
}

/// Whether a batch produced anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// Every record was filtered out or skipped.
    None,
    /// The runtime holds outputs for [`Effect::Produce`].
    Some,
}

/// A processed batch: which input it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The assignment the records were polled under.
    pub token: Token,
    /// Per partition: offset of the first record, and the position after the last.
    pub consumed: Vec<(Partition, Offset, Offset)>,
    /// Whether there are outputs to hand over.
    pub outputs: Outputs,
    /// The record after the last one consumed cannot be processed, and its source says to stop: commit what is before it and
    /// end there.
    pub stop_before: Option<(Partition, Offset)>,
}

/// Where a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The group has this position.
    Committed(Offset),
    /// The group has none; the source's start policy chose this one. It is committed with the first commit even when no record
    /// came, so that a restart begins at the same place.
    Chosen(Offset),
}

impl Start {
    /// The position.
    #[must_use]
    pub const fn offset(self) -> Offset {
        match self {
            Self::Committed(offset) | Self::Chosen(offset) => offset,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The slot starts.
    Start,
    /// The group gave us partitions; `token` names the metadata captured at this moment.
    Assigned {
        /// Names the metadata.
        token: Token,
        /// All that we have now.
        partitions: Vec<Partition>,
    },
    /// The group gave us partitions on top of those that we have, which stay ours. These are read again from where we are, as they are
    /// when others are taken back: the client pauses them meanwhile, and need not go on at the right place.
    Added {
        /// Names the metadata.
        token: Token,
        /// The new partitions.
        partitions: Vec<Partition>,
    },
    /// The group wants partitions back, and waits for us.
    Revoked(Vec<Partition>),
    /// The partitions may already belong to someone else.
    Lost(Vec<Partition>),
    /// A batch was processed; the runtime holds its outputs. Never one that was polled before the last [`Effect::Rewind`].
    Batch(Batch),
    /// The commit interval has passed.
    Tick,
    /// The wait asked for by [`Effect::Backoff`] is over.
    BackoffOver,
    /// The slot shall finish.
    Drain,
    /// The call took effect.
    Done(Call),
    /// [`Call::Resolve`] took effect.
    Resolved(Vec<(Partition, Start)>),
    /// The call failed.
    Failed(Call, Class),
}

/// Why the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum Exit {
    /// Asked to; everything processed is committed.
    Drained,
    /// Asked to, while the brokers could not be reached: a transaction may be left to them. Its records are read again.
    Abandoned,
    /// A newer producer or member has our name.
    Fenced,
    /// Everything before this record is committed.
    BadRecord(Partition, Offset),
    /// The machine was told something that cannot happen. A bug.
    Broken,
}

/// What to do. Effects are done in the order given; each boundary between two is a place where a crash must be harmless.
///
/// The first group are calls: each is answered by [`Event::Done`], [`Event::Resolved`] or [`Event::Failed`] before anything
/// else but a change of the assignment or a drain is told to the machine. A call is always the last effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Effect {
    /// [`Call::OpenProducer`].
    OpenProducer,
    /// [`Call::Resolve`]: the committed position, or what the start policy says.
    Resolve(Vec<Partition>),
    /// [`Call::Begin`].
    Begin,
    /// [`Call::Produce`]: the outputs of the batch that the runtime holds.
    Produce,
    /// [`Call::Flush`].
    Flush,
    /// [`Call::SendOffsets`].
    SendOffsets(Token, Vec<(Partition, Offset)>),
    /// [`Call::Commit`].
    Commit,
    /// [`Call::CommitOffsets`].
    CommitOffsets(Token, Vec<(Partition, Offset)>),
    /// [`Call::Abort`].
    Abort,

    /// Start reading the newly assigned partitions at these positions.
    Read(Vec<(Partition, Offset)>),
    /// Read these partitions again from these positions.
    Rewind(Vec<(Partition, Offset)>),
    /// Nothing of these partitions is under way any more: let the group have them.
    GiveUp(Vec<Partition>),
    /// Drop the held batch; its records will be read again or belong to someone else.
    Discard,
    /// Drop the producer. An open transaction stays open until the next initialisation or the brokers' timeout.
    DropProducer,
    /// Wait before the next attempt, then tell [`Event::BackoffOver`]. Longer with each attempt, with jitter.
    Backoff {
        /// 1 for the first failure in a row.
        attempt: u32,
    },
    /// Leave the group, release everything and end.
    Stop(Exit),
}

impl Effect {
    /// The call this effect makes, if it is one.
    #[must_use]
    pub const fn call(&self) -> Option<Call> {
        Some(match self {
            Self::OpenProducer => Call::OpenProducer,
            Self::Resolve(_) => Call::Resolve,
            Self::Begin => Call::Begin,
            Self::Produce => Call::Produce,
            Self::Flush => Call::Flush,
            Self::SendOffsets(..) => Call::SendOffsets,
            Self::Commit => Call::Commit,
            Self::CommitOffsets(..) => Call::CommitOffsets,
            Self::Abort => Call::Abort,
            Self::Read(_)
            | Self::Rewind(_)
            | Self::GiveUp(_)
            | Self::Discard
            | Self::DropProducer
            | Self::Backoff { .. }
            | Self::Stop(_) => return None,
        })
    }

    /// Name of the point *before* this effect, for fault injection: stable, lower case.
    #[must_use]
    pub const fn fault_point(&self) -> &'static str {
        match self {
            Self::OpenProducer => "before-open-producer",
            Self::Resolve(_) => "before-resolve",
            Self::Begin => "before-begin",
            Self::Produce => "before-produce",
            Self::Flush => "before-flush",
            Self::SendOffsets(..) => "before-send-offsets",
            Self::Commit => "before-commit",
            Self::CommitOffsets(..) => "before-commit-offsets",
            Self::Abort => "before-abort",
            Self::Read(_) => "before-read",
            Self::Rewind(_) => "before-rewind",
            Self::GiveUp(_) => "before-give-up",
            Self::Discard => "before-discard",
            Self::DropProducer => "before-drop-producer",
            Self::Backoff { .. } => "before-backoff",
            Self::Stop(_) => "before-stop",
        }
    }
}
