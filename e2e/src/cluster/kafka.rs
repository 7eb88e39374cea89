//! Kafka: brokers that are controllers too (KRaft), each in a namespace of its own, so that faults can hit one of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fencepost_oracle::reader::Connection;
use nix::sys::signal::Signal;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataBroker;
use serde_json::json;

use super::process::{self, Liveness, Program, Started};
use super::ready::{self, Seen};
use super::topology::Broker;
use super::{Brokers, Cluster, ClusterSpec, Error, Parts, Security, pki};
use crate::command;
use crate::report;

mod config;

pub use config::User;

const LOGGING: &str = include_str!("../../cluster/kafka/log4j2.xml");

/// Identity of the Kafka cluster: 16 bytes in base 64. No two clusters can see each other, so one will do.
const CLUSTER_ID: &str = "ZmVuY2Vwb3N0LWthZmthIQ";

/// Formats the brokers' folders, starts them and waits until they are one cluster.
pub(super) fn start(cluster: &Cluster) -> Result<(), Error> {
    let brokers = cluster.spec.brokers();
    thread::scope(|scope| {
        let starts: Vec<_> = brokers
            .iter()
            .map(|broker| {
                scope.spawn(|| {
                    format(cluster, *broker)?;
                    launch(cluster, *broker)
                })
            })
            .collect();
        starts.into_iter().try_for_each(|start| start.join().map_err(|_| Error::Thread)?.map(drop))
    })?;
    wait_healthy(cluster)
}

fn folder(cluster: &Cluster, broker: Broker) -> PathBuf {
    cluster.run.member(&broker.name())
}

fn format(cluster: &Cluster, broker: Broker) -> Result<(), Error> {
    let folder = folder(cluster, broker);
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        fs::write(&path, content).map_err(Error::file(path))
    };
    write("log4j2.xml", LOGGING)?;
    let properties = config::Server {
        spec: &cluster.spec,
        broker,
        data: folder.join("data"),
        keystore: pki::keystore(&cluster.run, broker),
        authority: pki::kafka_authority(&cluster.run),
    };
    write("server.properties", &properties.render())?;
    for user in User::all() {
        let path = cluster.kafka_properties_path(user);
        fs::write(&path, config::java_client(&cluster.spec, user, &pki::kafka_authority(&cluster.run)))
            .map_err(Error::file(path))?;
    }
    let mut format = java(cluster);
    format.arg("kafka.tools.StorageTool").args(["format", "--cluster-id", CLUSTER_ID, "--config"]);
    format.arg(folder.join("server.properties"));
    if cluster.spec.security == Security::SaslSsl {
        for user in User::all() {
            format.arg("--add-scram").arg(format!("SCRAM-SHA-512=[name={user},password={}]", user.password()));
        }
    }
    // It needs no network. Inside, it is seen as part of the cluster.
    command::run(cluster.spec.name.namespace(&broker.name()).wrap(&mut format)?)?;
    Ok(())
}

fn java(cluster: &Cluster) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        .arg("-cp")
        .arg(cluster.tools.kafka_class_path());
    command
}

fn launch(cluster: &Cluster, broker: Broker) -> Result<Started, Error> {
    let folder = folder(cluster, broker);
    let heap = match (cluster.spec.parts, cluster.spec.brokers) {
        (_, Brokers::Three) => "384m",
        (Parts::Everything, Brokers::One) => "512m",
        // The default of Kafka's own start script: what is measured against it is not measured against a broker short of memory.
        (Parts::Kafka, Brokers::One) => "1g",
    };
    let program = Program::new(broker.name(), &cluster.spec.name.namespace(&broker.name()), "java").args([
        "-Xms256m".to_owned(),
        format!("-Xmx{heap}"),
        format!("-Dlog4j2.configurationFile={}", folder.join("log4j2.xml").display()),
        "-cp".to_owned(),
        cluster.tools.kafka_class_path(),
        "kafka.Kafka".to_owned(),
        folder.join("server.properties").display().to_string(),
    ]);
    Ok(process::start(&cluster.run, program)?)
}

