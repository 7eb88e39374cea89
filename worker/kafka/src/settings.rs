//! How to reach a Kafka cluster. One value for librdkafka and for the raw client, so that the two never differ.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use fencepost_crds::contract::ResolvedKafka;
use fencepost_crds::v1alpha1::SaslMechanism;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::error::Cause;

/// `client.id` where the caller has none of its own.
pub const DEFAULT_CLIENT_ID: &str = "fencepost";

/// How to reach a Kafka cluster.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Where to start. Never empty.
    pub bootstrap: Vec<HostPort>,
    /// Present: TLS, with the broker's name checked.
    pub tls: Option<TlsSettings>,
    /// Present: SASL.
    pub sasl: Option<SaslSettings>,
    /// Name of this client in the brokers' logs, metrics and quotas.
    pub client_id: String,
}

/// TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// PEM certificates of the authorities to trust. Absent: those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// What is shown to the brokers. Absent: nothing.
    pub client: Option<ClientCertificate>,
}

/// Who we are, for brokers that know their clients by certificate (mutual TLS).
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// PEM certificate and its chain.
    pub certificate_pem: Vec<u8>,
    /// PEM private key.
    pub key_pem: Secret,
}

/// SASL.
#[derive(Clone, Debug)]
pub struct SaslSettings {
    /// Mechanism.
    pub mechanism: SaslMechanism,
    /// User name.
    pub username: String,
    /// Password.
    pub password: Secret,
}

/// A text that never reaches a log: `Debug` prints `***`, and the memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// Port, never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let invalid = || SettingsError::Bootstrap { text: text.to_owned() };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port: u16 = port.parse().map_err(|_| invalid())?;
        if host.is_empty() || host.contains(char::is_whitespace) || port == 0 {
            return Err(invalid());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Not a `host:port`.
    #[error("bootstrap server {text:?} is not host:port; correct spec.kafka.bootstrapServers")]
    Bootstrap {
        /// What was given.
        text: String,
    },
    /// A file of a mounted Secret cannot be read.
    #[error("cannot read the {what} from {}; create the Secret and key that {field} refers to", path.display())]
    File {
        /// What the file holds.
        what: &'static str,
        /// Field of the spec that refers to it.
        field: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content is not usable.
    #[error("the {what} is {problem}; correct the Secret that {field} refers to")]
    Content {
        /// What it should be.
        what: &'static str,
        /// What it is instead.
        problem: &'static str,
        /// Field of the spec that refers to it.
        field: &'static str,
    },
}

impl SettingsError {
    /// What is wrong, for the user.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Bootstrap { .. } => Cause::BrokerUnreachable,
            Self::File { .. } | Self::Content { .. } => Cause::SecretMissing,
        }
    }
}

const CA: (&str, &str) = ("CA certificate", "spec.kafka.tls.caSecretRef");
const CERTIFICATE: (&str, &str) = ("client certificate", "spec.kafka.tls.clientCertificateSecretRef");
const KEY: (&str, &str) = ("key of the client certificate", "spec.kafka.tls.clientCertificateSecretRef");
const USERNAME: (&str, &str) = ("SASL user name", "spec.kafka.sasl.usernameSecretRef");
const PASSWORD: (&str, &str) = ("SASL password", "spec.kafka.sasl.passwordSecretRef");

impl ConnectionSettings {
    /// Settings without TLS and SASL from `host:port,host:port`.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Bootstrap`] when an entry is not `host:port`, or there is none.
    pub fn plaintext(bootstrap_servers: &str, client_id: &str) -> Result<Self, SettingsError> {
        let bootstrap = bootstrap_servers
            .split(',')
            .filter(|entry| !entry.trim().is_empty())
            .map(str::parse)
            .collect::<Result<Vec<HostPort>, _>>()?;
        if bootstrap.is_empty() {
            return Err(SettingsError::Bootstrap { text: bootstrap_servers.to_owned() });
        }
        Ok(Self { bootstrap, tls: None, sasl: None, client_id: client_id.to_owned() })
    }

    /// The same with TLS. `ca_pem` absent: the authorities of the system.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Content`] when the PEM holds no certificate.
    pub fn with_tls(mut self, ca_pem: Option<Vec<u8>>) -> Result<Self, SettingsError> {
        if let Some(pem) = &ca_pem {
            let good = CertificateDer::pem_slice_iter(pem).try_fold(0usize, |count, item| item.map(|_| count + 1));
            if !matches!(good, Ok(1..)) {
                return Err(SettingsError::Content { what: CA.0, problem: "not a PEM certificate", field: CA.1 });
            }
        }
        self.tls = Some(TlsSettings { ca_pem, client: None });
        Ok(self)
    }

