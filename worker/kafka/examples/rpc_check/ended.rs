//! Transactions that end without effect: what they leave behind, and what comes too late for them.

use std::time::Duration;

use fencepost_kafka::error::ErrorClass;
use fencepost_kafka::producer::{Producer, ProducerSettings};
use fencepost_kafka::rpc::TransactionState;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::delivery::One;
use crate::topics::create;
use crate::transactions::{Fallible, WAIT, client, describe, stable};
use crate::{Outcome, World, ensure};

/// Outputs that are still in the client's queue do not hold an abort up, are never read, and are in nobody's way.
pub async fn an_abort_with_outputs_in_the_queue_ends_and_the_id_goes_on(world: &World) -> Outcome {
    const QUEUED: usize = 20_000;
    let topic = world.name("queued");
    create(world, &topic, 1).await?;
    let settings = ProducerSettings {
        connection: world.settings()?,
        transactional_id: Some(format!("{topic}-0-0")),
        transaction_timeout: WAIT,
        max_batch_bytes: usize::MAX,
    };
    tokio::task::block_in_place(|| -> Outcome {
        let ready = || -> Fallible<Producer> {
            let producer = Producer::new(&settings)?;
            producer.init_transactions(WAIT)?;
            Ok(producer)
        };
        let mut producer = ready()?;
        for round in 0..3 {
            producer.begin()?;
            for _ in 0..QUEUED {
                producer.produce(&One { topic: &topic, value: b"withdrawn" }, WAIT)?;
            }
            let asked = Instant::now();
            let aborted = producer.abort(WAIT);
            ensure!(asked.elapsed() < WAIT / 2, "round {round}: the abort took {:?}", asked.elapsed());
            // What the client has dropped may cost it its place with the brokers, now or when it tells of that in the next transaction.
            let kept = |producer: &mut Producer| {
                producer.begin()?;
                producer.produce(&One { topic: &topic, value: b"kept" }, WAIT)?;
                producer.flush(WAIT)?;
                producer.commit(WAIT)
            };
            match aborted.and_then(|()| kept(&mut producer)).map_err(|error| (error.class(), error)) {
                Ok(()) => {}
                Err((ErrorClass::Recreate, _)) => {
                    producer = ready()?;
                    kept(&mut producer)?;
                }
                Err((_, error)) => return Err(error.into()),
            }
        }
        Ok(())
    })?;
    let read = all_stable(world, &topic)?;
    ensure!(read == ["kept"; 3], "read: {} records, {:?} at first", read.len(), read.first());
    Ok(())
}

/// Transactions that were taken back before anything was written leave a marker and no record; a reader must not take the next ones for
/// theirs.
pub async fn readers_pass_over_empty_aborted_transactions(world: &World) -> Outcome {
    let (topic, id) = (world.name("empty"), world.name("empty-0-0"));
    create(world, &topic, 2).await?;
    // Nothing is sent before a flush, or the end of the linger time.
    let producer: ThreadedProducer<DefaultProducerContext> =
        client(world)?.set("transactional.id", &id).set("linger.ms", "5000").create()?;
    let send = |text: &str| {
        producer.send(BaseRecord::<str, str>::to(&topic).partition(0).payload(text)).map_err(|(error, _)| error)
    };
    tokio::task::block_in_place(|| producer.init_transactions(WAIT))?;
    let mut wanted = Vec::new();
    for round in 0..4 {
        producer.begin_transaction()?;
        send("empty")?;
        has_a_partition(world, &id).await?;
        tokio::task::block_in_place(|| producer.abort_transaction(WAIT))?;
        for end in ["aborted", "committed"] {
            let text = format!("{end} {round}");
            producer.begin_transaction()?;
            send(&text)?;
            tokio::task::block_in_place(|| match end {
                "aborted" => producer.flush(WAIT).and_then(|()| producer.abort_transaction(WAIT)),
                _ => producer.commit_transaction(WAIT),
            })?;
            wanted.extend((end == "committed").then_some(text));
        }
    }
    // A client that has not handled the answer about the partition yet ends nothing: such a transaction ends together with the next one.
    let without_empty = 4 * (2 + 2);
    let end = stable(world, &topic).await?;
    let empty = end - without_empty;
    ensure!((1..=4).contains(&empty), "the log ends at {end}: no empty transaction has a marker, or one was not empty");

    let read = all_stable(world, &topic)?;
    ensure!(read == wanted, "read {read:?} in place of {wanted:?}");
    Ok(())
}

/// Everything of the only partition, as a reader of committed records sees it.
fn all_stable(world: &World, topic: &str) -> Fallible<Vec<String>> {
    let mut config = client(world)?;
    config.set("group.id", topic).set("enable.partition.eof", "true");
    let consumer: BaseConsumer = config.create()?;
    let mut all = TopicPartitionList::new();
    all.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&all)?;
    let mut read = Vec::new();
    loop {
        let next =
            tokio::task::block_in_place(|| consumer.poll(WAIT)).ok_or("nothing more is read, and there is no end")?;
        match next {
            Ok(message) => read.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()),
            Err(KafkaError::PartitionEOF(_)) => return Ok(read),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the transaction has a partition.
async fn has_a_partition(world: &World, id: &str) -> Outcome {
    let deadline = Instant::now() + WAIT;
    loop {
        let now = describe(&world.cluster, id).await?;
        if now.as_ref().is_some_and(|now| now.state == TransactionState::Ongoing && !now.partitions.is_empty()) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no partition is added: {now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What is written after the brokers have ended a transaction for its age is refused.
pub async fn outputs_after_the_timeout_are_refused(world: &World) -> Outcome {
    let (topic, id) = (world.name("late"), world.name("late-0-0"));
    create(world, &topic, 2).await?;
    let settings = ProducerSettings {
        connection: world.settings()?,
        transactional_id: Some(id.clone()),
        transaction_timeout: Duration::from_secs(4),
        max_batch_bytes: usize::MAX,
    };
    let mut producer = Producer::new(&settings)?;
    let record = One { topic: &topic, value: b"1" };
    tokio::task::block_in_place(|| -> Fallible<()> {
        producer.init_transactions(WAIT)?;
        producer.begin()?;
        producer.produce(&record, WAIT)?;
        Ok(producer.flush(WAIT)?)
    })?;
    let deadline = Instant::now() + WAIT;
    loop {
        let now = describe(&world.cluster, &id).await?.ok_or("not known")?;
        if now.state == TransactionState::CompleteAbort {
            break;
        }
        ensure!(Instant::now() < deadline, "the brokers let it go on: {now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let late = tokio::task::block_in_place(|| producer.produce(&record, WAIT).and_then(|()| producer.flush(WAIT)));
    let class = late.as_ref().err().map(fencepost_kafka::ClientError::class);
    ensure!(class == Some(ErrorClass::Fenced), "an output that came too late got {late:?}");
    let end = stable(world, &topic).await?;
    ensure!(end == 2, "after a record and the marker of its abort, the log ends at {end}");
    Ok(())
}
