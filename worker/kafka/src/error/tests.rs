use rdkafka::types::RDKafkaErrorCode as Code;
use strum::IntoEnumIterator;

use super::librdkafka::{self, Flags};
use super::*;

#[test]
fn every_code_of_the_protocol_library_has_the_same_name_here() {
    for number in (-1..=133).filter(|number| *number != 0) {
        let theirs = kafka_protocol::ResponseError::try_from_code(number).unwrap();
        let ours = BrokerCode::from_response(number).unwrap();
        let squeezed = ours.name().unwrap_or_else(|| panic!("{number} has no name")).replace('_', "");
        assert_eq!(squeezed, theirs.to_string().to_ascii_uppercase(), "{number}");
    }
    assert_eq!(BrokerCode::KNOWN.len(), 134);
}

#[test]
fn what_the_protocol_calls_retriable_is_never_fatal_here() {
    for code in BrokerCode::KNOWN {
        let theirs = kafka_protocol::ResponseError::try_from_code(code.get()).unwrap();
        // An election that is not needed is "retriable" for Kafka and of no use to anybody.
        if theirs.is_retriable() && *code != BrokerCode::ELECTION_NOT_NEEDED {
            assert!(matches!(code.class(), ErrorClass::Retry | ErrorClass::Unknown), "{code} is {}", code.class());
        }
    }
}

#[test]
fn a_code_nobody_knows_is_unknown_and_prints_its_number() {
    let code = BrokerCode::from_response(999).unwrap();
    assert_eq!(code.class(), ErrorClass::Unknown);
    assert_eq!(code.to_string(), "error code 999");
    assert_eq!(BrokerCode::NOT_COORDINATOR.to_string(), "NOT_COORDINATOR (16)");
    assert_eq!(BrokerCode::from_response(0), None);
}

#[test]
fn classes_of_the_measured_answers() {
    // The rows of a transactional worker's life, as a 4.4 broker answers them.
    let table = [
        (16, ErrorClass::Retry),
        (51, ErrorClass::Retry),
        (22, ErrorClass::Refresh),
        (25, ErrorClass::Refresh),
        (27, ErrorClass::Refresh),
        (120, ErrorClass::Abort),
        (48, ErrorClass::Recreate),
        (49, ErrorClass::Recreate),
        (105, ErrorClass::Recreate),
        (47, ErrorClass::Fenced),
        (90, ErrorClass::Fenced),
        (82, ErrorClass::Fenced),
        (50, ErrorClass::Fatal),
        (29, ErrorClass::Fatal),
        (53, ErrorClass::Fatal),
        (10, ErrorClass::Fatal),
        (13, ErrorClass::Retry),
        (19, ErrorClass::Retry),
        (45, ErrorClass::Recreate),
        (59, ErrorClass::Recreate),
        (7, ErrorClass::Unknown),
        (-1, ErrorClass::Unknown),
    ];
    for (number, class) in table {
        assert_eq!(BrokerCode::from_response(number).unwrap().class(), class, "{number}");
    }
}

#[test]
fn librdkafka_and_the_protocol_agree_on_the_protocols_codes() {
    for (code, number) in [
        (Code::InvalidProducerEpoch, 47),
        (Code::ConcurrentTransactions, 51),
        (Code::ProducerFenced, 90),
        (Code::TopicAuthorizationFailed, 29),
        (Code::UnknownMemberId, 25),
        (Code::RequestTimedOut, 7),
    ] {
        assert_eq!(librdkafka::broker_code(code).unwrap().get(), number);
        assert_eq!(librdkafka::class(code), BrokerCode::from_response(number).unwrap().class());
    }
    assert_eq!(librdkafka::broker_code(Code::Fenced), None);
}

#[test]
fn flags_of_librdkafka_refine_the_class() {
    let fatal = Flags { fatal: true, ..Flags::default() };
    let abort = Flags { abort: true, ..Flags::default() };
    let retriable = Flags { retriable: true, ..Flags::default() };
    for (code, flags, class) in [
        // fenced stays fenced, however it is flagged
        (Code::Fenced, fatal, ErrorClass::Fenced),
        (Code::InvalidProducerEpoch, abort, ErrorClass::Fenced),
        // the group moved: abort *and* take the new membership
        (Code::IllegalGeneration, abort, ErrorClass::Refresh),
        (Code::UnknownMemberId, abort, ErrorClass::Refresh),
        // a dead instance is replaced, unless nothing but a person helps
        (Code::InvalidTransactionalState, fatal, ErrorClass::Recreate),
        (Code::BrokerTransportFailure, fatal, ErrorClass::Recreate),
        (Code::InvalidTransactionTimeout, fatal, ErrorClass::Fatal),
        (Code::TopicAuthorizationFailed, abort, ErrorClass::Fatal),
        // outcome open
        (Code::OperationTimedOut, retriable, ErrorClass::Unknown),
        (Code::OperationTimedOut, abort, ErrorClass::Unknown),
        (Code::RequestTimedOut, abort, ErrorClass::Unknown),
        (Code::Unknown, abort, ErrorClass::Unknown),
        (Code::BrokerTransportFailure, abort, ErrorClass::Unknown),
        (Code::BrokerTransportFailure, retriable, ErrorClass::Unknown),
        // the transaction is lost, and nothing of it is under way
        (Code::NotEnoughReplicas, abort, ErrorClass::Abort),
        (Code::CoordinatorLoadInProgress, retriable, ErrorClass::Retry),
    ] {
        assert_eq!(librdkafka::class_with_flags(code, flags), class, "{code:?} {flags:?}");
    }
}

#[test]
fn causes_name_what_is_missing() {
    let topic = Subject::new(Operation::Write, Resource::Topic("totals".to_owned()));
    let id = Subject::new(Operation::Write, Resource::TransactionalId("shop.spend-0-0".to_owned()));
    for (code, subject, reason, advice) in [
        (29, &topic, Reason::AuthorizationFailed, "--operation Write --topic 'totals'"),
        (53, &id, Reason::AuthorizationFailed, "--operation Write --transactional-id 'shop.spend-0-0'"),
        (31, &topic, Reason::AuthorizationFailed, "--operation Write --cluster"),
        (3, &topic, Reason::UnknownTopic, "Create topic totals"),
        (58, &topic, Reason::AuthenticationFailed, "spec.kafka.sasl"),
        (50, &id, Reason::BrokerLimitViolated, "transaction.max.timeout.ms"),
        (90, &id, Reason::Fenced, "transactionalIdPrefix"),
        (42, &id, Reason::BrokerError, "logs"),
    ] {
        let cause = Cause::of(BrokerCode::from_response(code).unwrap(), subject);
        assert_eq!(cause.reason(), reason, "{code}");
        assert!(cause.advice().contains(advice), "{}", cause.advice());
    }
    assert_eq!(librdkafka::cause(Code::SSL, &topic), Cause::TlsFailed);
    assert_eq!(librdkafka::cause(Code::UnknownTopic, &topic), Cause::UnknownTopic("totals".to_owned()));
    assert_eq!(librdkafka::cause(Code::AllBrokersDown, &topic), Cause::BrokerUnreachable);
    assert_eq!(librdkafka::cause(Code::GroupAuthorizationFailed, &topic).reason(), Reason::AuthorizationFailed);
}

#[test]
fn labels_of_classes_differ() {
    let labels: std::collections::BTreeSet<_> = ErrorClass::iter().map(ErrorClass::label).collect();
    assert_eq!(labels.len(), ErrorClass::iter().count());
}
