//! Certificates, keys and kubeconfigs. Two authorities: one for Kubernetes, one for Kafka.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use super::kafka::User;
use super::topology::{API_PORT, API_SERVICE, Broker, CONTROL_PLANE_ADDRESS, Node};
use super::{ClusterSpec, Error};
use crate::paths::RunDir;

/// The common name in the certificates that brokers show to each other; a super user of Kafka.
pub(super) const BROKER_NAME: &str = "broker";

/// An authority that signs certificates into the folder it lives in.
struct Authority {
    folder: PathBuf,
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: PathBuf, name: &'static str) -> Result<Self, Error> {
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        write(&folder.join(format!("{name}.crt")), &certificate.pem())?;
        Ok(Self { folder, name, issuer: Issuer::new(params, key) })
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join(format!("{}.crt", self.name))
    }

    /// A certificate for a server and a client, as `FILE.crt` and `FILE.key`. Gives both texts.
    fn issue(&self, file: &str, subject: &Subject<'_>, names: Vec<String>) -> Result<(String, String), Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, subject.name);
        if let Some(group) = subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        write(&self.folder.join(format!("{file}.crt")), &certificate)?;
        write(&self.folder.join(format!("{file}.key")), &key)?;
        Ok((certificate, key))
    }

    /// A certificate for a client of the API server, and a kubeconfig that uses it.
    fn kubeconfig(&self, file: &str, subject: &Subject<'_>, names: Vec<String>) -> Result<(), Error> {
        self.issue(file, subject, names)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fencepost", "cluster": {
                "server": format!("https://{CONTROL_PLANE_ADDRESS}:{API_PORT}"),
                "certificate-authority": self.certificate(),
            }}],
            "users": [{"name": file, "user": {
                "client-certificate": self.folder.join(format!("{file}.crt")),
                "client-key": self.folder.join(format!("{file}.key")),
            }}],
            "contexts": [{"name": "fencepost", "context": {"cluster": "fencepost", "user": file}}],
            "current-context": "fencepost",
        });
        write(&self.folder.join(format!("{file}.kubeconfig")), &config.to_string())
    }
}

struct Subject<'s> {
    name: &'s str,
    group: Option<&'s str>,
}

impl<'s> Subject<'s> {
    fn user(name: &'s str) -> Self {
        Self { name, group: None }
    }

    fn member(name: &'s str, group: &'s str) -> Self {
        Self { name, group: Some(group) }
    }
}

/// Makes all that a cluster needs.
pub(super) fn create(run: &RunDir, spec: &ClusterSpec) -> Result<(), Error> {
    let kubernetes = Authority::new(run.pki(), "ca")?;
    let mut api_server: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map(str::to_owned).to_vec();
    api_server.extend([CONTROL_PLANE_ADDRESS.to_string(), API_SERVICE.to_string(), "127.0.0.1".to_owned()]);
    kubernetes.issue("apiserver", &Subject::user("kube-apiserver"), api_server)?;
    kubernetes.kubeconfig("admin", &Subject::member("admin", "system:masters"), Vec::new())?;
    for component in ["kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        kubernetes.kubeconfig(component, &Subject::user(&format!("system:{component}")), Vec::new())?;
    }
    for node in spec.nodes() {
        let names = vec![node.address().to_string(), node.name()];
        let user = format!("system:node:{node}");
        kubernetes.kubeconfig(&Node::name(node), &Subject::member(&user, "system:nodes"), names)?;
    }
    // What the API server signs service account tokens with.
    let accounts = KeyPair::generate()?;
    write(&run.pki().join("service-accounts.key"), &accounts.serialize_pem())?;
    write(&run.pki().join("service-accounts.pub"), &accounts.public_key_pem())?;

    let kafka = Authority::new(kafka_folder(run), "ca")?;
    for broker in spec.brokers() {
        let (certificate, key) = kafka.issue(&broker.name(), &Subject::user(BROKER_NAME), broker_names(broker))?;
        // Kafka wants one file: the key, then the chain.
        write(&keystore(run, broker), &format!("{key}{certificate}"))?;
    }
    for user in User::all() {
        kafka.issue(&user_file(user), &Subject::user(&user.to_string()), Vec::new())?;
    }
    Ok(())
}

/// File of a user's certificate and key, without the ending.
pub(super) fn user_file(user: User) -> String {
    format!("user-{user}")
}

/// The names a client may know a broker by.
fn broker_names(broker: Broker) -> Vec<String> {
    let service = ["kafka.kafka", "kafka.kafka.svc", "kafka.kafka.svc.cluster.local"];
    let mut names = vec![broker.address().to_string(), "127.0.0.1".to_owned(), "localhost".to_owned()];
    names.extend(service.map(str::to_owned));
    names.extend(service.map(|service| format!("{broker}.{service}")));
    names
}

fn kafka_folder(run: &RunDir) -> PathBuf {
    run.pki().join("kafka")
}

/// The authority that Kafka's clients must trust.
pub(super) fn kafka_authority(run: &RunDir) -> PathBuf {
    kafka_folder(run).join("ca.crt")
}

/// Key and certificate of a broker in one file.
pub(super) fn keystore(run: &RunDir, broker: Broker) -> PathBuf {
    kafka_folder(run).join(format!("{broker}.pem"))
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::file(path))?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(Error::file(path))
}
