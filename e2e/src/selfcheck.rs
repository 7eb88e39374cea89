//! The harness, tested on itself: a cluster leaves nothing behind however it ended, and is alone in its own world.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::cluster::cgroup;
use crate::cluster::process::{self, Liveness};
use crate::cluster::{self, Cluster, ClusterName, ClusterSpec, leftovers};
use crate::paths::{self, RunDir};
use crate::wait::{self, Deadline};
use crate::{ns, report};

/// What was found wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster could not be worked with.
    #[error("the cluster is not usable")]
    Cluster(#[from] cluster::Error),
    /// The harness could not be run or killed.
    #[error("cannot run the harness")]
    Harness(#[from] std::io::Error),
    /// It did not get as far as it should before it was killed.
    #[error("the harness did not start {0} in time")]
    TooSlow(&'static str),
    /// It ended before it could be killed.
    #[error("the harness ended by itself: {0}")]
    EndedEarly(std::process::ExitStatus),
    /// Nothing was left by the kill: there was nothing to test.
    #[error("nothing was there when the harness was killed at {0}")]
    Nothing(&'static str),
    /// Something was left by `down`.
    #[error("after a kill at {moment}, `down` left {what}")]
    Left {
        /// When the harness was killed.
        moment: &'static str,
        /// What is still there.
        what: String,
    },
    /// Another cluster was hit.
    #[error("taking one cluster down stopped {component} of the cluster {name}")]
    Other {
        /// The other cluster.
        name: ClusterName,
        /// Its component.
        component: String,
    },
    /// A cluster does not have its own things, or has those of another.
    #[error("the cluster {name} has {found:?} where only {expected:?} was put")]
    Mixed {
        /// The cluster.
        name: ClusterName,
        /// What was put there.
        expected: String,
        /// What is there.
        found: String,
    },
}

/// The moments at which the harness is killed: when this component has just been started, or when the first pod runs.
const MOMENTS: [&str; 4] = ["node-1", "kube-apiserver", "node-1-kubelet", POD];

const POD: &str = "a pod";

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";

/// Brings a cluster up, kills the harness with SIGKILL midway, takes the cluster down, and looks for anything that is left:
/// at several moments, beside whatever other clusters there are.
///
/// # Errors
/// When something is left, when another cluster was hit, or when the test could not be made.
pub fn leaves_nothing_behind_after_kill() -> Result<(), Error> {
    let name: ClusterName = "selfcheck".parse()?;
    Cluster::down(&name)?;
    for moment in MOMENTS {
        let others = running_elsewhere(&name);
        kill_midway(&name, moment)?;
        if leftovers(&name).is_empty() {
            return Err(Error::Nothing(moment));
        }
        Cluster::down(&name)?;
        if let Some(what) = lasting_evidence(&name)? {
            return Err(Error::Left { moment, what });
        }
        let after = running_elsewhere(&name);
        if let Some((name, component)) = others.into_iter().find(|running| !after.contains(running)) {
            return Err(Error::Other { name, component });
        }
        report::detail(format!("killed when {moment} had started: nothing left"));
    }
    Ok(())
}

/// Brings two clusters up at the same time, gives each something of its own, takes one down, and works with the other.
///
/// # Errors
/// When one has something of the other, or does not outlive it, or leaves something behind.
pub fn two_stand_side_by_side() -> Result<(), Error> {
    let names: [ClusterName; 2] = ["left".parse()?, "right".parse()?];
    for name in &names {
        Cluster::down(name)?;
    }
    let checked = side_by_side(&names);
    for name in &names {
        Cluster::down(name)?;
    }
    checked?;
    match names.iter().find_map(|name| lasting_evidence(name).transpose()) {
        Some(what) => Err(Error::Left { moment: "two clusters", what: what? }),
        None => Ok(()),
    }
}

fn side_by_side([left, right]: &[ClusterName; 2]) -> Result<(), Error> {
    let up = |name: &ClusterName| {
        let cluster = Cluster::up(&ClusterSpec { name: name.clone(), nodes: 1, ..ClusterSpec::default() })?;
        put(&cluster, name.as_str())?;
        Ok::<_, cluster::Error>(cluster)
    };
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| up(left));
        let second = up(right);
        (first.join().unwrap_or(Err(cluster::Error::Thread)), second)
    });
    let (first, second) = (first?, second?);
    has_only(&first, &[left.as_str()])?;
    has_only(&second, &[right.as_str()])?;
    report::detail("two clusters are up, and neither sees what the other has");
    let others = running_elsewhere(left);
    Cluster::down(left)?;
    let after = running_elsewhere(left);
    if let Some((name, component)) = others.into_iter().find(|running| !after.contains(running)) {
        return Err(Error::Other { name, component });
    }
    put(&second, "later")?;
    has_only(&second, &["later", right.as_str()])?;
    report::detail("one is down, and the other goes on");
    Ok(())
}

