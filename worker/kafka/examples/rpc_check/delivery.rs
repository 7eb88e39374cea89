//! The producer when the brokers do not take a record.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_kafka::producer::{Producer, ProducerSettings, Records};
use fencepost_kafka::rpc::NewTopic;
use tokio::time::Instant;

use crate::{Outcome, World, ensure};

const WAIT: Duration = Duration::from_secs(20);

/// One record of a topic.
pub(crate) struct One<'a> {
    pub(crate) topic: &'a str,
    pub(crate) value: &'a [u8],
}

impl Records for One<'_> {
    fn topic(&self) -> &str {
        self.topic
    }

    fn len(&self) -> usize {
        1
    }

    fn key(&self, _: usize) -> Option<&[u8]> {
        None
    }

    fn value(&self, _: usize) -> Option<&[u8]> {
        Some(self.value)
    }

    fn timestamp(&self, _: usize) -> Option<i64> {
        None
    }

    fn headers(&self, _: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        std::iter::empty()
    }
}

pub async fn a_record_that_was_refused_stays_refused(world: &World) -> Outcome {
    let topic = world.name("refusing");
    let new = NewTopic {
        name: topic.clone(),
        partitions: Some(1),
        replication_factor: None,
        configs: BTreeMap::from([("max.message.bytes".to_owned(), "1000".to_owned())]),
    };
    world.cluster.create_topics(&[new]).await?.remove(&topic).ok_or("no outcome")??;
    the_settings_are_told(world, &topic).await?;
    let settings = ProducerSettings {
        connection: world.settings()?,
        transactional_id: None,
        transaction_timeout: WAIT,
        max_batch_bytes: usize::MAX,
    };
    let too_large = [b'x'; 5000];
    tokio::task::block_in_place(|| {
        // Without a transaction nothing settles what was refused: positions behind it must never be committed.
        let mut producer = Producer::new(&settings)?;
        producer.produce(&One { topic: &topic, value: b"small" }, WAIT)?;
        producer.flush(WAIT)?;
        producer.produce(&One { topic: &topic, value: &too_large }, WAIT)?;
        for attempt in 1..=3 {
            ensure!(producer.flush(WAIT).is_err(), "attempt {attempt} says that everything was delivered");
        }
        Ok(())
    })
}

async fn the_settings_are_told(world: &World, topic: &str) -> Outcome {
    let missing = world.name("missing");
    let deadline = Instant::now() + WAIT;
    // A new topic reaches the brokers by the metadata log, some milliseconds later.
    let (limit, other) = loop {
        let mut told = world.cluster.describe_topic_configs(&[topic, &missing], &["max.message.bytes"]).await?;
        match told.remove(topic).ok_or("nothing is told")? {
            Ok(limit) => break (limit, told.remove(&missing)),
            Err(error) => ensure!(Instant::now() < deadline, "{}", error.report()),
        }
    };
    ensure!(limit == BTreeMap::from([("max.message.bytes".to_owned(), "1000".to_owned())]), "{limit:?}");
    ensure!(other.is_none_or(|outcome| outcome.is_err()), "settings of a topic that does not exist");
    Ok(())
}
