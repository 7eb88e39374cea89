//! Breaking a cluster on purpose: processes of pods, nodes, brokers and the network between them.
//!
//! What a fault needs to be undone is a value, [`Undo`]: dropping it, or calling [`Undo::now`], undoes the fault;
//! [`Undo::keep`] leaves it, and [`heal`] undoes every network fault of a member whoever made it.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::topology::{Member, Node};
use crate::cluster::{self, Cluster, node};
use crate::report;

mod chains;
mod delay;
mod network;

pub(crate) use delay::{SUBCOMMAND as HOLD_SUBCOMMAND, hold};
pub use network::{Traffic, cut_off, cut_off_from_api, disturb, disturbed, heal};

/// A fault could not be made or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster did not do as asked.
    #[error("the cluster is not usable")]
    Cluster(#[from] cluster::Error),
    /// The network did not.
    #[error("cannot change the network of {member}")]
    Network {
        /// Whose.
        member: String,
        /// Why.
        source: crate::command::Error,
    },
    /// A namespace.
    #[error("cannot change the network of {member}")]
    Namespace {
        /// Whose.
        member: String,
        /// Why.
        source: crate::ns::Error,
    },
    /// Nothing holds the packets that are to be late.
    #[error("packets of {member} cannot be delayed\n{logs}")]
    NoQueue {
        /// Whose.
        member: String,
        /// What the process that holds packets said.
        logs: String,
    },
    /// A pod has no such container, or it does not run.
    #[error("the pod {namespace}/{pod} has no running container {container}")]
    NoContainer {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// The container, or "at all".
        container: String,
    },
    /// A container without a process.
    #[error("no process of the container {container} is on this machine")]
    NoProcess {
        /// Its id.
        container: String,
    },
    /// The kernel refused a signal.
    #[error("cannot send {signal} to process {pid}")]
    Signal {
        /// The process.
        pid: i32,
        /// The signal.
        signal: Signal,
        /// Why.
        source: nix::Error,
    },
    /// The API's answer was not understood.
    #[error("the API server's answer about the pod cannot be read")]
    Answer(#[from] serde_json::Error),
}

/// How to undo a fault.
#[must_use = "dropping this undoes the fault at once"]
pub struct Undo {
    what: String,
    undo: Option<Box<dyn FnOnce() -> Result<(), Error> + Send>>,
}

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Undo").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Undo {
    fn new(what: impl Into<String>, undo: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Self {
        Self { what: what.into(), undo: Some(Box::new(undo)) }
    }

    /// Undoes the fault.
    ///
    /// # Errors
    /// When that fails.
    pub fn now(mut self) -> Result<(), Error> {
        self.undo.take().map_or(Ok(()), |undo| undo())
    }

    /// Leaves the fault in place.
    pub fn keep(mut self) {
        self.undo = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take()
            && let Err(error) = undo()
        {
            report::step(format!("cannot undo: {}: {}", self.what, report::chain(&error)));
        }
    }
}

/// The running first process of a container of a pod, by the machine's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProcess {
    /// The container's id, without `containerd://`.
    pub container: String,
    /// The process.
    pub pid: i32,
}

impl PodProcess {
    /// The process of a container whose id is known: from `status.containerStatuses[].containerID` of its pod.
    ///
    /// # Errors
    /// When no node of the cluster runs it.
    pub fn of_container(cluster: &Cluster, container_id: &str) -> Result<Self, Error> {
        let container = container_id.rsplit("://").next().unwrap_or(container_id).to_owned();
        match node::find_container(cluster, &container) {
            Some(pid) => Ok(Self { container, pid }),
            None => Err(Error::NoProcess { container }),
        }
    }

    /// The process of a pod's container, or of its first one.
    ///
    /// # Errors
    /// When there is no such running container.
    pub fn of_pod(cluster: &Cluster, namespace: &str, pod: &str, container: Option<&str>) -> Result<Self, Error> {
        let answer = cluster.kubectl(&["get", "pod", pod, "--namespace", namespace, "--output", "json"])?;
        let id = running_container(&serde_json::from_str(&answer)?, container);
        let id = id.ok_or_else(|| Error::NoContainer {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.unwrap_or("at all").to_owned(),
        })?;
        Self::of_container(cluster, &id)
    }

    /// Ends it at once, as a crash does: `kill -9`. It gets no chance to finish anything.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&self) -> Result<(), Error> {
        self.signal(Signal::SIGKILL)
    }

    /// Stops it, as a long pause of a virtual machine does; undoing lets it go on as if nothing had been.
    ///
    /// # Errors
    /// When it is gone.
    pub fn pause(&self) -> Result<Undo, Error> {
        self.signal(Signal::SIGSTOP)?;
        let paused = self.clone();
        Ok(Undo::new(format!("process {} is paused", self.pid), move || paused.resume()))
    }

    /// Lets a paused process go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends any signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = self.pid;
        kill(Pid::from_raw(pid), signal).map_err(|source| Error::Signal { pid, signal, source })
    }
}

fn running_container(pod: &serde_json::Value, wanted: Option<&str>) -> Option<String> {
    let containers = pod.pointer("/status/containerStatuses")?.as_array()?;
    let named =
        |container: &&serde_json::Value| wanted.is_none_or(|name| container.get("name").is_some_and(|n| n == name));
    let running = |container: &&serde_json::Value| container.pointer("/state/running").is_some();
    containers.iter().filter(named).find(running)?.get("containerID")?.as_str().map(str::to_owned)
}

/// The node a pod runs on.
///
/// # Errors
/// When the pod does not exist or is not placed yet.
pub fn node_of_pod(cluster: &Cluster, namespace: &str, pod: &str) -> Result<Node, Error> {
    let arguments = ["get", "pod", pod, "--namespace", namespace, "--output", "jsonpath={.spec.nodeName}"];
    let name = cluster.kubectl(&arguments)?;
    match name.parse() {
        Ok(Member::Node(node)) => Ok(node),
        _ => Err(Error::NoContainer {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: "placed on a node".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Undo, running_container};
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn only_a_running_container_is_found() {
        let pod = json!({"status": {"containerStatuses": [
            {"name": "old", "containerID": "containerd://a", "state": {"terminated": {}}},
            {"name": "worker", "containerID": "containerd://b", "state": {"running": {}}},
            {"name": "side", "containerID": "containerd://c", "state": {"running": {}}},
        ]}});
        assert_eq!(running_container(&pod, None).as_deref(), Some("containerd://b"));
        assert_eq!(running_container(&pod, Some("side")).as_deref(), Some("containerd://c"));
        assert_eq!(running_container(&pod, Some("old")), None);
        assert_eq!(running_container(&json!({}), None), None);
    }

    #[test]
    fn a_fault_is_undone_exactly_once_unless_it_is_kept() {
        let undone = Arc::new(AtomicU32::new(0));
        let fault = || {
            let undone = undone.clone();
            Undo::new("test", move || {
                undone.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        };
        drop(fault());
        assert_eq!(undone.load(Ordering::SeqCst), 1);
        fault().now().unwrap();
        assert_eq!(undone.load(Ordering::SeqCst), 2);
        fault().keep();
        assert_eq!(undone.load(Ordering::SeqCst), 2);
    }
}
