//! `kafka`

use std::os::unix::process::CommandExt;

use clap::{Args, ValueEnum};

use super::{Outcome, Which};
use crate::cluster::kafka::User;

/// Run one of Kafka's own tools on the cluster, as its administrator
#[derive(Debug, Args)]
pub(super) struct Kafka {
    #[command(flatten)]
    which: Which,
    /// The tool
    tool: Tool,
    /// Its arguments, without the brokers' address and the client's configuration
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Tool {
    Acls,
    Configs,
    ConsoleConsumer,
    ConsoleProducer,
    ConsumerGroups,
    GetOffsets,
    Topics,
    Transactions,
}

impl Tool {
    fn class(self) -> &'static str {
        match self {
            Self::Acls => "org.apache.kafka.tools.AclCommand",
            Self::Configs => "org.apache.kafka.tools.ConfigCommand",
            Self::ConsoleConsumer => "org.apache.kafka.tools.consumer.ConsoleConsumer",
            Self::ConsoleProducer => "org.apache.kafka.tools.ConsoleProducer",
            Self::ConsumerGroups => "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            Self::GetOffsets => "org.apache.kafka.tools.GetOffsetShell",
            Self::Topics => "org.apache.kafka.tools.TopicCommand",
            Self::Transactions => "org.apache.kafka.tools.TransactionsCommand",
        }
    }
}

impl Kafka {
    pub(super) fn run(self) -> Outcome {
        let cluster = self.which.attach()?;
        Err(cluster.kafka_command(self.tool.class(), User::Admin)?.args(self.arguments).exec().into())
    }
}
