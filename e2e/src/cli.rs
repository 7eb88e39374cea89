//! The command line: one file a subcommand.

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::cluster::{Cluster, ClusterName};
use crate::{bench as benchmark, faults, report};

mod bench;
mod build;
mod demo;
mod down;
mod fault;
mod hold;
mod images;
mod kafka;
mod logs;
mod pass;
mod selfcheck;
mod soak;
mod status;
mod test;
mod up;

/// What a subcommand ends with.
pub type Outcome = Result<ExitCode, Box<dyn Error + Send + Sync>>;

#[derive(Debug, Parser)]
#[command(name = "fencepost-e2e", bin_name = "e2e/fp", version, about, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    #[command(name = benchmark::WORKER_SUBCOMMAND, hide = true)]
    BenchWorker(bench::BenchWorker),
    Demo(demo::Demo),
    Up(up::Up),
    Down(down::Down),
    Status(status::Status),
    Kubectl(pass::Kubectl),
    Helm(pass::Helm),
    Kafka(kafka::Kafka),
    Logs(logs::Logs),
    Build(build::Build),
    Fault(fault::Fault),
    #[command(name = faults::HOLD_SUBCOMMAND, hide = true)]
    Hold(hold::Hold),
    Images(images::Images),
    Selfcheck(selfcheck::Selfcheck),
    Soak(soak::Soak),
    Test(test::Test),
}

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub struct Which {
    /// The cluster's name
    #[arg(long, global = true, default_value_t)]
    name: ClusterName,
}

impl Which {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    fn attach(&self) -> Result<Cluster, crate::cluster::Error> {
        Cluster::attach(&self.name)
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(command) => command.run(),
        Command::BenchWorker(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Up(command) => command.run(),
        Command::Down(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Kubectl(command) => command.run(),
        Command::Helm(command) => command.run(),
        Command::Kafka(command) => command.run(),
        Command::Logs(command) => command.run(),
        Command::Build(command) => command.run(),
        Command::Fault(command) => command.run(),
        Command::Hold(command) => command.run(),
        Command::Images(command) => command.run(),
        Command::Selfcheck(command) => command.run(),
        Command::Soak(command) => command.run(),
        Command::Test(command) => command.run(),
    };
    outcome.unwrap_or_else(|error| {
        report::step(format!("failed: {}", report::chain(error.as_ref())));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        super::Cli::command().debug_assert();
    }
}
