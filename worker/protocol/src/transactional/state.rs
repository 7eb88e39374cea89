use strum::{Display, EnumIter, IntoStaticStr};
use thiserror::Error;

use super::event::Call;

/// What the machine is doing. See the picture in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumIter, IntoStaticStr)]
pub enum State {
    /// No producer, nothing under way.
    Closed,
    /// A producer is being created and initialised.
    Opening,
    /// A failure is being waited out.
    Waiting,
    /// Positions are being looked up.
    Resolving,
    /// Everything processed is committed, or is only positions.
    Idle,
    /// A transaction is being begun.
    Beginning,
    /// Outputs are being handed to the producer.
    Producing,
    /// Outputs are under way that are not committed.
    Open,
    /// Waiting for the outputs to be confirmed.
    Flushing,
    /// Positions are being put into the transaction.
    SendingOffsets,
    /// The transaction (or, at-least-once, the positions) is being committed.
    Committing,
    /// The transaction is being aborted.
    Aborting,
    /// The end.
    Stopped,
}

/// A transition that the table does not have: a bug in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("illegal transition {from} -> {to}")]
pub struct IllegalTransition {
    /// State left.
    pub from: State,
    /// State that was to be entered.
    pub to: State,
}

impl State {
    /// The table of legal transitions. `Stopped` can be entered from everywhere and never left.
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        use State::{
            Aborting, Beginning, Closed, Committing, Flushing, Idle, Open, Opening, Producing, Resolving,
            SendingOffsets, Waiting,
        };
        match self {
            Closed => &[Opening],
            Opening => &[Idle, Waiting],
            // Back to where the producer's state says.
            Waiting => &[Closed, Idle],
            Resolving => &[Idle, Waiting],
            // Without transactions a batch goes straight to Producing, and a commit of positions straight to Committing.
            Idle => &[Resolving, Beginning, Producing, Committing],
            Beginning => &[Producing, SendingOffsets, Aborting, Waiting],
            Producing => &[Open, Aborting, Waiting],
            Open => &[Producing, Flushing, Aborting, Waiting],
            // Without transactions there may be nothing left to commit when partitions were lost.
            Flushing => &[SendingOffsets, Committing, Aborting, Waiting, Idle],
            SendingOffsets => &[Committing, Aborting, Waiting],
            Committing => &[Idle, Aborting, Waiting],
            Aborting => &[Idle, Waiting],
            State::Stopped => &[],
        }
    }

    /// Whether the table has the transition.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        (to == Self::Stopped && self != Self::Stopped) || self.next().contains(&to)
    }

    /// The call that is under way in this state.
    #[must_use]
    pub const fn calls(self) -> &'static [Call] {
        match self {
            Self::Opening => &[Call::OpenProducer],
            Self::Resolving => &[Call::Resolve],
            Self::Beginning => &[Call::Begin],
            Self::Producing => &[Call::Produce],
            Self::Flushing => &[Call::Flush],
            Self::SendingOffsets => &[Call::SendOffsets],
            Self::Committing => &[Call::Commit, Call::CommitOffsets],
            Self::Aborting => &[Call::Abort],
            Self::Closed | Self::Waiting | Self::Idle | Self::Open | Self::Stopped => &[],
        }
    }

    /// Whether no call is under way, so that the machine can decide what comes next.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        self.calls().is_empty()
    }

    /// Whether a transaction of ours may be open at the brokers in this state.
    #[must_use]
    pub const fn is_in_transaction(self) -> bool {
        matches!(
            self,
            Self::Beginning
                | Self::Producing
                | Self::Open
                | Self::Flushing
                | Self::SendingOffsets
                | Self::Committing
                | Self::Aborting
        )
    }
}
