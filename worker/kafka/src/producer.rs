//! Writing to Kafka. This is the only place that calls librdkafka's transaction functions.
//!
//! One [`Producer`] serves both guarantees: with a transactional id it offers transactions, without it is an idempotent producer.
//! It belongs to one thread, which also serves the delivery reports: in [`Producer::produce`], and in [`Producer::flush`].

mod message;
mod partitioner;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use fencepost_protocol::{Offset, Partition};
use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use crate::consumer::GroupMetadata;
use crate::errand::Errand;
use crate::error::{ErrorClass, Operation, Resource, Subject};
use crate::native::{ClientError, Kind, Native, Notice, PartitionList, c_string, check, check_error, millis};
use crate::settings::ConnectionSettings;

use message::{Headers, message};
use partitioner::Sticky;
pub use partitioner::partition_of;

/// Records per call of librdkafka: enough to make the lock cheap, few enough to stay in the cache.
const CHUNK: usize = 1_000;

/// How soon it is noticed that the brokers refuse us.
const INIT_SLICE: Duration = Duration::from_millis(500);

/// Bytes of a batch where the topics take as much.
const LARGEST_BATCH: usize = 1_000_000;

/// Longest time that a request waits for its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What librdkafka gets beyond the time of a call to come back by itself.
const OVERTIME: Duration = Duration::from_secs(1);

/// How long a partition count is believed. The same as the clients of Kafka do.
const PARTITIONS_MAX_AGE: Duration = Duration::from_secs(300);

/// Records to be written to one topic.
pub trait Records {
    /// The topic.
    fn topic(&self) -> &str;
    /// How many.
    fn len(&self) -> usize;
    /// None at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Key of a record.
    fn key(&self, row: usize) -> Option<&[u8]>;
    /// Value of a record; `None` is a tombstone.
    fn value(&self, row: usize) -> Option<&[u8]>;
    /// Timestamp of a record in Unix milliseconds; `None`: now.
    fn timestamp(&self, row: usize) -> Option<i64>;
    /// Headers of a record, in order.
    fn headers(&self, row: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)>;
}

/// What a producer is made of.
#[derive(Clone, Debug)]
pub struct ProducerSettings {
    /// How to reach the brokers.
    pub connection: ConnectionSettings,
    /// Present: with transactions.
    pub transactional_id: Option<String>,
    /// When the brokers abort a transaction by themselves. Also how long a record may wait for its delivery, since one that is
    /// delivered later could not be committed.
    pub transaction_timeout: Duration,
    /// Bytes of a batch: what the topics take, the least of their `max.message.bytes`. A single record may be larger, and is refused. More
    /// than 1 MB makes no difference.
    pub max_batch_bytes: usize,
}

impl ProducerSettings {
    fn request_timeout(&self) -> Duration {
        self.transaction_timeout.min(REQUEST_TIMEOUT)
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let timeout = millis(self.transaction_timeout).to_string();
        // Calls look at their deadline when a request is answered or has timed out, so no request may take longer than a call. The default
        // is the transaction timeout, which can be minutes.
        let request = millis(self.request_timeout()).to_string();
        let mut properties = self.connection.librdkafka();
        properties.extend(
            [
                ("enable.idempotence", "true"),
                // A partition cannot be added to a transaction while the markers of the one before are being written; the
                // brokers say so, and after the default of 100 ms we would ask again. Measured: 90 ms per commit, or 1.
                ("retry.backoff.ms", "5"),
                ("reconnect.backoff.ms", "20"),
                ("reconnect.backoff.max.ms", "2000"),
                // A flush at the end of each commit interval sends what is there at once; between commits this makes batches.
                ("linger.ms", "5"),
                // What is not acknowledged is held twice, here and at the brokers. When it is full, reading stops: back-pressure.
                ("queue.buffering.max.messages", "100000"),
                ("queue.buffering.max.kbytes", "65536"),
                // The limit of the topic counts, which the brokers know. They refuse what is larger.
                ("message.max.bytes", "104857600"),
                ("log.connection.close", "false"),
                // A call that librdkafka does not come back from (see `send_offsets`) goes on as soon as any connection of its instance
                // comes or goes. In one that is left behind nothing else happens, so it is this that ends it.
                ("connections.max.idle.ms", "60000"),
            ]
            .map(|(name, value)| (name, value.to_owned())),
        );
        // A batch that is larger than its topic takes would be refused as a whole, again and again.
        properties.push(("batch.size", self.max_batch_bytes.clamp(1, LARGEST_BATCH).to_string()));
        properties.push(("message.timeout.ms", timeout.clone()));
        properties.push(("socket.timeout.ms", request));
        if let Some(id) = &self.transactional_id {
            properties.push(("transactional.id", id.clone()));
            properties.push(("transaction.timeout.ms", timeout));
        }
        properties
    }
}

