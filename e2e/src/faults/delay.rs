//! Late packets. `tc` can do this with `sch_netem`, which many small kernels lack; a queue to a process in the namespace
//! can do it everywhere: the process holds every packet back for its time and then lets it go on.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::time::Duration;

use nfq::{Message, Queue, Verdict};
use nix::sys::signal::Signal;

use super::{Error, chains};
use crate::cluster::process::{self, Liveness, Program};
use crate::cluster::topology::Member;
use crate::cluster::{self, Cluster};
use crate::paths;
use crate::wait::{self, Deadline};

/// The number of the queue, in the namespace of the member.
const QUEUE: u16 = 1;

/// How many packets are held at most: of a fast link with a long delay.
const HELD: u32 = 65_536;

/// How exactly packets are late.
const STEP: Duration = Duration::from_millis(1);

/// The subcommand of the harness that holds packets.
pub(crate) const SUBCOMMAND: &str = "hold-packets";

fn component(member: Member) -> String {
    format!("{member}-delay")
}

/// Starts a process that delays the outgoing packets of a member.
pub(super) fn start(cluster: &Cluster, member: Member, delay: Duration) -> Result<(), Error> {
    stop(cluster, member)?;
    chains::fresh(cluster, member, chains::Kind::Delay)?;
    let namespace = chains::namespace(cluster, member);
    let program = Program::new(component(member), &namespace, paths::harness()).args([
        SUBCOMMAND.to_owned(),
        "--microseconds".to_owned(),
        delay.as_micros().to_string(),
    ]);
    let holder = process::start(cluster.run_dir(), program).map_err(cluster::Error::from)?;
    // Of the thread, not of the process: /proc/self/net is the namespace of the first thread.
    let listening = || fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap_or_default();
    let in_namespace = |source| Error::Namespace { member: member.to_string(), source };
    let bound = wait::until(Deadline::after(Duration::from_secs(10)), || {
        let queues = namespace.within(listening).map_err(in_namespace)?;
        let bound = queues.lines().any(|line| line.split_whitespace().next() == Some(&QUEUE.to_string()));
        Ok::<_, Error>((bound || holder.liveness() == Liveness::Gone).then_some(bound))
    })?;
    if bound != Some(true) {
        let log = process::log_path(cluster.run_dir(), &component(member));
        return Err(Error::NoQueue { member: member.to_string(), logs: process::log_tails(&[log], 5) });
    }
    let queue = QUEUE.to_string();
    // Bypass: without the process packets pass as ever.
    let rule = ["-o", "eth0", "-j", "NFQUEUE", "--queue-num", &queue, "--queue-bypass"];
    chains::add(cluster, member, chains::Kind::Delay.outgoing(), &rule)
}

/// The process is there: without it, packets are counted and pass as ever.
pub(super) fn is_held(cluster: &Cluster, member: Member) -> Result<(), Error> {
    let holder = process::find(cluster.run_dir(), &component(member)).map_err(cluster::Error::from)?;
    if holder.liveness() == Liveness::Gone {
        let log = process::log_path(cluster.run_dir(), &component(member));
        return Err(Error::NoQueue { member: member.to_string(), logs: process::log_tails(&[log], 5) });
    }
    Ok(())
}

/// Ends the process, if there is one. Packets it holds are lost, as on a link that fails.
pub(super) fn stop(cluster: &Cluster, member: Member) -> Result<(), Error> {
    chains::remove(cluster, member, chains::Kind::Delay)?;
    let Ok(holder) = process::find(cluster.run_dir(), &component(member)) else { return Ok(()) };
    if holder.liveness() != Liveness::Gone {
        holder.signal(Signal::SIGKILL).map_err(cluster::Error::from)?;
        holder.wait_gone(Duration::from_secs(10)).map_err(cluster::Error::from)?;
    }
    Ok(process::forget(cluster.run_dir(), &component(member)).map_err(cluster::Error::from)?)
}

/// What the process does: for ever.
///
/// # Errors
/// When the kernel has no such queues or another process has this one.
pub(crate) fn hold(delay: Duration) -> io::Result<Infallible> {
    let mut queue = Queue::open()?;
    queue.bind(QUEUE)?;
    // Only the fact that there is a packet is needed, not the packet, and not cut into segments.
    queue.set_copy_range(QUEUE, 0)?;
    queue.set_recv_gso(QUEUE, true)?;
    queue.set_queue_max_len(QUEUE, HELD)?;
    let mut held: VecDeque<(Deadline, Message)> = VecDeque::new();
    loop {
        // With nothing to let go there is nothing to do before the next packet.
        queue.set_nonblocking(!held.is_empty());
        match queue.recv() {
            Ok(packet) => {
                held.push_back((Deadline::after(delay), packet));
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // More came than the socket holds: those are lost.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
            Err(error) => return Err(error),
        }
        while let Some((_, mut packet)) = held.pop_front_if(|(due, _)| due.passed()) {
            packet.set_verdict(Verdict::Accept);
            queue.verdict(packet)?;
        }
        if !held.is_empty() {
            wait::pause(STEP);
        }
    }
}
