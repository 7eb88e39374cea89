//! The producer when the brokers do not take a record.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_kafka::producer::{Producer, ProducerSettings, Records};
use fencepost_kafka::rpc::NewTopic;

use crate::{Outcome, World, ensure};

const WAIT: Duration = Duration::from_secs(20);

/// One record of a topic.
struct One<'a> {
    topic: &'a str,
    value: &'a [u8],
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
    let missing = world.name("missing");
    let mut told = world.cluster.describe_topic_configs(&[&topic, &missing], &["max.message.bytes"]).await?;
    let limit = told.remove(&topic).ok_or("nothing is told")??;
    ensure!(limit == BTreeMap::from([("max.message.bytes".to_owned(), "1000".to_owned())]), "{limit:?}");
    ensure!(told.remove(&missing).is_none_or(|outcome| outcome.is_err()), "settings of a topic that does not exist");
    let settings = |transactional_id| {
        Ok::<_, Box<dyn std::error::Error>>(ProducerSettings {
            connection: world.settings()?,
            transactional_id,
            transaction_timeout: WAIT,
        })
    };
    let too_large = [b'x'; 5000];
    tokio::task::block_in_place(|| {
        // Without a transaction nothing settles what was refused: positions behind it must never be committed.
        let mut plain = Producer::new(&settings(None)?)?;
        plain.produce(&One { topic: &topic, value: b"small" }, WAIT)?;
        plain.flush(WAIT)?;
        plain.produce(&One { topic: &topic, value: &too_large }, WAIT)?;
        for attempt in 1..=3 {
            ensure!(plain.flush(WAIT).is_err(), "attempt {attempt} says that everything was delivered");
        }
        // With one, the abort does, and the next transaction is as good as any.
        let mut transactional = Producer::new(&settings(Some(world.name("refusing-0-0")))?)?;
        transactional.init_transactions(WAIT)?;
        transactional.begin()?;
        transactional.produce(&One { topic: &topic, value: &too_large }, WAIT)?;
        ensure!(transactional.flush(WAIT).is_err(), "delivered in spite of its size");
        transactional.abort(WAIT)?;
        transactional.begin()?;
        transactional.produce(&One { topic: &topic, value: b"small" }, WAIT)?;
        transactional.flush(WAIT)?;
        Ok(transactional.commit(WAIT)?)
    })
}
