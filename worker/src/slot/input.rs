//! From polled messages to a processed batch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_kafka::consumer::Trouble;
use fencepost_kafka::error::librdkafka::Flags;
use fencepost_kafka::error::{ErrorClass, Operation, Resource, Subject, chain};
use fencepost_kafka::source::{Record, RecordBatch, Source};
use fencepost_kafka::{ClientError, Notice};
use fencepost_pipeline::{BadRecord, Header, OutputBatch, ProcessError, RawRecord};
use fencepost_protocol::transactional::{self, Event, Outputs};
use fencepost_protocol::{Offset, Partition};
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::{info, warn};

use super::SlotExit;
use super::driver::Driver;
use super::observe::Observation;
use super::stats::ErrorKey;

/// Records of a batch. Small enough for their messages to stay in the processor's cache.
const BATCH: usize = 2_000;
/// How long a batch waits for more once it has a first record.
const GATHER: Duration = Duration::from_millis(3);
/// How often a partition is tried again whose position is not in the log.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How long the brokers get to say where partitions begin and end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How soon, when it may be only that the brokers are starting.
const SOON: Duration = Duration::from_secs(1);
/// How long the same complaint of the client is not repeated.
const SAME_NOTICE: Duration = Duration::from_secs(10);

/// What became of the records of a batch.
#[derive(Default)]
struct Work {
    outputs: Vec<OutputBatch>,
    consumed: BTreeMap<Partition, (Offset, Offset)>,
    bad: u64,
    stop_before: Option<(Partition, Offset)>,
    /// Partitions with records that are left to be read again: together with the others they would have made too much at once.
    left: BTreeSet<Partition>,
}

