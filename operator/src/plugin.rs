//! `kubectl fencepost`: what people do with jobs, with their own permissions. It never talks to Kafka.

mod ask;
mod plan;
mod status;

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use fencepost_crds::StreamJob;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, KubeconfigError},
};
use thiserror::Error;

/// Jobs that process each Kafka record exactly once.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-fencepost", bin_name = "kubectl fencepost", version)]
pub struct Args {
    /// Namespace. Absent: that of the context.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Context of the kubeconfig. Absent: the current one.
    #[arg(long, global = true)]
    context: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// How a job does: conditions, workers, transactions, what is under way
    Status {
        /// Name of the StreamJob
        job: String,
    },
    /// What applying a file would change, and what that asks for. Ends with 1 when it would be refused
    Plan {
        /// Manifests; others than StreamJobs are passed over. `-`: standard input
        #[arg(short = 'f', long = "filename")]
        file: PathBuf,
    },
    /// Let a new revision start that waits for approval
    Approve {
        /// Name of the StreamJob
        job: String,
        /// The revision that was looked at: another one is not approved
        #[arg(long)]
        revision: Option<String>,
    },
    /// Replace all workers: they commit and stop, their ids are fenced, the same revision starts
    Restart {
        /// Name of the StreamJob
        job: String,
    },
}

/// Why the plugin ended.
#[derive(Debug, Error)]
pub enum PluginError {
    /// There is no way to the cluster.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// The API server said no, or nothing.
    #[error("cannot {what}")]
    Api {
        /// What was asked.
        what: String,
        /// Its answer.
        source: Box<kube::Error>,
    },
    /// There is no such job.
    #[error("there is no StreamJob {name} in namespace {namespace}")]
    NoJob {
        /// Where.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A file cannot be read.
    #[error("{} cannot be read", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// A file is no YAML.
    #[error("{} is not YAML", .0.display())]
    Yaml(PathBuf, #[source] Box<serde_saphyr::Error>),
    /// A file has nothing for us.
    #[error("there is no StreamJob of fencepost.dev/v1alpha1 in {}", .0.display())]
    NoManifest(PathBuf),
    /// Nothing would come of it.
    #[error("{0}")]
    Pointless(String),
}

impl PluginError {
    fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        |source| Self::Api { what, source: Box::new(source) }
    }
}

/// Does what the command line says.
///
/// # Errors
/// See [`PluginError`].
pub async fn run(args: Args) -> Result<ExitCode, PluginError> {
    // Libraries bring more than one TLS implementation along.
    drop(rustls::crypto::ring::default_provider().install_default());
    let options = KubeConfigOptions { context: args.context, ..KubeConfigOptions::default() };
    let failed = |error| PluginError::Kubeconfig(Box::new(error));
    let config = Config::from_kubeconfig(&options).await.map_err(failed)?;
    let namespace = args.namespace.unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(PluginError::api("reach the API server"))?;
    let cluster = Cluster { client, namespace };
    let told = match args.command {
        Command::Status { job } => status::run(&cluster, &job).await?,
        Command::Plan { file } => return plan::run(&cluster, &file).await,
        Command::Approve { job, revision } => harmless(&ask::approve(&cluster, &job, revision.as_deref()).await?),
        Command::Restart { job } => harmless(&ask::restart(&cluster, &job).await?),
    };
    anstream::println!("{}", told.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// What manifests, records and images say must not steer a terminal, nor turn the direction of what is read.
#[must_use]
pub fn harmless(text: &str) -> String {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Where the jobs are.
struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    fn jobs(&self) -> Api<StreamJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn job(&self, name: &str) -> Result<StreamJob, PluginError> {
        let found = self.jobs().get_opt(name).await.map_err(PluginError::api(format!("read StreamJob {name}")))?;
        found.ok_or_else(|| PluginError::NoJob { namespace: self.namespace.clone(), name: name.to_owned() })
    }
}
