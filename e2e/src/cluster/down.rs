//! Taking a cluster down, by what exists rather than by what was written down: whoever started it may have been killed at any
//! moment.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{ClusterName, Error, cgroup, up};
use crate::ns::{self, Namespace};
use crate::paths::RunDir;
use crate::report;
use crate::wait::{self, Deadline};

/// What is there of a cluster.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Processes in its namespaces or cgroups.
    pub processes: BTreeSet<i32>,
    /// Mounts below its folder.
    pub mounts: Vec<PathBuf>,
    /// Its network namespaces.
    pub namespaces: Vec<Namespace>,
    /// Its cgroups.
    pub cgroups: Vec<PathBuf>,
    /// Its folder.
    pub folder: Option<PathBuf>,
}

impl Leftovers {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.mounts.is_empty()
            && self.namespaces.is_empty()
            && self.cgroups.is_empty()
            && self.folder.is_none()
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes {:?}, {} mounts, {} network namespaces, {} cgroups, {}",
            self.processes.len(),
            self.processes,
            self.mounts.len(),
            self.namespaces.len(),
            self.cgroups.len(),
            self.folder
                .as_ref()
                .map_or_else(|| "no folder".to_owned(), |folder| format!("the folder {}", folder.display())),
        )
    }
}

/// Looks for everything that belongs to a cluster.
#[must_use]
pub fn leftovers(name: &ClusterName) -> Leftovers {
    let folder = RunDir::of(name).root().to_owned();
    let namespaces = namespaces(name);
    let cgroups = cgroup::all(name);
    Leftovers {
        processes: processes(&namespaces, &cgroups),
        mounts: mounts_below(&folder, &fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
        namespaces,
        cgroups,
        folder: folder.exists().then_some(folder),
    }
}

fn namespaces(name: &ClusterName) -> Vec<Namespace> {
    let prefix = name.namespace("");
    ns::all().into_iter().filter(|namespace| namespace.name().starts_with(prefix.name())).collect()
}

/// The processes that live in one of the namespaces or cgroups. Pods have network namespaces of their own, but are in
/// the cgroups, and die with the first process of their node.
fn processes(namespaces: &[Namespace], cgroups: &[PathBuf]) -> BTreeSet<i32> {
    let inodes: BTreeSet<u64> = namespaces.iter().filter_map(Namespace::inode).collect();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let inside = numbers.filter(|pid| {
        // The target of the link is the namespace; a process that ended has none.
        *pid != me
            && fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|namespace| inodes.contains(&namespace.ino()))
    });
    inside.chain(cgroups.iter().flat_map(|group| cgroup::processes(group))).collect()
}

/// The mount points below `folder`, the innermost first.
fn mounts_below(folder: &Path, mounts: &str) -> Vec<PathBuf> {
    let points = mounts.lines().filter_map(|line| line.split_whitespace().nth(1));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    let mut found: Vec<PathBuf> = points.filter(|point| point.starts_with(folder)).collect();
    found.sort();
    found.reverse();
    found
}

pub(super) fn down(name: &ClusterName) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let _lock = up::lock(name)?;
    if leftovers(name).is_empty() {
        report::step(format!("there is no cluster {name}"));
        return Ok(());
    }
    let clock = Deadline::after(Duration::from_secs(60));
    let gone = wait::until(clock, || Ok::<_, Error>(sweep(name)?.is_empty().then_some(())))?;
    gone.ok_or_else(|| Error::Stuck { name: name.clone(), left: Box::new(leftovers(name)) })?;
    report::step(format!("cluster {name} is down after {:.1} s", clock.elapsed().as_secs_f64()));
    Ok(())
}

/// One attempt at removing everything. A process can make another one between two looks, and a cgroup can only be
/// removed once the kernel is done with its processes: so this is repeated until a look finds nothing.
fn sweep(name: &ClusterName) -> Result<Leftovers, Error> {
    let found = leftovers(name);
    for pid in &found.processes {
        // One that is gone already is what was wanted.
        kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
    }
    if !found.processes.is_empty() {
        return Ok(found);
    }
    for mount in &found.mounts {
        umount2(mount, MntFlags::MNT_DETACH).ok();
    }
    cgroup::remove(name);
    for namespace in &found.namespaces {
        namespace.delete()?;
    }
    let mounted = mounts_below(RunDir::of(name).root(), &fs::read_to_string("/proc/self/mounts").unwrap_or_default());
    if let (Some(folder), []) = (&found.folder, mounted.as_slice()) {
        // Never through a mount: what is mounted there may be a volume of somebody else.
        fs::remove_dir_all(folder).map_err(Error::file(folder))?;
    }
    Ok(leftovers(name))
}

#[cfg(test)]
mod tests {
    use super::mounts_below;
    use std::path::{Path, PathBuf};

    #[test]
    fn mounts_are_found_innermost_first_and_only_below_the_folder() {
        let mounts = "a /x/main ext4 rw 0 0\nb /x/main/y/z tmpfs rw 0 0\nc /x/main/y tmpfs rw 0 0\nd /x/main2 tmpfs rw 0 0\n\
                      e /x/main/with\\040blank tmpfs rw 0 0\n";
        let found = mounts_below(Path::new("/x/main"), mounts);
        let expected = ["/x/main/y/z", "/x/main/y", "/x/main/with blank", "/x/main"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
