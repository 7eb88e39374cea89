//! `logs`

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::Args;

use super::{Outcome, Which};
use crate::cluster::process;
use crate::command::words;
use crate::paths::RunDir;
use crate::report;

/// Show the log of a component, or which logs there are
#[derive(Debug, Args)]
pub(super) struct Logs {
    #[command(flatten)]
    which: Which,
    /// The component: kube-apiserver, node-1-kubelet, kafka-1, ...
    component: Option<String>,
    /// Only the last lines
    #[arg(long, short = 'n', default_value_t = 100)]
    lines: usize,
    /// Go on as the log grows
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(super) fn run(self) -> Outcome {
        let run = RunDir::of(self.which.name());
        let Some(component) = self.component else {
            for started in process::recorded(&run) {
                report::answer(process::log_path(&run, &started.program.component).display().to_string());
            }
            return Ok(ExitCode::SUCCESS);
        };
        let path = process::log_path(&run, &process::find(&run, &component)?.program.component);
        let mut tail = words("tail", ["-n", &self.lines.to_string()]);
        if self.follow {
            tail.arg("-f");
        }
        Err(tail.arg(path).exec().into())
    }
}
