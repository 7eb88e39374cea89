//! Each CEL rule of the schema: what it accepts and what it refuses, evaluated as the API server does.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use fencepost_crds::StreamJob;
use kube::core::cel::{validate_cel, validate_cel_update};
use rstest::rstest;
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "apiVersion": "fencepost.dev/v1alpha1",
        "kind": "StreamJob",
        "metadata": { "name": "spend", "namespace": "shop" },
        "spec": {
            "kafka": { "bootstrapServers": "kafka:9092" },
            "pipeline": {
                "sources": [{
                    "name": "orders",
                    "kafka": { "topic": "orders", "format": { "json": {} } },
                    "columns": [{ "name": "user", "type": "STRING" }],
                }],
                "sql": "INSERT INTO totals SELECT user FROM orders",
                "sinks": [{ "name": "totals", "kafka": { "topic": "totals", "format": { "json": {} } } }],
            },
        },
    })
}

fn job(change: impl FnOnce(&mut Value)) -> StreamJob {
    let mut json = base();
    change(&mut json);
    serde_json::from_value(json).unwrap()
}

/// The messages of the rules that refuse.
fn refusals(change: impl FnOnce(&mut Value)) -> String {
    validate_cel(&job(change)).err().map(|errors| format!("{errors:?}")).unwrap_or_default()
}

fn sasl(mechanism: &str) -> Value {
    let reference = json!({ "name": "kafka", "key": "x" });
    json!({ "mechanism": mechanism, "usernameSecretRef": reference, "passwordSecretRef": reference })
}

#[test]
fn a_plain_job_is_accepted() {
    assert_eq!(refusals(|_| {}), "");
}

#[rstest]
#[case::name_length(|j: &mut Value| j["metadata"]["name"] = "n".repeat(45).into())]
#[case::dashes(|j: &mut Value| j["metadata"]["name"] = "a-1-b".into())]
#[case::scram_without_tls(|j: &mut Value| j["spec"]["kafka"]["sasl"] = sasl("SCRAM-SHA-512"))]
#[case::plain_with_tls(|j: &mut Value| {
    j["spec"]["kafka"]["sasl"] = sasl("PLAIN");
    j["spec"]["kafka"]["tls"] = json!({});
})]
#[case::dead_letter(|j: &mut Value| {
    j["spec"]["pipeline"]["sources"][0]["onBadRecord"] = "DeadLetter".into();
    j["spec"]["pipeline"]["sources"][0]["deadLetterTopic"] = "dead".into();
})]
#[case::two_keys_as_json(|j: &mut Value| {
    j["spec"]["pipeline"]["sinks"][0]["kafka"]["keyColumns"] = json!(["a", "b"]);
    j["spec"]["pipeline"]["sinks"][0]["kafka"]["keyFormat"] = "Json".into();
})]
#[case::one_raw_key(|j: &mut Value| j["spec"]["pipeline"]["sinks"][0]["kafka"]["keyColumns"] = json!(["a"]))]
#[case::shortest_interval(|j: &mut Value| {
    j["spec"]["processing"] = json!({ "protocol": { "transactional": { "commitInterval": "1ms" } } });
})]
#[case::longest_timeout(|j: &mut Value| j["spec"]["processing"] = json!({ "transactionTimeout": "24h" }))]
#[case::longest_drain(|j: &mut Value| j["spec"]["worker"] = json!({ "drainTimeout": "1h" }))]
fn accepted(#[case] change: fn(&mut Value)) {
    assert_eq!(refusals(change), "");
}

#[rstest]
#[case::long_name(|j: &mut Value| j["metadata"]["name"] = "n".repeat(46).into(), "at most 45 characters")]
#[case::dot_in_name(|j: &mut Value| j["metadata"]["name"] = "a.b".into(), "name of a Service")]
#[case::digit_first(|j: &mut Value| j["metadata"]["name"] = "1a".into(), "name of a Service")]
#[case::plain(|j: &mut Value| j["spec"]["kafka"]["sasl"] = sasl("PLAIN"), "sends the password as it is")]
#[case::no_dead_letter_topic(
    |j: &mut Value| j["spec"]["pipeline"]["sources"][0]["onBadRecord"] = "DeadLetter".into(),
    "deadLetterTopic is required"
)]
#[case::dead_letter_topic_without_use(
    |j: &mut Value| j["spec"]["pipeline"]["sources"][0]["deadLetterTopic"] = "dead".into(),
    "and only then"
)]
#[case::dead_letters_into_the_source(
    |j: &mut Value| {
        j["spec"]["pipeline"]["sources"][0]["onBadRecord"] = "DeadLetter".into();
        j["spec"]["pipeline"]["sources"][0]["deadLetterTopic"] = "orders".into();
    },
    "must not be the topic of the source"
)]
#[case::same_name(|j: &mut Value| j["spec"]["pipeline"]["sinks"][0]["name"] = "orders".into(), "the name of a source")]
#[case::two_raw_keys(
    |j: &mut Value| j["spec"]["pipeline"]["sinks"][0]["kafka"]["keyColumns"] = json!(["a", "b"]),
    "keyFormat: Json"
)]
#[case::no_interval(
    |j: &mut Value| {
        j["spec"]["processing"] = json!({ "protocol": { "transactional": { "commitInterval": "0s" } } });
    },
    "between 1ms and 10m"
)]
#[case::long_interval(
    |j: &mut Value| {
        j["spec"]["processing"] = json!({ "protocol": { "transactional": { "commitInterval": "11m" } } });
    },
    "between 1ms and 10m"
)]
#[case::short_timeout(
    |j: &mut Value| j["spec"]["processing"] = json!({ "transactionTimeout": "999ms" }),
    "between 1s and 24h"
)]
#[case::long_timeout(
    |j: &mut Value| j["spec"]["processing"] = json!({ "transactionTimeout": "25h" }),
    "between 1s and 24h"
)]
#[case::short_drain(|j: &mut Value| j["spec"]["worker"] = json!({ "drainTimeout": "0s" }), "between 1s and 1h")]
#[case::long_drain(|j: &mut Value| j["spec"]["worker"] = json!({ "drainTimeout": "61m" }), "between 1s and 1h")]
fn refused(#[case] change: fn(&mut Value), #[case] why: &str) {
    let refusals = refusals(change);
    assert!(refusals.contains(why), "`{why}` is not in: {refusals}");
}

/// The names that identify a job to the brokers may be given at the start or never.
#[rstest]
#[case("transactionalIdPrefix")]
#[case("consumerGroup")]
fn what_identifies_a_job_to_the_brokers_is_immutable(#[case] field: &str) {
    let with = |value: Option<&str>| {
        job(|j| {
            if let Some(value) = value {
                j["spec"]["kafka"][field] = value.into();
            }
        })
    };
    for (old, new, allowed) in [
        (None, None, true),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
        (None, Some("a"), false),
        (Some("a"), None, false),
    ] {
        let result = validate_cel_update(&with(new), &with(old));
        assert_eq!(result.is_ok(), allowed, "{old:?} -> {new:?}: {result:?}");
        if let Err(errors) = result {
            assert!(format!("{errors:?}").contains(&format!("{field} is immutable")), "{errors:?}");
        }
    }
}

#[test]
fn everything_else_may_be_changed() {
    let new = job(|j| {
        j["spec"]["replicas"] = 5.into();
        j["spec"]["pipeline"]["sql"] = "INSERT INTO totals SELECT 'x' AS user FROM orders".into();
        j["spec"]["processing"] = json!({ "guarantee": "AtLeastOnce" });
    });
    assert!(validate_cel_update(&new, &job(|_| {})).is_ok());
}
