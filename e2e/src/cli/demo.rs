//! `demo`

use clap::Args;

use super::{Outcome, Which};
use crate::demo;

/// See a StreamJob at work: a cluster, a job under load, a worker killed, the job scaled, and a verdict
///
/// Ends with 0 when nothing was lost or doubled. The cluster is removed at the end, unless it was there before.
#[derive(Debug, Args)]
pub(super) struct Demo {
    #[command(flatten)]
    which: Which,
    /// Leave the cluster up, and say how to play with it
    #[arg(long)]
    keep: bool,
    /// Records that are produced each second
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// Show the story on a cluster that somebody else removes: how the demo calls itself
    #[arg(long, hide = true)]
    inside: bool,
}

impl Demo {
    pub(super) fn run(self) -> Outcome {
        let options = demo::Options { name: self.which.name, keep: self.keep, rate: self.rate };
        Ok(if self.inside { demo::show(&options)? } else { demo::run(&options)? })
    }
}