/// An object in Kubernetes and a topic in Kafka.
fn put(cluster: &Cluster, what: &str) -> Result<(), cluster::Error> {
    cluster.kubectl(&["create", "configmap", what, "--namespace", "default"])?;
    cluster.kafka_tool(TOPICS, &["--create", "--topic", what])?;
    Ok(())
}

/// Looks for what was put there, and for anything more.
fn has_only(cluster: &Cluster, what: &[&str]) -> Result<(), Error> {
    // Kubernetes puts the first of these into every namespace.
    let objects = cluster.kubectl(&["get", "configmaps", "--namespace", "default", "--output", "name"])?;
    let objects =
        objects.lines().filter_map(|line| line.strip_prefix("configmap/")).filter(|name| *name != "kube-root-ca.crt");
    let topics = cluster.kafka_tool(TOPICS, &["--list", "--exclude-internal"])?;
    for mut found in [objects.collect::<Vec<_>>(), topics.lines().collect()] {
        found.sort_unstable();
        if found != what {
            let name = cluster.spec().name.clone();
            return Err(Error::Mixed { name, expected: what.join(", "), found: found.join(", ") });
        }
    }
    Ok(())
}

fn kill_midway(name: &ClusterName, moment: &'static str) -> Result<(), Error> {
    let mut up = Command::new(paths::harness());
    up.args(["up", "--name", name.as_str()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut harness = up.spawn()?;
    let reached = reach(&mut harness, name, moment);
    harness.kill()?;
    harness.wait()?;
    reached
}

fn reach(harness: &mut Child, name: &ClusterName, moment: &'static str) -> Result<(), Error> {
    let run = RunDir::of(name);
    let probe = || {
        if let Some(status) = harness.try_wait()? {
            return Err(Error::EndedEarly(status));
        }
        let reached = if moment == POD { runs_a_pod(name) } else { process::find(&run, moment).is_ok() };
        Ok(reached.then_some(()))
    };
    // Longer than it takes by far: the first time on a machine it builds Kubernetes.
    wait::until(Deadline::after(Duration::from_secs(1800)), probe)?.ok_or(Error::TooSlow(moment))
}

fn runs_a_pod(name: &ClusterName) -> bool {
    let of_pods = |group: &&PathBuf| group.components().any(|part| part.as_os_str() == "kubepods");
    cgroup::all(name).iter().filter(of_pods).any(|group| !cgroup::processes(group).is_empty())
}

fn running_elsewhere(name: &ClusterName) -> Vec<(ClusterName, String)> {
    let others = Cluster::list().into_iter().filter(|other| other != name);
    let running = others.flat_map(|other| {
        let all = process::recorded(&RunDir::of(&other)).into_iter();
        let running = all.filter(|started| started.liveness() == Liveness::Running);
        running.map(move |started| (other.clone(), started.program.component)).collect::<Vec<_>>()
    });
    running.collect()
}

/// Evidence that is still there after a moment: what the harness was just running when it was killed dies with it, and
/// that takes the kernel a moment too.
fn lasting_evidence(name: &ClusterName) -> Result<Option<String>, Error> {
    let probe = || Ok::<_, Error>(evidence(name).is_none().then_some(()));
    let gone = wait::until(Deadline::after(Duration::from_secs(2)), probe)?;
    Ok(if gone.is_some() { None } else { evidence(name) })
}

/// Anything of a cluster that can be found without asking the code that removes it: its name in command lines, cgroups of
/// processes, mounts, namespaces and folders.
fn evidence(name: &ClusterName) -> Option<String> {
    let folder = RunDir::of(name).root().display().to_string();
    let cgroup = format!("/fencepost/{name}/");
    let namespace = format!("fp-{name}-");
    let mentions = |file: &str, text: &str| {
        let content = fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(text)
    };
    let mut found: Vec<String> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path().display().to_string();
        if mentions(&format!("{process}/cmdline"), &folder) || mentions(&format!("{process}/cgroup"), &cgroup) {
            found.push(process);
        }
    }
    if mentions("/proc/self/mountinfo", &folder) {
        found.push("a mount".to_owned());
    }
    found.extend(ns::all().iter().map(|ns| ns.name().to_owned()).filter(|ns| ns.starts_with(&namespace)));
    found
        .extend(folders(name, &folder).into_iter().filter(|path| path.exists()).map(|path| path.display().to_string()));
    (!found.is_empty()).then(|| found.join(", "))
}

fn folders(name: &ClusterName, folder: &str) -> Vec<PathBuf> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let cgroups = hierarchies.map(|hierarchy| hierarchy.join("fencepost").join(name.as_str()));
    let unified = PathBuf::from("/sys/fs/cgroup/fencepost").join(name.as_str());
    cgroups.chain([unified, PathBuf::from(folder)]).collect()
}
