//! Where the harness keeps things: what is built once (the cache) and what belongs to a running cluster (the state).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cluster::ClusterName;

/// A folder of the XDG base directory specification, or its default below the home folder.
fn xdg(variable: &str, below_home: &str) -> PathBuf {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    set.unwrap_or_else(|| home().join(below_home)).join("fencepost")
}

fn home() -> PathBuf {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).unwrap_or_else(|| OsString::from("/root")).into()
}

/// What is built or downloaded once for each version: `$XDG_CACHE_HOME/fencepost`.
#[must_use]
pub fn cache() -> PathBuf {
    xdg("XDG_CACHE_HOME", ".cache")
}

/// This program, as it runs: also when the file has been built anew meanwhile, which a run of an hour may well see.
#[must_use]
pub fn harness() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

/// The clusters of this machine, one folder each: `$XDG_STATE_HOME/fencepost`.
#[must_use]
pub fn state() -> PathBuf {
    xdg("XDG_STATE_HOME", ".local/state")
}

/// The `cargo` that runs this process, or the one on the path.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo's target folder, as the environment names it.
#[must_use]
pub fn cargo_target() -> Option<PathBuf> {
    std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from)
}

/// The checkout this harness was compiled from.
#[must_use]
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The folder of one cluster and the files in it.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

impl RunDir {
    /// The folder of cluster `name`, whether it exists or not.
    #[must_use]
    pub fn of(name: &ClusterName) -> Self {
        Self { root: state().join(name.as_str()) }
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// One file a component, standard output and standard error together.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// One JSON file for each process that was started: how, and as which pid.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.root.join("process")
    }

    /// Certificates, keys and kubeconfigs.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki().join("admin.kubeconfig")
    }

    /// What the cluster was asked to be.
    #[must_use]
    pub fn spec(&self) -> PathBuf {
        self.root.join("cluster.json")
    }

    /// The folder of a node or a broker.
    #[must_use]
    pub fn member(&self, member: &str) -> PathBuf {
        self.root.join(member)
    }
}
