//! `down`

use std::process::ExitCode;

use clap::Args;

use super::{Outcome, Which};
use crate::cluster::Cluster;

/// Remove a cluster, or what is left of one, however it ended
#[derive(Debug, Args)]
pub(super) struct Down {
    #[command(flatten)]
    which: Which,
    /// Every cluster of this machine
    #[arg(long)]
    all: bool,
}

impl Down {
    pub(super) fn run(self) -> Outcome {
        let names = if self.all { Cluster::list() } else { vec![self.which.name] };
        for name in names {
            Cluster::down(&name)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
