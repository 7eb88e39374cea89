//! A cluster: Kubernetes and Kafka on this machine, inside network namespaces that have no way out of it.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::command::{self, words};
use crate::ns::{self, Namespace};
use crate::paths::{self, RunDir};
use crate::tools::{self, Tools};

pub mod cgroup;
mod control_plane;
mod down;
pub mod kafka;
mod network;
pub mod node;
mod pki;
pub mod process;
mod ready;
pub mod topology;
mod up;

pub use down::{Leftovers, leftovers};
use topology::{Broker, Node};

/// What can go wrong with a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root can make namespaces.
    #[error("a cluster needs root: it makes network namespaces, mounts and cgroups")]
    NotRoot,
    /// A name that cannot be one.
    #[error("{0:?} is no cluster name: use 1 to 10 lower-case letters and digits, a letter first")]
    Name(String),
    /// A number of nodes out of range.
    #[error("{0} nodes: between 1 and {max} are possible", max = topology::MAX_NODES)]
    Nodes(u8),
    /// It is there already.
    #[error("there is already a cluster {name}, or what is left of one: `e2e/fp down --name {name}` removes it")]
    Exists {
        /// Its name.
        name: ClusterName,
    },
    /// It is not there.
    #[error("there is no cluster {name}")]
    Missing {
        /// Its name.
        name: ClusterName,
    },
    /// Somebody else is working on it.
    #[error("another run is bringing the cluster {name} up or down")]
    Busy {
        /// Its name.
        name: ClusterName,
    },
    /// A program could not be made.
    #[error("cannot prepare the programs of the cluster")]
    Tools(#[from] tools::Error),
    /// A namespace.
    #[error("the network of the cluster is not usable")]
    Namespace(#[from] ns::Error),
    /// A command.
    #[error("a command failed")]
    Command(#[from] command::Error),
    /// A process.
    #[error("a process of the cluster is not usable")]
    Process(#[from] process::Error),
    /// A certificate.
    #[error("cannot make the certificates of the cluster")]
    Certificate(#[from] rcgen::Error),
    /// A file.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The stored description cannot be read.
    #[error("cannot read {path}")]
    Description {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Something did not become healthy.
    #[error("{what} after {seconds} s{state}\n{logs}")]
    NotReady {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was seen last.
        state: String,
        /// The log files and their last lines.
        logs: String,
    },
    /// A process ended while it was needed.
    #[error("{component} ended by itself\n{logs}")]
    Ended {
        /// The component.
        component: String,
        /// Its log file and the last lines.
        logs: String,
    },
    /// The Kubernetes API.
    #[error("the Kubernetes API of the cluster is not usable")]
    Kubernetes(#[source] Box<kube::Error>),
    /// Its kubeconfig.
    #[error("the kubeconfig of the cluster is not usable")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// A thread died.
    #[error("a thread of the harness ended without an answer")]
    Thread,
    /// Something is still there after everything was removed.
    #[error("the cluster {name} did not go away: {left}")]
    Stuck {
        /// Its name.
        name: ClusterName,
        /// What is left.
        left: Box<Leftovers>,
    },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kubernetes(Box::new(error))
    }
}

/// The name of a cluster. Namespaces, cgroups and folders carry it, so that clusters can live side by side and each be
/// removed without touching another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

impl ClusterName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace of a member: `control-plane`, `node-1`, `kafka-1`.
    #[must_use]
    pub fn namespace(&self, member: &str) -> Namespace {
        Namespace::named(format!("fp-{}-{member}", self.0))
    }
}

impl Default for ClusterName {
    fn default() -> Self {
        Self("main".to_owned())
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ClusterName {
    type Err = Error;

    // No dash: `fp-a-` would be the beginning of the namespaces of cluster `a` and of those of `a-b`.
    fn from_str(name: &str) -> Result<Self, Error> {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
        if plain && starts && name.len() <= 10 { Ok(Self(name.to_owned())) } else { Err(Error::Name(name.to_owned())) }
    }
}

impl TryFrom<String> for ClusterName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

/// How clients talk to Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Security {
    /// Port 9092, no authorization.
    #[default]
    Plaintext,
    /// Port 9093, TLS, SCRAM-SHA-512 users, and ACLs: a user may do nothing that was not granted.
    SaslSsl,
}

/// How many brokers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, strum::Display)]
pub enum Brokers {
    /// One, with everything in one copy.
    #[default]
    #[value(name = "1")]
    #[strum(serialize = "1")]
    One,
    /// Three, with internal topics in three copies of which two must be in sync.
    #[value(name = "3")]
    #[strum(serialize = "3")]
    Three,
}

/// When brokers forget what is not used: connections, transactional ids, producer ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Expiry {
    /// As they do by default: after minutes and days.
    #[default]
    Default,
    /// After seconds, so that a test lives to see it.
    Soon,
}

/// What a cluster is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Parts {
    /// Kubernetes and Kafka.
    #[default]
    Everything,
    /// Brokers alone. The namespace of the control plane is there, from which they are reached, and nothing runs in it.
    Kafka,
}

/// What a cluster is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Its name.
    pub name: ClusterName,
    /// What it is made of.
    #[serde(default)]
    pub parts: Parts,
    /// Kubernetes nodes; 0 stands for the default of 2.
    pub nodes: u8,
    /// Kafka brokers.
    pub brokers: Brokers,
    /// How clients talk to them.
    pub security: Security,
    /// When they forget.
    #[serde(default)]
    pub expiry: Expiry,
}

impl ClusterSpec {
    /// The Kubernetes nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let count = match (self.parts, self.nodes) {
            (Parts::Kafka, _) => 0,
            (Parts::Everything, 0) => 2,
            (Parts::Everything, nodes) => nodes,
        };
        (1..=count).map(Node::numbered).collect()
    }

    /// The Kafka brokers.
    #[must_use]
    pub fn brokers(&self) -> Vec<Broker> {
        let count = match self.brokers {
            Brokers::One => 1,
            Brokers::Three => 3,
        };
        (1..=count).map(Broker::numbered).collect()
    }

    fn check(&self) -> Result<(), Error> {
        if self.nodes > topology::MAX_NODES { Err(Error::Nodes(self.nodes)) } else { Ok(()) }
    }
}

