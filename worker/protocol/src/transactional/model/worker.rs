use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::transactional::{Batch, Call, Class, Effect, Event, Exit, Machine, Mode, Outputs, Start, State};
use crate::{Offset, Partition, Token};

use super::broker::{Broker, RECORDS, Record, is_filtered};

/// How the next call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fault {
    /// It does not reach the brokers; the error says so.
    Refused(Class),
    /// It takes effect, and the answer is lost.
    AnswerLost,
    /// It is lost.
    RequestLost,
    /// It arrives later (commits only).
    Delayed,
}

/// One process of one worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) incarnation: usize,
    pub(super) machine: Machine,
    pub(super) todo: VecDeque<Effect>,
    pub(super) exit: Option<Exit>,
    pub(super) fault: Option<Fault>,
    pub(super) is_waiting: bool,
    mode: Mode,
    epoch: Option<u32>,
    token: Option<Token>,
    reading: BTreeMap<Partition, i64>,
    held: Vec<Record>,
    /// Partitions that the machine was told it has lost.
    lost: BTreeSet<Partition>,
    /// Answers that the group waits for before it takes this member into the next generation.
    pub(super) owed: usize,
}

impl Worker {
    pub(super) fn new(id: usize, incarnation: usize, mode: Mode) -> Self {
        let mut worker = Self {
            id,
            incarnation,
            machine: Machine::new(mode),
            todo: VecDeque::new(),
            exit: None,
            fault: None,
            is_waiting: false,
            mode,
            epoch: None,
            token: None,
            reading: BTreeMap::new(),
            held: Vec::new(),
            lost: BTreeSet::new(),
            owed: 0,
        };
        worker.tell(Event::Start);
        worker
    }

    pub(super) fn tell(&mut self, event: Event) {
        match &event {
            Event::Assigned { token, partitions } => {
                self.token = Some(*token);
                self.lost.retain(|partition| !partitions.contains(partition));
            }
            Event::Lost(partitions) => self.lost.extend(partitions),
            _ => {}
        }
        if matches!(event, Event::Revoked(_) | Event::Lost(_)) {
            self.owed += 1;
        }
        let effects = self.machine.on(event);
        for effect in &effects {
            if let Effect::SendOffsets(_, offsets) | Effect::CommitOffsets(_, offsets) = effect {
                assert!(offsets.iter().all(|(partition, _)| !self.lost.contains(partition)), "lost, and committed");
            }
        }
        let calls = effects.iter().filter(|effect| effect.call().is_some()).count();
        assert!(calls <= 1, "one call at a time: {effects:?}");
        assert!(calls == 0 || effects.last().is_some_and(|e| e.call().is_some()), "a call comes last: {effects:?}");
        assert!(calls == 0 || !self.has_call(), "a call while one is under way: {effects:?}");
        self.todo.extend(effects);
    }

    fn has_call(&self) -> bool {
        self.todo.iter().any(|effect| effect.call().is_some())
    }

    /// Polls up to `limit` records of all partitions and processes them.
    pub(super) fn poll(&mut self, limit: i64) {
        let Some(token) = self.token else { return };
        if !self.todo.is_empty() || !self.machine.wants_records() {
            return;
        }
        let mut consumed = Vec::new();
        let mut outputs = Vec::new();
        for (partition, position) in &mut self.reading {
            let end = (*position + limit).min(RECORDS);
            if *position < end {
                consumed.push((*partition, Offset(*position), Offset(end)));
                outputs
                    .extend((*position..end).map(|offset| (*partition, offset)).filter(|record| !is_filtered(*record)));
                *position = end;
            }
        }
        if consumed.is_empty() {
            return;
        }
        let some = if outputs.is_empty() { Outputs::None } else { Outputs::Some };
        self.held = outputs;
        self.tell(Event::Batch(Batch { token, consumed, outputs: some, stop_before: None }));
    }