/// A handle of a topic and what is known about it.
#[derive(Debug)]
struct Topic {
    handle: NonNull<sys::rd_kafka_topic_t>,
    partitions: i32,
    known_at: Instant,
}

/// A producer, idempotent or transactional.
#[derive(Debug)]
pub struct Producer {
    topics: HashMap<String, Topic>,
    sticky: Sticky,
    scratch: Vec<sys::rd_kafka_message_t>,
    transactional_id: Option<String>,
    /// Makes the call that does not always come back.
    errand: Errand,
    // Dropped last: the topic handles belong to it.
    native: Arc<Native>,
}

// SAFETY: the raw pointers are topic handles of `native`, which may be used from any thread, and `scratch`, which is empty between
// calls.
unsafe impl Send for Producer {}

impl Producer {
    /// Creates the instance. With a transactional id it must be initialised before anything else.
    ///
    /// # Errors
    /// When librdkafka does not accept a setting.
    pub fn new(settings: &ProducerSettings) -> Result<Self, ClientError> {
        let errand = Errand::new("positions").map_err(|error| ClientError::Create { message: error.to_string() })?;
        Ok(Self {
            native: Arc::new(Native::new(Kind::Producer, &settings.properties())?),
            errand,
            topics: HashMap::new(),
            sticky: Sticky::new(),
            scratch: Vec::with_capacity(CHUNK),
            transactional_id: settings.transactional_id.clone(),
        })
    }

