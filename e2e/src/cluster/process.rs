//! The long-running processes of a cluster: each in a session of its own, in its namespace, writing to its log, and
//! recorded in a file, so that a later run of the harness can ask for it, stop it and start it again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use serde::{Deserialize, Serialize};

use crate::command::last_lines;
use crate::ns::{self, Namespace};
use crate::paths::RunDir;
use crate::wait::{self, Deadline};

/// A process could not be started, found or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not start.
    #[error("cannot start {component}")]
    Start {
        /// The component.
        component: String,
        /// Why.
        source: io::Error,
    },
    /// Its namespace.
    #[error("cannot start {component}")]
    Namespace {
        /// The component.
        component: String,
        /// Why.
        source: ns::Error,
    },
    /// Its record cannot be kept or read.
    #[error("cannot use {path}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is none of that name.
    #[error("there is no component {0}")]
    Unknown(String),
    /// It is not running.
    #[error("{0} is not running")]
    NotRunning(String),
    /// The kernel refused a signal.
    #[error("cannot send {signal} to {component}")]
    Signal {
        /// The component.
        component: String,
        /// The signal.
        signal: Signal,
        /// Why.
        source: nix::Error,
    },
    /// It does not end.
    #[error("{0} does not end")]
    Alive(String),
}

/// What to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// The name it goes by: `kafka-1`, `node-1-kubelet`.
    pub component: String,
    /// The network namespace it lives in.
    pub namespace: String,
    /// The file to run.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment besides `PATH` and `HOME`.
    pub environment: BTreeMap<String, String>,
}

impl Program {
    /// `program` as `component` in `namespace`.
    #[must_use]
    pub fn new(component: impl Into<String>, namespace: &Namespace, program: impl Into<PathBuf>) -> Self {
        Self {
            component: component.into(),
            namespace: namespace.name().to_owned(),
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
        }
    }

    /// With these further arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}

/// A process that was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// What it is.
    pub program: Program,
    /// Its number.
    pub pid: i32,
    /// When it started, in ticks since the machine did: together with the number it names one process for ever.
    pub started_at: u64,
}

/// Whether a started process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Liveness {
    /// It runs.
    Running,
    /// It was stopped with SIGSTOP.
    Stopped,
    /// It is gone.
    Gone,
}

/// Starts `program` and records it.
///
/// # Errors
/// When it cannot be started or recorded.
pub fn start(run: &RunDir, program: Program) -> Result<Started, Error> {
    let component = program.component.clone();
    let record = |path: PathBuf| move |source| Error::Record { path, source };
    fs::create_dir_all(run.logs()).map_err(record(run.logs()))?;
    let log_path = log_path(run, &component);
    let log = OpenOptions::new().create(true).append(true).open(&log_path).map_err(record(log_path.clone()))?;
    let log_again = log.try_clone().map_err(record(log_path))?;

    let mut command = Command::new(&program.program);
    command.args(&program.arguments).current_dir(run.root());
    // What the harness was started with (proxies, language settings) must not reach the cluster.
    command.env_clear().envs(&program.environment).env("HOME", run.root());
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(java) = java_home() {
        command.env("JAVA_HOME", java);
    }
    command.stdin(Stdio::null()).stdout(log).stderr(log_again);
    let in_namespace = |source| Error::Namespace { component: component.clone(), source };
    Namespace::named(&program.namespace).wrap(&mut command).map_err(in_namespace)?;
    // SAFETY: between fork and exec only setsid(2) is called; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    let failed = |source| Error::Start { component: component.clone(), source };
    let child = command.spawn().map_err(failed)?;
    let pid = i32::try_from(child.id()).map_err(|error| failed(io::Error::other(error)))?;
    let started_at = stat(pid).map_or(0, |stat| stat.started_at);
    let started = Started { program, pid, started_at };
    store(run, &started)?;
    Ok(started)
}

fn java_home() -> Option<PathBuf> {
    std::env::var_os("JAVA_HOME").map(PathBuf::from)
}

fn record_path(run: &RunDir, component: &str) -> PathBuf {
    run.processes().join(format!("{component}.json"))
}

/// The log of a component.
#[must_use]
pub fn log_path(run: &RunDir, component: &str) -> PathBuf {
    run.logs().join(format!("{component}.log"))
}

fn store(run: &RunDir, started: &Started) -> Result<(), Error> {
    let path = record_path(run, &started.program.component);
    let written = fs::create_dir_all(run.processes()).and_then(|()| {
        let file = File::create(&path)?;
        serde_json::to_writer_pretty(file, started).map_err(io::Error::from)
    });
    written.map_err(|source| Error::Record { path, source })
}

/// Every process that was started, by component.
#[must_use]
pub fn recorded(run: &RunDir) -> Vec<Started> {
    let entries = fs::read_dir(run.processes()).into_iter().flatten().flatten();
    let mut all: Vec<Started> =
        entries.filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()).collect();
    all.sort_by(|a, b| a.program.component.cmp(&b.program.component));
    all
}

/// The process of `component`.
///
/// # Errors
/// When there is no such component.
pub fn find(run: &RunDir, component: &str) -> Result<Started, Error> {
    let unknown = || Error::Unknown(component.to_owned());
    let text = fs::read(record_path(run, component)).map_err(|_| unknown())?;
    serde_json::from_slice(&text).map_err(|_| unknown())
}

/// Removes the record of a component that is gone for good.
///
/// # Errors
/// When there is none, or it cannot be removed.
pub fn forget(run: &RunDir, component: &str) -> Result<(), Error> {
    let path = record_path(run, component);
    fs::remove_file(&path).map_err(|source| Error::Record { path, source })
}

impl Started {
    /// Whether it runs. A process that only waits to be collected by its parent is gone.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        match stat(self.pid) {
            Some(stat) if stat.started_at == self.started_at => match stat.state {
                'Z' | 'X' => Liveness::Gone,
                'T' => Liveness::Stopped,
                _ => Liveness::Running,
            },
            _ => Liveness::Gone,
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone or the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let component = || self.program.component.clone();
        if self.liveness() == Liveness::Gone {
            return Err(Error::NotRunning(component()));
        }
        kill(Pid::from_raw(self.pid), signal).map_err(|source| Error::Signal { component: component(), signal, source })
    }

    /// Waits until it is gone.
    ///
    /// # Errors
    /// When it is still there after `limit`.
    pub fn wait_gone(&self, limit: Duration) -> Result<(), Error> {
        let probe = || Ok((self.liveness() == Liveness::Gone).then_some(()));
        wait::until(Deadline::after(limit), probe)?.ok_or_else(|| Error::Alive(self.program.component.clone()))
    }
}

/// What the kernel says about a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    started_at: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses and may contain anything, so counting starts after the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // Field 22 of proc(5); the state was field 3.
    let started_at = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, started_at })
}

/// Log files and their last lines, for an error message.
#[must_use]
pub fn log_tails(paths: &[PathBuf], lines: usize) -> String {
    let tail = |path: &Path| {
        let text = fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        format!("--- {}\n{}", path.display(), last_lines(&text, lines))
    };
    paths.iter().map(|path| tail(path)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Stat, parse_stat, stat};

    #[test]
    fn a_process_name_may_contain_anything() {
        let text = "42 (a) R b) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', started_at: 777 }));
        assert_eq!(parse_stat("42 (a"), None);
    }

    #[test]
    fn this_process_runs() {
        let me = stat(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.started_at > 0 && me.state != 'Z');
    }
}
