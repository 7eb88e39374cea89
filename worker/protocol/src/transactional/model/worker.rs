use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::transactional::{Batch, Call, Class, Effect, Event, Exit, Machine, Mode, Outputs, Start, State};
use crate::{Offset, Partition, Token};

use super::broker::{Broker, End, Request};
use super::truth::is_filtered;
use super::{Process, Record, Violation};

/// How the next call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Fault {
    /// It does not take effect; the error says so.
    Refused(Class),
    /// It is lost on the way.
    RequestLost,
    /// It took effect, and its answer is lost.
    AnswerLost,
    /// It arrives, but after the worker has given up waiting.
    Late,
    /// It took effect, its answer is lost, and a copy of it arrives later.
    Twice,
}

/// One process of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) process: Process,
    pub(super) exit: Option<Exit>,
    /// Answers that the group waits for before it takes this member into the next generation.
    pub(super) owed: usize,
    /// It was told of an assignment, and does not read it yet. The group takes nothing back from it then, and assigns anew.
    pub(super) is_unanswered: bool,
    /// Partitions that the group asked back, while it waits for the answer. Only under the incremental protocol.
    pub(super) asked_back: Vec<Partition>,
    /// Partitions that it was told to be its own. Only under the incremental protocol.
    pub(super) told: BTreeSet<Partition>,
    pub(super) violation: Option<Violation>,
    mode: Mode,
    machine: Machine,
    todo: VecDeque<Effect>,
    /// The call was answered, and the machine does not know yet.
    answer: Option<Event>,
    /// How often in a row something failed, while it waits.
    waiting: Option<u32>,
    epoch: Option<u32>,
    token: Option<Token>,
    reading: BTreeMap<Partition, i64>,
    held: Vec<Record>,
    /// Partitions that the machine was told it has lost.
    lost: BTreeSet<Partition>,
    told_to_drain: bool,
    told_it_is_fenced: bool,
}

impl Worker {
    pub(super) fn new(id: usize, process: Process, mode: Mode) -> Self {
        let mut worker = Self {
            id,
            process,
            exit: None,
            owed: 0,
            is_unanswered: false,
            asked_back: Vec::new(),
            told: BTreeSet::new(),
            violation: None,
            mode,
            machine: Machine::new(mode),
            todo: VecDeque::new(),
            answer: None,
            waiting: None,
            epoch: None,
            token: None,
            reading: BTreeMap::new(),
            held: Vec::new(),
            lost: BTreeSet::new(),
            told_to_drain: false,
            told_it_is_fenced: false,
        };
        worker.tell(Event::Start);
        worker
    }

    fn must(&mut self, holds: bool, violation: Violation) {
        if !holds {
            self.violation.get_or_insert(violation);
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        match &event {
            Event::Assigned { token, partitions } | Event::Added { token, partitions } => {
                self.token = Some(*token);
                self.is_unanswered = true;
                self.lost.retain(|partition| !partitions.contains(partition));
            }
            Event::Lost(partitions) => self.lost.extend(partitions),
            Event::Failed(_, Class::Fenced) => self.told_it_is_fenced = true,
            Event::Drain => self.told_to_drain = true,
            _ => {}
        }
        if matches!(event, Event::Revoked(_) | Event::Lost(_)) {
            self.owed += 1;
        }
        // The client may pass over a record of what is kept while it is paused for a change: seen with librdkafka.
        if !self.told.is_empty() && matches!(event, Event::Added { .. } | Event::Revoked(_)) {
            self.reading.values_mut().for_each(|position| *position += 1);
        }
        let effects = self.machine.on(event);
        self.check(&effects);
        self.todo.extend(effects);
    }

    fn check(&mut self, effects: &[Effect]) {
        let calls = effects.iter().filter(|effect| effect.call().is_some()).count();
        self.must(calls <= 1, Violation::Promise("one call at a time"));
        let is_last = effects.last().is_some_and(|effect| effect.call().is_some());
        self.must(calls == 0 || is_last, Violation::Promise("a call comes last"));
        let is_free = self.answer.is_none() && self.todo.iter().all(|effect| effect.call().is_none());
        self.must(calls == 0 || is_free, Violation::Promise("no call while one is under way"));
        for effect in effects {
            if let Effect::SendOffsets(_, offsets) | Effect::CommitOffsets(_, offsets) = effect {
                let is_ours = offsets.iter().all(|(partition, _)| !self.lost.contains(partition));
                self.must(is_ours, Violation::Foreign);
            }
        }
        let owns_lost =
            self.machine.state() != State::Stopped && self.lost.iter().any(|partition| self.machine.owns(*partition));
        self.must(!owns_lost, Violation::Promise("what is lost is not owned"));
    }

    /// Polls up to `limit` records of all partitions and processes them. When `then_bad`, the record after those of the last
    /// partition cannot be processed.
    pub(super) fn poll(&mut self, limit: i64, then_bad: bool, broker: &Broker) {
        let Some(token) = self.token.filter(|_| self.may_poll()) else { return };
        let mut consumed = Vec::new();
        let mut outputs = Vec::new();
        for (partition, position) in &mut self.reading {
            let end = (*position + limit).min(broker.log.get(partition).copied().unwrap_or(0));
            if *position < end {
                consumed.push((*partition, Offset(*position), Offset(end)));
                outputs
                    .extend((*position..end).map(|offset| (*partition, offset)).filter(|record| !is_filtered(*record)));
                *position = end;
            }
        }
        let Some((partition, _, after)) = consumed.last().copied() else { return };
        let some = if outputs.is_empty() { Outputs::None } else { Outputs::Some };
        self.held = outputs;
        let stop_before = then_bad.then_some((partition, after));
        self.tell(Event::Batch(Batch { token, consumed, outputs: some, stop_before }));
    }

    /// The commit interval passes. While a call is under way, nobody looks at the clock.
    pub(super) fn tick(&mut self) {
        if self.is_free() {
            self.tell(Event::Tick);
        }
    }

    /// Whether no call is under way, and all effects are done.
    fn is_free(&self) -> bool {
        self.answer.is_none() && self.todo.is_empty()
    }

    pub(super) fn may_tick(&self) -> bool {
        self.is_free() && self.machine.has_uncommitted()
    }

    /// Whether its transaction is open.
    pub(super) fn holds_open(&self, broker: &Broker) -> bool {
        self.epoch.is_some_and(|epoch| broker.is_open_at(self.id, epoch))
    }

    pub(super) fn may_poll(&self) -> bool {
        self.token.is_some() && self.is_free() && self.machine.wants_records()
    }

    /// Whether it was told of an assignment.
    pub(super) fn has_joined(&self) -> bool {
        self.token.is_some()
    }

    /// The assignment that the machine works under; later ones may wait for it.
    pub(super) fn current_token(&self) -> Option<Token> {
        self.machine.token()
    }

    pub(super) fn owned(&self) -> impl Iterator<Item = Partition> + '_ {
        self.machine.positions().map(|(partition, ..)| partition)
    }

