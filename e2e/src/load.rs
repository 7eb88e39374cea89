//! Input for jobs: records whose identity and content are known, at a given rate, with defects on request.
//!
//! A value is `{"src":0,"part":3,"seq":41,"customer":"c-3-7","type":"purchase","amount":523}`. Everything follows from
//! partition and sequence, see [`order`]. The load's own counts are for people; the judge reads the topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use fencepost_oracle::Connection;
use rdkafka::error::KafkaError;

mod defect;
pub mod order;
mod writer;

pub use defect::{Defect, Defects};
pub use order::Order;

/// The input could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library refused the client.
    #[error("cannot make the producer for {topic}")]
    Client {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
    /// The topic cannot be looked up.
    #[error("cannot look up the partitions of {topic}")]
    Look {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
    /// The topic has fewer partitions than the plan writes to.
    #[error("{topic} has not got {wanted} partitions")]
    Partitions {
        /// The topic.
        topic: String,
        /// What the plan needs.
        wanted: i32,
    },
    /// A transaction failed.
    #[error("cannot {what} a transaction on {topic}")]
    Transaction {
        /// What was tried.
        what: &'static str,
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
    /// A record was refused.
    #[error("cannot write to {topic}")]
    Write {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
    /// The brokers did not take everything.
    #[error("{failed} records of {topic} did not reach the brokers, the first because of {first}")]
    Undelivered {
        /// The topic.
        topic: String,
        /// How many.
        failed: u64,
        /// The first error.
        first: String,
    },
    /// The thread died.
    #[error("the load on {topic} ended without an answer")]
    Thread {
        /// The topic.
        topic: String,
    },
}

/// When the load ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// When it is stopped.
    Endless,
    /// After this many records.
    Records(u64),
}

/// How records come into transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// None: an idempotent producer.
    Plain,
    /// So many records each; every so-many-th is aborted.
    Transactions {
        /// Records of one transaction.
        records: u64,
        /// 3: the third, sixth, … is aborted.
        abort_every: u64,
    },
}

/// What is written.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topic, which exists.
    pub topic: String,
    /// Its number of partitions.
    pub partitions: i32,
    /// Number of the input stream, where a job reads several.
    pub stream: u16,
    /// Records a second, evenly; 0: as fast as the brokers take them.
    pub rate: u32,
    /// The end.
    pub amount: Amount,
    /// Defective records among the good ones.
    pub defects: Defects,
    /// Transactions.
    pub grouping: Grouping,
    /// Every so-many-th good record has this many more bytes, which no column names, and no key.
    pub bulky: Option<Bulky>,
    /// Each message has the timestamp [`Order::time`].
    pub of_any_time: bool,
}

/// Records that no fetch of the usual size holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulky {
    /// 50: the first of fifty in each partition.
    pub every: u64,
    /// Bytes.
    pub bytes: usize,
}

impl Plan {
    /// Good records without end.
    #[must_use]
    pub fn new(topic: &str, partitions: i32, rate: u32) -> Self {
        Self {
            topic: topic.to_owned(),
            partitions,
            stream: 0,
            rate,
            amount: Amount::Endless,
            defects: Defects::None,
            grouping: Grouping::Plain,
            bulky: None,
            of_any_time: false,
        }
    }

    /// With an end.
    #[must_use]
    pub fn records(self, count: u64) -> Self {
        Self { amount: Amount::Records(count), ..self }
    }

    /// As another input stream.
    #[must_use]
    pub fn stream(self, stream: u16) -> Self {
        Self { stream, ..self }
    }

    /// With large records among the others.
    #[must_use]
    pub fn bulky(self, every: u64, bytes: usize) -> Self {
        Self { bulky: Some(Bulky { every, bytes }), ..self }
    }

    /// With timestamps of any year.
    #[must_use]
    pub fn of_any_time(self) -> Self {
        Self { of_any_time: true, ..self }
    }

    /// In transactions, some of which are aborted.
    #[must_use]
    pub fn transactions(self, records: u64, abort_every: u64) -> Self {
        Self { grouping: Grouping::Transactions { records, abort_every }, ..self }
    }

    /// With defects.
    #[must_use]
    pub fn defects(self, defects: Defects) -> Self {
        Self { defects, ..self }
    }
}

/// What was written in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records that the brokers have confirmed, of committed transactions or of none.
    pub committed: u64,
    /// Records of aborted transactions.
    pub aborted: u64,
    /// Defective records among the committed.
    pub defective: u64,
}

/// What a load and its owner share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    confirmed: AtomicU64,
}

/// A load at work. Dropping it stops it.
#[derive(Debug)]
pub struct Load {
    topic: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Summary, Error>>>,
}

impl Load {
    /// Starts on a thread of its own, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn start(connection: &Connection, plan: Plan) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let topic = plan.topic.clone();
        let writer = writer::Writer::new(connection, plan, Arc::clone(&shared))?;
        let thread = Some(std::thread::spawn(move || writer.run()));
        Ok(Self { topic, shared, thread })
    }

    /// Records that the brokers have confirmed so far.
    #[must_use]
    pub fn confirmed(&self) -> u64 {
        self.shared.confirmed.load(Ordering::Relaxed)
    }

    /// Stops after everything written is confirmed.
    ///
    /// # Errors
    /// When something was not.
    pub fn stop(mut self) -> Result<Summary, Error> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits for the end that its plan gives it.
    ///
    /// # Errors
    /// As [`Load::stop`].
    pub fn finish(mut self) -> Result<Summary, Error> {
        self.join()
    }

    fn join(&mut self) -> Result<Summary, Error> {
        let dead = || Error::Thread { topic: self.topic.clone() };
        self.thread.take().ok_or_else(dead)?.join().map_err(|_| dead())?
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Whoever drops a load gives its result up; the thread must still be gone before the next scenario.
        self.join().ok();
    }
}
