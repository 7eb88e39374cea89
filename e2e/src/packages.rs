//! The Debian packages the harness calls. Root gets what is missing installed; anybody else is told the command.

use std::path::Path;

use crate::command::{self, words};
use crate::report;

/// Something this machine lacks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root can install packages.
    #[error(
        "this machine lacks {missing}: run `apt-get update && apt-get install -y --no-install-recommends {missing}` as root"
    )]
    NotRoot {
        /// The packages, separated by blanks.
        missing: String,
    },
    /// Installing failed.
    #[error(
        "cannot install {missing}: run `apt-get update && apt-get install -y --no-install-recommends {missing}` and see why"
    )]
    Install {
        /// The packages, separated by blanks.
        missing: String,
        /// What apt-get said.
        source: command::Error,
    },
    /// No package of Debian that we know of brings it.
    #[error("`{program}` is not installed: the harness needs {what}")]
    Toolchain {
        /// The program that was looked for.
        program: &'static str,
        /// What to install.
        what: &'static str,
    },
}

/// A package, and a file that is there when it is installed (whoever installed it).
const PACKAGES: &[(&str, &[&str])] = &[
    ("containerd", &["/usr/bin/containerd", "/usr/local/bin/containerd"]),
    ("runc", &["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"]),
    ("containernetworking-plugins", &["/usr/lib/cni/bridge"]),
    ("iptables", &["/usr/sbin/iptables"]),
    ("iproute2", &["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"]),
    ("conntrack", &["/usr/sbin/conntrack"]),
    ("busybox-static", &["/bin/busybox", "/usr/bin/busybox"]),
    ("buildah", &["/usr/bin/buildah"]),
    ("mmdebstrap", &["/usr/bin/mmdebstrap"]),
    ("util-linux", &["/usr/bin/nsenter"]),
    ("python3-pip", &["/usr/bin/pip3", "/usr/local/bin/pip3"]),
    ("gcc", &["/usr/bin/gcc"]),
    ("libc6-dev", &["/usr/lib/x86_64-linux-gnu/libc.a", "/usr/lib/aarch64-linux-gnu/libc.a"]),
];

/// Programs a user brings along.
const TOOLCHAINS: &[(&str, &str)] = &[
    ("go", "Go 1.24 or newer"),
    ("java", "a JDK of version 17 or newer"),
    ("mvn", "Maven 3"),
    ("python3", "Python 3"),
];

fn missing<'p>(packages: &[(&'p str, &[&str])], exists: impl Fn(&str) -> bool) -> Vec<&'p str> {
    packages.iter().filter(|(_, files)| !files.iter().any(|file| exists(file))).map(|(package, _)| *package).collect()
}

fn on_path(program: &str) -> bool {
    command::run(&mut words("sh", ["-c", "command -v \"$0\"", program])).is_ok()
}

/// Makes sure that everything is there.
///
/// # Errors
/// When something is missing and cannot be installed.
pub fn ensure() -> Result<(), Error> {
    if let Some((program, what)) = TOOLCHAINS.iter().find(|(program, _)| !on_path(program)) {
        return Err(Error::Toolchain { program, what });
    }
    let mut packages = missing(PACKAGES, |file| Path::new(file).exists());
    // A Python from elsewhere brings its own pip.
    packages.retain(|package| {
        *package != "python3-pip" || command::run(&mut words("python3", ["-m", "pip", "--version"])).is_err()
    });
    if packages.is_empty() {
        return Ok(());
    }
    let missing = packages.join(" ");
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot { missing });
    }
    report::step(format!("installing {missing}"));
    let apt = |arguments: &[&str]| {
        let mut command = words("apt-get", arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command::run(&mut command).map_err(|source| Error::Install { missing: missing.clone(), source })
    };
    apt(&["update", "-q"])?;
    let mut install = vec!["install", "-q", "-y", "--no-install-recommends"];
    install.extend(&packages);
    apt(&install)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_package_is_missing_when_none_of_its_files_is_there() {
        let packages: &[(&str, &[&str])] = &[("one", &["/a", "/b"]), ("two", &["/c"])];
        assert_eq!(missing(packages, |file| file == "/b"), ["two"]);
        assert_eq!(missing(packages, |_| false), ["one", "two"]);
    }
}