    pub(super) fn has_records(&self, broker: &Broker) -> bool {
        self.reading.iter().any(|(partition, position)| broker.log.get(partition) > Some(position))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.told_to_drain
    }

    pub(super) fn may_step(&self) -> bool {
        self.answer.is_some() || !self.todo.is_empty() || self.waiting.is_some()
    }

    /// Failures in a row that are being waited out.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.unwrap_or(0)
    }

    /// Whether the next effect changes only the process's own memory.
    pub(super) fn is_next_private(&self) -> bool {
        self.answer.is_none()
            && self
                .todo
                .front()
                .is_some_and(|effect| effect.call().is_none() && !matches!(effect, Effect::GiveUp(_) | Effect::Stop(_)))
    }

    pub(super) fn may_fail(&self, fault: Fault) -> bool {
        let next = if self.answer.is_some() { None } else { self.todo.front().and_then(Effect::call) };
        match fault {
            Fault::AnswerLost => self.answer_to().is_some_and(|call| call != Call::Begin),
            Fault::Refused(_) => next.is_some(),
            // A begin is local: it cannot be lost on the way.
            Fault::RequestLost => next.is_some_and(|call| call != Call::Begin),
            Fault::Late | Fault::Twice => match next {
                Some(Call::OpenProducer | Call::SendOffsets | Call::Commit | Call::Abort) => {
                    self.mode == Mode::ExactlyOnce
                }
                Some(Call::Produce) => self.mode == Mode::ExactlyOnce && !self.held.is_empty(),
                _ => false,
            },
        }
    }

    fn answer_to(&self) -> Option<Call> {
        match self.answer {
            Some(Event::Done(call) | Event::Failed(call, _)) => Some(call),
            Some(Event::Resolved(_)) => Some(Call::Resolve),
            _ => None,
        }
    }

    /// What is under way goes wrong, where it can go wrong in this way.
    pub(super) fn fail(&mut self, fault: Fault, broker: &mut Broker) {
        if !self.may_fail(fault) {
            return;
        }
        if fault == Fault::AnswerLost {
            self.answer = self.answer_to().map(|call| Event::Failed(call, Class::Unknown));
            return;
        }
        let Some(effect) = self.todo.pop_front() else { return };
        let Some(call) = effect.call() else { return };
        if matches!(fault, Fault::Late | Fault::Twice)
            && let Some(request) = self.request(&effect)
        {
            broker.delay(request);
        }
        if fault == Fault::Twice {
            // Whatever the answer was, nobody gets it.
            drop(self.apply(&effect, broker));
        }
        let class = if let Fault::Refused(class) = fault { class } else { Class::Unknown };
        self.answer = Some(Event::Failed(call, class));
    }

    /// Does the next thing: a call, its answer, or an effect.
    pub(super) fn step(&mut self, broker: &mut Broker) {
        if let Some(answer) = self.answer.take() {
            self.tell(answer);
        } else if let Some(effect) = self.todo.pop_front() {
            match effect.call() {
                Some(call) => {
                    let answer = self.apply(&effect, broker);
                    self.answer = Some(answer.unwrap_or_else(|class| Event::Failed(call, class)));
                }
                None => self.perform(effect, broker),
            }
        } else if self.waiting.take().is_some() {
            self.tell(Event::BackoffOver);
        }
    }

    fn perform(&mut self, effect: Effect, broker: &Broker) {
        match effect {
            // The answer to an assignment: it is read, and nothing else.
            Effect::Read(positions) => {
                self.is_unanswered = false;
                self.reading.retain(|partition, _| self.told.contains(partition));
                self.reading.extend(as_map(&positions));
            }
            Effect::Rewind(positions) => self.reading.extend(as_map(&positions)),
            Effect::GiveUp(partitions) => {
                let is_owned = partitions.iter().any(|partition| self.machine.owns(*partition));
                self.must(!is_owned, Violation::Promise("what is given up is not owned"));
                self.reading.retain(|partition, _| !partitions.contains(partition));
                self.owed -= 1;
            }
            Effect::Discard => self.held.clear(),
            Effect::DropProducer => self.epoch = None,
            Effect::Backoff { attempt } => {
                self.must(attempt > 0, Violation::Promise("a wait has a reason"));
                self.waiting = Some(attempt);
            }
            Effect::Stop(exit) => self.stop(exit, broker),
            _ => {}
        }
    }

    fn stop(&mut self, exit: Exit, broker: &Broker) {
        self.exit = Some(exit);
        let holds = match exit {
            Exit::Broken => return self.must(false, Violation::Broken),
            Exit::Fenced => self.told_it_is_fenced,
            Exit::Abandoned => self.told_to_drain,
            Exit::Drained => self.told_to_drain && !self.holds_open(broker),
            Exit::BadRecord(partition, offset) => broker.offsets.get(&partition) >= Some(&offset.0),
        };
        self.must(holds, Violation::Promise("an exit means what it says"));
    }

    /// What the call sends to the transaction coordinator.
    fn request(&mut self, effect: &Effect) -> Option<Request> {
        let id = self.id;
        if *effect == Effect::OpenProducer {
            return Some(Request::Init { id });
        }
        let epoch = self.epoch?;
        Some(match effect {
            Effect::Produce => Request::Produce { id, epoch, outputs: self.held.clone() },
            Effect::SendOffsets(token, offsets) => {
                Request::Offsets { id, epoch, token: *token, offsets: as_map(offsets) }
            }
            Effect::Commit => Request::End { id, epoch, end: End::Commit },
            Effect::Abort => Request::End { id, epoch, end: End::Abort },
            _ => return None,
        })
    }

    fn apply(&mut self, effect: &Effect, broker: &mut Broker) -> Result<Event, Class> {
        if let Effect::SendOffsets(token, offsets) | Effect::CommitOffsets(token, offsets) = effect {
            self.check_ownership(*token, offsets, broker);
        }
        let is_transactional = self.mode == Mode::ExactlyOnce;
        match effect {
            Effect::Resolve(partitions) => {
                let found: Result<Vec<_>, Class> = partitions
                    .iter()
                    .map(|partition| {
                        let committed = broker.fetch(*partition)?;
                        Ok((*partition, committed.map_or(Start::Chosen(Offset(0)), |o| Start::Committed(Offset(o)))))
                    })
                    .collect();
                return Ok(Event::Resolved(found?));
            }
            Effect::CommitOffsets(token, offsets) => broker.commit_offsets(*token, as_map(offsets))?,
            Effect::OpenProducer if !is_transactional => self.epoch = Some(0),
            Effect::Produce if !is_transactional => {
                broker.produce_without_transaction(std::mem::take(&mut self.held));
            }
            Effect::Begin | Effect::Flush => {
                let epoch = self.epoch.ok_or(Class::Recreate)?;
                if is_transactional && *effect == Effect::Flush {
                    broker.check_producer(self.id, epoch)?;
                }
            }
            _ => {
                let request = self.request(effect).ok_or(Class::Recreate)?;
                if *effect == Effect::Produce {
                    self.held.clear();
                }
                if let Some(epoch) = broker.handle(request)? {
                    self.epoch = Some(epoch);
                }
            }
        }
        Ok(effect.call().map_or(Event::Tick, Event::Done))
    }

    fn check_ownership(&mut self, token: Token, offsets: &[(Partition, Offset)], broker: &Broker) {
        self.must(!offsets.is_empty(), Violation::Promise("an empty commit is no proof of anything"));
        let holds = broker.tokens.get(&token).is_some_and(|membership| {
            membership.process == self.process
                && offsets.iter().all(|(partition, _)| {
                    membership.partitions.contains(partition) && self.reading.contains_key(partition)
                })
        });
        self.must(holds, Violation::Foreign);
    }
}

fn as_map(offsets: &[(Partition, Offset)]) -> BTreeMap<Partition, i64> {
    offsets.iter().map(|(partition, offset)| (*partition, offset.0)).collect()
}
