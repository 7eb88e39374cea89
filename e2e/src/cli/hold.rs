//! `hold-packets`

use std::time::Duration;

use clap::Args;

use super::Outcome;
use crate::faults;

/// Hold the packets of a queue back: what `fault delay` starts in the namespace of a member
#[derive(Debug, Args)]
pub(super) struct Hold {
    /// For how long
    #[arg(long)]
    microseconds: u64,
}

impl Hold {
    pub(super) fn run(self) -> Outcome {
        match faults::hold(Duration::from_micros(self.microseconds))? {}
    }
}
