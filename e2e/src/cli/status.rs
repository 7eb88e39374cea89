//! `status`

use std::process::ExitCode;

use clap::Args;

use super::Outcome;
use crate::cluster::{Cluster, ClusterName, leftovers, process};
use crate::paths::RunDir;
use crate::report;

/// Show the clusters of this machine and whether their processes run
#[derive(Debug, Args)]
pub(super) struct Status {}

impl Status {
    #[expect(clippy::unused_self, reason = "every subcommand is run the same way")]
    pub(super) fn run(self) -> Outcome {
        let names = Cluster::list();
        if names.is_empty() {
            report::answer("no cluster");
        }
        names.iter().for_each(show);
        Ok(ExitCode::SUCCESS)
    }
}

fn show(name: &ClusterName) {
    report::answer(format!("cluster {name}: {}", leftovers(name)));
    for started in process::recorded(&RunDir::of(name)) {
        let component = &started.program.component;
        report::answer(format!("  {component:<24} {:<8} pid {}", started.liveness(), started.pid));
    }
}
