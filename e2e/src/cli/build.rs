//! `build`

use std::process::ExitCode;

use clap::Args;

use super::Outcome;
use crate::paths;
use crate::report;
use crate::tools::Tools;

/// Build what a cluster needs, without bringing one up
#[derive(Debug, Args)]
pub(super) struct Build {}

impl Build {
    #[expect(clippy::unused_self, reason = "every subcommand is run the same way")]
    pub(super) fn run(self) -> Outcome {
        Tools::prepare()?;
        report::step(format!("everything is in {}", paths::cache().display()));
        Ok(ExitCode::SUCCESS)
    }
}
