use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_kafka::error::{BrokerCode, Cause};
use fencepost_kafka::rpc::{
    ClientOptions, Cluster, Isolation, NoCoordinatorKnowsThisProducer, OffsetSpec, Pending, ProducerIdentity,
    TopicPartition, TransactionDescription, TransactionFilter, TransactionState,
};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::topics::create;
use crate::{Outcome, World, ensure};

pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const RECORDS: i64 = 20;
pub(crate) const WAIT: Duration = Duration::from_secs(20);

pub(crate) fn client(world: &World) -> Fallible<ClientConfig> {
    let mut config = ClientConfig::new();
    for (key, value) in world.settings()?.librdkafka() {
        config.set(key, value);
    }
    Ok(config)
}

/// A producer of librdkafka with a transaction that is flushed and open, over partitions 0 and 1 of the topic.
pub(crate) fn open_transaction(world: &World, id: &str, topic: &str, group: Option<&str>) -> Fallible<BaseProducer> {
    let mut config = client(world)?;
    let producer: BaseProducer =
        config.clone().set("transactional.id", id).set("transaction.timeout.ms", "60000").create()?;
    producer.init_transactions(WAIT)?;
    producer.begin_transaction()?;
    for number in 0..RECORDS {
        let text = number.to_string();
        let record = BaseRecord::<str, str>::to(topic).partition(i32::try_from(number % 2)?).payload(&text);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(WAIT)?;
    if let Some(group) = group {
        let consumer: BaseConsumer = config.set("group.id", group).create()?;
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, 0, Offset::Offset(77))?;
        let metadata = consumer.group_metadata().ok_or("no group metadata")?;
        producer.send_offsets_to_transaction(&offsets, &metadata, WAIT)?;
    }
    Ok(producer)
}

fn both(topic: &str) -> [TopicPartition; 2] {
    [TopicPartition::new(topic, 0), TopicPartition::new(topic, 1)]
}

pub(crate) async fn describe(cluster: &Cluster, id: &str) -> Fallible<Option<TransactionDescription>> {
    Ok(cluster.describe_transactions(&[id.to_owned()]).await.remove(id).ok_or("no answer")??)
}

/// Sum of the ends of the two partitions.
async fn ends(world: &World, topic: &str, isolation: Isolation) -> Fallible<i64> {
    Ok(world.cluster.list_offsets(&both(topic), OffsetSpec::Latest, isolation).await?.values().sum())
}

