//! A Kubernetes node: containerd, kubelet and kube-proxy, with mounts and process numbers of their own.
//!
//! The node's first process (`node-1`) is the init of a pid namespace: when it is killed, the kernel kills everything the
//! node runs, pods included, and with the last process the mounts of the node's mount namespace are gone. So a node
//! leaves nothing behind however it ends, save its network namespace and its cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::process::{self, Liveness, Program, Started};
use super::topology::{DNS_SERVICE, Node, POD_RANGE};
use super::{Cluster, Error, cgroup, network, ready};
use crate::command::{self, words};
use crate::paths::{self, RunDir};
use crate::tools::PAUSE;
use crate::wait::{self, Deadline};

/// What the node's init does. It hides the folders of the machine in which the node's programs would leave files ($2...),
/// says that it is ready ($1), and then collects the processes whose parents died.
const INIT: &str = r#"
set -e
ready=$1; shift
# The names of all namespaces of the machine are none of the node's business, would keep those of other clusters alive,
# and are a second mount of the root device, which makes the kubelet look at the wrong one for its disk.
umount -R /run/netns 2>/dev/null || :
for folder in "$@"; do mount -t tmpfs -o mode=755 fencepost "$folder"; done
mount --make-rshared /
: >"$ready"
while :; do sleep 86400 & wait $!; done
"#;

/// Folders that containerd, runc and the kubelet write to whatever they are configured with.
const HIDDEN: &[&str] = &["/run", "/var/lib", "/var/log"];

fn folder(run: &RunDir, node: Node) -> PathBuf {
    run.member(&node.name())
}

fn socket(run: &RunDir, node: Node) -> PathBuf {
    folder(run, node).join("containerd.sock")
}

/// `ctr` for the containers of a node, to be given arguments.
#[must_use]
pub fn ctr(run: &RunDir, node: Node) -> Command {
    let mut command = words("ctr", ["--address"]);
    command.arg(socket(run, node)).args(["--namespace", "k8s.io"]);
    command
}

/// Makes an image archive known to a node.
pub(super) fn import(run: &RunDir, node: Node, archive: &Path) -> Result<(), Error> {
    command::run(ctr(run, node).args(["images", "import"]).arg(archive))?;
    Ok(())
}

/// Starts a node: everything but kubelet and kube-proxy, which need the API server.
pub(super) fn start_runtime(cluster: &Cluster, node: Node) -> Result<(), Error> {
    let (run, name) = (&cluster.run, node.name());
    let folder = folder(run, node);
    for part in ["cni", "containerd", "kubelet"] {
        fs::create_dir_all(folder.join(part)).map_err(Error::file(folder.join(part)))?;
    }
    cgroup::create(&cluster.spec.name, &name).map_err(Error::file("/sys/fs/cgroup"))?;
    network::filter_bridged(&cluster.spec.name.namespace(&name))?;
    write(&folder.join("cni/10-pods.conflist"), &cni(node, &folder))?;
    write(&folder.join("containerd.toml"), &containerd(&folder))?;
    write(&folder.join("resolv.conf"), "options ndots:1\n")?;

    let init = start_init(cluster, node)?;
    let containerd = format!("{}/containerd.toml", folder.display());
    let program = inside(cluster, node, &init, "containerd", Path::new("containerd"));
    process::start(run, program.args(["--config".to_owned(), containerd]))?;
    let socket = socket(run, node);
    let probe = || {
        let answers = socket.exists() && command::run(ctr(run, node).arg("version")).is_ok();
        Ok::<_, Error>(answers.then_some(()))
    };
    let deadline = Deadline::after(Duration::from_secs(60));
    wait::until(deadline, probe)?.ok_or_else(|| not_ready(run, deadline, &format!("{node}-containerd")))?;
    for archive in cluster.tools.images()? {
        import(run, node, &archive)?;
    }
    Ok(())
}

