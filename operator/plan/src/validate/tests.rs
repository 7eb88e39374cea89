use fencepost_crds::{conditions::Reason, resolve, v1alpha1::Violation};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Facts, Findings, Stage, validate};
use crate::{
    observed::{BrokerLimits, TopicFacts},
    testing::{facts, job},
};

fn run(change: impl FnOnce(&mut Value)) -> Findings {
    run_with(change, Stage::New, |_| {})
}

fn run_with(
    change: impl FnOnce(&mut Value),
    stage: Stage,
    world: impl FnOnce(&mut crate::observed::BrokerFacts),
) -> Findings {
    let job = job(|json| change(&mut json["spec"]));
    let mut broker = facts();
    world(&mut broker);
    let prefix = resolve::transactional_id_prefix(&job.spec.kafka, "shop", "spend");
    validate(Facts { spec: &job.spec, transactional_id_prefix: &prefix, broker: Some(&broker), stage })
}

fn reasons(violations: &[Violation]) -> Vec<&str> {
    violations.iter().map(|violation| violation.reason.as_str()).collect()
}

#[test]
fn a_good_spec_has_no_findings() {
    assert_eq!(run(|_| {}), Findings::default());
}

#[rstest]
#[case("Consumer", Some(false), true)]
#[case("Consumer", Some(true), false)]
#[case("Consumer", None, false)]
#[case("Classic", Some(false), false)]
fn the_group_protocol_must_be_one_of_the_brokers(
    #[case] protocol: &str,
    #[case] is_offered: Option<bool>,
    #[case] is_refused: bool,
) {
    let findings = run_with(
        |spec| spec["kafka"]["groupProtocol"] = json!(protocol),
        Stage::New,
        |broker| broker.has_consumer_protocol = is_offered,
    );
    let refused: Vec<_> =
        findings.broker.iter().map(|(reason, violation)| (*reason, violation.field.as_str())).collect();
    let expected = [(Reason::BrokerIncompatible, "spec.kafka.groupProtocol")];
    assert_eq!(refused, if is_refused { &expected[..] } else { &[] });
}

#[test]
fn the_timeout_must_fit_the_strictest_broker_which_is_named() {
    let strict = BrokerLimits { transaction_max_timeout_ms: Some(20_000), ..BrokerLimits::default() };
    let findings = run_with(
        |_| {},
        Stage::New,
        |broker| {
            broker.limits.insert(7, strict);
        },
    );
    let (reason, violation) = &findings.broker[0];
    assert_eq!(*reason, Reason::BrokerLimitViolated);
    for part in ["30000 ms (30s)", "20000 ms (20s)", "broker 7", "transactionTimeout", "transaction.max.timeout.ms"] {
        assert!(violation.message.contains(part), "{part} in {}", violation.message);
    }
    let equal = BrokerLimits { transaction_max_timeout_ms: Some(30_000), ..BrokerLimits::default() };
    assert!(
        run_with(
            |_| {},
            Stage::New,
            |broker| {
                broker.limits.insert(7, equal);
            }
        )
        .broker
        .is_empty()
    );
}

#[rstest]
#[case("100ms", "5100ms", false)]
#[case("100ms", "5101ms", true)]
#[case("1m", "1m4s", false)]
#[case("1m", "1m6s", true)]
fn the_timeout_must_exceed_the_commit_interval_by_the_stall_budget(
    #[case] interval: &str,
    #[case] timeout: &str,
    #[case] allowed: bool,
) {
    let findings = run(|spec| {
        spec["processing"] = json!({
            "transactionTimeout": timeout,
            "protocol": { "transactional": { "commitInterval": interval } },
        });
    });
    assert_eq!(reasons(&findings.spec).contains(&"TransactionTimeoutBelowCommitInterval"), !allowed);
}

#[test]
fn without_transactions_their_limits_do_not_matter() {
    let findings = run_with(
        |spec| spec["processing"] = json!({ "guarantee": "AtLeastOnce", "transactionTimeout": "1s" }),
        Stage::New,
        |broker| {
            let strict = BrokerLimits { transaction_max_timeout_ms: Some(1), ..BrokerLimits::default() };
            broker.limits.insert(1, strict);
        },
    );
    assert_eq!(findings, Findings::default());
}

#[test]
fn a_long_timeout_is_allowed_and_warned_about() {
    let findings = run(|spec| spec["processing"] = json!({ "transactionTimeout": "5m" }));
    assert!(findings.spec.is_empty() && findings.broker.is_empty());
    assert_eq!(reasons(&findings.warnings), ["LongTransactionTimeout"]);
    assert!(findings.warnings[0].message.contains("5m10s"), "{}", findings.warnings[0].message);
}

#[test]
fn a_drain_that_outlasts_its_transaction_is_warned_about() {
    let findings = run(|spec| spec["worker"] = json!({ "drainTimeout": "31s" }));
    assert_eq!(reasons(&findings.warnings), ["DrainTimeoutAboveTransactionTimeout"]);
}