/// Waits until the brokers that run know each other. One that was stopped or killed on purpose is not waited for.
fn wait_healthy(cluster: &Cluster) -> Result<(), Error> {
    let runs = |broker: &Broker| {
        process::find(&cluster.run, &broker.name()).is_ok_and(|started| started.liveness() != Liveness::Gone)
    };
    let running: Vec<Broker> = cluster.spec.brokers().into_iter().filter(runs).collect();
    let components: Vec<String> = running.iter().map(|broker| broker.name()).collect();
    cluster.namespace().within(|| {
        ready::until_healthy(&cluster.run, "Kafka", &components, Duration::from_secs(120), || look(cluster, &running))
    })?
}

/// Asks each of the brokers by itself whether it knows all of them. A new client for each question: the namespace is that
/// of the thread that makes it.
fn look(cluster: &Cluster, running: &[Broker]) -> Seen {
    for broker in running {
        let mut config = ClientConfig::new();
        config.extend(cluster.kafka_client(User::Admin));
        config.set("bootstrap.servers", format!("{}:{}", broker.address(), config::port(cluster.spec.security)));
        // Refused connections are what one expects while waiting.
        config.set("log_level", "0");
        let asked =
            config.create::<BaseConsumer>().and_then(|client| client.fetch_metadata(None, Duration::from_secs(3)));
        let known: Vec<i32> = match asked {
            Ok(metadata) => metadata.brokers().iter().map(MetadataBroker::id).collect(),
            Err(error) => return Seen::Not(format!("{broker}: {}", report::chain(&error))),
        };
        if let Some(missing) = running.iter().find(|other| !known.contains(&i32::from(other.id()))) {
            return Seen::Not(format!("{broker} does not know {missing}"));
        }
    }
    Seen::Healthy
}

/// The service `kafka` in the namespace `kafka`: how pods find the brokers by name.
pub(super) fn service(spec: &ClusterSpec) -> String {
    let port = json!([{"name": "kafka", "port": config::port(spec.security)}]);
    let endpoints: Vec<_> = spec
        .brokers()
        .iter()
        .map(
            |broker| json!({"addresses": [broker.address()], "hostname": broker.name(), "conditions": {"ready": true}}),
        )
        .collect();
    let objects = json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kafka"}},
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kafka", "namespace": "kafka"},
            "spec": {"clusterIP": "None", "ports": port},
        },
        {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "kafka", "namespace": "kafka", "labels": {
                "kubernetes.io/service-name": "kafka", "endpointslice.kubernetes.io/managed-by": "fencepost-e2e",
            }},
            "ports": port, "endpoints": endpoints,
        },
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// How long a broker gets to hand over and end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

impl Cluster {
    /// The brokers' addresses for clients inside the namespace and for pods.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let port = config::port(self.spec.security);
        let addresses = self.spec.brokers().into_iter().map(|broker| format!("{}:{port}", broker.address()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The brokers' address by name, for pods.
    #[must_use]
    pub fn bootstrap_name(&self) -> String {
        format!("kafka.kafka.svc:{}", config::port(self.spec.security))
    }

    /// The certificate of the authority that signed the brokers' certificates (SASL_SSL).
    #[must_use]
    pub fn kafka_authority(&self) -> PathBuf {
        pki::kafka_authority(&self.run)
    }

    /// Where clients connect that show a certificate instead of a password.
    #[must_use]
    pub fn mutual_bootstrap(&self) -> String {
        let servers =
            self.spec.brokers().into_iter().map(|broker| format!("{}:{}", broker.address(), config::MUTUAL_PORT));
        servers.collect::<Vec<_>>().join(",")
    }

    /// Certificate and key, as PEM, that make a client known to the brokers as `user`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn client_certificate(&self, user: User) -> Result<(String, String), Error> {
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(Error::file(path));
        let file = self.run.pki().join("kafka").join(pki::user_file(user));
        Ok((read(file.with_extension("crt"))?, read(file.with_extension("key"))?))
    }

    /// What librdkafka must be configured with in order to talk to the brokers as `user`.
    #[must_use]
    pub fn kafka_client(&self, user: User) -> BTreeMap<String, String> {
        config::librdkafka_client(&self.spec, &self.bootstrap(), user, &self.kafka_authority())
    }

    /// How the judge and its readers reach the brokers as `user`.
    #[must_use]
    pub fn kafka_connection(&self, user: User) -> Connection {
        let properties = self.kafka_client(user);
        properties.iter().fold(Connection::default(), |connection, (name, value)| connection.with(name, value))
    }

    /// A file with what a Java client must be configured with in order to talk to the brokers as `user`.
    #[must_use]
    pub fn kafka_properties_path(&self, user: User) -> PathBuf {
        self.run.pki().join("kafka").join(format!("{user}.properties"))
    }

    /// One of Kafka's own tools (`org.apache.kafka.tools.TopicCommand` and the like), set up to talk to the brokers as `user`,
    /// to be given arguments.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn kafka_command(&self, class: &str, user: User) -> Result<Command, Error> {
        let mut command = java(self);
        command.args([class, "--bootstrap-server", &self.bootstrap(), "--command-config"]);
        command.arg(self.kafka_properties_path(user));
        self.namespace().wrap(&mut command)?;
        Ok(command)
    }

