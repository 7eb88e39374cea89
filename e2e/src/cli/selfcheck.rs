//! `selfcheck`

use std::process::ExitCode;

use clap::Args;

use super::Outcome;
use crate::selfcheck;

/// Check that a cluster leaves nothing behind when the harness is killed halfway up, and that two do not disturb each other
#[derive(Debug, Args)]
pub(super) struct Selfcheck {}

impl Selfcheck {
    #[expect(clippy::unused_self, reason = "every subcommand is run the same way")]
    pub(super) fn run(self) -> Outcome {
        selfcheck::leaves_nothing_behind_after_kill()?;
        selfcheck::two_stand_side_by_side()?;
        Ok(ExitCode::SUCCESS)
    }
}
