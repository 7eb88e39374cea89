//! The network of a cluster: a namespace for the control plane, one for each node and one for each broker, joined by a
//! bridge. No interface of it is ever outside of these namespaces, so nothing in them can reach anything but them.

use std::fs;
use std::net::Ipv4Addr;

use super::topology::{Broker, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, Node};
use super::{ClusterName, ClusterSpec, Error};
use crate::ns::Namespace;

const BRIDGE: &str = "cluster";

pub(super) fn build(spec: &ClusterSpec) -> Result<(), Error> {
    let control_plane = spec.name.namespace(CONTROL_PLANE);
    control_plane.create()?;
    control_plane.ip(&format!("link add {BRIDGE} type bridge"))?;
    control_plane.ip(&format!("addr add {CONTROL_PLANE_ADDRESS}/24 dev {BRIDGE}"))?;
    control_plane.ip(&format!("link set {BRIDGE} up"))?;
    forward(&control_plane)?;
    for node in spec.nodes() {
        join(&spec.name, &node.name(), &node.port(), node.address())?;
    }
    for broker in spec.brokers() {
        join(&spec.name, &broker.name(), &broker.port(), broker.address())?;
    }
    routes(spec, &control_plane)
}

/// A namespace on the bridge.
fn join(cluster: &ClusterName, member: &str, port: &str, address: Ipv4Addr) -> Result<(), Error> {
    let control_plane = cluster.namespace(CONTROL_PLANE);
    let namespace = cluster.namespace(member);
    namespace.create()?;
    control_plane.ip(&format!("link add {port} type veth peer name eth0 netns {}", namespace.name()))?;
    control_plane.ip(&format!("link set {port} master {BRIDGE} up"))?;
    namespace.ip(&format!("addr add {address}/24 dev eth0"))?;
    namespace.ip("link set eth0 up")?;
    forward(&namespace)
}

/// Pods are behind their nodes, for everybody.
fn routes(spec: &ClusterSpec, control_plane: &Namespace) -> Result<(), Error> {
    let nodes = spec.nodes();
    let to_pods = |namespace: &Namespace, except: Option<Node>| {
        nodes
            .iter()
            .filter(|node| Some(**node) != except)
            .try_for_each(|node| namespace.ip(&format!("route add {} via {}", node.pods(), node.address())))
    };
    to_pods(control_plane, None)?;
    for broker in spec.brokers() {
        to_pods(&spec.name.namespace(&Broker::name(broker)), None)?;
    }
    for node in &nodes {
        let namespace = spec.name.namespace(&node.name());
        to_pods(&namespace, Some(*node))?;
        // A packet to a service is rewritten only after it was routed: without any route it would not get that far.
        namespace.ip(&format!("route add default via {CONTROL_PLANE_ADDRESS}"))?;
    }
    Ok(())
}

fn forward(namespace: &Namespace) -> Result<(), Error> {
    set(namespace, "net/ipv4/ip_forward", "1")
}

/// Lets the packets between pods of one node pass iptables, where kube-proxy turns service addresses into pod addresses.
pub(super) fn filter_bridged(namespace: &Namespace) -> Result<(), Error> {
    set(namespace, "net/bridge/bridge-nf-call-iptables", "1")
}

/// Sets a parameter of the kernel inside: `/proc/sys/net` shows the namespace of who looks.
fn set(namespace: &Namespace, parameter: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/{parameter}");
    namespace.within(|| fs::write(&path, value))?.map_err(Error::file(&path))
}
