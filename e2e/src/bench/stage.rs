//! One run: `e2e/peers/run.sh`, inside the network of the brokers.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fencepost_oracle::reader::{self, Surveyor};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machine;
use super::plan::{Engine, Planned};
use super::result::{self, Markers, Origin, Run};
use crate::cluster::Cluster;
use crate::cluster::kafka::User;
use crate::command::last_lines;
use crate::tools::peers;
use crate::wait::{self, Deadline};
use crate::{interrupt, ns};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Somebody asked for the end.
    #[error("interrupted")]
    Interrupted,
    /// A file or a process.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The network.
    #[error("the network of the brokers is not usable")]
    Namespace(#[from] ns::Error),
    /// The run failed.
    #[error("run.sh ended with {status}: {said}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// The end of what it and the engine said.
        said: String,
    },
    /// The brokers do not say how long the output is.
    #[error("cannot count the transactions")]
    Markers(#[source] Box<reader::Error>),
    /// The meter did not say what it should.
    #[error("no result")]
    Result(#[from] result::Error),
    /// The result is not what was promised.
    #[error("{fault}; the meter's line: {line}")]
    Fault {
        /// What is wrong with it.
        fault: String,
        /// The line.
        line: String,
    },
}

impl Failure {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Where `run.sh` lets the engines write.
const OUTPUT: &str = "bench-out";

/// How long `run.sh` gets to stop what it started.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// What all runs share.
#[derive(Debug)]
pub struct Stage<'c> {
    /// The brokers.
    pub cluster: &'c Cluster,
    /// What Maven made.
    pub peers: PathBuf,
    /// The command line of our worker.
    pub worker: String,
    /// Its version.
    pub worker_version: String,
    /// Where and of what.
    pub origin: Origin,
}

impl Stage<'_> {
    /// Where the logs of failed runs are kept.
    #[must_use]
    pub fn failures(&self) -> PathBuf {
        self.cluster.run_dir().root().with_extension("failures")
    }

    /// Removes what failed runs of an earlier command left.
    pub fn clear(&self) {
        fs::remove_dir_all(self.failures()).ok();
    }

    /// Makes a run. What a failed one leaves is kept, and the answer says where.
    ///
    /// # Errors
    /// With the folder, when there is no result or it is not what was promised.
    pub fn run(&self, number: usize, planned: &Planned) -> Result<Run, (Failure, PathBuf)> {
        let label = format!("{number:02}-{}", planned.label());
        let work = self.cluster.run_dir().member("runs").join(&label);
        let kept = self.failures().join(label);
        let done = self.run_in(&work, planned);
        if done.is_ok() {
            fs::remove_dir_all(&work).ok();
        } else {
            fs::create_dir_all(self.failures()).and_then(|()| fs::rename(&work, &kept)).ok();
        }
        done.map_err(|failure| (failure, kept))
    }

    fn run_in(&self, work: &Path, planned: &Planned) -> Result<Run, Failure> {
        fs::remove_dir_all(work).ok();
        fs::create_dir_all(work).map_err(Failure::file(work))?;
        let load_before = machine::load();
        let (answer, said) = (work.join("answer.json"), work.join("run.log"));
        let status = wait_for(self.start(work, planned, &answer, &said)?)?;
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(Failure::file(path));
        if !status.success() {
            let mut said = read(&said)?;
            for log in logs_below(work) {
                said.push_str(&read(&log).map(|text| last_lines(&text, 10)).unwrap_or_default());
            }
            return Err(Failure::Ended { status, said: last_lines(&said, 20) });
        }
        let line = read(&answer)?;
        let mut run = Run::read(planned, &line, load_before, &self.origin)?;
        // What a killed engine leaves has aborted records in it.
        if planned.kill_after.is_none() {
            run.markers = self.markers(&run)?;
        }
        match run.fault(planned.kill_after) {
            Some(fault) => Err(Failure::Fault { fault, line: line.trim().to_owned() }),
            None => Ok(run),
        }
    }

    /// Offsets of the output topic without a record in them. `None` when the meter does not say how many records there are.
    fn markers(&self, run: &Run) -> Result<Option<Markers>, Failure> {
        let Some(outputs) = run.measured.get("outputs").and_then(serde_json::Value::as_u64) else { return Ok(None) };
        let connection = self.cluster.kafka_connection(User::Admin);
        let ends = self.cluster.namespace().within(|| Surveyor::new(&connection)?.ends(OUTPUT))?;
        let ends = ends.map_err(|error| Failure::Markers(Box::new(error)))?;
        let offsets: i64 = ends.values().map(|partition| partition.end - partition.start).sum();
        let count = u64::try_from(offsets).unwrap_or_default().saturating_sub(outputs);
        Ok(Some(Markers { count, partitions: u32::try_from(ends.len()).unwrap_or(u32::MAX) }))
    }

    fn start(&self, work: &Path, planned: &Planned, answer: &Path, said: &Path) -> Result<Child, Failure> {
        let script = peers::source().join("run.sh");
        let mut command = Command::new(&script);
        command.args(&planned.words).env("WORK_DIR", work).env("BUILD_DIR", &self.peers);
        command.env("BOOTSTRAP", self.cluster.bootstrap());
        if planned.engine == Engine::Fencepost {
            command.env("ENGINE_CMD", &self.worker).env("ENGINE_VERSION", &self.worker_version);
        }
        command.stdin(Stdio::null());
        command.stdout(File::create(answer).map_err(Failure::file(answer))?);
        command.stderr(File::create(said).map_err(Failure::file(said))?);
        self.cluster.namespace().wrap(&mut command)?;
        // SIGTERM, not SIGKILL: it stops the engine when the harness is killed.
        // SAFETY: between fork and exec only prctl(2) is called; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from)) };
        command.spawn().map_err(Failure::file(&script))
    }
}

/// Waits until a child ends. When somebody asks this process to end, the child is asked too.
fn wait_for(mut child: Child) -> Result<ExitStatus, Failure> {
    let ended = |child: &mut Child| child.try_wait().map_err(Failure::file(Path::new("run.sh")));
    let status = wait::until(Deadline::after(Duration::MAX), || {
        let status = ended(&mut child)?;
        if status.is_none() && interrupt::requested() { Err(Failure::Interrupted) } else { Ok(status) }
    });
    match status {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err(Failure::Interrupted),
        Err(failure) => {
            if let Ok(pid) = i32::try_from(child.id()) {
                kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
            }
            // Whatever does not end now ends with the network it lives in.
            wait::until(Deadline::after(STOP_LIMIT), || ended(&mut child))?;
            child.kill().ok();
            Err(failure)
        }
    }
}

/// The logs that a run left, the engine's last.
fn logs_below(work: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(work).into_iter().flatten().flatten().map(|entry| entry.path());
    folders
        .flat_map(|folder| ["load.log", "engine.log"].map(|log| folder.join(log)))
        .filter(|log| log.exists())
        .collect()
}

/// A word that the shell takes as it is.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;
    use crate::command::{run, words};

    #[test]
    fn a_quoted_word_reaches_the_program_as_it_was() {
        for word in ["/plain/path", "with blank", "it's $HOME `x` \"y\" \\"] {
            let script = format!("printf %s {}", quoted(word));
            assert_eq!(run(&mut words("bash", ["-c", &script])).unwrap(), word);
        }
    }
}
