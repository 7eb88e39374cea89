//! `kubectl` and `helm`: the program takes the place of this process.

use std::os::unix::process::CommandExt;

use clap::Args;

use super::{Outcome, Which};

/// Run kubectl on the cluster
#[derive(Debug, Args)]
pub(super) struct Kubectl {
    #[command(flatten)]
    which: Which,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Kubectl {
    pub(super) fn run(self) -> Outcome {
        Err(self.which.attach()?.kubectl_command()?.args(self.arguments).exec().into())
    }
}

/// Run helm on the cluster
#[derive(Debug, Args)]
pub(super) struct Helm {
    #[command(flatten)]
    which: Which,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Helm {
    pub(super) fn run(self) -> Outcome {
        Err(self.which.attach()?.helm_command()?.args(self.arguments).exec().into())
    }
}
