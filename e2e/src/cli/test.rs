//! `test`

use std::process::ExitCode;

use clap::Args;

use super::Outcome;
use crate::report;
use crate::scenarios::{self, Options};

/// Run the end-to-end tests. The last line says how many passed and failed
#[derive(Debug, Args)]
pub(super) struct Test {
    /// Only those whose name contains this; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// Leave the clusters up, and take those that were left
    #[arg(long)]
    keep: bool,
    /// Take clusters that were kept as they are: nothing is built or installed
    #[arg(long)]
    installed: bool,
    /// How many run at the same time, where they allow it
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Print the names and end
    #[arg(long)]
    list: bool,
}

impl Test {
    pub(super) fn run(self) -> Outcome {
        if self.list {
            scenarios::names().into_iter().for_each(report::answer);
            return Ok(ExitCode::SUCCESS);
        }
        let tally = scenarios::run(&Options {
            only: self.only,
            keep: self.keep,
            installed: self.installed,
            at_once: self.at_once,
        });
        // Once more at the end: a log of an hour is often read from there, and sometimes kept in part only.
        for (name, reason) in &tally.failed {
            report::answer(format!("FAILED {name}: {reason}"));
        }
        report::answer(format!("{} passed, {} failed", tally.passed, tally.failed.len()));
        // No test is no success.
        Ok(if tally.failed.is_empty() && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
