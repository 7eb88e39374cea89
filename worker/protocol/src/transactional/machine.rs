use std::collections::VecDeque;

use crate::{Offset, Partition, Token};

use super::event::{Batch, Call, Class, Effect, Event, Exit, Mode, Outputs, Start};
use super::position::Positions;
use super::state::{IllegalTransition, State};

/// How often a call is made again before the producer is replaced.
pub const MAX_RETRIES: u32 = 3;

/// A change of the assignment that waits for the open transaction.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
enum Change {
    Assign(Token, Vec<Partition>),
    Add(Token, Vec<Partition>),
    GiveUp(Vec<Partition>),
}

/// Whether there is a producer that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Producer {
    Absent,
    Ready,
}

/// Whether the open transaction may still be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    Commit,
    Abort,
}

/// What a transaction is being begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    /// Only positions.
    Nothing,
    /// The outputs of a batch, which the runtime holds.
    Batch,
}

/// The transactional protocol of one slot. See [`super`].
// Only the tests, which go back to states they have seen, have a use for two of the same.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct Machine {
    mode: Mode,
    state: State,
    positions: Positions,
    token: Option<Token>,
    producer: Producer,
    /// Changes of the assignment in the order they came.
    changes: VecDeque<Change>,
    /// What the commit under way covers.
    staged: Vec<(Partition, Offset)>,
    fate: Fate,
    held: Held,
    commit_due: bool,
    /// How the slot is going to end, once all is committed.
    goal: Option<Exit>,
    /// A dropped producer may have left a transaction open.
    dangling: bool,
    /// Failures since the last commit.
    failures: u32,
    /// Failures of the call under way.
    retries: u32,
    broken: Option<IllegalTransition>,
}