    /// What librdkafka complained about last, outside of any call.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        self.native.context().notice()
    }

    fn subject(&self) -> Subject {
        match &self.transactional_id {
            Some(id) => Subject::new(Operation::Write, Resource::TransactionalId(id.clone())),
            None => Subject::new(Operation::IdempotentWrite, Resource::Cluster),
        }
    }

    fn transactional(&self, step: &'static str, error: *mut sys::rd_kafka_error_t) -> Result<(), ClientError> {
        check_error(step, error).map_err(|error| error.about(self.subject()))
    }

    /// An error when a request was never answered that changes a transaction, in this one or one before.
    ///
    /// librdkafka sends a request again when it has timed out or its connection is lost, says nothing of it, and reports the success of the
    /// second. The first may still be on its way, in a socket or at a broker that stands still, and could end the *next* transaction of
    /// this producer: the brokers know the two only by the producer's id and epoch. So a success of which that may be true ends the use of
    /// the producer, and the next one, which has another epoch, asks what has become of it.
    fn asked_once(&self, step: &'static str) -> Result<(), ClientError> {
        if self.native.context().unanswered() == 0 {
            return Ok(());
        }
        let message =
            "the client has asked more than once: a request was not answered in time, or its connection was lost";
        Err(ClientError::call(step, Code::OperationTimedOut, message.to_owned()).about(self.subject()))
    }

    /// Fences every older producer of the transactional id and ends its transaction: by abort, or, when its commit is already
    /// decided, by waiting for it.
    ///
    /// # Errors
    /// Among others when the transaction timeout is above the brokers' limit, or permission on the id is missing.
    pub fn init_transactions(&self, within: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + within;
        loop {
            // In slices, which librdkafka resumes: only between them can be heard why the brokers do not answer.
            // SAFETY: the instance is valid.
            let error = unsafe { sys::rd_kafka_init_transactions(self.native.ptr(), millis(INIT_SLICE)) };
            let Err(error) = self.transactional("initialise transactions", error) else { return Ok(()) };
            // Also while it is told why it takes longer, such as a transaction that is just being ended: the call goes on waiting.
            if error.code() != Some(Code::OperationTimedOut) && error.class() != ErrorClass::Retry {
                return Err(error);
            }
            self.serve();
            let notice = self.notice();
            let is_hopeless = notice.as_ref().is_some_and(|notice| {
                matches!(notice.code, Code::Authentication | Code::SSL | Code::UnsupportedFeature)
            });
            if is_hopeless || Instant::now() >= deadline {
                return Err(match notice {
                    Some(notice) => {
                        ClientError::call("initialise transactions", notice.code, notice.message).about(self.subject())
                    }
                    None => error,
                });
            }
        }
    }

    /// Begins a transaction. Local: nothing is sent. What librdkafka complained about before is over.
    ///
    /// # Errors
    /// When the producer is not in a state to begin.
    pub fn begin(&self) -> Result<(), ClientError> {
        self.native.context().take_notice();
        // SAFETY: the instance is valid.
        let error = unsafe { sys::rd_kafka_begin_transaction(self.native.ptr()) };
        self.transactional("begin a transaction", error)
    }

    /// Puts positions into the transaction, on the word of `metadata`.
    ///
    /// librdkafka does not come back from this call while the coordinator of the group that it knows is gone, whatever time it is given
    /// (<https://github.com/confluentinc/librdkafka/issues/5456>). Then the instance is left behind with the call, and this producer is of
    /// no use any more. It ends a minute or two later, when its idle connections are closed.
    ///
    /// # Errors
    /// Among others when the group has gone on to another generation, and of class `Unknown` when there is no answer within `within`.
    pub fn send_offsets(
        &mut self,
        offsets: &[(Partition, Offset)],
        topics: &[String],
        metadata: &GroupMetadata,
        within: Duration,
    ) -> Result<(), ClientError> {
        const STEP: &str = "put positions into the transaction";
        let list = offset_list(offsets, topics)?;
        let (native, metadata) = (Arc::clone(&self.native), metadata.clone());
        let call = move || {
            // SAFETY: instance, list and metadata are valid: the call owns its part of them.
            let error = unsafe {
                sys::rd_kafka_send_offsets_to_transaction(native.ptr(), list.ptr(), metadata.ptr(), millis(within))
            };
            check_error(STEP, error)
        };
        let answer = self.errand.run(within + OVERTIME, call).unwrap_or_else(|| {
            let message = "the client does not come back; the coordinator of the group may be gone".to_owned();
            Err(ClientError::call(STEP, Code::OperationTimedOut, message))
        });
        answer.map_err(|error| error.about(self.subject()))?;
        self.asked_once(STEP)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// Of class `Unknown` when it is not known whether it is committed, or whether it was asked for once.
    pub fn commit(&self, within: Duration) -> Result<(), ClientError> {
        const STEP: &str = "commit the transaction";
        // SAFETY: the instance is valid.
        let error = unsafe { sys::rd_kafka_commit_transaction(self.native.ptr(), millis(within)) };
        self.transactional(STEP, error)?;
        self.asked_once(STEP)
    }

    /// Aborts the transaction and drops what was not sent yet.
    ///
    /// # Errors
    /// When the brokers do not confirm it, or it is not known whether it was asked for once; of class `Recreate` when the producer has
    /// another epoch after it.
    pub fn abort(&self, within: Duration) -> Result<(), ClientError> {
        const STEP: &str = "abort the transaction";
        let initialisations = self.native.context().initialisations();
        // SAFETY: the instance is valid.
        let error = unsafe { sys::rd_kafka_abort_transaction(self.native.ptr(), millis(within)) };
        let result = self.transactional(STEP, error).and_then(|()| self.asked_once(STEP));
        // The reports of what was dropped have been served: they say nothing about the next transaction.
        self.native.context().forget_failure();
        result?;
        // After some errors librdkafka raises the epoch by itself. Then this is not the producer any more that its owner knows by its epoch.
        if self.native.context().initialisations() != initialisations {
            let message = "the client has initialised the producer again".to_owned();
            return Err(ClientError::call(STEP, Code::Inconsistent, message).about(self.subject()));
        }
        Ok(())
    }

    /// Waits until everything handed over is confirmed.
    ///
    /// librdkafka sends at once while this waits, so it is also the end of the linger time.
    ///
    /// # Errors
    /// When a record was not delivered, or time is up.
    pub fn flush(&self, within: Duration) -> Result<(), ClientError> {
        // SAFETY: the instance is valid.
        let code = unsafe { sys::rd_kafka_flush(self.native.ptr(), millis(within)) };
        self.delivered()?;
        check("confirm the output", code)
    }

    /// A record that was not delivered stays that: without a transaction whose end would settle it, the producer must not be asked
    /// again until it says yes.
    fn delivered(&self) -> Result<(), ClientError> {
        let Some(failure) = self.native.context().failure() else { return Ok(()) };
        // The reason of a producer that cannot go on is more use than "purged".
        if let Some(fatal) = self.native.fatal() {
            return Err(fatal.about(self.subject()));
        }
        let message = format!("{} [{}]: {}", failure.topic, failure.partition, failure.code);
        Err(ClientError::call("write to a topic", failure.code, message).about(write_to(&failure.topic)))
    }

    /// Hands records over, in order. Waits while the queue is full.
    ///
    /// # Errors
    /// When the topic does not exist, the queue stays full for longer than `within`, or the producer cannot go on.
    pub fn produce(&mut self, records: &impl Records, within: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + within;
        let (topic, partitions) = self.topic(records.topic(), within)?;
        let keyless = self.sticky.next(partitions);
        let partition = |row: usize| records.key(row).map_or(keyless, |key| partition_of(key, partitions));
        let plain =
            (0..records.len()).all(|row| records.timestamp(row).is_none() && records.headers(row).next().is_none());
        if plain {
            let mut rows = 0..records.len();
            while !rows.is_empty() {
                self.scratch.extend(rows.by_ref().take(CHUNK).map(|row| message(records, row, partition(row))));
                self.hand_over(topic, deadline)?;
            }
        } else {
            for row in 0..records.len() {
                self.produce_one(topic, records, row, partition(row), deadline)?;
            }
        }
        self.serve();
        self.delivered()
    }

    /// Hands over what is in `scratch`, and leaves it empty.
    fn hand_over(&mut self, topic: NonNull<sys::rd_kafka_topic_t>, deadline: Instant) -> Result<(), ClientError> {
        let flags = sys::RD_KAFKA_MSG_F_COPY | sys::RD_KAFKA_MSG_F_PARTITION;
        let result = loop {
            let count = i32::try_from(self.scratch.len()).unwrap_or(i32::MAX);
            // SAFETY: the topic belongs to this instance; the messages point into the records, which live through the call, and
            // with F_COPY librdkafka neither keeps nor frees what they point to.
            unsafe { sys::rd_kafka_produce_batch(topic.as_ptr(), 0, flags, self.scratch.as_mut_ptr(), count) };
            self.scratch.retain(|message| message.err != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
            let Some(first) = self.scratch.first() else { break Ok(()) };
            if first.err != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL {
                break self.refused(first.err);
            }
            if let Err(error) = self.wait_for_room(deadline) {
                break Err(error);
            }
        };
        self.scratch.clear();
        result
    }

    fn produce_one(
        &self,
        topic: NonNull<sys::rd_kafka_topic_t>,
        records: &impl Records,
        row: usize,
        partition: i32,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        use sys::rd_kafka_vtype_t as v;
        let bytes =
            |part: Option<&[u8]>| part.map_or((std::ptr::null(), 0), |p| (p.as_ptr().cast::<c_void>(), p.len()));
        let (value, value_len) = bytes(records.value(row));
        let (key, key_len) = bytes(records.key(row));
        loop {
            let headers = Headers::new(records.headers(row))?;
            // SAFETY: each tag is followed by the arguments that librdkafka documents for it; the bytes are copied.
            let code = unsafe {
                sys::rd_kafka_producev(
                    self.native.ptr(),
                    v::RD_KAFKA_VTYPE_RKT,
                    topic.as_ptr(),
                    v::RD_KAFKA_VTYPE_PARTITION,
                    partition,
                    v::RD_KAFKA_VTYPE_MSGFLAGS,
                    sys::RD_KAFKA_MSG_F_COPY,
                    v::RD_KAFKA_VTYPE_VALUE,
                    value,
                    value_len,
                    v::RD_KAFKA_VTYPE_KEY,
                    key,
                    key_len,
                    v::RD_KAFKA_VTYPE_TIMESTAMP,
                    // 0 is "now".
                    records.timestamp(row).unwrap_or(0),
                    v::RD_KAFKA_VTYPE_HEADERS,
                    headers.as_ptr(),
                    v::RD_KAFKA_VTYPE_END,
                )
            };
            match code {
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {
                    let _owned_by_the_message = std::mem::ManuallyDrop::new(headers);
                    return Ok(());
                }
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL => self.wait_for_room(deadline)?,
                code => return self.refused(code),
            }
        }
    }

    fn refused(&self, code: sys::rd_kafka_resp_err_t) -> Result<(), ClientError> {
        match self.native.fatal() {
            Some(fatal) => Err(fatal.about(self.subject())),
            None => check("hand over the output", code),
        }
    }

    fn wait_for_room(&self, deadline: Instant) -> Result<(), ClientError> {
        // SAFETY: the instance is valid. Returns as soon as a delivery report was served.
        unsafe { sys::rd_kafka_poll(self.native.ptr(), 10) };
        self.delivered()?;
        if Instant::now() >= deadline {
            return check("hand over the output", sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT);
        }
        Ok(())
    }

    /// Serves delivery reports and errors that are there, without waiting.
    pub fn serve(&self) {
        // SAFETY: the instance is valid.
        unsafe { sys::rd_kafka_poll(self.native.ptr(), 0) };
    }

    fn topic(&mut self, name: &str, within: Duration) -> Result<(NonNull<sys::rd_kafka_topic_t>, i32), ClientError> {
        if let Some(topic) = self.topics.get(name)
            && topic.known_at.elapsed() < PARTITIONS_MAX_AGE
        {
            return Ok((topic.handle, topic.partitions));
        }
        let handle = match self.topics.get(name) {
            Some(topic) => topic.handle,
            None => self.open_topic(name)?,
        };
        // Kept before anything can fail, so that it is destroyed in any case.
        let topic =
            self.topics.entry(name.to_owned()).or_insert(Topic { handle, partitions: 0, known_at: Instant::now() });
        match partition_count(&self.native, handle, name, within) {
            Ok(partitions) => {
                *topic = Topic { handle, partitions, known_at: Instant::now() };
                Ok((handle, partitions))
            }
            // An old count still serves while the brokers are away.
            Err(error) if topic.partitions > 0 && error.class() != crate::error::ErrorClass::Fatal => {
                Ok((handle, topic.partitions))
            }
            Err(error) => {
                if let Some(topic) = self.topics.remove(name) {
                    // SAFETY: the handle is not used after this.
                    unsafe { sys::rd_kafka_topic_destroy(topic.handle.as_ptr()) };
                }
                Err(error)
            }
        }
    }

    fn open_topic(&self, name: &str) -> Result<NonNull<sys::rd_kafka_topic_t>, ClientError> {
        let c_name = c_string(name)?;
        // SAFETY: the instance is valid and the name terminated.
        let handle = unsafe { sys::rd_kafka_topic_new(self.native.ptr(), c_name.as_ptr(), std::ptr::null_mut()) };
        NonNull::new(handle).ok_or_else(|| {
            // SAFETY: no preconditions; it belongs to the call above.
            let code = unsafe { sys::rd_kafka_last_error() };
            ClientError::call("open a topic", code.into(), name.to_owned()).about(write_to(name))
        })
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // What was not sent is dropped, as it would be by the destruction; purged messages are not waited for.
        let flags = sys::RD_KAFKA_PURGE_F_QUEUE | sys::RD_KAFKA_PURGE_F_INFLIGHT | sys::RD_KAFKA_PURGE_F_NON_BLOCKING;
        // SAFETY: the instance is valid, the handles are not used after this.
        unsafe {
            sys::rd_kafka_purge(self.native.ptr(), flags);
            for topic in self.topics.values() {
                sys::rd_kafka_topic_destroy(topic.handle.as_ptr());
            }
        }
    }
}

fn write_to(topic: &str) -> Subject {
    Subject::new(Operation::Write, Resource::Topic(topic.to_owned()))
}

fn partition_count(
    native: &Native,
    topic: NonNull<sys::rd_kafka_topic_t>,
    name: &str,
    within: Duration,
) -> Result<i32, ClientError> {
    let mut metadata: *const sys::rd_kafka_metadata = std::ptr::null();
    // SAFETY: instance and topic are valid; on success librdkafka hands over metadata that is destroyed below.
    unsafe {
        let code = sys::rd_kafka_metadata(native.ptr(), 0, topic.as_ptr(), &raw mut metadata, millis(within));
        check("look up the partitions of a topic", code).map_err(|error| error.about(write_to(name)))?;
        let count = (*metadata).topics.as_ref().filter(|_| (*metadata).topic_cnt > 0).map(|t| (t.err, t.partition_cnt));
        sys::rd_kafka_metadata_destroy(metadata);
        let (code, count) = count.unwrap_or((sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, 0));
        check("look up the partitions of a topic", code).map_err(|error| error.about(write_to(name)))?;
        Ok(count.max(1))
    }
}

/// A list of offsets to commit.
pub(crate) fn offset_list(offsets: &[(Partition, Offset)], topics: &[String]) -> Result<PartitionList, ClientError> {
    PartitionList::new(offsets.iter().map(|(partition, offset)| {
        (topics.get(usize::from(partition.topic)).map_or("", String::as_str), partition.number, offset.0)
    }))
}
