//! Static membership under the group protocol of KIP-848: what a member that was killed costs the one that takes its place.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fencepost_kafka::consumer::StaticMember;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tokio::time::Instant;

use crate::membership::{WAIT, filled};
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

/// Why workers use the classic protocol, where the successor is accepted at once: here it has to take the dead member out of the group first.
pub async fn the_new_protocol_refuses_the_successor_of_a_killed_member_until_that_is_removed(world: &World) -> Outcome {
    let topic = filled(world, "successor").await?;
    tokio::task::block_in_place(|| {
        drop(Process::hold(&topic)?);
        ensure!(!accepted(&member(world, &topic)?)?, "it is accepted at once: the new protocol can be offered");
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let removed = Instant::now();
    let dead = StaticMember { instance: format!("{topic}-0"), id: None };
    world.cluster.remove_members(&topic, &[dead]).await?;
    tokio::task::block_in_place(|| {
        let successor = member(world, &topic)?;
        ensure!(accepted(&successor)?, "it is refused although the dead member was removed");
        ensure!(removed.elapsed() < PROMPT, "removal and assignment took {:?}", removed.elapsed());
        Ok(())
    })
}
