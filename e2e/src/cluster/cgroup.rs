//! The cgroups of a cluster: `/fencepost/CLUSTER/NODE` in every hierarchy of the machine, be it version 1 (one hierarchy a
//! controller) or version 2 (one for all).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ClusterName;

const MOUNT: &str = "/sys/fs/cgroup";
/// The parent of all of ours.
const OURS: &str = "fencepost";

/// The cgroup of a node, as the kubelet wants it named.
#[must_use]
pub fn of_node(cluster: &ClusterName, node: &str) -> String {
    format!("/{OURS}/{cluster}/{node}")
}

/// The hierarchies: all those of version 1, or the one of version 2.
fn hierarchies() -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_owned()];
    }
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    // Links (cpu -> cpu,cpuacct) would show a hierarchy twice.
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Makes the cgroup of a node everywhere.
pub(super) fn create(cluster: &ClusterName, node: &str) -> io::Result<()> {
    for hierarchy in hierarchies() {
        // On version 1 the kernel may have a version 2 hierarchy beside it, without controllers: nothing to do there.
        if hierarchy.ends_with("unified") {
            continue;
        }
        let mut at = hierarchy.clone();
        for part in [OURS, cluster.as_str(), node] {
            delegate(&at)?;
            at = at.join(part);
            fs::create_dir_all(&at)?;
        }
    }
    Ok(())
}

/// Lets children of a version 2 cgroup use its controllers.
fn delegate(parent: &Path) -> io::Result<()> {
    let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) else { return Ok(()) };
    let wanted: Vec<String> = controllers.split_whitespace().map(|controller| format!("+{controller}")).collect();
    fs::write(parent.join("cgroup.subtree_control"), wanted.join(" "))
}

/// Everything below `/fencepost/CLUSTER`, children before parents, that folder itself last.
#[must_use]
pub fn all(cluster: &ClusterName) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for hierarchy in hierarchies() {
        let root = hierarchy.join(OURS).join(cluster.as_str());
        if root.is_dir() {
            collect(&root, &mut found);
        }
    }
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), found);
        }
    }
    found.push(folder.to_owned());
}

/// The processes in a cgroup, by the machine's numbers.
#[must_use]
pub fn processes(cgroup: &Path) -> Vec<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Removes what is empty of a cluster's cgroups; what still has processes stays.
pub(super) fn remove(cluster: &ClusterName) {
    for cgroup in all(cluster) {
        // The caller looks at what is left, so an error here is not lost.
        fs::remove_dir(cgroup).ok();
    }
    for hierarchy in hierarchies() {
        // Ours too, when no other cluster is in it.
        fs::remove_dir(hierarchy.join(OURS)).ok();
    }
}
