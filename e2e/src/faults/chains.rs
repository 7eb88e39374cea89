//! Rules of iptables inside the namespaces, in chains of our own: one pair for each kind of fault, so that undoing one leaves
//! the others.
//!
//! They are in the `mangle` table: behind the address translation of kube-proxy on the way out, before everything on the way
//! in, and not touched by kube-proxy.

use std::process::Command;

use strum::IntoEnumIterator;

use super::Error;
use crate::cluster::Cluster;
use crate::cluster::topology::Member;
use crate::command::{self, words};
use crate::ns::Namespace;

/// What a pair of chains is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter)]
pub(super) enum Kind {
    Api,
    Loss,
    Delay,
}

impl Kind {
    /// What packets from the network pass.
    pub(super) fn incoming(self) -> &'static str {
        match self {
            Self::Api => "FENCEPOST-API-IN",
            Self::Loss => "FENCEPOST-LOSS-IN",
            Self::Delay => "FENCEPOST-DELAY-IN",
        }
    }

    /// What packets to the network pass.
    pub(super) fn outgoing(self) -> &'static str {
        match self {
            Self::Api => "FENCEPOST-API-OUT",
            Self::Loss => "FENCEPOST-LOSS-OUT",
            Self::Delay => "FENCEPOST-DELAY-OUT",
        }
    }

    fn hooked(self) -> [(&'static str, &'static str); 2] {
        [("PREROUTING", self.incoming()), ("POSTROUTING", self.outgoing())]
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }
}

pub(super) fn namespace(cluster: &Cluster, member: Member) -> Namespace {
    cluster.spec().name.namespace(&member.to_string())
}

/// Runs a program inside a member's namespace. Gives what it wrote.
pub(super) fn inside(cluster: &Cluster, member: Member, mut command: Command) -> Result<String, Error> {
    let in_namespace = |source| Error::Namespace { member: member.to_string(), source };
    namespace(cluster, member).wrap(&mut command).map_err(in_namespace)?;
    command::run(&mut command).map_err(|source| Error::Network { member: member.to_string(), source })
}

fn iptables(cluster: &Cluster, member: Member, arguments: &[&str]) -> Result<String, Error> {
    let mut command = words("iptables", ["-w", "-t", "mangle"]);
    command.args(arguments);
    inside(cluster, member, command)
}

/// Empty chains of a kind, whatever was in them.
pub(super) fn fresh(cluster: &Cluster, member: Member, kind: Kind) -> Result<(), Error> {
    remove(cluster, member, kind)?;
    for (hook, chain) in kind.hooked() {
        iptables(cluster, member, &["-N", chain])?;
        iptables(cluster, member, &["-I", hook, "-j", chain])?;
    }
    Ok(())
}

/// Adds a rule to a chain.
pub(super) fn add(cluster: &Cluster, member: Member, chain: &str, rule: &[&str]) -> Result<(), Error> {
    iptables(cluster, member, &[&["-A", chain], rule].concat()).map(drop)
}

/// How many packets the rules of a kind have hit.
pub(super) fn packets(cluster: &Cluster, member: Member, kind: Kind) -> Result<u64, Error> {
    let mut all = 0;
    for (_, chain) in kind.hooked() {
        all += hits(&iptables(cluster, member, &["-n", "-v", "-x", "-L", chain])?);
    }
    Ok(all)
}

/// The packets of each rule stand first in its line; above the rules are two lines of headings.
fn hits(listing: &str) -> u64 {
    let counts = listing.lines().skip(2).filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    counts.sum()
}

/// Removes the chains of a kind, if they are there.
pub(super) fn remove(cluster: &Cluster, member: Member, kind: Kind) -> Result<(), Error> {
    for (hook, chain) in kind.hooked() {
        if iptables(cluster, member, &["-n", "-L", chain]).is_ok() {
            iptables(cluster, member, &["-F", chain])?;
            iptables(cluster, member, &["-D", hook, "-j", chain])?;
            iptables(cluster, member, &["-X", chain])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::hits;

    #[test]
    fn the_packets_of_all_rules_are_added_up() {
        let listing = "Chain FENCEPOST-LOSS-IN (1 references)\n    pkts      bytes target     prot opt in     out     source               \
                       destination\n      12    34567 DROP       0    --  eth0   *       0.0.0.0/0            0.0.0.0/0            statistic mode \
                       random probability 0.05\n       3      180 DROP       0    --  *      eth0    0.0.0.0/0            0.0.0.0/0\n";
        assert_eq!(hits(listing), 15);
        assert_eq!(hits("Chain FENCEPOST-LOSS-IN (1 references)\n pkts bytes target\n"), 0);
    }
}
