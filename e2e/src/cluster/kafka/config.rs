//! The configuration files of brokers and clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strum::IntoEnumIterator;

use crate::cluster::pki::BROKER_NAME;
use crate::cluster::topology::Broker;
use crate::cluster::{Brokers, ClusterSpec, Expiry, Security};

/// Somebody who logs in to Kafka (SASL_SSL). Only the administrator may do anything without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "lowercase")]
pub enum User {
    /// May do everything.
    Admin,
    /// The operator.
    Operator,
    /// The workers of a job.
    Worker,
    /// Tests, when they write input and read output.
    Tester,
    /// The workers of a job whose password changes.
    Changing,
    /// The workers of a job whose permissions are taken away, one after the other.
    Losing,
    /// The workers of a job that may not make its topic.
    Making,
    /// The workers of a job that has a certificate and no password.
    Certified,
    /// The workers of a job whose certificate changes.
    Renamed,
    /// Nobody in particular.
    Outsider,
}

impl User {
    pub(in crate::cluster) fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// The password. No secret: it opens nothing but a test cluster that only this machine can reach.
    #[must_use]
    pub fn password(self) -> String {
        format!("{self}-secret")
    }
}

/// Where clients connect.
pub(super) fn port(security: Security) -> u16 {
    match security {
        Security::Plaintext => 9092,
        Security::SaslSsl => 9093,
    }
}

/// Where clients connect that show a certificate and have no password (only with [`Security::SaslSsl`]).
pub(super) const MUTUAL_PORT: u16 = 9096;
const CONTROLLER_PORT: u16 = 9094;
const INTERNAL_PORT: u16 = 9095;

/// What a broker's configuration depends on.
pub(super) struct Server<'s> {
    pub(super) spec: &'s ClusterSpec,
    pub(super) broker: Broker,
    pub(super) data: PathBuf,
    pub(super) keystore: PathBuf,
    pub(super) authority: PathBuf,
}

impl Server<'_> {
    /// The text of `server.properties`.
    pub(super) fn render(&self) -> String {
        let voters = self.spec.brokers().into_iter();
        let voters: Vec<_> = voters.map(|b| format!("{}@{}:{CONTROLLER_PORT}", b.id(), b.address())).collect();
        let mut lines = vec![
            "process.roles=broker,controller".to_owned(),
            format!("node.id={}", self.broker.id()),
            format!("controller.quorum.voters={}", voters.join(",")),
            "controller.listener.names=CONTROLLER".to_owned(),
            format!("log.dirs={}", self.data.display()),
            // What nobody asked for must not come into being by a misspelt name.
            "auto.create.topics.enable=false".to_owned(),
            // The load writes messages of 1970 among others. A check of the age (30 s after the start, then every 5 minutes)
            // that finds only such a one in a partition removes it, and the judge would miss it.
            "log.retention.ms=-1".to_owned(),
            // A group of a test starts at once; rebalances later are not changed by this.
            "group.initial.rebalance.delay.ms=0".to_owned(),
            "offsets.topic.num.partitions=4".to_owned(),
            "transaction.state.log.num.partitions=4".to_owned(),
        ];
        lines.extend(self.expiry().map(|(name, value)| format!("{name}={value}")));
        lines.extend(self.copies());
        lines.extend(self.listeners());
        lines.join("\n") + "\n"
    }

    fn expiry(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let soon = [
            ("connections.max.idle.ms", 8_000),
            ("transactional.id.expiration.ms", 10_000),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", 2_000),
            ("producer.id.expiration.ms", 10_000),
            ("producer.id.expiration.check.interval.ms", 2_000),
        ];
        soon.into_iter().filter(|_| self.spec.expiry == Expiry::Soon)
    }

    fn copies(&self) -> Vec<String> {
        let (copies, in_sync) = match self.spec.brokers {
            Brokers::One => (1, 1),
            Brokers::Three => (3, 2),
        };
        vec![
            format!("default.replication.factor={copies}"),
            format!("min.insync.replicas={in_sync}"),
            format!("offsets.topic.replication.factor={copies}"),
            format!("share.coordinator.state.topic.min.isr={in_sync}"),
            format!("share.coordinator.state.topic.replication.factor={copies}"),
            format!("transaction.state.log.min.isr={in_sync}"),
            format!("transaction.state.log.replication.factor={copies}"),
        ]
    }

    fn listeners(&self) -> Vec<String> {
        let (address, port) = (self.broker.address(), port(self.spec.security));
        let controller = format!("CONTROLLER://{address}:{CONTROLLER_PORT}");
        match self.spec.security {
            Security::Plaintext => vec![
                format!("listeners=PLAINTEXT://{address}:{port},{controller}"),
                format!("advertised.listeners=PLAINTEXT://{address}:{port}"),
                "inter.broker.listener.name=PLAINTEXT".to_owned(),
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned(),
            ],
            Security::SaslSsl => {
                let clients = format!(
                    "CLIENTS://{address}:{port},INTERNAL://{address}:{INTERNAL_PORT},MUTUAL://{address}:{MUTUAL_PORT}"
                );
                vec![
                    format!("listeners={clients},{controller}"),
                    format!("advertised.listeners={clients}"),
                    // Brokers know each other by certificate: SCRAM needs a cluster that is up already.
                    "inter.broker.listener.name=INTERNAL".to_owned(),
                    "listener.security.protocol.map=CLIENTS:SASL_SSL,CONTROLLER:SSL,INTERNAL:SSL,MUTUAL:SSL".to_owned(),
                    "listener.name.mutual.ssl.client.auth=required".to_owned(),
                    // A certificate's common name is a user as good as a name with a password.
                    "ssl.principal.mapping.rules=RULE:^.*CN=([^,]+).*$/$1/".to_owned(),
                    "listener.name.controller.ssl.client.auth=required".to_owned(),
                    "listener.name.internal.ssl.client.auth=required".to_owned(),
                    "listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512".to_owned(),
                    "listener.name.clients.scram-sha-512.sasl.jaas.config=\
                     org.apache.kafka.common.security.scram.ScramLoginModule required;"
                        .to_owned(),
                    "ssl.keystore.type=PEM".to_owned(),
                    format!("ssl.keystore.location={}", self.keystore.display()),
                    "ssl.truststore.type=PEM".to_owned(),
                    format!("ssl.truststore.location={}", self.authority.display()),
                    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
                    format!("super.users=User:{};User:{BROKER_NAME}", User::Admin),
                ]
            }
        }
    }
}

