//! Reading topics to the end, and knowing what the end is.
//!
//! A `read_committed` reader stops at the last stable offset (LSO). Only where the LSO is the end of the partition has it
//! seen everything: otherwise a transaction is open, and its outcome may still change what readers see.

mod scan;
mod tail;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    metadata::MetadataPartition,
};

pub use self::{scan::scan, tail::Tail};

/// A topic could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client was refused by the library.
    #[error("cannot make a Kafka consumer")]
    Client(#[source] KafkaError),
    /// The broker did not answer about a topic.
    #[error("cannot ask the brokers about topic {topic}")]
    Ask {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
    /// The topic is not there.
    #[error("topic {topic} does not exist")]
    NoTopic {
        /// The topic.
        topic: String,
    },
    /// The broker did not answer about a group.
    #[error("cannot ask the brokers about group {group}")]
    Group {
        /// The group.
        group: String,
        /// Why.
        source: KafkaError,
    },
    /// Reading stopped.
    #[error("cannot read topic {topic}")]
    Read {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
}

/// How to reach the brokers: properties of librdkafka.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    properties: BTreeMap<String, String>,
}

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Those of committed transactions, up to the last stable offset.
    Committed,
    /// All.
    Uncommitted,
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two questions about something that takes its time.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl Connection {
    /// Plain text to these brokers.
    #[must_use]
    pub fn plaintext(bootstrap: &str) -> Self {
        Self::default().with("bootstrap.servers", bootstrap)
    }

    /// With one more property.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.properties.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A configuration for any client.
    #[must_use]
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }

    fn consumer(&self, isolation: Isolation, group: &str) -> Result<BaseConsumer, Error> {
        let isolation = match isolation {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        };
        self.config()
            .set("group.id", group)
            .set("isolation.level", isolation)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set("allow.auto.create.topics", "false")
            .set("fetch.wait.max.ms", "50")
            .set("socket.timeout.ms", "5000")
            .set("reconnect.backoff.max.ms", "500")
            .set("topic.metadata.refresh.interval.ms", "3000")
            .create()
            .map_err(Error::Client)
    }
}

/// The group a judge shows to the brokers. It never joins and never commits.
const GROUP: &str = "fencepost-oracle";

#[expect(clippy::disallowed_methods, reason = "the judge waits for real brokers: its one clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Start, last stable offset and end of each partition of a topic.
pub type Ends = BTreeMap<i32, Bounds>;

/// Offsets that bound a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// First offset.
    pub start: i64,
    /// Last stable offset.
    pub stable: i64,
    /// End (high watermark).
    pub end: i64,
}

/// Asks for bounds. Two consumers, because the isolation level of the asker decides which end is told.
#[derive(Debug)]
pub struct Surveyor {
    committed: DebugConsumer,
    uncommitted: DebugConsumer,
}

/// [`BaseConsumer`] has no `Debug`.
pub(crate) struct DebugConsumer(pub(crate) BaseConsumer);

impl std::fmt::Debug for DebugConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BaseConsumer")
    }
}

impl Surveyor {
    /// Connects.
    ///
    /// # Errors
    /// When the properties are wrong.
    pub fn new(connection: &Connection) -> Result<Self, Error> {
        Ok(Self {
            committed: DebugConsumer(connection.consumer(Isolation::Committed, GROUP)?),
            uncommitted: DebugConsumer(connection.consumer(Isolation::Uncommitted, GROUP)?),
        })
    }

    /// The bounds of every partition now.
    ///
    /// # Errors
    /// When the topic is unknown or no broker answers.
    pub fn ends(&self, topic: &str) -> Result<Ends, Error> {
        let ask = |source| Error::Ask { topic: topic.to_owned(), source };
        let mut ends = Ends::new();
        for partition in partitions(&self.committed.0, topic)? {
            // The stable offset first: the end can only be asked too late, which makes an open transaction of what has
            // just been written, never the other way round.
            let (start, stable) = self.committed.0.fetch_watermarks(topic, partition, REQUEST_TIMEOUT).map_err(ask)?;
            let (_, end) = self.uncommitted.0.fetch_watermarks(topic, partition, REQUEST_TIMEOUT).map_err(ask)?;
            ends.insert(partition, Bounds { start, stable, end });
        }
        Ok(ends)
    }

    /// Waits until no transaction is open on the topic, for at most `patience`. Gives the bounds then.
    ///
    /// # Errors
    /// As [`Surveyor::ends`].
    pub fn settle(&self, topic: &str, patience: Duration) -> Result<Ends, Error> {
        let deadline = now() + patience;
        loop {
            let ends = self.ends(topic)?;
            if ends.values().all(|bounds| bounds.stable == bounds.end) || now() >= deadline {
                return Ok(ends);
            }
            self.pause();
        }
    }

    /// Nothing is assigned: a poll is a wait that serves the client at the same time.
    fn pause(&self) {
        drop(self.committed.0.poll(ASK_AGAIN));
    }
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<Vec<i32>, Error> {
    let ask = |source| Error::Ask { topic: topic.to_owned(), source };
    let metadata = consumer.fetch_metadata(Some(topic), REQUEST_TIMEOUT).map_err(ask)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic && found.error().is_none());
    let partitions: Vec<i32> =
        found.map(|found| found.partitions().iter().map(MetadataPartition::id).collect()).unwrap_or_default();
    if partitions.is_empty() { Err(Error::NoTopic { topic: topic.to_owned() }) } else { Ok(partitions) }
}

/// The positions of a group on a topic. A partition without a position is absent.
///
/// # Errors
/// When the brokers do not answer.
pub fn committed(connection: &Connection, group: &str, topic: &str) -> Result<BTreeMap<i32, i64>, Error> {
    GroupReader::new(connection, group)?.committed(topic)
}

/// Reads the positions of one group without joining it.
#[derive(Debug)]
pub(crate) struct GroupReader {
    consumer: DebugConsumer,
    group: String,
}

impl GroupReader {
    pub(crate) fn new(connection: &Connection, group: &str) -> Result<Self, Error> {
        // read_committed: an offset inside an open transaction is waited for, not read past.
        let consumer = DebugConsumer(connection.consumer(Isolation::Committed, group)?);
        Ok(Self { consumer, group: group.to_owned() })
    }

    pub(crate) fn committed(&self, topic: &str) -> Result<BTreeMap<i32, i64>, Error> {
        let mut wanted = TopicPartitionList::new();
        for partition in partitions(&self.consumer.0, topic)? {
            wanted.add_partition(topic, partition);
        }
        let answer = self
            .consumer
            .0
            .committed_offsets(wanted, REQUEST_TIMEOUT)
            .map_err(|source| Error::Group { group: self.group.clone(), source })?;
        let elements = answer.elements();
        let known = elements.iter().filter_map(|element| match element.offset() {
            Offset::Offset(offset) => Some((element.partition(), offset)),
            _ => None,
        });
        Ok(known.collect())
    }

    pub(crate) fn pause(&self) {
        drop(self.consumer.0.poll(ASK_AGAIN));
    }
}