/// A cluster that is there.
#[derive(Debug, Clone)]
pub struct Cluster {
    spec: ClusterSpec,
    run: RunDir,
    tools: Tools,
}

impl Cluster {
    /// Brings a cluster up and waits until it is healthy. Builds what it needs first, when it was never built.
    ///
    /// This starts threads of its own and ends them: call it before [`Cluster::enter`], outside of an async runtime.
    ///
    /// # Errors
    /// When there is one of that name, when a build fails, or when something does not become healthy in time: then
    /// what was started stays, with its logs, until [`Cluster::down`].
    pub fn up(spec: &ClusterSpec) -> Result<Self, Error> {
        up::up(spec)
    }

    /// The cluster called `name`, which is up already.
    ///
    /// # Errors
    /// When there is none.
    pub fn attach(name: &ClusterName) -> Result<Self, Error> {
        let run = RunDir::of(name);
        let path = run.spec();
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Missing { name: name.clone() });
            }
            other => other.map_err(Error::file(&path))?,
        };
        let spec = serde_json::from_slice(&text).map_err(|source| Error::Description { path, source })?;
        Ok(Self { spec, run, tools: Tools::prepare()? })
    }

    /// Removes the cluster called `name`, or whatever is left of it, whoever started it. Nothing to remove is no error.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn down(name: &ClusterName) -> Result<(), Error> {
        down::down(name)
    }

    /// The clusters of this machine, by what they left in the file system and among the namespaces.
    #[must_use]
    pub fn list() -> Vec<ClusterName> {
        let folders = std::fs::read_dir(paths::state()).into_iter().flatten().flatten();
        let folders = folders.filter(|entry| entry.path().is_dir());
        let folders = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let namespaces = ns::all().into_iter().filter_map(|namespace| {
            namespace.name().strip_prefix("fp-")?.split_once('-').map(|(name, _)| name.to_owned())
        });
        let mut names: Vec<ClusterName> = folders.chain(namespaces).filter_map(|name| name.parse().ok()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// What it was asked to be.
    #[must_use]
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Its folder.
    #[must_use]
    pub fn run_dir(&self) -> &RunDir {
        &self.run
    }

    /// The programs it is made of.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The namespace of the control plane, from which everything can be reached: the API server, the brokers, the pods.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.spec.name.namespace(topology::CONTROL_PLANE)
    }

    /// Moves this process into [`Cluster::namespace`]: before its first thread is made, see [`Namespace::enter`].
    ///
    /// # Errors
    /// When the process has threads, or the namespace does not exist.
    pub fn enter(&self) -> Result<(), Error> {
        Ok(self.namespace().enter()?)
    }

    /// The administrator's kubeconfig; of use inside the namespace only.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.run.kubeconfig()
    }

    /// A Kubernetes client with the administrator's rights. The calling process must be inside the namespace.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn kube_client(&self) -> Result<kube::Client, Error> {
        ready::client(&self.run.kubeconfig()).await
    }

    /// `kubectl`, set up for this cluster and its namespace, to be given arguments.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn kubectl_command(&self) -> Result<Command, Error> {
        let mut command = Command::new(self.tools.program("kubectl"));
        command.env("KUBECONFIG", self.run.kubeconfig());
        self.namespace().wrap(&mut command)?;
        Ok(command)
    }

    /// Runs `kubectl ARGUMENTS` and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        Ok(command::run(self.kubectl_command()?.args(arguments))?)
    }

    /// Runs `kubectl apply -f -` on `manifest`, by server-side apply.
    ///
    /// # Errors
    /// When it fails.
    pub fn apply(&self, manifest: &str) -> Result<String, Error> {
        let mut command = self.kubectl_command()?;
        command.args(["apply", "--server-side", "--field-manager=e2e", "-f", "-"]);
        Ok(command::run_with_input(&mut command, manifest.as_bytes())?)
    }

    /// `helm`, set up for this cluster and its namespace, to be given arguments. Its own files stay in the cluster's folder.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn helm_command(&self) -> Result<Command, Error> {
        let mut command = Command::new(self.tools.helm());
        let home = self.run.member("helm");
        command.env("KUBECONFIG", self.run.kubeconfig());
        command.env("HELM_CACHE_HOME", home.join("cache")).env("HELM_CONFIG_HOME", home.join("config"));
        command.env("HELM_DATA_HOME", home.join("data"));
        self.namespace().wrap(&mut command)?;
        Ok(command)
    }

    /// Runs `helm ARGUMENTS` and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn helm(&self, arguments: &[&str]) -> Result<String, Error> {
        Ok(command::run(self.helm_command()?.args(arguments))?)
    }

    /// Makes the images of an archive (OCI or `docker save`) known to every node.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import_image(&self, archive: &std::path::Path) -> Result<(), Error> {
        for node in self.spec.nodes() {
            node::import(&self.run, node, archive)?;
        }
        Ok(())
    }

    /// The names of the images that a node has.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn images(&self, node: Node) -> Result<Vec<String>, Error> {
        let listed = command::run(node::ctr(&self.run, node).args(["images", "list", "-q"]))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Runs a command inside the namespace and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn run_inside(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        Ok(command::run(self.namespace().wrap(&mut words(program, arguments))?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterName, ClusterSpec, Parts};

    #[test]
    fn a_name_is_short_and_never_the_beginning_of_another_clusters_namespaces() {
        for good in ["a", "main", "ci2", "abcdefghij"] {
            assert_eq!(good.parse::<ClusterName>().unwrap().as_str(), good);
        }
        for bad in ["", "a-b", "A", "1a", "abcdefghijk", "a/b", "é"] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_stored_description_is_the_spec() {
        let spec = ClusterSpec { nodes: 3, ..ClusterSpec::default() };
        let stored = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ClusterSpec>(&stored).unwrap(), spec);
        assert!(serde_json::from_str::<ClusterSpec>(&stored.replace("main", "a-b")).is_err());
    }

    #[test]
    fn the_default_has_two_nodes_and_one_broker() {
        let spec = ClusterSpec::default();
        assert_eq!((spec.nodes().len(), spec.brokers().len()), (2, 1));
    }

    #[test]
    fn a_cluster_of_brokers_alone_has_no_node_whatever_their_number() {
        for nodes in [0, 3] {
            let spec = ClusterSpec { parts: Parts::Kafka, nodes, ..ClusterSpec::default() };
            assert_eq!((spec.nodes().len(), spec.brokers().len()), (0, 1));
        }
    }
}