/// Markers are written after the coordinator has answered: waits for the partitions to be free.
pub(crate) async fn stable(world: &World, topic: &str) -> Fallible<i64> {
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let committed = ends(world, topic, Isolation::ReadCommitted).await?;
        if committed == ends(world, topic, Isolation::ReadUncommitted).await? {
            return Ok(committed);
        }
        ensure!(tokio::time::Instant::now() < deadline, "the LSO stays at {committed}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn an_open_transaction_is_described_listed_and_committed(world: &World) -> Outcome {
    let (topic, id, group) = (world.name("commit"), world.name("commit-0-0"), world.name("group"));
    ensure!(describe(&world.cluster, &id).await?.is_none(), "known before its first use");
    create(world, &topic, 2).await?;
    let producer = tokio::task::block_in_place(|| open_transaction(world, &id, &topic, Some(&group)))?;

    let open = describe(&world.cluster, &id).await?.ok_or("not known")?;
    ensure!(open.state == TransactionState::Ongoing && open.started_at_ms.is_some(), "{open:?}");
    ensure!(open.timeout == Duration::from_secs(60), "{open:?}");
    ensure!(both(&topic).iter().all(|partition| open.partitions.contains(partition)), "{open:?}");
    ensure!(ends(world, &topic, Isolation::ReadCommitted).await? == 0, "LSO passed an open transaction");
    ensure!(ends(world, &topic, Isolation::ReadUncommitted).await? == RECORDS, "records are missing");

    let mut filter = TransactionFilter { prefix: world.name("commit-"), ..TransactionFilter::default() };
    filter.states = vec![TransactionState::Ongoing];
    let listed = world.cluster.list_transactions(&filter).await?;
    ensure!(listed.keys().eq([&id]), "listed {listed:?}");
    ensure!(listed.values().all(|entry| entry.producer_id == open.producer.id), "listed {listed:?}");
    filter.states = vec![TransactionState::CompleteAbort];
    ensure!(world.cluster.list_transactions(&filter).await?.is_empty(), "listed in the wrong state");
    // The dots of a prefix are dots.
    filter = TransactionFilter { prefix: world.name("commit-").replace('.', "x"), ..TransactionFilter::default() };
    ensure!(world.cluster.list_transactions(&filter).await?.is_empty(), "the prefix is taken as a pattern");

    for (partition, producers) in world.cluster.describe_producers(&both(&topic)).await? {
        let [writer] = &producers[..] else { return Err(format!("{partition}: {producers:?}").into()) };
        ensure!(writer.producer == open.producer && writer.transaction_start_offset == Some(0), "{writer:?}");
    }

    let answer = world.cluster.commit_transaction(&id, open.producer).await?;
    ensure!(
        answer.version < 5 || answer.producer.is_some_and(|after| after.epoch == open.producer.epoch + 1),
        "{answer:?}"
    );
    let done = describe(&world.cluster, &id).await?.ok_or("not known")?;
    ensure!(matches!(done.state, TransactionState::PrepareCommit | TransactionState::CompleteCommit), "{done:?}");
    ensure!(done.started_at_ms == open.started_at_ms, "{done:?} does not name the transaction of {open:?}");
    // 20 records and a marker in each partition.
    ensure!(stable(world, &topic).await? == RECORDS + 2, "not visible");
    let offsets = world.cluster.committed_offsets(&group, None, Pending::Wait).await?;
    ensure!(offsets.get(&TopicPartition::new(&topic, 0)) == Some(&77) && offsets.len() == 1, "{offsets:?}");
    drop(producer);
    Ok(())
}

pub async fn pending_offsets_are_waited_for_or_ignored(world: &World) -> Outcome {
    let (topic, id, group) = (world.name("pending"), world.name("pending-0-0"), world.name("pending-group"));
    create(world, &topic, 2).await?;
    let producer = tokio::task::block_in_place(|| open_transaction(world, &id, &topic, Some(&group)))?;
    let partitions = both(&topic);

    let ignored = world.cluster.committed_offsets(&group, Some(&partitions), Pending::Ignore).await?;
    ensure!(ignored.is_empty(), "offsets of an open transaction: {ignored:?}");
    // Long enough for a new connection on a busy machine: it is used up in any case.
    let options = ClientOptions { call_timeout: Duration::from_secs(3), ..ClientOptions::default() };
    let impatient = Cluster::with_options(world.settings()?, options)?;
    let waited = impatient.committed_offsets(&group, Some(&partitions), Pending::Wait).await;
    let code = waited.as_ref().err().and_then(fencepost_kafka::rpc::RpcError::code);
    ensure!(code == Some(BrokerCode::UNSTABLE_OFFSET_COMMIT), "{waited:?}");

    // A patient call gets its answer as soon as the transaction ends.
    let (answer, committed) = tokio::join!(
        world.cluster.committed_offsets(&group, Some(&partitions), Pending::Wait),
        tokio::task::spawn_blocking(move || producer.commit_transaction(WAIT)),
    );
    committed??;
    let answer = answer?;
    ensure!(answer.get(&TopicPartition::new(&topic, 0)) == Some(&77), "{answer:?}");
    Ok(())
}

pub async fn fencing_aborts_and_locks_out(world: &World) -> Outcome {
    let (topic, id) = (world.name("fence"), world.name("fence-0-0"));
    create(world, &topic, 2).await?;
    let producer = tokio::task::block_in_place(|| open_transaction(world, &id, &topic, None))?;
    let open = describe(&world.cluster, &id).await?.ok_or("not known")?;

    let newer = ProducerIdentity { epoch: open.producer.epoch + 1, ..open.producer };
    let refused = world.cluster.commit_transaction(&id, newer).await;
    let still = describe(&world.cluster, &id).await?.ok_or("not known")?;
    ensure!(refused.is_err() && still == open, "an epoch that nobody has got {refused:?}, and left {still:?}");

    let ids = [id.clone()];
    let fenced =
        world.cluster.init_producer_ids(&ids, Duration::from_secs(30)).await.remove(&id).ok_or("no answer")??;
    ensure!(fenced.id == open.producer.id && fenced.epoch > open.producer.epoch, "{fenced} after {}", open.producer);
    let after = describe(&world.cluster, &id).await?.ok_or("not known")?;
    ensure!(after.state == TransactionState::Empty && after.producer == fenced, "{after:?}");
    ensure!(stable(world, &topic).await? == RECORDS + 2, "still open");

    let late = tokio::task::block_in_place(|| producer.commit_transaction(WAIT));
    let code = late.as_ref().err().and_then(KafkaError::rdkafka_error_code);
    ensure!(code == Some(RDKafkaErrorCode::Fenced), "the old owner got {late:?}");
    let raw = world.cluster.commit_transaction(&id, open.producer).await;
    let cause = raw.as_ref().err().map(fencepost_kafka::rpc::RpcError::cause);
    ensure!(cause == Some(Cause::Fenced), "the old identity got {raw:?}");

    let too_long = world.cluster.init_producer_ids(&ids, Duration::from_secs(86_400 * 20)).await.remove(&id);
    let cause = too_long.and_then(Result::err).map(|error| error.cause());
    ensure!(cause == Some(Cause::BrokerLimitViolated), "a timeout of 20 days: {cause:?}");
    Ok(())
}

pub async fn many_ids_are_fenced_at_once(world: &World) -> Outcome {
    let ids: Vec<String> = (0..200).map(|n| world.name(&format!("many-{n}-0"))).collect();
    let first = world.cluster.init_producer_ids(&ids, Duration::from_secs(30)).await;
    let second = world.cluster.init_producer_ids(&ids, Duration::from_secs(30)).await;
    let mut producers = BTreeSet::new();
    for id in &ids {
        let (Some(Ok(first)), Some(Ok(second))) = (first.get(id), second.get(id)) else {
            return Err(format!("{id}: {:?}, {:?}", first.get(id), second.get(id)).into());
        };
        ensure!(first.id == second.id && second.epoch == first.epoch + 1, "{id}: {first}, then {second}");
        producers.insert(first.id);
    }
    ensure!(producers.len() == ids.len(), "ids share producer ids");
    let described = world.cluster.describe_transactions(&ids).await;
    ensure!(described.values().filter(|found| matches!(found, Ok(Some(_)))).count() == ids.len(), "not all are known");
    Ok(())
}

pub async fn a_marker_frees_a_partition(world: &World) -> Outcome {
    let (topic, id) = (world.name("marker"), world.name("marker-0-0"));
    create(world, &topic, 2).await?;
    let producer = tokio::task::block_in_place(|| open_transaction(world, &id, &topic, None))?;
    let open = describe(&world.cluster, &id).await?.ok_or("not known")?;
    // A coordinator does know this one. The test wants the effect on the partitions, and fences the id afterwards.
    let permit = NoCoordinatorKnowsThisProducer::i_have_checked_every_coordinator();
    world.cluster.write_abort_markers(permit, open.producer, 0, &both(&topic)).await?;
    ensure!(stable(world, &topic).await? == RECORDS + 2, "still held up");
    world
        .cluster
        .init_producer_ids(std::slice::from_ref(&id), Duration::from_secs(30))
        .await
        .remove(&id)
        .ok_or("no answer")??;
    drop(producer);
    Ok(())
}
