//! Consumers under a load while the group moves partitions between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_crds::v1alpha1::GroupProtocol;
use fencepost_kafka::GroupChange;
use fencepost_kafka::source::{Record, RecordBatch, Source};
use fencepost_protocol::{Offset, Partition};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tokio::time::Instant;

use crate::membership::{Member, WAIT};
use crate::topics::create;
use crate::transactions::{Fallible, client};
use crate::{Outcome, World, ensure};

const PARTITIONS: i32 = 6;
/// How often a member comes and one goes.
const ROUNDS: usize = 6;
/// Records of each partition between two changes.
const BETWEEN: i64 = 200;

/// Each record is delivered, and in order, whoever has its partition, where a member begins at the position that was reached before, and
/// seeks in what it keeps.
pub async fn nothing_is_passed_over_where_partitions_are_kept_or_move(world: &World) -> Outcome {
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let topic = world.name(&format!("moving-{protocol}"));
        create(world, &topic, PARTITIONS).await?;
        let stop = &AtomicBool::new(false);
        tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| write(world, &topic, stop).map_err(|error| error.to_string()));
                let read = read(world, protocol, &topic);
                stop.store(true, Ordering::Release);
                writer.join().map_err(|_| "the writer panicked")??;
                read.map_err(|error| format!("{protocol}: {error}").into())
            })
        })
        .map_err(|error: Box<dyn std::error::Error>| error)?;
    }
    Ok(())
}

fn write(world: &World, topic: &str, stop: &AtomicBool) -> Outcome {
    let producer: BaseProducer = client(world)?.set("linger.ms", "1").create()?;
    while !stop.load(Ordering::Acquire) {
        for partition in 0..PARTITIONS {
            let record = BaseRecord::<str, str>::to(topic).partition(partition).payload("x");
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.poll(Duration::from_millis(2));
    }
    Ok(producer.flush(WAIT)?)
}

fn read(world: &World, protocol: GroupProtocol, topic: &str) -> Outcome {
    let join = |number: usize| Member::join_under(protocol, world, topic, &number.to_string());
    let mut positions: BTreeMap<Partition, i64> = (0..PARTITIONS).map(|n| (Partition::new(0, n), 0)).collect();
    let mut members = VecDeque::from([join(0)?]);
    for round in 0..ROUNDS {
        members.push_back(join(round + 1)?);
        until_read(&mut members, &mut positions)?;
        if round % 2 == 1
            && let Some(mut gone) = members.pop_front()
        {
            gone.consumer.unassign(&std::mem::take(&mut gone.owned))?;
            let member = gone.consumer.member();
            gone.consumer.close(WAIT);
            tokio::runtime::Handle::current().block_on(world.cluster.remove_members(topic, &[member]))?;
            until_read(&mut members, &mut positions)?;
        }
    }
    members.into_iter().for_each(|member| member.consumer.close(WAIT));
    Ok(())
}

/// Polls all members in turn until each partition has moved on by [`BETWEEN`] records.
fn until_read(members: &mut VecDeque<Member>, positions: &mut BTreeMap<Partition, i64>) -> Outcome {
    let goal: BTreeMap<Partition, i64> = positions.iter().map(|(partition, at)| (*partition, at + BETWEEN)).collect();
    let deadline = Instant::now() + 3 * WAIT;
    while goal.iter().any(|(partition, goal)| positions.get(partition) < Some(goal)) {
        ensure!(Instant::now() < deadline, "waited in vain for records: at {positions:?}, wanted {goal:?}");
        for member in members.iter_mut() {
            turn(member, positions)?;
        }
    }
    Ok(())
}

fn turn(member: &mut Member, positions: &mut BTreeMap<Partition, i64>) -> Fallible<()> {
    let batch = member.consumer.poll(100, Duration::from_millis(5), Duration::from_millis(3));
    for message in batch.records() {
        let (partition, offset) = (message.partition(), message.offset().0);
        let next = positions.entry(partition).or_default();
        ensure!(offset <= *next, "{partition}: after {next} comes {offset}");
        *next = (*next).max(offset + 1);
    }
    for (partition, end) in batch.ends() {
        let next = positions.get(partition).copied().unwrap_or_default();
        ensure!(end.0 <= next, "{partition}: the end is said to be {end}, and {next} was not read");
    }
    drop(batch);
    let change = member.consumer.next_change();
    let is_change = change.is_some();
    let before = member.owned.clone();
    match change {
        Some(GroupChange::Assigned(partitions)) => {
            let at = |partition: &Partition| Offset(positions.get(partition).copied().unwrap_or_default());
            let starts: Vec<_> = partitions.iter().map(|partition| (*partition, at(partition))).collect();
            member.consumer.assign(&starts)?;
            if !member.consumer.is_incremental() {
                member.owned.clear();
            }
            member.owned.extend(partitions);
        }
        Some(GroupChange::Revoked(partitions) | GroupChange::Lost(partitions)) => {
            member.consumer.unassign(&partitions)?;
            member.owned.retain(|partition| !partitions.contains(partition));
        }
        None => {}
    }
    // The client has lost its place in what is kept.
    if is_change && member.consumer.is_incremental() {
        let kept = before.into_iter().filter(|partition| member.owned.contains(partition));
        let at = |partition: Partition| (partition, Offset(positions.get(&partition).copied().unwrap_or_default()));
        member.consumer.seek(&kept.map(at).collect::<Vec<_>>(), WAIT)?;
    }
    Ok(())
}
