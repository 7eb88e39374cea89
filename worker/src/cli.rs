//! `fencepost-worker run|plan|validate`.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode as ProcessExit,
};

use clap::{Parser, Subcommand};
use fencepost_crds::{contract::ExitCode, names};
use tracing_subscriber::EnvFilter;

use crate::{describe, job, run};

/// Runs, plans and validates stream jobs, with or without Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "fencepost-worker", version, about, max_term_width = 100)]
struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,

    /// Filter of the log, such as `info` or `warn,fencepost_worker=debug`.
    #[arg(long, global = true, env = names::env::LOG, default_value = "info")]
    log: String,

    /// How the log is written to standard error. Default: `text` in a terminal, else `json`.
    #[arg(long, global = true, env = "FENCEPOST_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Process until asked to stop (SIGTERM), then commit and leave.
    Run(RunArgs),
    /// Show stages, topics and guarantees of a job without talking to anything.
    Plan {
        #[command(flatten)]
        job: JobArgs,
        /// One line of JSON instead of a text for people.
        #[arg(long)]
        json: bool,
    },
    /// Plan a job, then check it against the brokers: topics and limits.
    Validate {
        #[command(flatten)]
        job: JobArgs,
        /// One line of JSON instead of a text for people.
        #[arg(long)]
        json: bool,
    },
}

/// Which job.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// A StreamJob manifest, or the resolved job that the operator writes; `-` reads it from standard input.
    path: PathBuf,

    /// Folder with the Secrets that a manifest refers to: `<folder>/<secret>/<key>`.
    #[arg(long, env = "FENCEPOST_SECRETS_DIR", default_value = names::SECRETS_DIR)]
    secrets_dir: String,
}

impl JobArgs {
    fn load(&self) -> Result<job::Loaded, job::JobError> {
        job::load(&self.path, &self.secrets_dir)
    }
}

/// Settings of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    job: JobArgs,

    /// Number of this worker. Default: the number at the end of the pod's name, or 0.
    #[arg(long)]
    ordinal: Option<u32>,

    /// Name of the pod.
    #[arg(long, env = names::env::POD_NAME)]
    pod_name: Option<String>,

    /// Number of the start that this worker belongs to.
    #[arg(long, env = names::env::EPOCH, default_value_t = 0)]
    pub(crate) epoch: i64,

    /// Address of the HTTP server for health, metrics and status.
    #[arg(long, env = "FENCEPOST_HTTP_ADDR", default_value = "0.0.0.0:8080")]
    pub(crate) http_addr: std::net::SocketAddr,

    /// Folder that outlives a restart of the container, not of the pod.
    #[arg(long, env = names::env::RUN_DIR)]
    pub(crate) run_dir: Option<PathBuf>,

    /// File for the reason of an exit, where the kubelet picks it up.
    #[arg(long, env = names::env::TERMINATION_LOG)]
    pub(crate) termination_log: Option<PathBuf>,
}

impl RunArgs {
    /// The ordinal: given, or from the pod's name.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal.or_else(|| names::ordinal_of_pod(self.pod_name.as_deref()?)).unwrap_or(0)
    }
}

/// Parses the command line and does what it says. The process ends with one of [`ExitCode`].
#[must_use]
pub fn main() -> ProcessExit {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::Usage } else { ExitCode::Ok };
            if error.print().is_err() {
                return ProcessExit::from(ExitCode::Failure as u8);
            }
            return ProcessExit::from(code as u8);
        }
    };
    if let Err(message) = init_log(&args) {
        say_error(&message);
        return ProcessExit::from(ExitCode::Usage as u8);
    }
    ProcessExit::from(dispatch(&args.command) as u8)
}

fn dispatch(command: &Command) -> ExitCode {
    let (Command::Run(RunArgs { job, .. }) | Command::Plan { job, .. } | Command::Validate { job, .. }) = command;
    let loaded = match job.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            if let Command::Plan { json: true, .. } | Command::Validate { json: true, .. } = command {
                return describe::print_json(&describe::unreadable(&error));
            }
            say_error(&chain(&error));
            return ExitCode::InvalidJob;
        }
    };
    match command {
        Command::Run(args) => run::run(args, &loaded.resolved),
        Command::Plan { json, .. } => describe::plan(&loaded.resolved, *json),
        Command::Validate { json, .. } => describe::validate(&loaded.resolved, loaded.spec.as_ref(), *json),
    }
}

fn init_log(args: &Args) -> Result<(), String> {
    let filter = EnvFilter::try_new(&args.log).map_err(|error| format!("--log {:?}: {error}", args.log))?;
    let is_terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(std::io::stderr);
    let format = args.log_format.unwrap_or(if is_terminal { LogFormat::Text } else { LogFormat::Json });
    let done = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.try_init(),
    };
    done.map_err(|error| error.to_string())
}

/// An error with everything that caused it, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Writes to standard error; a closed standard error is not worth failing for.
pub(crate) fn say_error(message: &str) {
    drop(writeln!(std::io::stderr(), "error: {message}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn the_ordinal_comes_from_the_pod_unless_given() {
        let parse = |extra: &[&str]| {
            let args = Args::try_parse_from(["w", "run", "job.yaml"].iter().chain(extra)).unwrap();
            let Command::Run(run) = args.command else { panic!("run") };
            run.ordinal()
        };
        assert_eq!(parse(&["--pod-name", "spend-3"]), 3);
        assert_eq!(parse(&["--pod-name", "spend-3", "--ordinal", "1"]), 1);
        assert_eq!(parse(&["--pod-name", "laptop"]), 0);
    }
}
