//! The consumer through changes of its assignment.

use std::time::Duration;

use fencepost_crds::v1alpha1::{GroupProtocol, StartPosition};
use fencepost_kafka::consumer::{Consumer, ConsumerSettings, SourceTopic, StaticMember};
use fencepost_kafka::error::ErrorClass;
use fencepost_kafka::producer::ProducerSettings;
use fencepost_kafka::source::{Record, RecordBatch, Source};
use fencepost_kafka::{ClientError, GroupChange};
use fencepost_protocol::transactional::Start;
use fencepost_protocol::{Offset, Partition};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tokio::time::Instant;

use crate::topics::create;
use crate::transactions::{Fallible, open_transaction};
use crate::{Outcome, World, ensure};

const RECORDS: usize = 20;
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// A member of the group of a topic, which it reads from its beginning.
pub(crate) struct Member {
    pub(crate) consumer: Consumer,
    /// Assigned and not given up.
    pub(crate) owned: Vec<Partition>,
    seen: Vec<(Partition, Offset)>,
}

impl Member {
    fn join(world: &World, topic: &str, instance: &str) -> Fallible<Self> {
        Self::join_under(GroupProtocol::Classic, world, topic, instance)
    }

    pub(crate) fn join_under(protocol: GroupProtocol, world: &World, topic: &str, instance: &str) -> Fallible<Self> {
        let settings = ConsumerSettings {
            connection: world.settings()?,
            group: topic.to_owned(),
            instance_id: format!("{topic}-{instance}"),
            topics: vec![SourceTopic { name: topic.to_owned(), start: StartPosition::Earliest }],
            protocol,
            session_timeout: Duration::from_secs(10),
        };
        Ok(Self { consumer: Consumer::new(&settings)?, owned: Vec::new(), seen: Vec::new() })
    }