/// The text of a Java client's properties file.
pub(super) fn java_client(spec: &ClusterSpec, user: User, authority: &Path) -> String {
    match spec.security {
        Security::Plaintext => String::new(),
        Security::SaslSsl => format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{user}\" password=\"{}\";\n\
             ssl.truststore.type=PEM\nssl.truststore.location={}\n",
            user.password(),
            authority.display(),
        ),
    }
}

/// What librdkafka needs.
pub(super) fn librdkafka_client(
    spec: &ClusterSpec,
    bootstrap: &str,
    user: User,
    authority: &Path,
) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::from([("bootstrap.servers".to_owned(), bootstrap.to_owned())]);
    if spec.security == Security::SaslSsl {
        let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
        set("security.protocol", "SASL_SSL".to_owned());
        set("sasl.mechanism", "SCRAM-SHA-512".to_owned());
        set("sasl.username", user.to_string());
        set("sasl.password", user.password());
        set("ssl.ca.location", authority.display().to_string());
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::{Server, User, java_client, librdkafka_client};
    use crate::cluster::topology::Broker;
    use crate::cluster::{Brokers, ClusterSpec, Expiry, Security};
    use std::path::Path;

    fn rendered(spec: &ClusterSpec) -> Vec<String> {
        let server = Server {
            spec,
            broker: Broker::numbered(2),
            data: "/data".into(),
            keystore: "/keys.pem".into(),
            authority: "/ca.crt".into(),
        };
        server.render().lines().map(str::to_owned).collect()
    }

    #[test]
    fn three_brokers_keep_internal_topics_in_three_copies() {
        let spec = ClusterSpec { brokers: Brokers::Three, ..ClusterSpec::default() };
        let lines = rendered(&spec);
        for line in [
            "node.id=2",
            "controller.quorum.voters=1@10.77.0.101:9094,2@10.77.0.102:9094,3@10.77.0.103:9094",
            "transaction.state.log.replication.factor=3",
            "transaction.state.log.min.isr=2",
            "offsets.topic.replication.factor=3",
            "advertised.listeners=PLAINTEXT://10.77.0.102:9092",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
        }
    }

    #[test]
    fn no_message_is_too_old_to_be_kept() {
        assert!(rendered(&ClusterSpec::default()).contains(&"log.retention.ms=-1".to_owned()));
    }

    #[test]
    fn no_setting_is_written_twice() {
        for security in [Security::Plaintext, Security::SaslSsl] {
            let lines = rendered(&ClusterSpec { security, expiry: Expiry::Soon, ..ClusterSpec::default() });
            let mut names: Vec<_> = lines.iter().map(|line| line.split('=').next().unwrap()).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn with_sasl_ssl_no_listener_is_open_to_everybody() {
        let spec = ClusterSpec { security: Security::SaslSsl, ..ClusterSpec::default() };
        let lines = rendered(&spec);
        assert!(!lines.iter().any(|line| line.contains("PLAINTEXT")), "{lines:#?}");
        assert!(java_client(&spec, User::Worker, Path::new("/ca.crt")).contains("username=\"worker\""));
        let client = librdkafka_client(&spec, "b:1", User::Worker, Path::new("/ca.crt"));
        assert_eq!(client["sasl.password"], "worker-secret");
    }
}
