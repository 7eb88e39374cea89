//! Who is where. The addresses are the same in every cluster: no two of them can see each other, nor the machine they
//! run on, which therefore must have no address in these ranges.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The member that is the control plane, and the router between the others.
pub const CONTROL_PLANE: &str = "control-plane";
/// The address of the control plane.
pub const CONTROL_PLANE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Where the API server listens.
pub const API_PORT: u16 = 6443;
/// Where a kubelet listens.
pub const KUBELET_PORT: u16 = 10250;
/// The addresses of services.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The API server as a service.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The name server as a service.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The addresses of all pods.
pub const POD_RANGE: &str = "10.78.0.0/16";
/// More nodes than this make no sense on one machine.
pub const MAX_NODES: u8 = 9;

/// A Kubernetes node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(u8);

impl Node {
    pub(crate) fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// Its number, from 1.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its name in Kubernetes.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// Its address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + self.0)
    }

    /// The addresses of its pods.
    #[must_use]
    pub fn pods(self) -> String {
        format!("10.78.{}.0/24", self.0)
    }

    /// Its interface on the bridge, in the namespace of the control plane.
    #[must_use]
    pub fn port(self) -> String {
        format!("to-node-{}", self.0)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// A Kafka broker (and controller).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broker(u8);

impl Broker {
    pub(crate) fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// Its node id in Kafka, from 1.
    #[must_use]
    pub fn id(self) -> u8 {
        self.0
    }

    /// Its name as a component.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// Its address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 100 + self.0)
    }

    /// Its interface on the bridge, in the namespace of the control plane.
    #[must_use]
    pub fn port(self) -> String {
        format!("to-kafka-{}", self.0)
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka-{}", self.0)
    }
}

/// A name that is neither a node nor a broker.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a node (node-1, ...) nor a broker (kafka-1, ...)")]
pub struct Unknown(String);

/// Something with a network of its own that faults can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// A Kubernetes node.
    Node(Node),
    /// A Kafka broker.
    Broker(Broker),
}

impl Member {
    /// Its interface on the bridge, in the namespace of the control plane.
    #[must_use]
    pub fn port(self) -> String {
        match self {
            Self::Node(node) => node.port(),
            Self::Broker(broker) => broker.port(),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Broker(broker) => broker.fmt(f),
        }
    }
}

impl FromStr for Member {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Self, Unknown> {
        let number = |prefix: &str| name.strip_prefix(prefix)?.parse().ok().filter(|n| (1..=MAX_NODES).contains(n));
        let node = number("node-").map(|n| Self::Node(Node(n)));
        node.or_else(|| number("kafka-").map(|n| Self::Broker(Broker(n)))).ok_or_else(|| Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Broker, CONTROL_PLANE_ADDRESS, MAX_NODES, Member, Node};
    use std::collections::BTreeSet;

    #[test]
    fn no_two_members_share_an_address() {
        let mut seen = BTreeSet::from([CONTROL_PLANE_ADDRESS]);
        for number in 1..=MAX_NODES {
            assert!(seen.insert(Node(number).address()));
            assert!(seen.insert(Broker(number).address()));
        }
    }

    #[test]
    fn interface_names_fit_the_kernel() {
        assert!(Node(MAX_NODES).port().len() <= 15 && Broker(MAX_NODES).port().len() <= 15);
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        assert_eq!("node-2".parse(), Ok(Member::Node(Node(2))));
        assert_eq!("kafka-3".parse(), Ok(Member::Broker(Broker(3))));
        for bad in ["node-0", "node-10", "kafka", "broker-1", "node-x"] {
            assert!(bad.parse::<Member>().is_err(), "{bad}");
        }
    }
}