    /// Does the next effect.
    pub(super) fn step(&mut self, broker: &mut Broker) {
        let Some(effect) = self.todo.pop_front() else {
            if self.is_waiting {
                self.is_waiting = false;
                self.tell(Event::BackoffOver);
            }
            return;
        };
        if let Some(call) = effect.call() {
            let event = self.call(call, &effect, broker);
            self.tell(event);
            return;
        }
        match effect {
            Effect::Read(positions) | Effect::Rewind(positions) => {
                self.reading.extend(positions.into_iter().map(|(partition, offset)| (partition, offset.0)));
            }
            Effect::GiveUp(partitions) => {
                for partition in partitions {
                    assert!(!self.machine.owns(partition));
                    self.reading.remove(&partition);
                }
                self.owed -= 1;
            }
            Effect::Discard => self.held.clear(),
            Effect::DropProducer => self.epoch = None,
            Effect::Backoff { attempt } => {
                assert!(attempt > 0, "a wait has a reason");
                self.is_waiting = true;
            }
            Effect::Stop(exit) => {
                assert_ne!(exit, Exit::Broken, "{:?}", self.machine.broken());
                if exit == Exit::Drained && self.mode == Mode::ExactlyOnce {
                    let open = self.epoch.is_some_and(|epoch| broker.is_open_at(self.id, epoch));
                    assert!(!open, "drained with an open transaction");
                }
                self.exit = Some(exit);
            }
            _ => {}
        }
    }

    fn call(&mut self, call: Call, effect: &Effect, broker: &mut Broker) -> Event {
        let failed = |class| Event::Failed(call, class);
        match self.fault.take() {
            Some(Fault::Refused(class)) => return failed(class),
            // A begin is local: it cannot be lost on the way.
            Some(Fault::AnswerLost | Fault::RequestLost) if call == Call::Begin => {}
            Some(Fault::RequestLost) => return failed(Class::Unknown),
            Some(Fault::AnswerLost) => {
                return match self.apply(effect, broker) {
                    Err(Class::Fenced) => failed(Class::Fenced),
                    _ => failed(Class::Unknown),
                };
            }
            Some(Fault::Delayed) if call == Call::Commit => {
                if let Some(epoch) = self.epoch {
                    broker.delay_commit(self.id, epoch);
                }
                return failed(Class::Unknown);
            }
            Some(Fault::Delayed) | None => {}
        }
        match self.apply(effect, broker) {
            Ok(event) => event,
            Err(class) => failed(class),
        }
    }

    fn apply(&mut self, effect: &Effect, broker: &mut Broker) -> Result<Event, Class> {
        let epoch = self.epoch.ok_or(Class::Recreate);
        match effect {
            Effect::OpenProducer => {
                self.epoch =
                    Some(if self.mode == Mode::ExactlyOnce { broker.init(self.id, self.incarnation) } else { 0 });
            }
            Effect::Resolve(partitions) => {
                let found: Result<Vec<_>, Class> = partitions
                    .iter()
                    .map(|partition| {
                        let start = broker
                            .fetch(*partition)?
                            .map_or(Start::Chosen(Offset(0)), |offset| Start::Committed(Offset(offset)));
                        Ok((*partition, start))
                    })
                    .collect();
                return Ok(Event::Resolved(found?));
            }
            Effect::Begin => {
                epoch?;
            }
            Effect::Produce => {
                let outputs = std::mem::take(&mut self.held);
                if self.mode == Mode::ExactlyOnce {
                    broker.produce(self.id, epoch?, &outputs)?;
                } else {
                    broker.produce_without_transaction(&outputs);
                }
            }
            Effect::Flush => {
                if self.mode == Mode::ExactlyOnce {
                    broker.check_producer(self.id, epoch?)?;
                }
            }
            Effect::SendOffsets(token, offsets) => {
                let offsets = self.check_ownership(*token, offsets, broker);
                broker.send_offsets(self.id, epoch?, *token, &offsets)?;
            }
            Effect::CommitOffsets(token, offsets) => {
                let offsets = self.check_ownership(*token, offsets, broker);
                broker.commit_offsets(*token, &offsets)?;
            }
            Effect::Commit => {
                assert_eq!(self.machine.state(), State::Committing);
                broker.commit(self.id, epoch?)?;
            }
            Effect::Abort => broker.abort(self.id, epoch?)?,
            other => panic!("{other:?} is not a call"),
        }
        Ok(Event::Done(effect.call().unwrap()))
    }

    fn check_ownership(
        &self,
        token: Token,
        offsets: &[(Partition, Offset)],
        broker: &Broker,
    ) -> BTreeMap<Partition, i64> {
        let membership = &broker.tokens[&token];
        assert_eq!(membership.incarnation, self.incarnation, "metadata of someone else");
        assert!(!offsets.is_empty(), "an empty commit is no proof of anything");
        for (partition, _) in offsets {
            assert!(membership.partitions.contains(partition), "{partition} was not assigned with {token:?}");
            assert!(self.reading.contains_key(partition), "{partition} was given up");
        }
        offsets.iter().map(|(partition, offset)| (*partition, offset.0)).collect()
    }
}