    /// The same with a certificate of our own. Only together with TLS.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Content`] when one of the two is not PEM of its kind, or there is no TLS.
    pub fn with_client_certificate(mut self, certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, SettingsError> {
        let bad =
            |(what, field): (&'static str, &'static str), problem| SettingsError::Content { what, problem, field };
        let chain = CertificateDer::pem_slice_iter(&certificate).try_fold(0usize, |n, item| item.map(|_| n + 1));
        if !matches!(chain, Ok(1..)) {
            return Err(bad(CERTIFICATE, "not a PEM certificate"));
        }
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(bad(KEY, "not a PEM private key, or protected by a password"));
        }
        let key_pem = Secret::new(text(key, KEY)?);
        let tls = self.tls.as_mut().ok_or_else(|| bad(CERTIFICATE, "of no use without TLS"))?;
        tls.client = Some(ClientCertificate { certificate_pem: certificate, key_pem });
        Ok(self)
    }

    /// The same with SASL, from the bytes of Secrets.
    ///
    /// One line end at the end is dropped: `kubectl create secret --from-file` keeps the one that editors write, and no
    /// broker would accept it.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Content`] when one of the texts is empty or not UTF-8.
    pub fn with_sasl(
        mut self,
        mechanism: SaslMechanism,
        username: Vec<u8>,
        password: Vec<u8>,
    ) -> Result<Self, SettingsError> {
        let username = text(username, USERNAME)?;
        let password = Secret::new(text(password, PASSWORD)?);
        self.sasl = Some(SaslSettings { mechanism, username, password });
        Ok(self)
    }

    /// Reads the files that a resolved job names.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] naming the file, or what is wrong with its content.
    pub fn from_resolved(kafka: &ResolvedKafka, client_id: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::plaintext(&kafka.bootstrap_servers, client_id)?;
        if let Some(tls) = &kafka.tls {
            let pem = tls.ca_file.as_ref().map(|path| read(path, CA)).transpose()?;
            settings = settings.with_tls(pem)?;
            if let (Some(certificate), Some(key)) = (&tls.certificate_file, &tls.key_file) {
                settings = settings.with_client_certificate(read(certificate, CERTIFICATE)?, read(key, KEY)?)?;
            }
        }
        if let Some(sasl) = &kafka.sasl {
            let username = read(&sasl.username_file, USERNAME)?;
            let password = read(&sasl.password_file, PASSWORD)?;
            settings = settings.with_sasl(sasl.mechanism, username, password)?;
        }
        Ok(settings)
    }

    /// The same as properties of librdkafka. Password and private key are among the values: not for logs.
    #[must_use]
    pub fn librdkafka(&self) -> Vec<(&'static str, String)> {
        let servers = self.bootstrap.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut properties = vec![("bootstrap.servers", servers), ("client.id", self.client_id.clone())];
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        properties.push(("security.protocol", protocol.to_owned()));
        if let Some(tls) = &self.tls {
            properties.push(("ssl.endpoint.identification.algorithm", "https".to_owned()));
            match tls.ca_pem.as_deref().map(String::from_utf8_lossy) {
                Some(pem) => properties.push(("ssl.ca.pem", pem.into_owned())),
                // Otherwise it depends on how OpenSSL was built whether any authority is found.
                None => properties.push(("ssl.ca.location", "probe".to_owned())),
            }
            if let Some(client) = &tls.client {
                let certificate = String::from_utf8_lossy(&client.certificate_pem).into_owned();
                properties.push(("ssl.certificate.pem", certificate));
                properties.push(("ssl.key.pem", client.key_pem.expose().to_owned()));
            }
        }
        if let Some(sasl) = &self.sasl {
            properties.push(("sasl.mechanism", sasl.mechanism.to_string()));
            properties.push(("sasl.username", sasl.username.clone()));
            properties.push(("sasl.password", sasl.password.expose().to_owned()));
        }
        properties
    }
}

fn read(path: &str, (what, field): (&'static str, &'static str)) -> Result<Vec<u8>, SettingsError> {
    fs::read(path).map_err(|source| SettingsError::File { what, field, path: path.into(), source })
}

fn text(bytes: Vec<u8>, (what, field): (&'static str, &'static str)) -> Result<String, SettingsError> {
    let mut text =
        String::from_utf8(bytes).map_err(|_| SettingsError::Content { what, problem: "not UTF-8", field })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err(SettingsError::Content { what, problem: "empty", field });
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
