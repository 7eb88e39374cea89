//! `up`

use std::process::ExitCode;

use clap::Args;

use super::{Outcome, Which};
use crate::cluster::{Brokers, Cluster, ClusterSpec, Security};
use crate::report;

/// Bring a cluster up (and build what it needs first, once)
#[derive(Debug, Args)]
pub(super) struct Up {
    #[command(flatten)]
    which: Which,
    /// Kubernetes nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// Kafka brokers
    #[arg(long, value_enum, default_value_t)]
    brokers: Brokers,
    /// How clients talk to Kafka
    #[arg(long, value_enum, default_value_t)]
    security: Security,
}

impl Up {
    pub(super) fn run(self) -> Outcome {
        let spec = ClusterSpec {
            name: self.which.name,
            nodes: self.nodes,
            brokers: self.brokers,
            security: self.security,
            ..ClusterSpec::default()
        };
        let cluster = Cluster::up(&spec)?;
        report::detail(format!("kubectl: e2e/fp kubectl --name {} -- get pods -A", spec.name));
        report::detail(format!(
            "a shell inside: nsenter --net={} env KUBECONFIG={} bash",
            cluster.namespace().path().display(),
            cluster.kubeconfig_path().display()
        ));
        report::detail(format!("the end: e2e/fp down --name {}", spec.name));
        Ok(ExitCode::SUCCESS)
    }
}
