//! Network faults: inside the namespaces of the cluster, never outside.

use std::time::Duration;

use super::chains::{self, Kind, inside};
use super::{Error, Undo, delay};
use crate::cluster::Cluster;
use crate::cluster::topology::{API_PORT, CONTROL_PLANE_ADDRESS, KUBELET_PORT, Member, Node};
use crate::command::words;

/// What to do to the traffic of a member: both ways for loss, its outgoing traffic for the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Traffic {
    /// This many of a hundred packets are lost.
    Lose {
        /// Between 0 and 100.
        percent: f64,
    },
    /// Every packet leaves this much later, to a millisecond.
    Delay(Duration),
    /// No more than this passes; what is too much waits, up to a second, and then is lost.
    Limit {
        /// Kilobits a second.
        kilobits: u32,
    },
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
    let (api, kubelet, server) = (API_PORT.to_string(), KUBELET_PORT.to_string(), CONTROL_PLANE_ADDRESS.to_string());
    chains::fresh(cluster, member, Kind::Api)?;
    for (chain, side, port_side, port) in [
        (Kind::Api.incoming(), "-s", "--sport", &api),
        (Kind::Api.incoming(), "-s", "--dport", &kubelet),
        (Kind::Api.outgoing(), "-d", "--dport", &api),
        (Kind::Api.outgoing(), "-d", "--sport", &kubelet),
    ] {
        chains::add(cluster, member, chain, &[side, &server, "-p", "tcp", port_side, port, "-j", "DROP"])?;
    }
    let again = cluster.clone();
    let undo = move || chains::remove(&again, member, Kind::Api);
    Ok(Undo::new(format!("{member} is cut off from the API server"), undo))
}

/// Disturbs the traffic of a member. A second disturbance of the same kind takes the place of the first.
///
/// # Errors
/// When the member does not exist, or the kernel cannot do it.
pub fn disturb(cluster: &Cluster, member: Member, traffic: Traffic) -> Result<Undo, Error> {
    let again = cluster.clone();
    match traffic {
        Traffic::Lose { percent } => {
            let probability = format!("{:.4}", (percent / 100.0).clamp(0.0, 1.0));
            let lose = ["eth0", "-m", "statistic", "--mode", "random", "--probability", &probability, "-j", "DROP"];
            chains::fresh(cluster, member, Kind::Loss)?;
            chains::add(cluster, member, Kind::Loss.incoming(), &[&["-i"][..], &lose].concat())?;
            chains::add(cluster, member, Kind::Loss.outgoing(), &[&["-o"][..], &lose].concat())?;
            Ok(Undo::new(format!("{member} loses packets"), move || chains::remove(&again, member, Kind::Loss)))
        }
        Traffic::Delay(by) => {
            delay::start(cluster, member, by)?;
            Ok(Undo::new(format!("{member} is late"), move || delay::stop(&again, member)))
        }
        Traffic::Limit { kilobits } => {
            let rate = format!("{kilobits}kbit");
            let tbf = ["tbf", "rate", &rate, "burst", "16kb", "latency", "1s"];
            let replace = ["qdisc", "replace", "dev", "eth0", "root"];
            inside(cluster, member, words("tc", [&replace[..], &tbf].concat())).map(drop)?;
            Ok(Undo::new(format!("{member} has a narrow link"), move || remove_limit(&again, member)))
        }
    }
}

/// How many packets a disturbance has lost or delayed so far; `None`: of that kind nobody counts.
///
/// # Errors
/// When there is no such disturbance, or it has ended by itself.
pub fn disturbed(cluster: &Cluster, member: Member, traffic: Traffic) -> Result<Option<u64>, Error> {
    let kind = match traffic {
        Traffic::Lose { .. } => Kind::Loss,
        Traffic::Delay(_) => {
            delay::is_held(cluster, member)?;
            Kind::Delay
        }
        Traffic::Limit { .. } => return Ok(None),
    };
    chains::packets(cluster, member, kind).map(Some)
}

/// Undoes every network fault of a member, whoever made it.
///
/// # Errors
/// When the member does not exist.
pub fn heal(cluster: &Cluster, member: Member) -> Result<(), Error> {
    port(cluster, member, "up")?;
    delay::stop(cluster, member)?;
    Kind::all().try_for_each(|kind| chains::remove(cluster, member, kind))?;
    remove_limit(cluster, member)
}

fn remove_limit(cluster: &Cluster, member: Member) -> Result<(), Error> {
    match inside(cluster, member, words("tc", ["qdisc", "del", "dev", "eth0", "root"])) {
        // There was none.
        Err(Error::Network { source, .. }) if source.said().contains("handle of zero") => Ok(()),
        other => other.map(drop),
    }
}
