//! `fault`

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Outcome, Which};
use crate::cluster::topology::{Broker, Member, Node};
use crate::faults::{self, PodProcess, Traffic};

/// Break something, or heal it. A fault stays until it is healed
#[derive(Debug, Args)]
pub(super) struct Fault {
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Kill the first process of a pod's container: kill -9
    KillPod(Pod),
    /// Stop the first process of a pod's container: SIGSTOP
    PausePod(Pod),
    /// Let a stopped process go on: SIGCONT
    ResumePod(Pod),
    /// Cut a node or broker off from everything
    CutOff {
        /// node-1, kafka-1, ...
        member: Member,
    },
    /// Cut a node off from the API server only
    CutOffApi {
        /// node-1, ...
        node: Member,
    },
    /// Lose packets of a node or broker
    Lose {
        /// node-1, kafka-1, ...
        member: Member,
        /// How many of a hundred
        percent: f64,
    },
    /// Delay the packets that a node or broker sends
    Delay {
        /// node-1, kafka-1, ...
        member: Member,
        /// By how many milliseconds
        milliseconds: u64,
    },
    /// Narrow the link of a node or broker
    Limit {
        /// node-1, kafka-1, ...
        member: Member,
        /// To how many kilobits a second
        kilobits: u32,
    },
    /// Undo every network fault of a node or broker
    Heal {
        /// node-1, kafka-1, ...
        member: Member,
    },
    /// Crash a node with everything it runs
    CrashNode {
        /// node-1, ...
        node: Member,
    },
    /// Start a crashed node again
    StartNode {
        /// node-1, ...
        node: Member,
    },
    /// Let a broker end in order
    StopBroker {
        /// kafka-1, ...
        broker: Member,
    },
    /// Kill a broker: kill -9
    KillBroker {
        /// kafka-1, ...
        broker: Member,
    },
    /// Start a broker again
    StartBroker {
        /// kafka-1, ...
        broker: Member,
    },
}

#[derive(Debug, Args)]
struct Pod {
    /// The pod
    pod: String,
    /// Its namespace
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Its container; the first one when not given
    #[arg(long, short)]
    container: Option<String>,
}

impl Fault {
    pub(super) fn run(self) -> Outcome {
        let cluster = self.which.attach()?;
        let process = |pod: &Pod| PodProcess::of_pod(&cluster, &pod.namespace, &pod.pod, pod.container.as_deref());
        match self.kind {
            Kind::KillPod(pod) => process(&pod)?.kill()?,
            Kind::PausePod(pod) => process(&pod)?.pause()?.keep(),
            Kind::ResumePod(pod) => process(&pod)?.resume()?,
            Kind::CutOff { member } => faults::cut_off(&cluster, member)?.keep(),
            Kind::CutOffApi { node: member } => faults::cut_off_from_api(&cluster, node(member)?)?.keep(),
            Kind::Lose { member, percent } => faults::disturb(&cluster, member, Traffic::Lose { percent })?.keep(),
            Kind::Delay { member, milliseconds } => {
                faults::disturb(&cluster, member, Traffic::Delay(Duration::from_millis(milliseconds)))?.keep();
            }
            Kind::Limit { member, kilobits } => faults::disturb(&cluster, member, Traffic::Limit { kilobits })?.keep(),
            Kind::Heal { member } => faults::heal(&cluster, member)?,
            Kind::CrashNode { node: member } => cluster.crash_node(node(member)?)?,
            Kind::StartNode { node: member } => cluster.start_node(node(member)?)?,
            Kind::StopBroker { broker: member } => cluster.stop_broker(broker(member)?)?,
            Kind::KillBroker { broker: member } => cluster.kill_broker(broker(member)?)?,
            Kind::StartBroker { broker: member } => cluster.start_broker(broker(member)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn node(member: Member) -> Result<Node, String> {
    match member {
        Member::Node(node) => Ok(node),
        Member::Broker(broker) => Err(format!("{broker} is a broker, not a node")),
    }
}

fn broker(member: Member) -> Result<Broker, String> {
    match member {
        Member::Broker(broker) => Ok(broker),
        Member::Node(node) => Err(format!("{node} is a node, not a broker")),
    }
}
