use std::collections::BTreeMap;

use fencepost_kafka::error::BrokerCode;
use fencepost_kafka::rpc::{Isolation, NewTopic, OffsetSpec, TopicCreation, TopicPartition};
use futures::future::join_all;

use crate::{Outcome, World, ensure};

pub async fn create(world: &World, topic: &str, partitions: i32) -> Result<TopicCreation, Box<dyn std::error::Error>> {
    let new = NewTopic {
        name: topic.to_owned(),
        partitions: Some(partitions),
        replication_factor: None,
        configs: BTreeMap::from([("retention.ms".to_owned(), "3600000".to_owned())]),
    };
    let mut outcomes = world.cluster.create_topics(&[new]).await?;
    Ok(outcomes.remove(topic).ok_or("no outcome")??)
}

pub async fn metadata_names_the_cluster_and_what_is_missing(world: &World) -> Outcome {
    let missing = world.name("missing");
    let metadata = world.cluster.metadata(&[&missing]).await?;
    ensure!(metadata.cluster_id.is_some_and(|id| id.len() == 22), "no cluster id");
    ensure!(!metadata.brokers.is_empty(), "no brokers");
    ensure!(metadata.controller.is_some_and(|id| metadata.brokers.contains_key(&id)), "no controller");
    let error = metadata.topics.get(&missing).and_then(|topic| topic.error);
    ensure!(error == Some(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION), "missing topic: {error:?}");
    ensure!(metadata.topics.len() == 1, "{} topics where one was asked for", metadata.topics.len());
    let none = world.cluster.metadata(&[]).await?;
    ensure!(none.topics.is_empty(), "topics where none was asked for");
    Ok(())
}

pub async fn every_broker_tells_its_limits(world: &World) -> Outcome {
    let brokers = world.cluster.metadata(&[]).await?.brokers;
    let limits = world.cluster.broker_limits().await?;
    ensure!(limits.brokers.keys().eq(brokers.keys()), "{:?} of {:?}", limits.brokers.keys(), brokers.keys());
    for (id, limit) in &limits.brokers {
        ensure!(limit.transaction_max_timeout_ms.is_some_and(|ms| ms > 0), "broker {id}: {limit:?}");
        ensure!(limit.transactional_id_expiration_ms.is_some_and(|ms| ms > 0), "broker {id}: {limit:?}");
        ensure!(limit.message_max_bytes.is_some_and(|bytes| bytes > 0), "broker {id}: {limit:?}");
    }
    let configs = world.cluster.describe_broker_configs(&["node.id", "no.such.key"]).await?;
    for (id, values) in configs {
        ensure!(values == BTreeMap::from([("node.id".to_owned(), id.to_string())]), "broker {id}: {values:?}");
    }
    Ok(())
}

pub async fn topics_are_created_once_and_deleted(world: &World) -> Outcome {
    let topic = world.name("topics");
    ensure!(create(world, &topic, 3).await? == TopicCreation::Created, "existed");
    ensure!(create(world, &topic, 3).await? == TopicCreation::Existed, "created twice");

    let too_many = NewTopic {
        name: world.name("replicas"),
        partitions: Some(1),
        replication_factor: Some(100),
        configs: BTreeMap::new(),
    };
    let outcomes = world.cluster.create_topics(std::slice::from_ref(&too_many)).await?;
    let code = outcomes.get(&too_many.name).and_then(|outcome| outcome.as_ref().err()?.code());
    ensure!(code == Some(BrokerCode::INVALID_REPLICATION_FACTOR), "100 replicas: {code:?}");

    let partitions: Vec<_> = (0..3).map(|partition| TopicPartition::new(&topic, partition)).collect();
    for spec in [OffsetSpec::Earliest, OffsetSpec::Latest] {
        for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            let offsets = world.cluster.list_offsets(&partitions, spec, isolation).await?;
            ensure!(offsets.len() == 3 && offsets.values().all(|offset| *offset == 0), "{offsets:?}");
        }
    }
    let metadata = world.cluster.metadata(&[&topic]).await?;
    let known = metadata.topics.get(&topic).ok_or("not known")?;
    ensure!(known.error.is_none() && known.partitions.len() == 3, "{known:?}");
    ensure!(known.partitions.values().all(|p| p.leader.is_some() && !p.in_sync.is_empty()), "{known:?}");

    for _ in 0..2 {
        let outcomes = world.cluster.delete_topics(&[&topic]).await?;
        for outcome in outcomes.into_values() {
            outcome?;
        }
    }
    Ok(())
}

pub async fn many_calls_share_a_connection(world: &World) -> Outcome {
    let cluster = fencepost_kafka::rpc::Cluster::new(world.settings()?)?;
    let names: Vec<String> = (0..300).map(|n| world.name(&format!("none-{n}"))).collect();
    let calls = names.iter().map(async |name| (name, cluster.metadata(&[name]).await));
    for (name, answer) in join_all(calls).await {
        let answer = answer?;
        ensure!(answer.topics.len() == 1 && answer.topics.contains_key(name), "{name} got the answer of another");
    }
    Ok(())
}
