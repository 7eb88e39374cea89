//! The thread that writes.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost_oracle::Connection;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use super::{Amount, Error, Grouping, Order, Plan, Shared, Summary};
use crate::wait::{self, Deadline};

/// Long enough for a broker that is stopped and started again.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one attempt to end a transaction may take.
const TRY: Duration = Duration::from_secs(10);
/// How often the rate is kept, and the end is looked for.
const TICK: Duration = Duration::from_millis(20);
/// One record of so many has headers.
const HEADERS_EVERY: u64 = 7;
/// One record of so many is from 1970.
const OLD_EVERY: u64 = 11;
const FAR: Duration = Duration::from_secs(86_400);

/// Makes a call again that says that it can be made again: the client goes on with what it has begun.
fn until_done(call: impl Fn() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
    let deadline = Deadline::after(PATIENCE);
    loop {
        match call() {
            Err(KafkaError::Transaction(error)) if error.is_retriable() && !deadline.passed() => {}
            ended => return ended,
        }
    }
}

/// Counts what the brokers confirm.
struct Confirmations {
    shared: Arc<Shared>,
    refused: Mutex<Option<(u64, String)>>,
}

impl ClientContext for Confirmations {}

impl ProducerContext for Confirmations {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => {
                self.shared.confirmed.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.get_or_insert_with(|| (0, error.to_string())).0 += 1;
            }
        }
    }
}

/// Writes what a plan says.
pub(super) struct Writer {
    producer: BaseProducer<Confirmations>,
    plan: Plan,
    shared: Arc<Shared>,
    next: u64,
    summary: Summary,
}

