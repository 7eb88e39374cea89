//! Bringing a cluster up.

use std::fs::{self, File, TryLockError};
use std::thread;
use std::time::Duration;

use super::topology::Node;
use super::{Cluster, ClusterName, ClusterSpec, Error, Parts, control_plane, down, kafka, network, node, pki, ready};
use crate::paths::{self, RunDir};
use crate::report;
use crate::tools::Tools;
use crate::wait::{self, Deadline};

const DNS: &str = include_str!("../../cluster/manifests/dns.yaml");

pub(super) fn up(spec: &ClusterSpec) -> Result<Cluster, Error> {
    spec.check()?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let tools = Tools::prepare()?;
    let _lock = lock(&spec.name)?;
    if !down::leftovers(&spec.name).is_empty() {
        return Err(Error::Exists { name: spec.name.clone() });
    }
    let clock = Deadline::after(Duration::MAX);
    let run = RunDir::of(&spec.name);
    let cluster = Cluster { spec: spec.clone(), run, tools };
    report::step(format!("cluster {}: logs in {}", spec.name, cluster.run.logs().display()));
    describe(&cluster)?;
    pki::create(&cluster.run, spec)?;
    network::build(spec)?;
    match spec.parts {
        Parts::Everything => start_everything(&cluster)?,
        Parts::Kafka => kafka::start(&cluster)?,
    }
    report::step(format!(
        "cluster {} is up after {:.1} s: {} nodes, {} broker(s), Kafka at {} ({})",
        spec.name,
        clock.elapsed().as_secs_f64(),
        spec.nodes().len(),
        spec.brokers,
        cluster.bootstrap(),
        spec.security,
    ));
    Ok(cluster)
}

/// Three things that need nothing of each other.
fn start_everything(cluster: &Cluster) -> Result<(), Error> {
    thread::scope(|scope| {
        let brokers = scope.spawn(|| kafka::start(cluster));
        let nodes: Vec<_> =
            cluster.spec.nodes().into_iter().map(|node| scope.spawn(move || start_node(cluster, node))).collect();
        start_control_plane(cluster)?;
        for node in nodes {
            node.join().map_err(|_| Error::Thread)??;
        }
        ready::kubernetes(cluster)?;
        brokers.join().map_err(|_| Error::Thread)?
    })
}

fn start_control_plane(cluster: &Cluster) -> Result<(), Error> {
    control_plane::start_api(cluster)?;
    ready::api_server(cluster)?;
    control_plane::start_controllers(cluster)?;
    cluster.apply(DNS)?;
    cluster.apply(&kafka::service(&cluster.spec))?;
    Ok(())
}

fn start_node(cluster: &Cluster, node: Node) -> Result<(), Error> {
    node::start_runtime(cluster, node)?;
    node::start_kubelet(cluster, node)
}

fn describe(cluster: &Cluster) -> Result<(), Error> {
    let path = cluster.run.spec();
    fs::create_dir_all(cluster.run.logs()).map_err(Error::file(cluster.run.logs()))?;
    let text =
        serde_json::to_vec_pretty(&cluster.spec).map_err(|source| Error::Description { path: path.clone(), source })?;
    fs::write(&path, text).map_err(Error::file(path))
}

/// Keeps other runs of the harness away from a cluster that is being brought up or down. A child that was forked and is
/// not yet in its namespace holds the lock too, so whoever gets it sees everything that was started.
pub(super) fn lock(name: &ClusterName) -> Result<File, Error> {
    let folder = paths::state();
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let path = folder.join(format!("{name}.lock"));
    let file = File::create(&path).map_err(Error::file(&path))?;
    let locked = wait::until(Deadline::after(Duration::from_secs(5)), || match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(Error::File { path: path.clone(), source }),
    })?;
    locked.map(|()| file).ok_or_else(|| Error::Busy { name: name.clone() })
}
