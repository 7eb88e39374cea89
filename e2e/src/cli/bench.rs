//! `bench`, and the worker that it starts.

use clap::{Args, Subcommand};

use super::Outcome;
use crate::bench::{self, Case, Engine, Options, Sizes, job};

/// Measure Fencepost beside Kafka Streams on this machine, and keep the tables in docs/benchmarks.md
///
/// Ends with 0 when every output was what its guarantee promises. The brokers are removed at the end.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Bench {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// Small numbers and one run of each, for trying
    #[arg(long)]
    quick: bool,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Streams, Engine::Fencepost])]
    engines: Vec<Engine>,
    /// Only these cases
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Case>,
    /// Timed records of a backlog
    #[arg(long, value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    records: Option<u64>,
    /// Runs of each engine
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20))]
    repeats: Option<u32>,
    /// Leave the brokers up, and take those that were left
    #[arg(long)]
    keep: bool,
    /// Keep the results in docs/ also when they are not of everything
    #[arg(long)]
    save: bool,
}

#[derive(Debug, Subcommand)]
enum Instead {
    /// Show which part of the worker takes how much of the processors in a backlog. Needs perf
    Profile {
        /// Leave the broker up, and take one that was left
        #[arg(long)]
        keep: bool,
    },
}

impl Bench {
    pub(super) fn run(self) -> Outcome {
        if let Some(Instead::Profile { keep }) = self.instead {
            return Ok(bench::profile(keep)?);
        }
        let everything = !self.quick
            && self.only.is_empty()
            && self.records.is_none()
            && self.repeats.is_none()
            && [Engine::Streams, Engine::Fencepost].iter().all(|engine| self.engines.contains(engine));
        let usual = if self.quick { Sizes::QUICK } else { Sizes::FULL };
        let sizes = Sizes {
            records: self.records.unwrap_or(usual.records),
            repeats: self.repeats.unwrap_or(usual.repeats),
            ..usual
        };
        let options = Options {
            only: self.only,
            engines: self.engines,
            sizes,
            quick: self.quick,
            keep: self.keep,
            save: self.save || everything,
        };
        Ok(bench::run(&options)?)
    }
}

/// Become the worker, as a benchmark tells it to by the environment
#[derive(Debug, Args)]
pub(super) struct BenchWorker {
    #[command(flatten)]
    worker: job::Worker,
    #[command(flatten)]
    told: job::Told,
}

impl BenchWorker {
    pub(super) fn run(self) -> Outcome {
        match self.told.become_worker(&self.worker)? {}
    }
}
