use crate::settings::{ConnectionSettings, Secret};

use super::*;

fn settings(mechanism: SaslMechanism) -> SaslSettings {
    SaslSettings { mechanism, username: "al=i,ce".to_owned(), password: Secret::new("pencil".to_owned()) }
}

#[test]
fn plain_is_one_message_and_ends() {
    let step = Exchange::new(&settings(SaslMechanism::Plain)).unwrap().step(None).unwrap();
    assert_eq!(step, Step::SendLast(b"\0al=i,ce\0pencil".to_vec()));
}

#[test]
fn scram_begins_without_channel_binding_and_escapes_the_name() {
    for mechanism in [SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
        let Step::Send(first) = Exchange::new(&settings(mechanism)).unwrap().step(None).unwrap() else {
            panic!("{mechanism} has more than one step");
        };
        let first = String::from_utf8(first).unwrap();
        assert!(first.starts_with("n,,n=al=3Di=2Cce,r="), "{first}");
    }
}

#[test]
fn scram_does_not_go_on_with_another_nonce() {
    let mut exchange = Exchange::new(&settings(SaslMechanism::ScramSha512)).unwrap();
    exchange.step(None).unwrap();
    let error = exchange.step(Some(b"r=somebodyelse,s=QSXCR+Q6sek8bf92,i=4096")).unwrap_err();
    assert!(!error.contains("pencil"), "{error}");
}

#[test]
fn scram_refuses_a_broker_that_cannot_prove_that_it_knows_the_password() {
    let mut exchange = Exchange::new(&settings(SaslMechanism::ScramSha256)).unwrap();
    let Step::Send(first) = exchange.step(None).unwrap() else { panic!("no first message") };
    let first = String::from_utf8(first).unwrap();
    // A nonce has no comma.
    let (_, nonce) = first.rsplit_once(",r=").unwrap();
    let challenge = format!("r={nonce}broker,s=QSXCR+Q6sek8bf92,i=4096");
    assert!(matches!(exchange.step(Some(challenge.as_bytes())).unwrap(), Step::Send(_)));
    let forged = exchange.step(Some(b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="));
    assert!(forged.is_err(), "{forged:?}");
}

#[test]
fn debug_output_of_settings_hides_the_password() {
    let connection = ConnectionSettings::plaintext("kafka:9092", "x")
        .unwrap()
        .with_sasl(SaslMechanism::Plain, b"alice".to_vec(), b"pencil".to_vec())
        .unwrap();
    assert!(!format!("{connection:?}").contains("pencil"));
}