impl Writer {
    pub(super) fn new(connection: &Connection, plan: Plan, shared: Arc<Shared>) -> Result<Self, Error> {
        let mut config = connection.config();
        config
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            // With more, an idempotent producer may write a batch twice when leaders move: librdkafka#4953. The judge counts what the load means to
            // write.
            .set("max.in.flight.requests.per.connection", "1")
            .set("retry.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "500")
            // A broker that has fallen silent is not waited for while others lead its partitions.
            .set("socket.timeout.ms", "5000")
            .set("topic.metadata.refresh.interval.ms", "3000")
            .set("message.timeout.ms", PATIENCE.as_millis().to_string());
        if matches!(plan.grouping, Grouping::Transactions { .. }) {
            config
                .set("transactional.id", format!("load-{}", plan.topic))
                .set("transaction.timeout.ms", PATIENCE.as_millis().to_string());
        }
        let context = Confirmations { shared: Arc::clone(&shared), refused: Mutex::new(None) };
        let producer = config
            .create_with_context(context)
            .map_err(|source| Error::Client { topic: plan.topic.clone(), source })?;
        Ok(Self { producer, plan, shared, next: 0, summary: Summary::default() })
    }

    pub(super) fn run(mut self) -> Result<Summary, Error> {
        self.know_all_partitions()?;
        match self.plan.grouping {
            Grouping::Plain => self.plain()?,
            Grouping::Transactions { records, abort_every } => self.transactions(records, abort_every)?,
        }
        self.confirm_all()?;
        Ok(self.summary)
    }

    /// A broker tells of a new partition a little after the controller has made it, and the library refuses records for one that it
    /// has not been told of.
    fn know_all_partitions(&self) -> Result<(), Error> {
        let topic = &self.plan.topic;
        let mut last = None;
        let known = wait::until(Deadline::after(PATIENCE), || -> Result<_, Infallible> {
            let told = self.producer.client().fetch_metadata(Some(topic), PATIENCE).map_err(|error| last = Some(error));
            let enough = told.is_ok_and(|told| {
                let partitions = told.topics().first().map_or(0, |topic| topic.partitions().len());
                usize::try_from(self.plan.partitions).is_ok_and(|wanted| partitions >= wanted)
            });
            Ok(enough.then_some(()))
        });
        match (known, last) {
            (Ok(Some(())), _) => Ok(()),
            (_, Some(source)) => Err(Error::Look { topic: topic.clone(), source }),
            (_, None) => Err(Error::Partitions { topic: topic.clone(), wanted: self.plan.partitions }),
        }
    }

    fn plain(&mut self) -> Result<(), Error> {
        let clock = Deadline::after(FAR);
        while !self.finished() {
            while self.next < self.due(clock) && !self.finished() {
                self.write()?;
                self.summary.committed += 1;
            }
            self.producer.poll(TICK);
        }
        Ok(())
    }

    fn transactions(&mut self, records: u64, abort_every: u64) -> Result<(), Error> {
        let topic = self.plan.topic.clone();
        let failed = |what| {
            let topic = topic.clone();
            move |source| Error::Transaction { what, topic, source }
        };
        self.producer.init_transactions(PATIENCE).map_err(failed("prepare"))?;
        let clock = Deadline::after(FAR);
        for number in 1_u64.. {
            if self.finished() {
                break;
            }
            self.producer.begin_transaction().map_err(failed("begin"))?;
            let before = self.summary.defective;
            let mut written = 0;
            while written < records && !self.finished() {
                if self.next >= self.due(clock) {
                    self.producer.poll(TICK);
                    continue;
                }
                self.write()?;
                written += 1;
            }
            // An aborted record that never reached the log would test nothing.
            self.confirm_all()?;
            let is_committed = !number.is_multiple_of(abort_every.max(1)) && self.commit().map_err(failed("commit"))?;
            if is_committed {
                self.summary.committed += written;
            } else {
                until_done(|| self.producer.abort_transaction(TRY)).map_err(failed("abort"))?;
                self.summary.aborted += written;
                self.summary.defective = before;
            }
        }
        Ok(())
    }

    /// False: the brokers want the transaction to be aborted, as its leaders or its coordinator have moved.
    fn commit(&self) -> Result<bool, KafkaError> {
        match until_done(|| self.producer.commit_transaction(TRY)) {
            Err(KafkaError::Transaction(error)) if error.txn_requires_abort() => Ok(false),
            ended => ended.map(|()| true),
        }
    }

    fn finished(&self) -> bool {
        let full = matches!(self.plan.amount, Amount::Records(count) if self.next >= count);
        full || self.shared.stop.load(Ordering::Relaxed)
    }

    /// Records that may have been written by now.
    fn due(&self, clock: Deadline) -> u64 {
        if self.plan.rate == 0 {
            return u64::MAX;
        }
        let elapsed = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        elapsed.saturating_mul(u64::from(self.plan.rate)) / 1000 + 1
    }

    fn write(&mut self) -> Result<(), Error> {
        let partitions = u64::from(self.plan.partitions.max(1).unsigned_abs());
        let partition = i32::try_from(self.next % partitions).unwrap_or_default();
        let order = Order::numbered(self.plan.stream, partition, self.next / partitions);
        let bulky = self.plan.bulky.filter(|bulky| order.seq.is_multiple_of(bulky.every.max(1)));
        let (key, value) = match (self.plan.defects.of(partition, order.seq), bulky) {
            (None, None) => (Some(order.key().into_bytes()), Some(order.value().into_bytes())),
            (None, Some(bulky)) => (None, Some(order.padded(bulky.bytes).into_bytes())),
            (Some(defect), _) => {
                self.summary.defective += 1;
                let (key, value) = defect.spoil(&order);
                (Some(key), value)
            }
        };
        let mut record = BaseRecord::to(&self.plan.topic).partition(partition);
        record.key = key.as_deref();
        record.payload = value.as_deref();
        // What no column names must not matter: headers without a value, or of any bytes, and times of long ago.
        if order.seq.is_multiple_of(HEADERS_EVERY) {
            let header = |key, value| Header { key, value };
            let headers = OwnedHeaders::new_with_capacity(3);
            let headers = headers.insert(header("trace", Some(&[0_u8, 0xff][..]))).insert(header("trace", None));
            record = record.headers(headers.insert(header("", Some(&[][..]))));
        }
        if self.plan.of_any_time {
            record = record.timestamp(order.time());
        } else if order.seq.is_multiple_of(OLD_EVERY) {
            record = record.timestamp(1);
        }
        while let Err((error, again)) = self.producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(Error::Write { topic: self.plan.topic.clone(), source: error });
            }
            record = again;
            self.producer.poll(TICK);
        }
        self.next += 1;
        Ok(())
    }

    fn confirm_all(&self) -> Result<(), Error> {
        let deadline = Deadline::after(PATIENCE);
        while self.producer.in_flight_count() > 0 && !deadline.passed() {
            self.producer.poll(TICK);
        }
        let refused = self.producer.context().refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        let open = u64::try_from(self.producer.in_flight_count()).unwrap_or_default();
        let (failed, first) = refused.unwrap_or((open, "no answer".to_owned()));
        if failed == 0 { Ok(()) } else { Err(Error::Undelivered { topic: self.plan.topic.clone(), failed, first }) }
    }
}