#[test]
fn every_unknown_topic_is_named_with_the_table_that_uses_it() {
    let findings = run_with(
        |spec| {
            spec["pipeline"]["sources"][0]["onBadRecord"] = "DeadLetter".into();
            spec["pipeline"]["sources"][0]["deadLetterTopic"] = "dead".into();
        },
        Stage::New,
        |broker| {
            for topic in ["orders", "totals", "dead"] {
                broker.topics.insert(topic.to_owned(), TopicFacts::Missing);
            }
        },
    );
    let fields: Vec<&str> = findings.broker.iter().map(|(_, violation)| violation.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.pipeline.sources[orders].kafka.topic",
            "spec.pipeline.sources[orders].deadLetterTopic",
            "spec.pipeline.sinks[totals].kafka.topic",
        ]
    );
    assert!(findings.broker.iter().all(|(reason, _)| *reason == Reason::UnknownTopic));
}

#[rstest]
#[case(Stage::New, 0)]
#[case(Stage::Accepted, 1)]
fn a_topic_to_create_may_be_missing_only_before_the_first_start(#[case] stage: Stage, #[case] refused: usize) {
    let findings = run_with(
        |spec| spec["pipeline"]["sinks"][0]["kafka"]["create"] = json!({ "partitions": 4 }),
        stage,
        |broker| {
            broker.topics.insert("totals".to_owned(), TopicFacts::Missing);
        },
    );
    assert_eq!(findings.broker.len(), refused);
}

#[test]
fn slots_beyond_the_input_partitions_are_warned_about() {
    let idle = |replicas: i32, slots: i32| {
        let findings = run(|spec| {
            spec["replicas"] = replicas.into();
            spec["worker"] = json!({ "slots": slots });
        });
        reasons(&findings.warnings) == ["IdleSlots"]
    };
    assert_eq!([idle(4, 1), idle(5, 1), idle(2, 2), idle(3, 2)], [false, true, false, true]);
}

#[test]
fn output_that_is_input_is_warned_about() {
    let findings = run(|spec| spec["pipeline"]["sinks"][0]["kafka"]["topic"] = "orders".into());
    assert_eq!(reasons(&findings.warnings), ["OutputIsInput"]);
}

#[rstest]
#[case(240, true)]
#[case(247, false)]
fn the_longest_transactional_id_fits_a_member_id(#[case] length: usize, #[case] allowed: bool) {
    let findings = run(|spec| {
        spec["replicas"] = 101.into();
        spec["worker"] = json!({ "slots": 11 });
        spec["kafka"]["transactionalIdPrefix"] = "p".repeat(length).into();
    });
    assert_eq!(reasons(&findings.spec).contains(&"TransactionalIdTooLong"), !allowed);
}

#[rstest]
#[case::replicas(|spec: &mut Value| spec["replicas"] = 0.into(), "OutOfRange")]
#[case::slots(|spec: &mut Value| spec["worker"] = json!({ "slots": 65 }), "OutOfRange")]
#[case::plain(
    |spec: &mut Value| {
        let reference = json!({ "name": "kafka", "key": "x" });
        spec["kafka"]["sasl"] =
            json!({ "mechanism": "PLAIN", "usernameSecretRef": reference, "passwordSecretRef": reference });
    },
    "PlainWithoutTls"
)]
#[case::names(|spec: &mut Value| spec["pipeline"]["sinks"][0]["name"] = "orders".into(), "DuplicateName")]
#[case::no_dead_letter(
    |spec: &mut Value| spec["pipeline"]["sources"][0]["onBadRecord"] = "DeadLetter".into(),
    "DeadLetterTopicMissing"
)]
#[case::dead_letter(
    |spec: &mut Value| spec["pipeline"]["sources"][0]["deadLetterTopic"] = "dead".into(),
    "DeadLetterTopicUnused"
)]
fn what_the_schema_refuses_is_refused_here_too(#[case] spoil: fn(&mut Value), #[case] reason: &str) {
    assert_eq!(reasons(&run(spoil).spec), [reason]);
}

#[test]
fn all_problems_are_listed_at_once() {
    let findings = run_with(
        |spec| {
            spec["replicas"] = 0.into();
            spec["processing"] = json!({ "transactionTimeout": "2s" });
            spec["pipeline"]["sinks"][0]["name"] = "orders".into();
        },
        Stage::New,
        |broker| {
            broker.topics.insert("orders".to_owned(), TopicFacts::Missing);
        },
    );
    insta::assert_snapshot!(super::list(&findings.spec), @"
    3 problems:
    1. spec.replicas: 0 is not between 1 and 1000
    2. spec.pipeline.sinks: the table name `orders` is used twice: rename one of them
    3. spec.processing.transactionTimeout: 2000 ms (2s) must be more than commitInterval, 100 ms (100ms), plus 5000 ms for a stall, together 5100 ms (5s100ms), or the brokers abort transactions of a healthy worker: raise transactionTimeout, or lower spec.processing.protocol.transactional.commitInterval
    ");
    assert_eq!(findings.broker.len(), 1);
}