    /// Runs one of Kafka's own tools as its administrator and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn kafka_tool(&self, class: &str, arguments: &[&str]) -> Result<String, Error> {
        Ok(command::run(self.kafka_command(class, User::Admin)?.args(arguments))?)
    }

    /// Lets `user` do something, in the words of `kafka-acls`: `["--operation", "Read", "--topic", "orders"]`.
    ///
    /// # Errors
    /// When Kafka refuses, or the cluster has no authorizer (plaintext).
    pub fn grant(&self, user: User, acl: &[&str]) -> Result<(), Error> {
        self.change_acl("--add", user, acl)
    }

    /// Takes back what was granted in the same words.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn revoke(&self, user: User, acl: &[&str]) -> Result<(), Error> {
        self.change_acl("--remove", user, acl)
    }

    /// Gives `user` another password (SASL_SSL). Connections that are open stay open.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn change_password(&self, user: User, password: &str) -> Result<(), Error> {
        let (user, scram) = (user.to_string(), format!("SCRAM-SHA-512=[password={password}]"));
        let arguments = ["--alter", "--entity-type", "users", "--entity-name", &user, "--add-config", &scram];
        self.kafka_tool("org.apache.kafka.tools.ConfigCommand", &arguments).map(drop)
    }

    fn change_acl(&self, change: &str, user: User, acl: &[&str]) -> Result<(), Error> {
        let principal = format!("User:{user}");
        let arguments = [&[change, "--force", "--allow-principal", &principal], acl].concat();
        self.kafka_tool("org.apache.kafka.tools.AclCommand", &arguments).map(drop)
    }

    /// The broker numbered `id`.
    #[must_use]
    pub fn broker(&self, id: u8) -> Option<Broker> {
        self.spec.brokers().into_iter().find(|broker| broker.id() == id)
    }

    /// Lets a broker end in order and waits until it has.
    ///
    /// # Errors
    /// When it is not running or does not end.
    pub fn stop_broker(&self, broker: Broker) -> Result<(), Error> {
        let started = process::find(&self.run, &broker.name())?;
        started.signal(Signal::SIGTERM)?;
        Ok(started.wait_gone(STOP_LIMIT)?)
    }

    /// Kills a broker and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill_broker(&self, broker: Broker) -> Result<(), Error> {
        let started = process::find(&self.run, &broker.name())?;
        started.signal(Signal::SIGKILL)?;
        Ok(started.wait_gone(STOP_LIMIT)?)
    }

    /// Starts a broker that was stopped or killed, and waits until the cluster is whole again. One that runs is left alone.
    ///
    /// # Errors
    /// When it does not become healthy.
    pub fn start_broker(&self, broker: Broker) -> Result<(), Error> {
        if process::find(&self.run, &broker.name())?.liveness() == Liveness::Gone {
            launch(self, broker)?;
        }
        wait_healthy(self)
    }
}

#[cfg(test)]
mod tests {
    use super::service;
    use crate::cluster::{Brokers, ClusterSpec, Security};

    #[test]
    fn the_service_names_every_broker() {
        let spec = ClusterSpec { brokers: Brokers::Three, security: Security::SaslSsl, ..ClusterSpec::default() };
        let list: serde_json::Value = serde_json::from_str(&service(&spec)).unwrap();
        let endpoints = list["items"][2]["endpoints"].as_array().unwrap();
        let names: Vec<_> = endpoints.iter().map(|endpoint| endpoint["hostname"].as_str().unwrap()).collect();
        assert_eq!(names, ["kafka-1", "kafka-2", "kafka-3"]);
        assert_eq!(list["items"][2]["ports"][0]["port"], 9093);
    }
}
