//! Static membership under the group protocol of KIP-848: what a member that was killed costs the one that takes its place.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fencepost_crds::v1alpha1::GroupProtocol;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tokio::time::Instant;

use crate::membership::{Member, WAIT, filled};
use crate::transactions::{Fallible, client};
use crate::{Outcome, World, ensure};

/// What a process says that has its partitions.
const ASSIGNED: &str = "assigned";
const STEP: Duration = Duration::from_millis(100);
/// What a removal and a new assignment may take.
const PROMPT: Duration = Duration::from_secs(3);

/// The member `NAME-0` of the group of a topic, by the new protocol.
fn member(world: &World, topic: &str) -> Fallible<BaseConsumer> {
    let mut config = client(world)?;
    config.set("group.protocol", "consumer").set("group.id", topic).set("group.instance.id", format!("{topic}-0"));
    let consumer: BaseConsumer = config.set("enable.auto.commit", "false").create()?;
    consumer.subscribe(&[topic])?;
    Ok(consumer)
}

/// What the process does that is killed: it is a member, says so, and goes on.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub fn hold(world: &World, topic: &str) -> Outcome {
    let consumer = member(world, topic)?;
    let mut told = false;
    loop {
        if let Some(message) = consumer.poll(STEP) {
            message?;
        }
        if !told && consumer.assignment()?.count() > 0 {
            println!("{ASSIGNED}");
            told = true;
        }
    }
}

/// A process that is a member. It ends with this, however.
struct Process(Child);

impl Process {
    /// Starts one, and waits until it has its partitions.
    fn hold(topic: &str) -> Fallible<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).args(["--hold", topic]).stdout(Stdio::piped());
        let mut process = Self(command.spawn()?);
        let output = BufReader::new(process.0.stdout.take().ok_or("no output")?);
        let (says, said) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| says.send(line)));
        let said = said.recv_timeout(WAIT)?;
        ensure!(said.trim() == ASSIGNED, "the first member said {said:?}");
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL. An error: it has ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Polls until the consumer has partitions (true), or is refused because its name is taken (false).
fn accepted(consumer: &BaseConsumer) -> Fallible<bool> {
    let deadline = Instant::now() + WAIT;
    loop {
        // Errors of a fatal kind are told below, others pass.
        drop(consumer.poll(STEP));
        if let Some((code, text)) = consumer.client().fatal_error() {
            ensure!(code == RDKafkaErrorCode::UnreleasedInstanceId, "refused for another reason: {text}");
            return Ok(false);
        }
        if consumer.assignment()?.count() > 0 {
            return Ok(true);
        }
        ensure!(Instant::now() < deadline, "the successor is neither accepted nor refused");
    }
}

/// A process that was killed has its name until the session timeout. Released in its place, everything that it had is its successor's at
/// once, and nothing of it goes to others meanwhile.
pub async fn a_name_that_is_released_for_a_killed_member_brings_its_successor_what_it_had(world: &World) -> Outcome {
    let topic = filled(world, "successor").await?;
    let name = format!("{topic}-0");
    let mut other = tokio::task::block_in_place(|| -> Fallible<Member> {
        let process = Process::hold(&topic)?;
        let mut other = Member::join_under(GroupProtocol::Consumer, world, &topic, "1")?;
        other.until_assigned()?;
        ensure!(other.owned.len() == 1, "the two share the partitions: {:?}", other.owned);
        drop(process);
        ensure!(!accepted(&member(world, &topic)?)?, "it is accepted at once: nothing need be released");
        Ok(other)
    })?;
    let released = Instant::now();
    world.cluster.release_member(&topic, &name).await?;
    // Nobody is there to be released.
    world.cluster.release_member(&topic, "nobody").await?;
    world.cluster.release_member(&format!("{topic}-no-group"), &name).await?;
    tokio::task::block_in_place(|| {
        let mut successor = Member::join_under(GroupProtocol::Consumer, world, &topic, "0")?;
        successor.until("what its predecessor had", |successor| {
            let moved = other.turn()?;
            ensure!(!moved && other.owned.len() == 1, "the release moved something: {:?}", other.owned);
            successor.turn()?;
            Ok(!successor.owned.is_empty())
        })?;
        let took = released.elapsed();
        ensure!(took < PROMPT, "release and assignment took {took:?}");
        ensure!(successor.owned.len() == 1, "it has more than that: {:?}", successor.owned);
        successor.consumer.close(WAIT);
        other.consumer.close(WAIT);
        Ok(())
    })
}
