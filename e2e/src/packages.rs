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
    /// A program is there, but too old.
    #[error("`{program}` is too old ({found}): the harness needs {what}")]
    TooOld {
        /// The program.
        program: &'static str,
        /// What it says of its version.
        found: String,
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

/// A program that a user brings along.
struct Toolchain {
    program: &'static str,
    /// The arguments that make it print its version.
    version: &'static [&'static str],
    /// What stands before the number in that text that tells old from new.
    before: &'static str,
    /// The least such number.
    least: u32,
    what: &'static str,
}

const TOOLCHAINS: &[Toolchain] = &[
    Toolchain { program: "go", version: &["version"], before: "go1.", least: 24, what: "Go 1.24 or newer" },
    Toolchain {
        program: "java",
        version: &["--version"],
        before: "openjdk ",
        least: 17,
        what: "a JDK of version 17 or newer",
    },
    Toolchain { program: "mvn", version: &["--version"], before: "Apache Maven ", least: 3, what: "Maven 3" },
    Toolchain { program: "python3", version: &["--version"], before: "Python ", least: 3, what: "Python 3" },
];

impl Toolchain {
    fn ensure(&self) -> Result<(), Error> {
        let Self { program, what, .. } = *self;
        if !on_path(program) {
            return Err(Error::Toolchain { program, what });
        }
        let printed = command::run(&mut words(program, self.version)).unwrap_or_default();
        // A text that we cannot read (a Java of another maker) is no reason to stop.
        match number_after(&printed, self.before) {
            Some(number) if number < self.least => {
                let found = printed.lines().next().unwrap_or_default().trim().to_owned();
                Err(Error::TooOld { program, found, what })
            }
            _ => Ok(()),
        }
    }
}

/// The number that follows the first `before`.
fn number_after(text: &str, before: &str) -> Option<u32> {
    let (_, after) = text.split_once(before)?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).map_or(after, |end| after.split_at(end).0);
    digits.parse().ok()
}

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
    TOOLCHAINS.iter().try_for_each(Toolchain::ensure)?;
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
    use super::{TOOLCHAINS, missing, number_after};

    #[test]
    fn versions_are_read_from_what_programs_print() {
        let printed = [
            ("go version go1.19.8 linux/amd64", Some(19)),
            ("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)", Some(17)),
            ("Apache Maven 3.8.7\nMaven home: /usr/share/maven", Some(3)),
            ("Python 3.11.2", Some(3)),
        ];
        for (toolchain, (text, number)) in TOOLCHAINS.iter().zip(printed) {
            assert_eq!(number_after(text, toolchain.before), number, "{text}");
        }
        assert_eq!(number_after("java 21.0.1 2023-10-17 LTS", "openjdk "), None);
        assert_eq!(number_after("go version devel", "go1."), None);
    }

    #[test]
    fn a_package_is_missing_when_none_of_its_files_is_there() {
        let packages: &[(&str, &[&str])] = &[("one", &["/a", "/b"]), ("two", &["/c"])];
        assert_eq!(missing(packages, |file| file == "/b"), ["two"]);
        assert_eq!(missing(packages, |_| false), ["one", "two"]);
    }
}
