use fencepost_crds::contract::{ResolvedSasl, ResolvedTls};
use rstest::rstest;

use super::*;

fn ca() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap().self_signed(&key).unwrap().pem().into_bytes()
}

#[rstest]
#[case("kafka:9092", "kafka:9092")]
#[case(" a.b:1 , c:65535,", "a.b:1,c:65535")]
#[case("[::1]:9092", "[::1]:9092")]
fn servers_are_host_and_port(#[case] text: &str, #[case] printed: &str) {
    let settings = ConnectionSettings::plaintext(text, "x").unwrap();
    assert_eq!(settings.librdkafka()[0], ("bootstrap.servers", printed.to_owned()));
}

#[rstest]
#[case("")]
#[case("kafka")]
#[case("kafka:")]
#[case(":9092")]
#[case("kafka:0")]
#[case("kafka:65536")]
#[case("kafka:9092,other")]
fn what_is_not_host_and_port_is_refused(#[case] text: &str) {
    let error = ConnectionSettings::plaintext(text, "x").unwrap_err();
    assert!(error.to_string().contains("bootstrapServers"), "{error}");
}

#[test]
fn secrets_are_read_from_files_and_lose_one_line_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("ca"), ca()).unwrap();
    fs::write(path("user"), "alice\n").unwrap();
    fs::write(path("password"), "se cret \r\n").unwrap();
    let kafka = ResolvedKafka {
        bootstrap_servers: "kafka:9092".to_owned(),
        tls: Some(ResolvedTls { ca_file: Some(path("ca")), ..ResolvedTls::default() }),
        sasl: Some(ResolvedSasl {
            mechanism: SaslMechanism::ScramSha512,
            username_file: path("user"),
            password_file: path("password"),
        }),
    };
    let settings = ConnectionSettings::from_resolved(&kafka, "worker-0").unwrap();
    let sasl = settings.sasl.as_ref().unwrap();
    assert_eq!((sasl.username.as_str(), sasl.password.expose()), ("alice", "se cret "));

    let properties = settings.librdkafka();
    let get = |key: &str| properties.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str());
    assert_eq!(get("security.protocol"), Some("sasl_ssl"));
    assert_eq!(get("sasl.mechanism"), Some("SCRAM-SHA-512"));
    assert_eq!(get("sasl.password"), Some("se cret "));
    assert!(get("ssl.ca.pem").unwrap().starts_with("-----BEGIN CERTIFICATE-----"));

    let debug = format!("{settings:?}");
    assert!(debug.contains("***") && !debug.contains("se cret"), "{debug}");
}

#[test]
fn librdkafka_accepts_every_property() {
    let settings = ConnectionSettings::plaintext("kafka:9092", "x")
        .unwrap()
        .with_tls(Some(ca()))
        .unwrap()
        .with_sasl(SaslMechanism::ScramSha256, b"u".to_vec(), b"p".to_vec())
        .unwrap();
    let mut config = rdkafka::ClientConfig::new();
    for (key, value) in settings.librdkafka() {
        config.set(key, value);
    }
    config.create::<rdkafka::producer::BaseProducer>().unwrap();
}

#[test]
fn a_missing_file_names_itself_and_the_field() {
    let kafka = ResolvedKafka {
        bootstrap_servers: "kafka:9092".to_owned(),
        tls: Some(ResolvedTls { ca_file: Some("/nowhere/ca.crt".to_owned()), ..ResolvedTls::default() }),
        sasl: None,
    };
    let error = ConnectionSettings::from_resolved(&kafka, "x").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/nowhere/ca.crt") && text.contains("spec.kafka.tls.caSecretRef"), "{text}");
    assert_eq!(error.cause(), Cause::SecretMissing);
}

#[rstest]
#[case(b"".to_vec(), "empty")]
#[case(b"\n".to_vec(), "empty")]
#[case(vec![0xff], "UTF-8")]
fn unusable_passwords_are_refused_before_a_broker_sees_them(#[case] password: Vec<u8>, #[case] problem: &str) {
    let settings = ConnectionSettings::plaintext("kafka:9092", "x").unwrap();
    let error = settings.with_sasl(SaslMechanism::Plain, b"u".to_vec(), password).unwrap_err();
    assert!(error.to_string().contains(problem), "{error}");
}

#[rstest]
#[case(b"".to_vec())]
#[case(b"garbage".to_vec())]
#[case(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n".to_vec())]
fn a_ca_without_a_certificate_is_refused(#[case] pem: Vec<u8>) {
    let settings = ConnectionSettings::plaintext("kafka:9092", "x").unwrap();
    let error = settings.with_tls(Some(pem)).unwrap_err();
    assert!(error.to_string().contains("caSecretRef"), "{error}");
}