impl Driver<'_> {
    /// Reads a batch, processes it, and tells the machine. True: nothing more was there to be read.
    pub(super) fn read(&mut self, wait: Duration, gather: Duration) -> bool {
        // Taken out, because the batch must be gone before anything that the machine says can end the consumer.
        let Some(mut consumer) = self.consumer.take() else { return true };
        let batch = consumer.poll(BATCH, wait, GATHER.min(gather));
        let is_dry = batch.len() < BATCH;
        let troubles = batch.troubles().to_vec();
        let mut left = BTreeSet::new();
        let read = self.process_polled(&batch, &mut left);
        drop(batch);
        let notice = consumer.take_notice();
        self.consumer = Some(consumer);
        if let Some(notice) = notice {
            self.noticed(notice);
        }
        let unknown: Vec<Partition> = troubles.iter().filter_map(|trouble| self.trouble(trouble)).collect();
        self.positions_are_unknown(&unknown);
        match read {
            Ok(Some(event)) => {
                self.tell(event);
                self.read_again(&left);
            }
            Ok(None) => {}
            // Not in a record, so not a matter of `onBadRecord`: the same would happen again.
            Err(error) => {
                let message = format!("the pipeline failed: {}", chain(&error));
                self.finish(SlotExit::Failed(message));
            }
        }
        is_dry && left.is_empty()
    }

    /// Goes back to the first record of each of the partitions that is not processed. All at once: when the consumer cannot, another one
    /// takes its place, and begins there with everything.
    pub(super) fn read_again(&mut self, partitions: &BTreeSet<Partition>) {
        let positions: Vec<(Partition, Offset)> = self
            .machine
            .positions()
            .filter(|(partition, ..)| partitions.contains(partition))
            .filter_map(|(partition, _, next)| Some((partition, next?)))
            .collect();
        if !positions.is_empty() {
            self.rewind(&positions);
        }
    }

    /// The client repeats itself many times a second while a broker is away; once is enough for a while.
    fn noticed(&mut self, notice: Notice) {
        let now = self.clock.now();
        self.last_trouble = Some(now);
        let is_news = self.last_notice.is_none_or(|(code, at)| {
            let is_other = notice.code != code && notice.code != Code::AllBrokersDown;
            is_other || now.saturating_sub(at) > SAME_NOTICE
        });
        if is_news {
            self.last_notice = Some((notice.code, now));
            // Which topic may not be read is only in the text.
            let topic = self.topics().iter().find(|topic| notice.message.contains(topic.as_str()));
            let subject = topic
                .filter(|_| notice.code == Code::TopicAuthorizationFailed)
                .map(|topic| Subject::new(Operation::Read, Resource::Topic(topic.clone())));
            let error = call_error("reach the brokers", notice.code, notice.message);
            self.report(ErrorKey::Connection, &error, subject.as_ref());
        }
    }

    fn process_polled(
        &mut self,
        batch: &impl RecordBatch,
        left: &mut BTreeSet<Partition>,
    ) -> Result<Option<Event>, ProcessError> {
        let Some(token) = self.token else { return Ok(None) };
        if batch.is_empty() && batch.ends().is_empty() {
            return Ok(None);
        }
        if !self.machine.wants_records() {
            // Told all the same, so that they are read again.
            let consumed = batch.records().map(|m| (m.partition(), m.offset(), m.offset())).collect();
            let refused = transactional::Batch { token, consumed, outputs: Outputs::None, stop_before: None };
            return Ok(Some(Event::Batch(refused)));
        }
        let mut work = self.process(batch)?;
        let alive: Vec<Partition> =
            work.consumed.keys().copied().chain(batch.ends().iter().map(|(partition, _)| *partition)).collect();
        for partition in alive {
            self.forget_errors_about(partition);
        }
        if work.stop_before.is_none() {
            left.append(&mut work.left);
            for (partition, end) in batch.ends().iter().filter(|(partition, _)| !left.contains(partition)) {
                self.ends.insert(*partition, *end);
                let position = work.consumed.entry(*partition).or_insert((*end, *end));
                position.1 = position.1.max(*end);
            }
        }
        let consumed = work.consumed.into_iter().map(|(partition, (first, after))| (partition, first, after)).collect();
        let outputs = if work.outputs.is_empty() { Outputs::None } else { Outputs::Some };
        self.held = work.outputs;
        Ok(Some(Event::Batch(transactional::Batch { token, consumed, outputs, stop_before: work.stop_before })))
    }

    fn process(&mut self, batch: &impl RecordBatch) -> Result<Work, ProcessError> {
        let started = self.clock.now();
        let mut work = Work::default();
        let mut by_topic = vec![Vec::new(); self.sources.len()];
        let (mut records_in, mut bytes_in) = (0_u64, 0_u64);
        for message in batch.records() {
            records_in += 1;
            bytes_in += bytes(message.key().map_or(0, <[u8]>::len) + message.value().map_or(0, <[u8]>::len));
            if let Some(messages) = by_topic.get_mut(usize::from(message.partition().topic)) {
                messages.push(message);
            }
        }
        for (topic, messages) in by_topic.iter().enumerate().filter(|(_, messages)| !messages.is_empty()) {
            // What is made of one topic after another is all held at once.
            if work.left.is_empty() {
                self.process_topic(topic, messages, &mut work)?;
            } else {
                work.left.extend(messages.iter().map(|message| message.partition()));
            }
            if work.stop_before.is_some() {
                break;
            }
        }
        self.observe(Observation::Batch {
            records_in,
            bytes_in,
            records_out: work.outputs.iter().map(|output| bytes(output.len())).sum(),
            bytes_out: work.outputs.iter().map(|output| bytes(output.byte_len())).sum(),
            bad: work.bad,
            took: self.clock.now().saturating_sub(started),
        });
        let bad = work.bad;
        self.stats.update(|status| {
            status.records_in += records_in;
            status.bad_records += bad;
        });
        Ok(work)
    }

    /// Gives the records of a topic to all its sources. When one of them stops at a record, none goes beyond it.
    fn process_topic<'b>(
        &mut self,
        topic: usize,
        messages: &[impl Record<'b>],
        work: &mut Work,
    ) -> Result<(), ProcessError> {
        let sources = self.sources.get(topic).cloned().unwrap_or_default();
        let needs_headers = self.config.needs_headers(&sources);
        let records: Vec<RawRecord<'_>> = messages.iter().map(|message| raw(*message, needs_headers)).collect();
        let now_ms = self.clock.unix_ms();
        let mut limit = records.len();
        let mut failed: Option<BadRecord> = None;
        let (outputs, bad) = 'again: loop {
            let (mut outputs, mut bad) = (Vec::new(), 0);
            for source in &sources {
                let processed = self.pipeline.process(*source, records.get(..limit).unwrap_or_default(), now_ms)?;
                if processed.consumed < limit {
                    limit = processed.consumed;
                    failed = processed.fail;
                    // What the sources before this one made goes too far.
                    if sources.len() > 1 {
                        continue 'again;
                    }
                }
                bad += bytes(processed.bad.len());
                outputs.extend(processed.outputs.into_iter().filter(|output| !output.is_empty()));
            }
            break (outputs, bad);
        };
        work.outputs.extend(outputs);
        work.bad += bad;
        let processed = messages.get(..limit).unwrap_or_default();
        for run in processed.chunk_by(|one, next| one.partition() == next.partition()) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                let after = Offset(last.offset().0 + 1);
                work.consumed.entry(first.partition()).or_insert((first.offset(), after)).1 = after;
            }
        }
        if failed.is_none() {
            work.left.extend(messages.iter().skip(limit).map(|message| message.partition()));
        }
        if let (Some(failed), Some(message)) = (failed, messages.get(limit)) {
            work.bad += 1;
            work.stop_before = Some((message.partition(), message.offset()));
            warn!(slot = self.config.slot, partition = %message.partition(), offset = %message.offset(), reason = failed.reason, "bad record");
            self.bad = Some(failed.reason);
        }
        Ok(())
    }

    /// An error in the place of a record. Gives the partition whose position is not in the log, if it is about that.
    fn trouble(&mut self, trouble: &Trouble) -> Option<Partition> {
        let fatal = self.consumer.as_ref().and_then(fencepost_kafka::consumer::Consumer::fatal);
        if let Some(fatal) = fatal {
            if fatal.class() == ErrorClass::Fenced {
                self.member_fenced();
            } else {
                self.report(ErrorKey::Group, &fatal, None);
                self.replace_consumer();
            }
            return None;
        }
        if let (Some(partition), Code::AutoOffsetReset | Code::OffsetOutOfRange) = (trouble.partition, trouble.code) {
            return Some(partition);
        }
        let key = trouble.topic.map_or(ErrorKey::Group, ErrorKey::Topic);
        let subject = trouble.topic.map(|topic| {
            let name = self.topic_name(Partition::new(topic, 0)).to_owned();
            Subject::new(Operation::Read, Resource::Topic(name))
        });
        let error = call_error("read", trouble.code, trouble.message.clone());
        self.report(key, &error, subject.as_ref());
        None
    }

    /// The client has stopped fetching these partitions, because their position is not in the log, or because it could not find out.
    ///
    /// Records that are gone before they were read are never passed over silently: the partition waits for a person, the others go
    /// on. In either case it is tried again.
    fn positions_are_unknown(&mut self, partitions: &[Partition]) {
        let Some(consumer) = self.consumer.as_ref().filter(|_| !partitions.is_empty()) else { return };
        let ends = consumer.ends(partitions, ENDS_WITHIN).unwrap_or_else(|error| {
            info!(
                slot = self.config.slot,
                error = chain(&error),
                "the brokers do not tell where partitions begin and end"
            );
            BTreeMap::new()
        });
        let wanted: BTreeMap<Partition, Offset> =
            self.machine.positions().filter_map(|(partition, _, next)| Some((partition, next?))).collect();
        let now = self.clock.now();
        for partition in partitions {
            let mut again = SOON;
            if let (Some(log), Some(wanted)) = (ends.get(partition), wanted.get(partition))
                && !(log.start..=log.end).contains(wanted)
            {
                let error = ClientError::UnknownPosition {
                    topic: self.topic_name(*partition).to_owned(),
                    partition: partition.number,
                    wanted: wanted.0,
                    low: log.start.0,
                    high: log.end.0,
                };
                self.report(ErrorKey::Partition(partition.topic, partition.number), &error, None);
                again = LOOK_AGAIN;
            }
            self.out_of_range.insert(*partition, now + again);
        }
    }
}

fn raw<'m>(message: impl Record<'m>, needs_headers: bool) -> RawRecord<'m> {
    let headers = if needs_headers {
        message.headers().into_iter().map(|(name, value)| Header { name, value }).collect()
    } else {
        Vec::new()
    };
    RawRecord {
        partition: message.partition().number,
        offset: message.offset().0,
        timestamp_ms: message.timestamp_ms(),
        key: message.key(),
        value: message.value(),
        headers,
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn call_error(step: &'static str, code: Code, message: String) -> ClientError {
    ClientError::Call { step, code, flags: Flags::default(), message, subject: None }
}
