//! From a StreamJob to the [`ResolvedJob`] that workers read: defaults filled in, Secrets turned into paths.

use kube::{ResourceExt, core::Duration};

use crate::{
    StreamJob,
    contract::{CONTRACT_VERSION, ResolvedJob, ResolvedKafka, ResolvedSasl, ResolvedTls},
    names,
    v1alpha1::{KafkaSpec, SecretKeyRef},
};

/// Resolves a job. `secrets_dir` is where Secrets are mounted: `<dir>/<secret>/<key>`.
#[must_use]
pub fn resolve(job: &StreamJob, revision: &str, secrets_dir: &str) -> ResolvedJob {
    let namespace = job.namespace().unwrap_or_else(|| "default".to_owned());
    let name = job.name_any();
    let spec = &job.spec;
    let processing = &spec.processing;
    ResolvedJob {
        contract_version: CONTRACT_VERSION,
        transactional_id_prefix: transactional_id_prefix(&spec.kafka, &namespace, &name),
        consumer_group: consumer_group(&spec.kafka, &namespace, &name),
        group_protocol: spec.kafka.group_protocol,
        namespace,
        name,
        uid: job.uid().unwrap_or_default(),
        revision: revision.to_owned(),
        kafka: resolve_kafka(&spec.kafka, secrets_dir),
        guarantee: processing.guarantee,
        commit_interval_ms: millis(&processing.protocol.transactional.commit_interval),
        transaction_timeout_ms: millis(&processing.transaction_timeout),
        drain_timeout_ms: millis(&spec.worker.drain_timeout),
        slots: u32::try_from(spec.worker.slots).unwrap_or(1).max(1),
        pipeline: spec.pipeline.clone(),
    }
}

/// The prefix of the transactional ids of a job.
#[must_use]
pub fn transactional_id_prefix(kafka: &KafkaSpec, namespace: &str, name: &str) -> String {
    kafka.transactional_id_prefix.clone().unwrap_or_else(|| default_name(namespace, name))
}

/// The consumer group of a job.
#[must_use]
pub fn consumer_group(kafka: &KafkaSpec, namespace: &str, name: &str) -> String {
    kafka.consumer_group.clone().unwrap_or_else(|| default_name(namespace, name))
}

/// What a job is called at the brokers, unless its spec says otherwise.
fn default_name(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

/// Whether a job is called so by default.
#[must_use]
pub fn is_default_name(text: &str, namespace: &str, name: &str) -> bool {
    text.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')) == Some(name)
}

/// A duration in whole milliseconds.
#[must_use]
pub fn millis(duration: &Duration) -> u64 {
    let duration = std::time::Duration::from(*duration);
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn resolve_kafka(kafka: &KafkaSpec, secrets_dir: &str) -> ResolvedKafka {
    let path = |secret: &SecretKeyRef| format!("{secrets_dir}/{}/{}", secret.name, secret.key);
    ResolvedKafka {
        bootstrap_servers: kafka.bootstrap_servers.clone(),
        tls: kafka.tls.as_ref().map(|tls| {
            let client = tls.client_certificate_secret_ref.as_ref();
            let file = |key: &str| client.map(|secret| format!("{secrets_dir}/{}/{key}", secret.name));
            ResolvedTls {
                ca_file: tls.ca_secret_ref.as_ref().map(path),
                certificate_file: file(names::TLS_CERTIFICATE),
                key_file: file(names::TLS_KEY),
            }
        }),
        sasl: kafka.sasl.as_ref().map(|sasl| ResolvedSasl {
            mechanism: sasl.mechanism,
            username_file: path(&sasl.username_secret_ref),
            password_file: path(&sasl.password_secret_ref),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::v1alpha1::GroupProtocol;

    #[test]
    fn the_default_name_is_told_from_others() {
        assert!(is_default_name(&default_name("shop", "spend"), "shop", "spend"));
        for other in ["shop.spend-2", "shop.spen", "shopspend", "shop", "", "shop2.spend", "shop..spend"] {
            assert!(!is_default_name(other, "shop", "spend"), "{other}");
        }
    }

    #[test]
    fn the_protocol_of_the_group_is_handed_on_and_told_only_when_it_was_chosen() {
        let resolved = |kafka: serde_json::Value| {
            let job = json!({
                "metadata": {"name": "spend", "namespace": "shop"},
                "spec": {
                    "kafka": kafka,
                    "pipeline": {"sources": [], "sql": "SELECT 1", "sinks": []},
                },
            });
            resolve(&serde_json::from_value(job).unwrap(), "1", "/secrets")
        };
        let chosen = resolved(json!({"bootstrapServers": "kafka:9092", "groupProtocol": "Consumer"}));
        assert_eq!(chosen.group_protocol, GroupProtocol::Consumer);
        assert_eq!(serde_json::to_value(&chosen).unwrap()["groupProtocol"], "Consumer");
        for kafka in [
            json!({"bootstrapServers": "kafka:9092"}),
            json!({"bootstrapServers": "kafka:9092", "groupProtocol": "Classic"}),
        ] {
            let default = resolved(kafka);
            assert_eq!(default.group_protocol, GroupProtocol::Classic);
            // A field more would be another revision of every job that there is.
            assert!(serde_json::to_value(&default).unwrap().get("groupProtocol").is_none());
        }
    }
}