impl Machine {
    /// A machine that waits for [`Event::Start`].
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            state: State::Closed,
            positions: Positions::default(),
            token: None,
            producer: Producer::Absent,
            changes: VecDeque::new(),
            staged: Vec::new(),
            fate: Fate::Commit,
            held: Held::Nothing,
            commit_due: false,
            goal: None,
            dangling: false,
            failures: 0,
            retries: 0,
            broken: None,
        }
    }

    /// What the machine is doing.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The assignment that it works under.
    #[cfg(test)]
    pub(super) const fn token(&self) -> Option<Token> {
        self.token
    }

    /// The transition that should not have happened, after [`Exit::Broken`].
    #[must_use]
    pub const fn broken(&self) -> Option<IllegalTransition> {
        self.broken
    }

    /// Whether batches are of use now. Otherwise they are dropped and read again.
    #[must_use]
    pub fn wants_records(&self) -> bool {
        matches!(self.state, State::Idle | State::Open) && self.goal.is_none()
    }

    /// Whether a commit would have something to do.
    #[must_use]
    pub fn has_uncommitted(&self) -> bool {
        self.state.is_in_transaction() || self.positions.has_uncommitted()
    }

    /// Whether the partition is ours.
    #[must_use]
    pub fn owns(&self, partition: Partition) -> bool {
        self.positions.is_owned(partition)
    }

    /// Per owned partition: the position the group is known to have, and the position after the last record processed.
    pub fn positions(&self) -> impl Iterator<Item = (Partition, Option<Offset>, Option<Offset>)> + '_ {
        self.positions.committed()
    }

    /// Tells what happened; returns what to do, in this order.
    #[must_use = "effects that are not done break the protocol"]
    pub fn on(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.state == State::Stopped {
            return out;
        }
        match event {
            Event::Start => {}
            Event::Tick => self.commit_due = true,
            Event::Assigned { token, partitions } => self.changes.push_back(Change::Assign(token, partitions)),
            Event::Added { token, partitions } => self.changes.push_back(Change::Add(token, partitions)),
            Event::Revoked(partitions) => self.changes.push_back(Change::GiveUp(partitions)),
            Event::Lost(partitions) => self.lost(partitions, &mut out),
            Event::Batch(batch) => self.batch(&batch, &mut out),
            // A drain wins over a bad record: the next start meets the record again.
            Event::Drain => self.goal = Some(Exit::Drained),
            Event::BackoffOver => self.backoff_over(),
            Event::Done(call) => self.done(call, &mut out),
            Event::Resolved(found) => self.resolved(&found, &mut out),
            Event::Failed(call, class) => self.failed(call, class, &mut out),
        }
        if self.state.is_at_rest() && self.state != State::Stopped {
            self.settle(&mut out);
        }
        if self.broken.is_some() && self.state != State::Stopped {
            out.clear();
            self.stop(Exit::Broken, &mut out);
        }
        out
    }

    /// Decides what comes next when no call is under way, and nobody else has decided yet.
    fn settle(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Idle | State::Open) && self.commit_if_due(out) {
            return;
        }
        // From here on nothing is uncommitted that a change or the end would have to wait for.
        while let Some(change) = self.changes.pop_front() {
            self.change(change, out);
        }
        if let Some(exit) = self.goal {
            self.stop(exit, out);
            return;
        }
        match self.state {
            State::Closed => self.call(State::Opening, Effect::OpenProducer, out),
            State::Idle => {
                let unresolved = self.positions.unresolved();
                if unresolved.is_empty() {
                    self.rewind(out);
                } else {
                    self.call(State::Resolving, Effect::Resolve(unresolved), out);
                }
            }
            State::Open => self.rewind(out),
            _ => {}
        }
    }

    /// Starts a commit when one is due and there is something to commit.
    fn commit_if_due(&mut self, out: &mut Vec<Effect>) -> bool {
        let due = std::mem::take(&mut self.commit_due) || self.goal.is_some() || !self.changes.is_empty();
        if !due {
            return false;
        }
        if self.state == State::Open {
            self.call(State::Flushing, Effect::Flush, out);
            return true;
        }
        if self.positions.uncommitted().is_empty() {
            return false;
        }
        match self.mode {
            Mode::ExactlyOnce => self.call(State::Beginning, Effect::Begin, out),
            Mode::AtLeastOnce => self.commit_offsets(out),
        }
        true
    }

    fn change(&mut self, change: Change, out: &mut Vec<Effect>) {
        match change {
            Change::Assign(token, partitions) => {
                self.assigned(token, &partitions, out);
                self.positions.own(partitions);
            }
            Change::Add(token, partitions) => {
                self.assigned(token, &partitions, out);
                // Whoever reads may have lost its place in what is kept.
                self.positions.reread();
                self.positions.own_too(partitions);
            }
            Change::GiveUp(partitions) => {
                self.positions.disown(&partitions);
                self.positions.reread();
                out.push(Effect::GiveUp(partitions));
            }
        }
    }

    fn assigned(&mut self, token: Token, partitions: &[Partition], out: &mut Vec<Effect>) {
        self.token = Some(token);
        if partitions.is_empty() {
            // The group waits for an answer, also to nothing.
            out.push(Effect::Read(Vec::new()));
        }
    }

    /// The partitions may have a new owner already: nothing of them may be committed any more.
    fn lost(&mut self, partitions: Vec<Partition>, out: &mut Vec<Effect>) {
        self.positions.disown(&partitions);
        self.staged.retain(|(partition, _)| !partitions.contains(partition));
        // The new owner will meet the record, after what is before it.
        if matches!(self.goal, Some(Exit::BadRecord(partition, _)) if partitions.contains(&partition)) {
            self.goal = None;
        }
        self.changes.push_back(Change::GiveUp(partitions));
        match (self.mode, self.state) {
            // Outputs of lost records may appear twice, which is what this mode allows.
            (Mode::AtLeastOnce, _) => {}
            (Mode::ExactlyOnce, State::Open) => self.abort(out),
            (Mode::ExactlyOnce, state) if state.is_in_transaction() => self.fate = Fate::Abort,
            (Mode::ExactlyOnce, _) => {}
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Vec<Effect>) {
        let usable = self.wants_records()
            && self.token == Some(batch.token)
            && self.changes.is_empty()
            && self.positions.advance(&batch.consumed).is_ok();
        if !usable {
            self.positions.reread();
            out.push(Effect::Discard);
            return;
        }
        if let Some((partition, offset)) = batch.stop_before {
            self.goal = Some(Exit::BadRecord(partition, offset));
        }
        if batch.outputs == Outputs::None {
            return;
        }
        if self.state == State::Idle && self.mode == Mode::ExactlyOnce {
            self.held = Held::Batch;
            self.call(State::Beginning, Effect::Begin, out);
        } else {
            self.call(State::Producing, Effect::Produce, out);
        }
    }

    fn backoff_over(&mut self) {
        if self.state == State::Waiting {
            self.go(match self.producer {
                Producer::Ready => State::Idle,
                Producer::Absent => State::Closed,
            });
        }
    }

    fn done(&mut self, call: Call, out: &mut Vec<Effect>) {
        if !self.expects(call) {
            return;
        }
        self.retries = 0;
        match call {
            Call::OpenProducer => {
                self.producer = Producer::Ready;
                self.dangling = false;
                self.go(State::Idle);
            }
            Call::Commit | Call::CommitOffsets => {
                self.positions.commit(&std::mem::take(&mut self.staged));
                self.failures = 0;
                self.fate = Fate::Commit;
                self.go(State::Idle);
            }
            Call::Abort => {
                self.fate = Fate::Commit;
                if self.failures == 0 { self.go(State::Idle) } else { self.wait(out) }
            }
            _ if self.fate == Fate::Abort => self.abort(out),
            Call::Begin if self.held == Held::Batch => {
                self.held = Held::Nothing;
                self.call(State::Producing, Effect::Produce, out);
            }
            Call::Produce => self.go(State::Open),
            Call::Flush if self.mode == Mode::AtLeastOnce => self.commit_offsets(out),
            Call::Begin | Call::Flush => self.send_offsets(out),
            Call::SendOffsets => self.call(State::Committing, Effect::Commit, out),
            // Answered by `Resolved`.
            Call::Resolve => self.broken = Some(IllegalTransition { from: self.state, to: State::Idle }),
        }
    }

    fn resolved(&mut self, found: &[(Partition, Start)], out: &mut Vec<Effect>) {
        if !self.expects(Call::Resolve) {
            return;
        }
        let fresh = self.positions.resolve(found);
        if !fresh.is_empty() {
            out.push(Effect::Read(fresh));
        }
        self.go(State::Idle);
    }

    fn failed(&mut self, call: Call, class: Class, out: &mut Vec<Effect>) {
        if !self.expects(call) {
            return;
        }
        if class == Class::Fenced {
            self.stop(Exit::Fenced, out);
            return;
        }
        if class == Class::Retry && self.fate == Fate::Commit && self.retries < MAX_RETRIES && self.again(call, out) {
            self.retries += 1;
            return;
        }
        self.retries = 0;
        self.failures = self.failures.saturating_add(1);
        match (call, class) {
            (Call::OpenProducer, _) => {
                out.push(Effect::DropProducer);
                self.wait(out);
            }
            (Call::Resolve, _) => self.wait(out),
            (Call::CommitOffsets, Class::Refresh | Class::Abort) => {
                self.forget();
                self.positions.roll_back();
                self.wait(out);
            }
            (Call::CommitOffsets, _) => {
                self.forget();
                self.positions.doubt();
                self.wait(out);
            }
            (Call::Produce | Call::Flush | Call::SendOffsets | Call::Commit, Class::Refresh | Class::Abort)
                if self.mode == Mode::ExactlyOnce =>
            {
                self.abort(out);
            }
            _ => self.drop_producer(out),
        }
    }

    /// Makes the call under way once more, where that is possible without a wait.
    fn again(&self, call: Call, out: &mut Vec<Effect>) -> bool {
        let effect = match (call, self.token) {
            (Call::Flush, _) => Effect::Flush,
            (Call::Commit, _) => Effect::Commit,
            (Call::Abort, _) => Effect::Abort,
            (Call::SendOffsets, Some(token)) => Effect::SendOffsets(token, self.staged.clone()),
            // All of it may have been lost meanwhile.
            (Call::CommitOffsets, Some(token)) if !self.staged.is_empty() => {
                Effect::CommitOffsets(token, self.staged.clone())
            }
            // Part of the outputs may have been taken, so they are not handed over twice; the rest waits longer.
            _ => return false,
        };
        out.push(effect);
        true
    }

    fn send_offsets(&mut self, out: &mut Vec<Effect>) {
        self.staged = self.positions.uncommitted();
        match self.token {
            Some(token) if !self.staged.is_empty() => {
                self.call(State::SendingOffsets, Effect::SendOffsets(token, self.staged.clone()), out);
            }
            // Outputs without a position would be written again.
            _ => self.abort(out),
        }
    }

    fn commit_offsets(&mut self, out: &mut Vec<Effect>) {
        self.staged = self.positions.uncommitted();
        match self.token {
            Some(token) if !self.staged.is_empty() => {
                self.call(State::Committing, Effect::CommitOffsets(token, self.staged.clone()), out);
            }
            _ => {
                self.go(State::Idle);
            }
        }
    }

    /// Ends the transaction without effect and goes back to the committed positions.
    fn abort(&mut self, out: &mut Vec<Effect>) {
        self.forget();
        self.positions.roll_back();
        self.call(State::Aborting, Effect::Abort, out);
    }

    /// The producer cannot be used any more. What it left behind is decided by the next one's initialisation; what was decided is
    /// read from the group after that.
    fn drop_producer(&mut self, out: &mut Vec<Effect>) {
        self.forget();
        self.positions.doubt();
        self.dangling |= self.mode == Mode::ExactlyOnce && self.state.is_in_transaction();
        self.producer = Producer::Absent;
        out.push(Effect::DropProducer);
        self.wait(out);
    }

    /// Forgets the plans that were made on top of the transaction that failed.
    fn forget(&mut self) {
        self.staged.clear();
        self.held = Held::Nothing;
        self.fate = Fate::Commit;
        // The record will be met again.
        if matches!(self.goal, Some(Exit::BadRecord(..))) {
            self.goal = None;
        }
    }

    fn rewind(&mut self, out: &mut Vec<Effect>) {
        let rewinds = self.positions.take_rewinds();
        if !rewinds.is_empty() {
            out.push(Effect::Rewind(rewinds));
        }
    }

    fn wait(&mut self, out: &mut Vec<Effect>) {
        out.push(Effect::Backoff { attempt: self.failures });
        self.go(State::Waiting);
    }

    fn stop(&mut self, exit: Exit, out: &mut Vec<Effect>) {
        let exit = if exit == Exit::Drained && self.dangling { Exit::Abandoned } else { exit };
        self.state = State::Stopped;
        out.push(Effect::Stop(exit));
    }

    fn call(&mut self, to: State, effect: Effect, out: &mut Vec<Effect>) {
        out.push(effect);
        self.go(to);
    }

    fn expects(&mut self, call: Call) -> bool {
        let expected = self.state.calls().contains(&call);
        if !expected {
            self.broken = Some(IllegalTransition { from: self.state, to: self.state });
        }
        expected
    }

    fn go(&mut self, to: State) {
        if self.state.may_become(to) {
            self.state = to;
        } else {
            self.broken = Some(IllegalTransition { from: self.state, to });
        }
    }
}
