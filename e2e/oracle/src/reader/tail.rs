//! Following topics live, as any `read_committed` reader would.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};

use super::{Connection, DebugConsumer, Error, GROUP, Isolation, partitions, scan::passes};

/// Counts the committed records of topics while they come.
#[derive(Debug)]
pub struct Tail {
    consumer: DebugConsumer,
    counts: BTreeMap<String, u64>,
}

impl Tail {
    /// Starts at the beginning of each topic.
    ///
    /// # Errors
    /// When a topic is unknown or no broker answers.
    pub fn new(connection: &Connection, topics: &[&str]) -> Result<Self, Error> {
        let consumer = connection.consumer(Isolation::Committed, GROUP)?;
        for topic in topics {
            follow(&consumer, topic)?;
        }
        let counts = topics.iter().map(|topic| ((*topic).to_owned(), 0)).collect();
        Ok(Self { consumer: DebugConsumer(consumer), counts })
    }

    /// Takes what has come, for at most `wait` when nothing has. Gives the number of records taken.
    ///
    /// # Errors
    /// When the brokers refuse.
    pub fn poll(&mut self, wait: Duration) -> Result<u64, Error> {
        self.poll_each(wait, |_| ())
    }

    /// As [`Self::poll`], and shows the value of each record.
    ///
    /// # Errors
    /// When the brokers refuse.
    pub fn poll_each(&mut self, wait: Duration, mut see: impl FnMut(Option<&[u8]>)) -> Result<u64, Error> {
        let mut taken = 0;
        let mut wait = wait;
        loop {
            match self.consumer.0.poll(wait) {
                None => return Ok(taken),
                Some(Ok(message)) => {
                    taken += 1;
                    see(message.payload());
                    wait = Duration::ZERO;
                    if let Some(count) = self.counts.get_mut(message.topic()) {
                        *count += 1;
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(error)) if passes(&error) => return Ok(taken),
                Some(Err(source)) => return Err(Error::Read { topic: self.names(), source }),
            }
        }
    }

    /// Committed records of a topic so far.
    #[must_use]
    pub fn count(&self, topic: &str) -> u64 {
        self.counts.get(topic).copied().unwrap_or_default()
    }

    fn names(&self) -> String {
        self.counts.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

fn follow(consumer: &BaseConsumer, topic: &str) -> Result<(), Error> {
    let read = |source| Error::Read { topic: topic.to_owned(), source };
    let mut list = TopicPartitionList::new();
    for partition in partitions(consumer, topic)? {
        list.add_partition_offset(topic, partition, Offset::Beginning).map_err(read)?;
    }
    consumer.incremental_assign(&list).map_err(read)
}
