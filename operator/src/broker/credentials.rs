//! Credentials from Secrets, each read by its name: the operator may neither list nor watch Secrets.

use fencepost_crds::{
    conditions::Reason,
    names,
    v1alpha1::{KafkaSpec, SecretKeyRef, SecretRef},
};
use fencepost_kafka::{
    error::chain,
    settings::{ConnectionSettings, SettingsError},
};
use fencepost_plan::{
    BrokerFailure, Fingerprints,
    secrets::{SecretKeys, fingerprint},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

/// How to reach the brokers of a job.
pub(super) async fn settings(
    client: &Client,
    namespace: &str,
    kafka: &KafkaSpec,
) -> Result<ConnectionSettings, BrokerFailure> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut settings =
        ConnectionSettings::plaintext(&kafka.bootstrap_servers, names::MANAGER).map_err(|error| wrong(&error))?;
    if let Some(tls) = &kafka.tls {
        let pem = match &tls.ca_secret_ref {
            Some(reference) => Some(read(&secrets, reference, "spec.kafka.tls.caSecretRef").await?),
            None => None,
        };
        settings = settings.with_tls(pem).map_err(|error| wrong(&error))?;
        if let Some(SecretRef { name }) = &tls.client_certificate_secret_ref {
            let field = "spec.kafka.tls.clientCertificateSecretRef";
            let key = |key: &str| SecretKeyRef { name: name.clone(), key: key.to_owned() };
            let certificate = read(&secrets, &key(names::TLS_CERTIFICATE), field).await?;
            let private = read(&secrets, &key(names::TLS_KEY), field).await?;
            settings = settings.with_client_certificate(certificate, private).map_err(|error| wrong(&error))?;
        }
    }
    if let Some(sasl) = &kafka.sasl {
        let username = read(&secrets, &sasl.username_secret_ref, "spec.kafka.sasl.usernameSecretRef").await?;
        let password = read(&secrets, &sasl.password_secret_ref, "spec.kafka.sasl.passwordSecretRef").await?;
        settings = settings.with_sasl(sasl.mechanism, username, password).map_err(|error| wrong(&error))?;
    }
    Ok(settings)
}

/// Fingerprints of the Secrets that are there and complete.
pub async fn fingerprints(client: &Client, namespace: &str, wanted: &SecretKeys) -> Fingerprints {
    let api = &Api::<Secret>::namespaced(client.clone(), namespace);
    let mut seen = Fingerprints::default();
    for (name, keys) in wanted {
        match api.get_opt(name).await {
            Ok(secret) => {
                if let Some(print) = secret.and_then(|secret| fingerprint(&secret, keys)) {
                    seen.insert(name, print);
                }
            }
            // Workers go on with what they have.
            Err(error) => tracing::warn!(namespace, secret = name, error = chain(&error), "a Secret cannot be read"),
        }
    }
    seen
}

fn wrong(error: &SettingsError) -> BrokerFailure {
    BrokerFailure { reason: error.cause().reason(), message: chain(error) }
}

async fn read(secrets: &Api<Secret>, reference: &SecretKeyRef, field: &str) -> Result<Vec<u8>, BrokerFailure> {
    let SecretKeyRef { name, key } = reference;
    let missing = |message: String| BrokerFailure { reason: Reason::SecretMissing, message };
    let secret = secrets
        .get_opt(name)
        .await
        .map_err(|error| missing(format!("{field}: Secret {name} cannot be read: {}", chain(&error))))?;
    let Some(secret) = secret else {
        return Err(missing(format!("{field}: Secret {name} does not exist: create it, or correct the name")));
    };
    let data = secret.data.unwrap_or_default();
    data.get(key)
        .map(|value| value.0.clone())
        .ok_or_else(|| missing(format!("{field}: Secret {name} has no key {key}: add it, or correct the key")))
}
