//! Fencepost beside Kafka Streams, in one run on one machine: speed, latency, memory, recovery.
//!
//! The jobs, the loader and the meter are those of `e2e/peers`, which knows nothing of this project. Here is what starts brokers
//! for them, lets the engines take turns, refuses results that are not exact, and keeps the rest in `docs/benchmarks.json`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::cluster::{self, Cluster, ClusterName, ClusterSpec, Parts};
use crate::command::{self, words};
use crate::images::{self, Component};
use crate::tools::{self, peers};
use crate::wait::Deadline;
use crate::{interrupt, paths, report};

pub mod job;
mod machine;
mod page;
mod plan;
mod profile;
mod result;
mod stage;
mod table;

use plan::Planned;
pub use plan::{Case, Engine, Sizes};
use result::{Origin, Run};
use stage::{Failure, Stage, quoted};
use strum::IntoEnumIterator;

/// The cluster's name.
const NAME: &str = "bench";

/// The subcommand that becomes our worker.
pub const WORKER_SUBCOMMAND: &str = "bench-worker";

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which cases; none: all.
    pub only: Vec<Case>,
    /// Which engines.
    pub engines: Vec<Engine>,
    /// How much.
    pub sizes: Sizes,
    /// Whether it is for trying only.
    pub quick: bool,
    /// Leave the brokers up.
    pub keep: bool,
    /// Keep the results in `docs`.
    pub save: bool,
}

/// Nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No run matches.
    #[error("nothing to measure: `rates` is about Fencepost alone")]
    Nothing,
    /// A process or a signal.
    #[error("cannot start the benchmark")]
    Process(#[from] std::io::Error),
    /// A program.
    #[error("cannot make the programs that measure")]
    Tools(#[from] tools::Error),
    /// The worker.
    #[error("cannot compile the worker")]
    Worker(#[from] images::Error),
    /// A command.
    #[error("a command failed")]
    Command(#[from] command::Error),
    /// The brokers.
    #[error("no brokers to measure against")]
    Cluster(#[from] cluster::Error),
    /// There is no perf.
    #[error("perf is not installed: `apt-get install -y --no-install-recommends linux-perf` (Debian)")]
    NoPerf,
    /// The run that was to be watched failed.
    #[error("the run failed; its logs are in {logs}")]
    Run {
        /// Where.
        logs: PathBuf,
        /// Why.
        source: Failure,
    },
    /// The results.
    #[error("cannot keep the results")]
    Page(#[from] page::Error),
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    good: Vec<Run>,
    /// Which, and why.
    bad: Vec<String>,
    interrupted: bool,
}

/// Measures, prints the tables and keeps them.
///
/// # Errors
/// When nothing can be measured. A run that fails is no error, but makes the answer one.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    interrupt::listen()?;
    let clock = Deadline::after(Duration::MAX);
    let cases = if options.only.is_empty() { Case::iter().collect() } else { options.only.clone() };
    let planned = plan::runs(&cases, &options.engines, &options.sizes);
    if planned.is_empty() {
        return Err(Error::Nothing);
    }
    let minutes = planned.iter().map(|run| run.expected_seconds).sum::<u64>().div_ceil(60);
    report::step(format!("{} runs, about {minutes} min once everything is compiled", planned.len()));
    let origin = machine::origin(options.quick)?;
    let peers = peers::build()?;
    let worker = images::program(Component::Worker)?;
    let cluster = open(options.keep)?;
    let tally = stage(&cluster, peers, &worker, None, origin).map(|stage| measure(&stage, &planned));
    // What was measured is shown whatever becomes of the brokers.
    let closed = close(options.keep);
    let code = finish(options, &tally?, clock)?;
    closed.map(|()| code)
}

/// Watches the worker through a backlog, and prints which part of it takes how much of the processors.
///
/// # Errors
/// When there is no `perf`, or the run fails.
pub fn profile(keep: bool) -> Result<ExitCode, Error> {
    profile::ensure()?;
    interrupt::listen()?;
    let origin = machine::origin(true)?;
    let peers = peers::build()?;
    let worker = images::program(Component::Worker)?;
    let cluster = open(keep)?;
    let samples = cluster.run_dir().member("samples");
    let planned = plan::runs(&[Case::Backlog], &[Engine::Fencepost], &Sizes { repeats: 1, ..Sizes::FULL });
    let shares = stage(&cluster, peers, &worker, Some(&samples), origin).and_then(|stage| {
        stage.clear();
        for (number, run) in planned.iter().enumerate() {
            report::step(run.to_string());
            stage.run(number + 1, run).map_err(|(source, logs)| Error::Run { logs, source })?;
        }
        report::step("reading the samples");
        profile::read(&samples)
    });
    close(keep)?;
    report::answer(shares?);
    Ok(ExitCode::SUCCESS)
}

fn finish(options: &Options, tally: &Tally, clock: Deadline) -> Result<ExitCode, Error> {
    report::answer(table::markdown(&tally.good));
    for bad in &tally.bad {
        report::answer(format!("FAILED {bad}"));
    }
    let whole = tally.bad.is_empty() && !tally.interrupted;
    if whole && options.save {
        page::keep(&tally.good)?;
        report::step("kept in docs/benchmarks.json and docs/benchmarks.md");
    } else if options.save {
        report::step("not kept: only a command whose runs are all good changes docs/benchmarks.json");
    }
    let (good, bad) = (tally.good.len(), tally.bad.len());
    report::step(format!("{good} good runs, {bad} failed, after {:.0} s", clock.elapsed().as_secs_f64()));
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Brokers, and nothing else: Kubernetes would take its share of the processors.
fn open(keep: bool) -> Result<Cluster, Error> {
    let name: ClusterName = NAME.parse()?;
    if keep && Cluster::list().contains(&name) {
        return Ok(Cluster::attach(&name)?);
    }
    let spec = ClusterSpec { name, parts: Parts::Kafka, ..ClusterSpec::default() };
    match Cluster::up(&spec) {
        // Whose it is, is not known.
        Err(error @ (cluster::Error::Exists { .. } | cluster::Error::Busy { .. })) => Err(error.into()),
        Err(error) => {
            if let Err(left) = close(keep) {
                report::step(report::chain(&left));
            }
            Err(error.into())
        }
        Ok(cluster) => Ok(cluster),
    }
}

fn close(keep: bool) -> Result<(), Error> {
    if keep {
        report::step(format!("the brokers stay up: `e2e/fp down --name {NAME}` removes them"));
        return Ok(());
    }
    Ok(Cluster::down(&NAME.parse()?)?)
}

fn stage<'c>(
    cluster: &'c Cluster,
    peers: PathBuf,
    worker: &Path,
    samples: Option<&Path>,
    origin: Origin,
) -> Result<Stage<'c>, Error> {
    let version = command::run(&mut words(&worker.display().to_string(), ["--version"]))?;
    let worker_version = version.split_whitespace().last().unwrap_or("unknown").to_owned();
    let harness = paths::harness();
    let shown = |path: &Path| quoted(&path.display().to_string());
    let mut command = format!("{} {WORKER_SUBCOMMAND} --program {}", shown(&harness), shown(worker));
    if let Some(samples) = samples {
        command.push_str(&format!(" --samples {}", shown(samples)));
    }
    Ok(Stage { cluster, peers, worker: command, worker_version, origin })
}

fn measure(stage: &Stage<'_>, planned: &[Planned]) -> Tally {
    let mut tally = Tally::default();
    stage.clear();
    for (number, run) in planned.iter().enumerate() {
        report::step(format!("run {} of {}: {run}", number + 1, planned.len()));
        match stage.run(number + 1, run) {
            Ok(result) => {
                report::detail(table::line(&result));
                tally.good.push(result);
            }
            Err((Failure::Interrupted, _)) => {
                tally.interrupted = true;
                report::step("interrupted");
                break;
            }
            Err((failure, kept)) => {
                let bad = format!("{run}: {}; logs are in {}", report::chain(&failure), kept.display());
                report::detail(format!("FAILED {bad}"));
                tally.bad.push(bad);
            }
        }
    }
    tally
}