    /// One poll, and an answer to what the group says. What is new begins at 0. True: partitions were given up.
    pub(crate) fn turn(&mut self) -> Fallible<bool> {
        let batch = self.consumer.poll(100, Duration::from_millis(50), Duration::ZERO);
        self.seen.extend(batch.records().map(|message| (message.partition(), message.offset())));
        drop(batch);
        match self.consumer.next_change() {
            Some(GroupChange::Assigned(partitions)) => {
                let positions: Vec<_> = partitions.iter().map(|partition| (*partition, Offset(0))).collect();
                self.consumer.assign(&positions)?;
                if !self.consumer.is_incremental() {
                    self.owned.clear();
                }
                self.owned.extend(partitions);
                Ok(false)
            }
            Some(GroupChange::Revoked(partitions) | GroupChange::Lost(partitions)) => {
                self.consumer.unassign(&partitions)?;
                self.owned.retain(|partition| !partitions.contains(partition));
                Ok(true)
            }
            None => Ok(false),
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> Fallible<bool>) -> Outcome {
        let deadline = Instant::now() + WAIT;
        while !holds(self)? {
            ensure!(Instant::now() < deadline, "waited in vain for {what}; owned {:?}", self.owned);
        }
        Ok(())
    }

    pub(crate) fn until_assigned(&mut self) -> Outcome {
        self.until("an assignment", |member| {
            member.turn()?;
            Ok(!member.owned.is_empty())
        })
    }

    /// Every partition that is owned brings records.
    fn until_all_read(&mut self) -> Outcome {
        self.seen.clear();
        self.until("records", |member| {
            member.turn()?;
            Ok(!member.owned.is_empty()
                && member.owned.iter().all(|owned| member.seen.iter().any(|(partition, _)| partition == owned)))
        })
    }
}

fn write(world: &World, topic: &str) -> Outcome {
    let mut config = ClientConfig::new();
    for (key, value) in world.settings()?.librdkafka() {
        config.set(key, value);
    }
    let producer: BaseProducer = config.create()?;
    for number in 0..RECORDS {
        let record = BaseRecord::<str, str>::to(topic).partition(i32::try_from(number % 2)?).payload("x");
        producer.send(record).map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(WAIT)?)
}

pub(crate) async fn filled(world: &World, what: &str) -> Fallible<String> {
    let topic = world.name(what);
    create(world, &topic, 2).await?;
    tokio::task::block_in_place(|| write(world, &topic))?;
    Ok(topic)
}

const PROTOCOLS: [GroupProtocol; 2] = [GroupProtocol::Classic, GroupProtocol::Consumer];

pub async fn partitions_lost_while_paused_are_read_again(world: &World) -> Outcome {
    for protocol in PROTOCOLS {
        lost_while_paused(world, protocol).await.map_err(|error| format!("{protocol}: {error}"))?;
    }
    Ok(())
}

async fn lost_while_paused(world: &World, protocol: GroupProtocol) -> Outcome {
    let topic = filled(world, &format!("lost-{protocol}")).await?;
    let mut member = Member::join_under(protocol, world, &topic, "0")?;
    tokio::task::block_in_place(|| member.until_assigned())?;
    member.consumer.pause()?;
    let named = |instance: String| StaticMember { instance, id: None };
    world.cluster.remove_members(&topic, &[named(format!("{topic}-0")), named("nobody".to_owned())]).await?;
    tokio::task::block_in_place(|| {
        member.until("the loss", Member::turn)?;
        member.until_all_read()?;
        member.consumer.close(WAIT);
        Ok(())
    })
}

pub async fn partitions_revoked_while_paused_are_read_again(world: &World) -> Outcome {
    for protocol in PROTOCOLS {
        revoked_while_paused(world, protocol).await.map_err(|error| format!("{protocol}: {error}"))?;
    }
    Ok(())
}

async fn revoked_while_paused(world: &World, protocol: GroupProtocol) -> Outcome {
    let topic = filled(world, &format!("revoked-{protocol}")).await?;
    tokio::task::block_in_place(|| {
        let mut first = Member::join_under(protocol, world, &topic, "0")?;
        first.until_assigned()?;
        first.consumer.pause()?;
        let mut second = Member::join_under(protocol, world, &topic, "1")?;
        first.until("the revocation", |first| {
            second.turn()?;
            first.turn()
        })?;
        // What it keeps is paused still.
        first.consumer.resume()?;
        first.seen.clear();
        second.until("one partition each, both read", |second| {
            second.turn()?;
            first.turn()?;
            let reads = |member: &Member| {
                matches!(&member.owned[..], [only] if member.seen.iter().any(|(partition, _)| partition == only))
            };
            Ok(reads(&first) && reads(second))
        })?;
        first.consumer.close(WAIT);
        second.consumer.close(WAIT);
        Ok(())
    })
}

pub async fn a_member_that_leaves_is_gone_at_once_and_its_successor_stays(world: &World) -> Outcome {
    let topic = filled(world, "left").await?;
    let joined = || -> Fallible<Member> {
        let mut member = Member::join(world, &topic, "0")?;
        member.until_assigned()?;
        Ok(member)
    };
    let gone = tokio::task::block_in_place(|| -> Fallible<StaticMember> {
        let member = joined()?;
        let identity = member.consumer.member();
        member.consumer.close(WAIT);
        Ok(identity)
    })?;
    ensure!(members(world, &topic)? == 1, "a static member that is closed is kept by the group");
    world.cluster.remove_members(&topic, std::slice::from_ref(&gone)).await?;
    ensure!(members(world, &topic)? == 0, "a member that has left is there");
    let successor = tokio::task::block_in_place(joined)?;
    ensure!(successor.consumer.member() != gone, "another process of the same name is another member");
    // Late: its name is somebody else's.
    world.cluster.remove_members(&topic, &[gone]).await?;
    ensure!(members(world, &topic)? == 1, "who leaves late takes the successor out");
    let successor_left = successor.consumer.member();
    tokio::task::block_in_place(|| successor.consumer.close(WAIT));
    world.cluster.remove_members(&topic, &[successor_left]).await?;
    Ok(())
}

fn members(world: &World, group: &str) -> Fallible<usize> {
    let mut config = ClientConfig::new();
    for (key, value) in world.settings()?.librdkafka() {
        config.set(key, value);
    }
    let client: BaseConsumer = config.create()?;
    let list = tokio::task::block_in_place(|| client.fetch_group_list(Some(group), WAIT))?;
    Ok(list.groups().iter().map(|group| group.members().len()).sum())
}

pub async fn a_position_in_an_open_transaction_is_waited_for(world: &World) -> Outcome {
    for commits in [true, false] {
        let topic = filled(world, if commits { "undecided" } else { "withdrawn" }).await?;
        tokio::task::block_in_place(|| -> Outcome {
            // Holds the position 77 of partition 0.
            let producer = open_transaction(world, &format!("{topic}-id"), &topic, Some(&topic))?;
            let mut member = Member::join(world, &topic, "0")?;
            member.until_assigned()?;
            let partition = [Partition::new(0, 0)];
            let Err(error) = member.consumer.resolve(&partition, Duration::from_secs(2)) else {
                return Err("a position is told that a transaction may still change".into());
            };
            ensure!(
                matches!(error, ClientError::UndecidedPositions { .. }) && error.class() == ErrorClass::Retry,
                "an undecided position is not told as such: {error}"
            );
            let start = if commits {
                producer.commit_transaction(WAIT)?;
                Start::Committed(Offset(77))
            } else {
                producer.abort_transaction(WAIT)?;
                Start::Chosen(Offset(0))
            };
            let found = member.consumer.resolve(&partition, WAIT)?;
            ensure!(found == [(partition[0], start)], "found {found:?} instead of {start:?}");
            member.consumer.close(WAIT);
            Ok(())
        })?;
    }
    Ok(())
}

pub async fn a_producer_waits_for_the_end_of_the_transaction_it_takes_over(world: &World) -> Outcome {
    let topic = filled(world, "taken").await?;
    tokio::task::block_in_place(|| -> Outcome {
        let id = format!("{topic}-id");
        for _ in 0..5 {
            // Dropped with its transaction open, as by a kill.
            drop(open_transaction(world, &id, &topic, None)?);
            let settings = ProducerSettings {
                connection: world.settings()?,
                transactional_id: Some(id.clone()),
                transaction_timeout: Duration::from_secs(30),
                max_batch_bytes: usize::MAX,
            };
            fencepost_kafka::producer::Producer::new(&settings)?.init_transactions(WAIT)?;
        }
        Ok(())
    })
}
