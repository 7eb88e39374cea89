//! Network namespaces: the walls of a cluster.
//!
//! A namespace belongs to a thread. A process that is to live in one enters it before its first thread is made; threads
//! made later (tokio's, librdkafka's) inherit it. The file system, the pids and the cgroups stay those of the machine, which
//! `ip netns exec` would change: it remounts `/sys` and so hides the cgroups.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::command;
use crate::wait::{self, Deadline};

/// A namespace could not be made, found or entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not exist.
    #[error("there is no network namespace {name}")]
    Missing {
        /// Its name.
        name: String,
        /// What opening it answered.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot enter the network namespace {name}")]
    Enter {
        /// Its name.
        name: String,
        /// Why.
        source: nix::Error,
    },
    /// No thread could be made to enter it.
    #[error("no thread for the network namespace {name}")]
    Thread {
        /// Its name.
        name: String,
    },
    /// The process has threads already: they would stay outside.
    #[error(
        "a process with {threads} threads cannot move into the network namespace {name}: enter before the first thread is made"
    )]
    TooLate {
        /// Its name.
        name: String,
        /// How many there are.
        threads: usize,
    },
    /// `ip` failed.
    #[error("cannot change the network namespace {name}")]
    Change {
        /// Its name.
        name: String,
        /// What `ip` said.
        source: command::Error,
    },
}

/// A named network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The namespace called `name`, whether it exists or not.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// The kernel's number for it, as `/proc/PID/ns/net` shows it for a process inside.
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        std::fs::metadata(self.path()).ok().map(|metadata| metadata.ino())
    }

    /// Makes it, with its loopback interface up.
    ///
    /// # Errors
    /// When it exists, or the process may not.
    pub fn create(&self) -> Result<(), Error> {
        self.change(&mut command::words("ip", ["netns", "add", &self.name]))?;
        self.ip("link set lo up")
    }

    /// Removes the name. The namespace ends with the last process in it.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn delete(&self) -> Result<(), Error> {
        self.change(&mut command::words("ip", ["netns", "del", &self.name]))
    }

    /// Runs `ip ARGUMENTS` on it.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn ip(&self, arguments: &str) -> Result<(), Error> {
        self.change(command::words("ip", ["-n", &self.name]).args(arguments.split_whitespace()))
    }

    fn change(&self, command: &mut Command) -> Result<(), Error> {
        command::run(command).map(drop).map_err(|source| Error::Change { name: self.name.clone(), source })
    }

    fn open(&self) -> Result<File, Error> {
        File::open(self.path()).map_err(|source| Error::Missing { name: self.name.clone(), source })
    }

    /// Lets `command` start inside.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn wrap<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command, Error> {
        let namespace = self.open()?;
        let enter = move || setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        // SAFETY: between fork and exec only setns(2) is called, on a descriptor that the closure owns; it allocates
        // nothing and takes no lock.
        Ok(unsafe { command.pre_exec(enter) })
    }

    /// Runs `work` on a thread of its own inside.
    ///
    /// # Errors
    /// When it does not exist or may not be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let namespace = self.open()?;
        let inside = || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
                .map(|()| work())
                .map_err(|source| Error::Enter { name: self.name.clone(), source })
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).map_err(|_| Error::Thread { name: self.name.clone() })?
    }

    /// Moves this process inside. Every thread made afterwards is inside too, so this comes before any thread: before
    /// the tokio runtime, before a Kafka client.
    ///
    /// # Errors
    /// When it does not exist, may not be entered, or the process has threads already.
    pub fn enter(&self) -> Result<(), Error> {
        // A thread that was joined is still to be seen for a moment.
        let only_this = || Ok::<_, Error>((threads() <= 1).then_some(()));
        let alone = wait::until(Deadline::after(Duration::from_secs(1)), only_this)?;
        alone.ok_or_else(|| Error::TooLate { name: self.name.clone(), threads: threads() })?;
        let namespace = self.open()?;
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
            .map_err(|source| Error::Enter { name: self.name.clone(), source })
    }
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Every named network namespace of the machine.
#[must_use]
pub fn all() -> Vec<Namespace> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let mut found: Vec<_> =
        entries.flatten().map(|entry| Namespace::named(entry.file_name().to_string_lossy())).collect();
    found.sort();
    found
}
