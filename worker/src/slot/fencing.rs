use std::rc::Rc;
use std::time::Duration;

use fencepost_kafka::rpc::{ProducerIdentity, TransactionDescription, TransactionState};
use tracing::debug;

use super::brokers::Brokers;

/// Why the brokers do not take a producer's requests any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They ended its transaction because it took too long.
    Expired,
    /// The id is still ours: it was something else that was refused, such as our name in the group.
    Nobody,
    /// Somebody else initialised the id.
    Newer(ProducerIdentity),
    /// The brokers do not say.
    Unknown,
}

/// Whether the brokers can have ended a transaction for its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Possible,
    Impossible,
}

impl Expiry {
    /// Brokers count from the first partition, which comes after the beginning, and look only now and then: a transaction that was
    /// open for less than its timeout has not expired. A tenth is for clocks that do not run alike.
    fn of(open_for: Option<Duration>, timeout: Duration) -> Self {
        match open_for {
            Some(open_for) if open_for >= timeout.mul_f64(0.9) => Self::Possible,
            _ => Self::Impossible,
        }
    }
}

/// Tells the two reasons for being fenced apart, which librdkafka and its error codes cannot.
#[derive(Debug)]
pub(super) struct Fencing {
    id: String,
    timeout: Duration,
    brokers: Rc<Brokers>,
    mine: Option<ProducerIdentity>,
}

impl Fencing {
    pub(super) fn new(brokers: Rc<Brokers>, id: String, timeout: Duration) -> Self {
        Self { id, timeout, brokers, mine: None }
    }

    fn describe(&self) -> Option<TransactionDescription> {
        let ids = std::slice::from_ref(&self.id);
        let answers = self.brokers.ask(async |cluster| cluster.describe_transactions(ids).await);
        match answers.into_values().next()? {
            Ok(description) => description,
            Err(error) => {
                debug!(id = self.id, error = error.report(), "cannot describe the transactional id");
                None
            }
        }
    }

    /// Remembers under which identity the producer that was just initialised writes.
    pub(super) fn initialised(&mut self) {
        self.mine = self.describe().map(|description| description.producer);
    }

    /// Makes up for it where the brokers did not answer then: who has just committed still has the id.
    pub(super) fn committed(&mut self) {
        if self.mine.is_none() {
            self.initialised();
        }
    }

    /// Whether nobody has initialised the id after us; `None`: not known.
    pub(super) fn is_still_mine(&self, open_for: Option<Duration>) -> Option<bool> {
        let (mine, now) = (self.mine?, self.describe()?);
        let verdict = judge(Some(mine), Some(&now), Expiry::of(open_for, self.timeout));
        Some(matches!(verdict, Verdict::Nobody | Verdict::Expired))
    }

    /// Why the producer is fenced. `open_for`: the age of its open transaction.
    pub(super) fn verdict(&self, open_for: Option<Duration>) -> Verdict {
        judge(self.mine, self.describe().as_ref(), Expiry::of(open_for, self.timeout))
    }
}

fn judge(mine: Option<ProducerIdentity>, now: Option<&TransactionDescription>, expiry: Expiry) -> Verdict {
    let Some(now) = now else { return Verdict::Unknown };
    // A timeout raises the epoch by one and leaves an aborted transaction; a new producer leaves the id empty or opens its own. In
    // the moment between, while a new producer's initialisation aborts our transaction, the two look alike, and only the clock
    // tells them apart: the brokers' clock starts after ours, so what has not run out here has not run out there.
    let is_aborted = matches!(
        now.state,
        TransactionState::CompleteAbort | TransactionState::PrepareAbort | TransactionState::PrepareEpochFence
    );
    match mine {
        Some(mine) if now.producer == mine => Verdict::Nobody,
        Some(mine)
            if expiry == Expiry::Possible
                && is_aborted
                && now.producer.id == mine.id
                && now.producer.epoch == mine.epoch.wrapping_add(1) =>
        {
            Verdict::Expired
        }
        _ => Verdict::Newer(now.producer),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn identity(epoch: i16) -> ProducerIdentity {
        ProducerIdentity { id: 7, epoch }
    }

    fn found(state: TransactionState, epoch: i16) -> TransactionDescription {
        TransactionDescription {
            state,
            producer: identity(epoch),
            timeout: Duration::from_secs(30),
            started_at_ms: None,
            partitions: BTreeSet::new(),
        }
    }

    #[test]
    fn a_timeout_is_told_from_a_newer_producer() {
        let mine = Some(identity(4));
        assert_eq!(judge(mine, Some(&found(TransactionState::CompleteAbort, 5)), Expiry::Possible), Verdict::Expired);
        for (state, epoch) in [
            (TransactionState::Empty, 5),
            (TransactionState::Empty, 6),
            (TransactionState::Ongoing, 5),
            (TransactionState::CompleteAbort, 6),
            (TransactionState::CompleteCommit, 5),
        ] {
            assert_eq!(judge(mine, Some(&found(state, epoch)), Expiry::Possible), Verdict::Newer(identity(epoch)));
        }
    }

    #[test]
    fn brokers_that_do_not_say_leave_it_open_and_an_unknown_past_counts_as_a_newer_producer() {
        assert_eq!(judge(Some(identity(4)), None, Expiry::Possible), Verdict::Unknown);
        let aborted = found(TransactionState::CompleteAbort, 5);
        assert_eq!(judge(None, Some(&aborted), Expiry::Possible), Verdict::Newer(identity(5)));
    }

    #[test]
    fn an_id_that_is_still_ours_was_taken_by_nobody() {
        for state in [TransactionState::Ongoing, TransactionState::Empty, TransactionState::CompleteCommit] {
            for expiry in [Expiry::Possible, Expiry::Impossible] {
                assert_eq!(judge(Some(identity(4)), Some(&found(state.clone(), 4)), expiry), Verdict::Nobody);
            }
        }
    }

    #[test]
    fn a_young_transaction_was_ended_by_a_newer_producer_whatever_it_looks_like() {
        let timeout = Duration::from_secs(30);
        assert_eq!(Expiry::of(None, timeout), Expiry::Impossible);
        assert_eq!(Expiry::of(Some(Duration::from_secs(26)), timeout), Expiry::Impossible);
        assert_eq!(Expiry::of(Some(Duration::from_secs(28)), timeout), Expiry::Possible);
        for state in
            [TransactionState::CompleteAbort, TransactionState::PrepareAbort, TransactionState::PrepareEpochFence]
        {
            let found = found(state, 5);
            assert_eq!(judge(Some(identity(4)), Some(&found), Expiry::Impossible), Verdict::Newer(identity(5)));
        }
    }
}
