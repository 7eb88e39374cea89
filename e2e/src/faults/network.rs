//! Network faults: inside the namespaces of the cluster, never outside.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::cluster::topology::{API_PORT, CONTROL_PLANE_ADDRESS, KUBELET_PORT, Member, Node};
use crate::command::{self, words};
use crate::ns::Namespace;

use super::{Error, Undo};

/// Our chains in the `mangle` table: behind the address translation of kube-proxy on the way out, before everything on
/// the way in, and not touched by kube-proxy.
const CHAINS: [(&str, &str); 2] = [("PREROUTING", "FENCEPOST-IN"), ("POSTROUTING", "FENCEPOST-OUT")];

/// What to do to the traffic of a member, both ways for loss, its outgoing traffic for the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Traffic {
    /// This many of a hundred packets are lost.
    Lose {
        /// Between 0 and 100.
        percent: f64,
    },
    /// Every packet leaves this much later. Needs a kernel with `sch_netem`.
    Delay(Duration),
    /// No more than this passes, in kilobits a second; what is too much waits, up to a second.
    Limit {
        /// Kilobits a second.
        kilobits: u32,
    },
}

fn namespace(cluster: &Cluster, member: Member) -> Namespace {
    cluster.spec().name.namespace(&member.to_string())
}

fn run(cluster: &Cluster, member: Member, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let in_namespace = |source| Error::Namespace { member: member.to_string(), source };
    let mut command = words(program, arguments);
    namespace(cluster, member).wrap(&mut command).map_err(in_namespace)?;
    command::run(&mut command).map(drop).map_err(|source| Error::Network { member: member.to_string(), source })
}

fn port(cluster: &Cluster, member: Member, state: &str) -> Result<(), Error> {
    let in_namespace = |source| Error::Namespace { member: member.to_string(), source };
    cluster.namespace().ip(&format!("link set {} {state}", member.port())).map_err(in_namespace)
}

/// Cuts a member off from everything, as a pulled cable does. What runs on it goes on running.
///
/// # Errors
/// When the member does not exist.
pub fn cut_off(cluster: &Cluster, member: Member) -> Result<Undo, Error> {
    port(cluster, member, "down")?;
    let again = cluster.clone();
    Ok(Undo::new(format!("{member} is cut off"), move || port(&again, member, "up")))
}

/// Cuts a node off from the API server only: its pods still reach Kafka and each other, and nobody can tell them to stop.
///
/// # Errors
/// When the node does not exist.
pub fn cut_off_from_api(cluster: &Cluster, node: Node) -> Result<Undo, Error> {
    let member = Member::Node(node);
    let (api, kubelet, from) = (API_PORT.to_string(), KUBELET_PORT.to_string(), CONTROL_PLANE_ADDRESS.to_string());
    let [(_, incoming), (_, outgoing)] = CHAINS;
    chains(cluster, member)?;
    for (chain, side, port_side, port) in [
        (incoming, "-s", "--sport", &api),
        (incoming, "-s", "--dport", &kubelet),
        (outgoing, "-d", "--dport", &api),
        (outgoing, "-d", "--sport", &kubelet),
    ] {
        iptables(cluster, member, &["-A", chain, side, &from, "-p", "tcp", port_side, port, "-j", "DROP"])?;
    }
    let again = cluster.clone();
    Ok(Undo::new(format!("{member} is cut off from the API server"), move || remove_chains(&again, member)))
}

/// Disturbs the traffic of a member.
///
/// # Errors
/// When the member does not exist, or the kernel cannot do it.
pub fn disturb(cluster: &Cluster, member: Member, traffic: Traffic) -> Result<Undo, Error> {
    let again = cluster.clone();
    match traffic {
        Traffic::Lose { percent } => {
            let probability = format!("{:.4}", (percent / 100.0).clamp(0.0, 1.0));
            chains(cluster, member)?;
            for (_, chain) in CHAINS {
                let rule = ["-m", "statistic", "--mode", "random", "--probability", &probability, "-j", "DROP"];
                let side = if chain == CHAINS[0].1 { "-i" } else { "-o" };
                iptables(cluster, member, &[&["-A", chain, side, "eth0"][..], &rule].concat())?;
            }
            Ok(Undo::new(format!("{member} loses packets"), move || remove_chains(&again, member)))
        }
        Traffic::Delay(delay) => {
            let delay = format!("{}us", delay.as_micros());
            let netem = ["qdisc", "replace", "dev", "eth0", "root", "netem", "limit", "100000", "delay", &delay];
            run(cluster, member, "tc", &netem).map_err(without_netem)?;
            Ok(Undo::new(format!("{member} is slow"), move || remove_queue(&again, member)))
        }
        Traffic::Limit { kilobits } => {
            let rate = format!("{kilobits}kbit");
            let tbf =
                ["qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", &rate, "burst", "16kb", "latency", "1s"];
            run(cluster, member, "tc", &tbf)?;
            Ok(Undo::new(format!("{member} has a narrow link"), move || remove_queue(&again, member)))
        }
    }
}

/// `tc` says no more than that there is no such file when the kernel lacks a queueing discipline.
fn without_netem(error: Error) -> Error {
    match &error {
        Error::Network { source, .. }
            if source.said().contains("qdisc kind is unknown") || source.said().contains("No such file") =>
        {
            Error::Kernel {
                what: "delay packets",
                module: "sch_netem",
                instead: "packets can be lost (iptables) or their rate limited (tbf) instead",
            }
        }
        _ => error,
    }
}

/// Undoes every network fault of a member, whoever made it.
///
/// # Errors
/// When the member does not exist.
pub fn heal(cluster: &Cluster, member: Member) -> Result<(), Error> {
    port(cluster, member, "up")?;
    remove_chains(cluster, member)?;
    remove_queue(cluster, member)
}

fn iptables(cluster: &Cluster, member: Member, arguments: &[&str]) -> Result<(), Error> {
    run(cluster, member, "iptables", &[&["-w", "-t", "mangle"], arguments].concat())
}

fn chains(cluster: &Cluster, member: Member) -> Result<(), Error> {
    for (hook, chain) in CHAINS {
        if iptables(cluster, member, &["-n", "-L", chain]).is_err() {
            iptables(cluster, member, &["-N", chain])?;
            iptables(cluster, member, &["-I", hook, "-j", chain])?;
        }
    }
    Ok(())
}

fn remove_chains(cluster: &Cluster, member: Member) -> Result<(), Error> {
    for (hook, chain) in CHAINS {
        if iptables(cluster, member, &["-n", "-L", chain]).is_ok() {
            iptables(cluster, member, &["-F", chain])?;
            iptables(cluster, member, &["-D", hook, "-j", chain])?;
            iptables(cluster, member, &["-X", chain])?;
        }
    }
    Ok(())
}

fn remove_queue(cluster: &Cluster, member: Member) -> Result<(), Error> {
    match run(cluster, member, "tc", &["qdisc", "del", "dev", "eth0", "root"]) {
        // There was none.
        Err(Error::Network { source, .. })
            if source.said().contains("handle of zero") || source.said().contains("No such file") =>
        {
            Ok(())
        }
        other => other,
    }
}