/// Starts the kubelet and kube-proxy of a node.
pub(super) fn start_kubelet(cluster: &Cluster, node: Node) -> Result<(), Error> {
    let (run, folder) = (&cluster.run, folder(&cluster.run, node));
    let config = folder.join("kubelet.json");
    write(&config, &kubelet(cluster, node))?;
    let init = process::find(run, &node.name())?;
    let pki = |file: &str| run.pki().join(file).display().to_string();
    let kubelet = inside(cluster, node, &init, "kubelet", &cluster.tools.program("kubelet")).args([
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", pki(&format!("{node}.kubeconfig"))),
        format!("--root-dir={}", folder.join("kubelet").display()),
        format!("--node-ip={}", node.address()),
        format!("--hostname-override={node}"),
    ]);
    process::start(run, kubelet)?;
    let proxy = inside(cluster, node, &init, "kube-proxy", &cluster.tools.program("kube-proxy")).args([
        format!("--kubeconfig={}", pki("kube-proxy.kubeconfig")),
        "--proxy-mode=iptables".to_owned(),
        format!("--cluster-cidr={POD_RANGE}"),
        format!("--hostname-override={node}"),
        // The connection tables belong to the machine: their size is not for a node to set.
        "--conntrack-max-per-core=0".to_owned(),
    ]);
    process::start(run, proxy)?;
    Ok(())
}

/// How long the kernel gets to end everything a node runs.
const CRASH_LIMIT: Duration = Duration::from_secs(30);

impl Cluster {
    /// Crashes a node as a power cut does: everything it runs ends at once, pods too. What it has on disk stays.
    ///
    /// # Errors
    /// When it is not running.
    pub fn crash_node(&self, node: Node) -> Result<(), Error> {
        let init = process::find(&self.run, &node.name())?;
        init.signal(Signal::SIGKILL)?;
        for part in ["", "-containerd", "-kubelet", "-kube-proxy"] {
            process::find(&self.run, &format!("{node}{part}"))?.wait_gone(CRASH_LIMIT)?;
        }
        Ok(())
    }

    /// Starts a node that was crashed, and waits until Kubernetes is whole again. One that runs is left alone.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_node(&self, node: Node) -> Result<(), Error> {
        if process::find(&self.run, &node.name())?.liveness() != Liveness::Gone {
            return Ok(());
        }
        let last_heard = self.last_heard(node)?;
        start_runtime(self, node)?;
        start_kubelet(self, node)?;
        // Kubernetes takes its time to notice a crash: until then a dead node is a ready one.
        let deadline = Deadline::after(Duration::from_secs(60));
        let heard = || Ok::<_, Error>((self.last_heard(node)? != last_heard).then_some(()));
        wait::until(deadline, heard)?.ok_or_else(|| not_ready(&self.run, deadline, &format!("{node}-kubelet")))?;
        ready::kubernetes(self)
    }

    /// When the node last said that it is alive.
    fn last_heard(&self, node: Node) -> Result<String, Error> {
        let name = node.name();
        self.kubectl(&["get", "lease", &name, "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}"])
    }

    /// What the containers of a pod have written, read from the disk of its node: also when the API server cannot reach it.
    /// Empty when there is nothing.
    #[must_use]
    pub fn pod_log(&self, node: Node, namespace: &str, pod: &str, uid: &str) -> String {
        let logs = folder(&self.run, node).join("pod-logs").join(format!("{namespace}_{pod}_{uid}"));
        let inside = |folder: &PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            inside(&logs).flat_map(|container| inside(&container).collect::<Vec<_>>()).collect();
        // Numbered by the restarts of the container.
        files.sort();
        files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
    }

    /// The node numbered `number`.
    #[must_use]
    pub fn node(&self, number: u8) -> Option<Node> {
        self.spec.nodes().into_iter().find(|node| node.number() == number)
    }
}

fn start_init(cluster: &Cluster, node: Node) -> Result<Started, Error> {
    let (run, name) = (&cluster.run, node.name());
    let ready = folder(run, node).join("ready");
    if ready.exists() {
        // Of the node before it was crashed.
        fs::remove_file(&ready).map_err(Error::file(&ready))?;
    }
    let ours = [run.root().to_owned(), paths::cache()];
    let hidden = HIDDEN.iter().filter(|folder| !ours.iter().any(|path| path.starts_with(folder)));
    // --kill-child: the init dies with the process that is recorded.
    let unshare = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"];
    let program = Program::new(&name, &cluster.spec.name.namespace(&name), "unshare")
        .args(unshare)
        .args(["--", "/bin/sh", "-c", INIT, "node-init"])
        .args([ready.display().to_string()])
        .args(hidden.copied());
    let init = process::start(run, program)?;
    let deadline = Deadline::after(Duration::from_secs(20));
    let probe = || Ok::<_, Error>(ready.exists().then_some(()));
    wait::until(deadline, probe)?.ok_or_else(|| not_ready(run, deadline, &name))?;
    Ok(init)
}

