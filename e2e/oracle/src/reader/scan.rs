//! One pass over a topic, from its start to a given end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
};

use super::{ASK_AGAIN, Bounds, Connection, Ends, Error, GROUP, Isolation, now};
use crate::{judge::End, record::Record};

/// Reads every record below the stable offset (or below the end, with [`Isolation::Uncommitted`]) of every partition, in
/// the order of offsets within a partition. Gives how far it got within `patience`.
///
/// # Errors
/// When the brokers refuse. What can pass (a broker restarts) is waited for.
pub fn scan(
    connection: &Connection,
    isolation: Isolation,
    topic: &str,
    ends: &Ends,
    patience: Duration,
    mut each: impl FnMut(&Record<'_>),
) -> Result<BTreeMap<i32, End>, Error> {
    let read = |source| Error::Read { topic: topic.to_owned(), source };
    let deadline = now() + patience;
    let consumer = connection.consumer(isolation, GROUP)?;
    let mut scan = Scan::new(isolation, ends);
    assign(&consumer, topic, ends).map_err(read)?;
    while !scan.open.is_empty() && now() < deadline {
        match consumer.poll(ASK_AGAIN) {
            None => {}
            Some(Ok(message)) => scan.message(&message, &mut each),
            // The fetch position is at the (stable) end, and that is not below the end which was asked for before.
            Some(Err(KafkaError::PartitionEOF(partition))) => scan.finished(partition),
            Some(Err(error)) if passes(&error) => {}
            Some(Err(error)) => return Err(read(error)),
        }
    }
    Ok(scan.ends())
}

fn assign(consumer: &BaseConsumer, topic: &str, ends: &Ends) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::new();
    for (partition, bounds) in ends {
        list.add_partition_offset(topic, *partition, Offset::Offset(bounds.start))?;
    }
    consumer.assign(&list)
}

/// Whether the client goes on by itself after this error.
pub(super) fn passes(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::NotLeaderForPartition
                | Code::LeaderNotAvailable
                | Code::UnknownTopicOrPartition
                // The judge's own group is never joined: whether it may be is of no interest.
                | Code::GroupAuthorizationFailed
        )
    )
}

struct Scan<'e> {
    isolation: Isolation,
    ends: &'e Ends,
    /// Partitions that are not read to their end.
    open: BTreeSet<i32>,
    reached: BTreeMap<i32, i64>,
}

impl<'e> Scan<'e> {
    fn new(isolation: Isolation, ends: &'e Ends) -> Self {
        let mut scan = Self { isolation, ends, open: BTreeSet::new(), reached: BTreeMap::new() };
        for (partition, bounds) in ends {
            scan.reached.insert(*partition, bounds.start);
            if bounds.start < scan.target(bounds) {
                scan.open.insert(*partition);
            }
        }
        scan
    }

    fn target(&self, bounds: &Bounds) -> i64 {
        match self.isolation {
            Isolation::Committed => bounds.stable,
            Isolation::Uncommitted => bounds.end,
        }
    }

    fn message(&mut self, message: &BorrowedMessage<'_>, each: &mut impl FnMut(&Record<'_>)) {
        let partition = message.partition();
        let Some(target) = self.ends.get(&partition).map(|bounds| self.target(bounds)) else { return };
        // What was written after the end was asked for is another run's business.
        if message.offset() >= target {
            self.finished(partition);
            return;
        }
        let next = message.offset() + 1;
        self.reached.insert(partition, next);
        each(&view(message));
        if next >= target {
            self.finished(partition);
        }
    }

    fn finished(&mut self, partition: i32) {
        self.open.remove(&partition);
        if let Some(bounds) = self.ends.get(&partition) {
            self.reached.insert(partition, self.target(bounds));
        }
    }

    fn ends(&self) -> BTreeMap<i32, End> {
        let end = |(partition, bounds): (&i32, &Bounds)| {
            let reached = self.reached.get(partition).copied().unwrap_or(bounds.start);
            (*partition, End { reached, stable: bounds.stable, end: bounds.end })
        };
        self.ends.iter().map(end).collect()
    }
}

fn view<'m>(message: &'m BorrowedMessage<'_>) -> Record<'m> {
    let headers = message.headers().map(|headers| headers.iter().map(|header| (header.key, header.value)).collect());
    Record {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        key: message.key(),
        value: message.payload(),
        headers: headers.unwrap_or_default(),
    }
}
