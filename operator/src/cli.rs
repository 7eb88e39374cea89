//! The command line. The only place that reads the environment.

use std::net::SocketAddr;

use clap::{ArgAction, Parser, ValueEnum};
use fencepost_crds::names;
use tracing_subscriber::EnvFilter;

/// Kubernetes operator for exactly-once Kafka stream jobs.
#[derive(Clone, Debug, Parser)]
#[command(name = names::MANAGER, version)]
pub struct Args {
    /// Image of workers whose StreamJob names none.
    #[arg(long, env = "FENCEPOST_WORKER_IMAGE")]
    pub worker_image: String,

    /// Namespace to look after. May be repeated or separated by commas. None: all namespaces.
    #[arg(long = "namespace", env = "FENCEPOST_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// Run only while holding the lease, so that a second replica is a standby.
    #[arg(long, env = "FENCEPOST_LEADER_ELECT", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true")]
    pub leader_elect: bool,

    /// Name of the lease.
    #[arg(long, env = "FENCEPOST_LEASE_NAME", default_value = names::MANAGER)]
    pub lease_name: String,

    /// Namespace of the lease. Absent: that of the operator.
    #[arg(long, env = "FENCEPOST_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// Namespace of the operator's pod.
    #[arg(long, env = "POD_NAMESPACE", hide = true)]
    pub pod_namespace: Option<String>,

    /// Name in the lease and in events: that of the pod.
    #[arg(long, env = "POD_NAME", default_value = names::MANAGER)]
    pub identity: String,

    /// Address that serves health and metrics.
    #[arg(long, env = "FENCEPOST_HTTP_ADDR", default_value = "0.0.0.0:8080")]
    pub http_addr: SocketAddr,

    /// Filter of the log.
    #[arg(long, env = "FENCEPOST_LOG", default_value = "info")]
    pub log: String,

    /// Form of the log.
    #[arg(long, env = "FENCEPOST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// StreamJobs that are looked at at the same time.
    #[arg(long, env = "FENCEPOST_CONCURRENCY", default_value_t = 16)]
    pub concurrency: u16,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A JSON object per line.
    Json,
    /// For people.
    Text,
}

impl Args {
    /// Namespaces to look after; empty means all. A variable that is set and empty means all as well.
    #[must_use]
    pub fn watched(&self) -> Vec<String> {
        let mut list: Vec<String> =
            self.namespaces.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        list.sort();
        list.dedup();
        list
    }

    /// Starts the log.
    pub fn init_log(&self) {
        let filter = EnvFilter::builder().parse_lossy(&self.log);
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
        match self.log_format {
            LogFormat::Json => subscriber.json().flatten_event(true).init(),
            LogFormat::Text => subscriber.init(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Args {
        Args::try_parse_from(["fencepost-operator", "--worker-image=w:1"].iter().chain(args)).unwrap()
    }

    #[test]
    fn leader_election_is_on_unless_turned_off() {
        assert!(parse(&[]).leader_elect);
        assert!(parse(&["--leader-elect"]).leader_elect);
        assert!(!parse(&["--leader-elect=false"]).leader_elect);
    }

    #[test]
    fn namespaces_may_be_repeated_separated_and_empty() {
        assert_eq!(parse(&["--namespace=b,a", "--namespace=a"]).watched(), ["a", "b"]);
        assert!(parse(&["--namespace="]).watched().is_empty());
    }
}
