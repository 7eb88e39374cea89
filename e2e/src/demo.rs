//! The demo: what a newcomer sees first. A cluster, a StreamJob applied by kubectl, input without end, a worker killed, the job
//! scaled, and the judge's verdict.
//!
//! It is two processes. The outer one owns the cluster: whatever happens to the inner one (an error, Ctrl-C, kill -9), the
//! cluster is removed. The inner one tells the story; it moves into the cluster's network before its first thread is made.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::cluster::{self, Cluster, ClusterName};
use crate::scenarios::Failure;
use crate::wait::{self, Deadline};
use crate::{interrupt, paths, report};

mod facts;
mod screen;
mod story;
mod watch;

pub use story::show;

/// How the demo is shown.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster.
    pub name: ClusterName,
    /// Whether the cluster stays.
    pub keep: bool,
    /// Records that are produced each second.
    pub rate: u32,
}

/// The demo could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process or a signal.
    #[error("cannot run the demo")]
    Process(#[from] std::io::Error),
    /// The cluster did not go away.
    #[error("cannot remove the cluster of the demo")]
    Cluster(#[from] cluster::Error),
    /// The story did not come to its end.
    #[error("the demo did not come to its end")]
    Story(#[from] Failure),
}

/// Shows the demo and removes the cluster, unless it was there before or is to be kept.
///
/// # Errors
/// When the demo cannot be started, or the cluster cannot be removed.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let stays = options.keep || Cluster::list().contains(&options.name);
    interrupt::listen()?;
    let end = if stays { "the cluster stays up afterwards" } else { "Ctrl-C ends it and removes everything" };
    report::step(format!("a Kubernetes and Kafka of their own on this machine; {end}"));
    let code = supervise(options)?;
    if stays {
        return Ok(code);
    }
    report::step(format!("removing the cluster {} (--keep leaves it up)", options.name));
    Cluster::down(&options.name)?;
    Ok(code)
}

fn supervise(options: &Options) -> Result<ExitCode, Error> {
    let mut command = Command::new(paths::harness());
    command.args(["demo", "--inside", "--name", options.name.as_str(), "--rate", &options.rate.to_string()]);
    if options.keep {
        command.arg("--keep");
    }
    // SAFETY: between fork and exec only prctl(2) is called; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from)) };
    let mut story = command.spawn()?;
    let probe = || {
        if interrupt::requested() {
            story.kill()?;
        }
        story.try_wait()
    };
    let status = wait::until(Deadline::after(Duration::MAX), probe)?;
    if interrupt::requested() {
        report::step("interrupted: the demo ends without a verdict");
    }
    let code = status.and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