/// A program that runs as part of a node.
fn inside(cluster: &Cluster, node: Node, init: &Started, component: &str, program: &Path) -> Program {
    let namespaces = format!("/proc/{}/ns", init.pid);
    Program::new(format!("{node}-{component}"), &cluster.spec.name.namespace(&node.name()), "nsenter")
        .args([format!("--mount={namespaces}/mnt"), format!("--pid={namespaces}/pid_for_children")])
        .args(["--".to_owned(), program.display().to_string()])
}

fn not_ready(run: &RunDir, deadline: Deadline, component: &str) -> Error {
    Error::NotReady {
        what: format!("{component} does not answer"),
        seconds: deadline.elapsed().as_secs(),
        state: String::new(),
        logs: process::log_tails(&[process::log_path(run, component)], 20),
    }
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::file(path))
}

fn cni(node: Node, folder: &Path) -> String {
    let addresses = json!({
        "type": "host-local",
        "ranges": [[{"subnet": node.pods()}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": folder.join("cni/addresses"),
    });
    let bridge = json!({
        "type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": addresses,
    });
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}).to_string()
}

fn containerd(folder: &Path) -> String {
    let at = folder.display();
    // restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower the score of a sandbox and dies. With the
    // capability this changes nothing that a test could see.
    format!(
        r#"version = 2
root = "{at}/containerd/root"
state = "{at}/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{at}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{at}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{at}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#
    )
}

fn kubelet(cluster: &Cluster, node: Node) -> String {
    let folder = folder(&cluster.run, node);
    let pki = |file: &str| cluster.run.pki().join(file);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::of_node(&cluster.spec.name, &node.name()),
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": format!("unix://{}", socket(&cluster.run, node).display()),
        "evictionHard": {"imagefs.available": "1%", "memory.available": "100Mi", "nodefs.available": "1%"},
        // Never: there is no registry to get an image back from, and the disk is the machine's, full of other things.
        "imageGCHighThresholdPercent": 100,
        // The machine may still have version 1; Kubernetes refuses it by default from 1.35 on.
        "failCgroupV1": false,
        "failSwapOn": false,
        "podLogsDir": folder.join("pod-logs"),
        "resolvConf": folder.join("resolv.conf"),
        "tlsCertFile": pki(&format!("{node}.crt")),
        "tlsPrivateKeyFile": pki(&format!("{node}.key")),
        "volumePluginDir": folder.join("volume-plugins"),
    })
    .to_string()
}

/// The first process of a container, by the machine's numbers.
#[must_use]
pub fn find_container(cluster: &Cluster, container: &str) -> Option<i32> {
    let groups = cgroup::all(&cluster.spec.name);
    let of_container = groups.iter().filter(|group| {
        let name = group.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name == container || name.contains(&format!("-{container}."))
    });
    of_container.flat_map(|group| cgroup::processes(group)).find(|pid| is_first(*pid))
}

/// Whether a process is number 1 of its innermost pid namespace.
fn is_first(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    innermost_pid(&status) == Some(1)
}

fn innermost_pid(status: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Node, cni, innermost_pid};
    use std::path::Path;

    #[test]
    fn pods_get_addresses_of_their_nodes_range() {
        let config: serde_json::Value = serde_json::from_str(&cni(Node::numbered(2), Path::new("/run/x"))).unwrap();
        assert_eq!(config["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.78.2.0/24");
    }

    #[test]
    fn the_innermost_process_number_counts() {
        assert_eq!(innermost_pid("Name:\tx\nNSpid:\t4711\t12\t1\n"), Some(1));
        assert_eq!(innermost_pid("Name:\tx\nNSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost_pid("Name:\tx\n"), None);
    }
}
