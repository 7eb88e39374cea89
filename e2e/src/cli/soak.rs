//! `soak`

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Outcome;
use crate::{interrupt, scenarios};

/// Let a job run for a long time under faults of every kind, and see that nothing is lost, doubled, or grows
///
/// Ctrl-C ends it early; what was done until then is judged.
#[derive(Debug, Args)]
pub(super) struct Soak {
    /// How long, in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(3..=10_000))]
    minutes: u64,
    /// Leave the cluster up
    #[arg(long)]
    keep: bool,
}

impl Soak {
    pub(super) fn run(self) -> Outcome {
        interrupt::listen()?;
        let holds = scenarios::soak(Duration::from_secs(60 * self.minutes), self.keep);
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
