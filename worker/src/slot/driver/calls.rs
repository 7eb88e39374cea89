//! The calls of the machine: each blocks until it is answered, and its answer is an event.

use std::time::Duration;

use fencepost_kafka::ClientError;
use fencepost_kafka::error::{ErrorClass, Operation, Resource, Subject};
use fencepost_kafka::producer::{Producer, Records};
use fencepost_pipeline::OutputBatch;
use fencepost_protocol::transactional::{Call, Class, Effect, Event};
use tracing::{info, warn};

use super::super::fencing::Verdict;
use super::super::observe::Outcome;
use super::super::stats::ErrorKey;
use super::Driver;

/// Between two questions about who has the transactional id.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Long enough for a coordinator that is just being elected.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the limits of the outputs are believed: a topic that takes more from now on is not to get its records as dead letters
/// until the next restart.
const LIMITS_MAX_AGE: Duration = Duration::from_secs(30);
/// How long the brokers get to tell them.
const LIMITS_WITHIN: Duration = Duration::from_secs(5);
/// The same while the slot has something better to do.
const RENEW_WITHIN: Duration = Duration::from_millis(500);

impl Driver<'_> {
    pub(super) fn call(&mut self, effect: &Effect) -> Event {
        let Some(call) = effect.call() else { return Event::Tick };
        match self.attempt(effect) {
            Ok(event) => {
                self.succeeded(call);
                event
            }
            Err(error) => Event::Failed(call, self.failed(call, &error)),
        }
    }

    fn attempt(&mut self, effect: &Effect) -> Result<Event, ClientError> {
        let within = self.config.call_timeout();
        match effect {
            Effect::OpenProducer => self.open_producer()?,
            Effect::Resolve(partitions) => {
                let consumer = self.consumer.as_ref().ok_or_else(gone)?;
                return Ok(Event::Resolved(consumer.resolve(partitions, within)?));
            }
            Effect::Begin => {
                self.opened();
                self.producer()?.begin()?;
            }
            Effect::Produce => self.produce(within)?,
            Effect::Flush => {
                self.ending();
                self.producer()?.flush(within)?;
            }
            Effect::SendOffsets(token, offsets) => {
                self.ending();
                let consumer = self.consumer.as_ref().ok_or_else(gone)?;
                let metadata = self.metadata.get(token).ok_or_else(gone)?;
                let producer = self.producer.as_mut().ok_or_else(gone)?;
                let sent = producer.send_offsets(offsets, consumer.topics(), metadata, within);
                if sent.as_ref().is_err_and(|error| error.class() == ErrorClass::Refresh) {
                    self.capture_again(*token);
                }
                sent?;
            }
            Effect::Commit => self.producer()?.commit(within)?,
            // The library vouches with its current generation. It is that of `token`, or a later one that took nothing from us: what the
            // group takes back, it waits for.
            Effect::CommitOffsets(_, offsets) => {
                self.ending();
                self.consumer.as_ref().ok_or_else(gone)?.commit(offsets, within)?;
            }
            Effect::Abort => self.producer()?.abort(within)?,
            _ => {}
        }
        Ok(effect.call().map_or(Event::Tick, Event::Done))
    }

    fn producer(&self) -> Result<&Producer, ClientError> {
        self.producer.as_ref().ok_or_else(gone)
    }

    fn opened(&mut self) {
        let now = self.clock.now();
        if self.open.since.is_none() {
            self.open.since = Some(now);
            self.open.since_ms = self.clock.unix_ms();
            self.stats.set_open_since(Some(now));
        }
    }

    /// The age of the open transaction. The clock that never goes back may also stand still, while a machine is suspended; the
    /// brokers' does not.
    pub(in crate::slot) fn open_for(&self) -> Option<Duration> {
        let since = self.open.since?;
        let by_date = u64::try_from(self.clock.unix_ms().saturating_sub(self.open.since_ms)).unwrap_or(0);
        Some(self.clock.now().saturating_sub(since).max(Duration::from_millis(by_date)))
    }

    fn ending(&mut self) {
        let now = self.clock.now();
        self.open.ending_since.get_or_insert(now);
    }

    fn open_producer(&mut self) -> Result<(), ClientError> {
        // Anew with each producer: the last one may have been given up for a record that the topic does not take any more.
        let max_batch_bytes = self.ask_limits(LIMITS_WITHIN);
        let settings = self.config.producer(max_batch_bytes);
        let producer = self.producer.insert(Producer::new(&settings)?);
        if settings.transactional_id.is_some() {
            producer.init_transactions(OPEN_TIMEOUT)?;
        }
        if let Some(fencing) = &mut self.fencing {
            fencing.initialised();
        }
        // Only now: positions read before the initialisation could still be changed by the transaction that it ended.
        self.open_consumer()
    }

    /// Lets the pipeline know what the topics take, and says of how many bytes a batch may be.
    fn ask_limits(&mut self, within: Duration) -> usize {
        self.limits_due = self.clock.now() + LIMITS_MAX_AGE;
        // Taken out, because what they tell is shown and used by the others.
        let Some(mut limits) = self.limits.take() else { return usize::MAX };
        let told = limits.ask(within);
        self.stats.clear_errors(|key| matches!(key, ErrorKey::Output(topic) if !told.refused.contains_key(topic)));
        for (topic, error) in &told.refused {
            self.concern(
                ErrorKey::Output(topic.clone()),
                "a record that the topic does not take cannot be told",
                error,
            );
        }
        let mut max_batch_bytes = usize::MAX;
        for topic in &self.config.outputs {
            max_batch_bytes = max_batch_bytes.min(told.of(topic).max_batch_bytes());
            self.pipeline.set_output_limits(topic.clone(), told.of(topic));
        }
        self.limits = Some(limits);
        max_batch_bytes
    }

    /// Asks for the limits again when they are old, and not while a transaction is open or the slot is to end: both would wait for brokers
    /// that may be silent.
    ///
    /// The producer keeps the batch size that it has. When the topics take more now, its batches are smaller than they could be; when they
    /// take less, they refuse one, and the producer that comes after it has the new size.
    pub(super) fn renew_limits(&mut self, now: Duration) {
        if now >= self.limits_due && !self.machine.has_uncommitted() && !self.shutdown.is_draining() {
            self.ask_limits(RENEW_WITHIN);
        }
    }

    fn produce(&mut self, within: Duration) -> Result<(), ClientError> {
        self.opened();
        let producer = self.producer.as_mut().ok_or_else(gone)?;
        for batch in &self.held {
            producer.produce(&Outputs(batch), within)?;
            self.open.records_out += u64::try_from(batch.len()).unwrap_or(0);
            self.open.bytes_out += u64::try_from(batch.byte_len()).unwrap_or(0);
        }
        self.held.clear();
        Ok(())
    }

    fn succeeded(&mut self, call: Call) {
        match call {
            Call::OpenProducer => {
                info!(slot = self.config.slot, id = self.config.transactional_id, "producer ready");
                self.stats.clear_errors(|key| *key == ErrorKey::Producer);
                if self.consumer.is_some() {
                    self.stats.well();
                }
            }
            Call::Resolve => {
                self.stats.well();
                self.stats.clear_errors(|key| *key == ErrorKey::Group);
            }
            Call::Commit | Call::CommitOffsets => {
                if let Some(fencing) = &mut self.fencing {
                    fencing.committed();
                }
                self.transaction_ended(Outcome::Committed);
                self.stats.well();
                self.stats
                    .clear_errors(|key| matches!(key, ErrorKey::Producer | ErrorKey::Group | ErrorKey::Connection));
            }
            Call::Abort => self.transaction_ended(Outcome::Aborted),
            Call::Begin | Call::Produce | Call::Flush | Call::SendOffsets => {}
        }
    }

    pub(super) fn failed(&mut self, call: Call, error: &ClientError) -> Class {
        self.held.clear();
        let key = match call {
            Call::Resolve | Call::CommitOffsets => ErrorKey::Group,
            _ => ErrorKey::Producer,
        };
        let explained = self.explain(call, error);
        self.report(key, explained.as_ref().unwrap_or(error), None);
        // Of the error itself: an explanation is for people. A commit that may have happened stays one, whatever kept it from being answered.
        match error.class() {
            ErrorClass::Retry => Class::Retry,
            ErrorClass::Refresh => Class::Refresh,
            ErrorClass::Abort => Class::Abort,
            ErrorClass::Recreate => Class::Recreate,
            ErrorClass::Fatal => Class::Fatal,
            ErrorClass::Unknown => Class::Unknown,
            ErrorClass::Fenced => self.fenced(call),
        }
    }

    /// A call that only ran out of time says nothing; the client may have said why before.
    fn explain(&self, call: Call, error: &ClientError) -> Option<ClientError> {
        if error.class() != ErrorClass::Unknown {
            return None;
        }
        let producer = self.producer.as_ref().filter(|_| call != Call::Resolve)?;
        producer.serve();
        let notice = producer.notice()?;
        let subject = Subject::new(Operation::Write, Resource::TransactionalId(self.config.transactional_id.clone()));
        Some(ClientError::Call {
            step: "reach the brokers",
            code: notice.code,
            flags: fencepost_kafka::error::librdkafka::Flags::default(),
            message: notice.message,
            subject: Some(subject),
        })
    }

    /// "Fenced" has two reasons, and only one of them is final.
    fn fenced(&mut self, call: Call) -> Class {
        // It is the member that was refused, and no producer.
        if call == Call::CommitOffsets {
            self.member_fenced();
            return Class::Refresh;
        }
        let open_for = self.open_for();
        let by = match self.verdict(open_for) {
            Some(Verdict::Expired) => {
                warn!(
                    slot = self.config.slot,
                    "the brokers ended the transaction: it took longer than the transaction timeout"
                );
                return Class::Recreate;
            }
            Some(Verdict::Nobody) => {
                warn!(slot = self.config.slot, ?call, "refused as fenced, but nobody has taken the id: starting anew");
                return Class::Recreate;
            }
            // Nobody is accused on no evidence: who comes next under this name fences what this one leaves behind.
            Some(Verdict::Unknown) => {
                warn!(
                    slot = self.config.slot,
                    ?call,
                    "refused as fenced, and the brokers do not say by whom: ending without a verdict"
                );
                return Class::Recreate;
            }
            Some(Verdict::Newer(by)) => format!(" (producer {by})"),
            None => String::new(),
        };
        self.fenced_by = Some(self.fenced_message(&by));
        warn!(slot = self.config.slot, ?call, by, "fenced by a newer producer");
        Class::Fenced
    }

    /// Asks until the brokers answer: to take the id back from somebody newer would be as wrong as to leave it to nobody. A drain
    /// ends the question, since then it is of no use any more.
    fn verdict(&self, open_for: Option<Duration>) -> Option<Verdict> {
        let fencing = self.fencing.as_ref()?;
        loop {
            let verdict = fencing.verdict(open_for);
            if verdict != Verdict::Unknown || self.shutdown.is_draining() {
                return Some(verdict);
            }
            let now = self.clock.now();
            self.stats.turn(now);
            self.stats.failing(now);
            self.shutdown.wait(ASK_AGAIN);
        }
    }
}

/// Nothing there to call. The machine opens before it uses, so this is the library having gone away under it.
fn gone() -> ClientError {
    ClientError::Create { message: "it is closed".to_owned() }
}

/// Lets the producer read a pipeline's output.
struct Outputs<'o>(&'o OutputBatch);

impl Records for Outputs<'_> {
    fn topic(&self) -> &str {
        self.0.topic()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn key(&self, row: usize) -> Option<&[u8]> {
        self.0.key(row)
    }

    fn value(&self, row: usize) -> Option<&[u8]> {
        self.0.value(row)
    }

    fn timestamp(&self, row: usize) -> Option<i64> {
        self.0.timestamp(row)
    }

    fn headers(&self, row: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.0.headers(row).map(|header| (header.name, header.value))
    }
}
