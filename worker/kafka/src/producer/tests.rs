//! Answers that a real broker does not give on demand: librdkafka's own stand-in for one gives them.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey as Request, RDKafkaRespErr as Answer};
use rstest::rstest;

use super::*;

const LONG: Duration = Duration::from_secs(30);
const TOPIC: &str = "totals";

/// One record without a key.
struct One;

impl Records for One {
    fn topic(&self) -> &str {
        TOPIC
    }
    fn len(&self) -> usize {
        1
    }
    fn key(&self, _: usize) -> Option<&[u8]> {
        None
    }
    fn value(&self, _: usize) -> Option<&[u8]> {
        Some(b"1")
    }
    fn timestamp(&self, _: usize) -> Option<i64> {
        None
    }
    fn headers(&self, _: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        std::iter::empty()
    }
}

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    cluster
}

/// In a transaction with a delivered record.
fn producer(cluster: &MockCluster<'static, DefaultProducerContext>) -> Producer {
    let settings = ProducerSettings {
        connection: ConnectionSettings::plaintext(&cluster.bootstrap_servers(), "test").unwrap(),
        transactional_id: Some("job-0-0".to_owned()),
        transaction_timeout: Duration::from_secs(60),
        max_batch_bytes: 1_000_000,
    };
    let mut producer = Producer::new(&settings).unwrap();
    producer.init_transactions(LONG).unwrap();
    producer.begin().unwrap();
    producer.produce(&One, LONG).unwrap();
    producer.flush(LONG).unwrap();
    producer
}

#[rstest]
#[case::of_a_commit(Producer::commit)]
#[case::of_an_abort(Producer::abort)]
fn a_lost_connection_leaves_the_end_in_doubt(#[case] end: fn(&Producer, Duration) -> Result<(), ClientError>) {
    let cluster = cluster();
    let producer = producer(&cluster);
    cluster.request_errors(Request::EndTxn, &[Answer::RD_KAFKA_RESP_ERR__TRANSPORT]);
    let error = end(&producer, LONG).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unknown, "{error}");
}

#[rstest]
#[case::moving(Answer::RD_KAFKA_RESP_ERR_NOT_COORDINATOR)]
#[case::loading(Answer::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS)]
#[case::busy(Answer::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS)]
fn an_end_that_was_refused_and_then_taken_is_an_end(#[case] answer: Answer) {
    let cluster = cluster();
    let producer = producer(&cluster);
    cluster.request_errors(Request::EndTxn, &[answer, answer]);
    producer.commit(LONG).unwrap();
    producer.begin().unwrap();
}

#[test]
fn an_epoch_that_was_raised_in_an_abort_ends_the_use_of_the_producer() {
    let cluster = cluster();
    let mut producer = producer(&cluster);
    cluster.request_errors(Request::Produce, &[Answer::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID]);
    producer.produce(&One, LONG).and_then(|()| producer.flush(LONG)).unwrap_err();
    let error = producer.abort(LONG).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Recreate, "{error}");
}

#[test]
fn a_gap_in_the_sequence_ends_the_use_of_the_producer() {
    let cluster = cluster();
    let mut producer = producer(&cluster);
    cluster.request_errors(Request::Produce, &[Answer::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    let error = producer.produce(&One, LONG).and_then(|()| producer.flush(LONG)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Recreate, "{error}");
}

#[test]
fn without_a_fault_nothing_is_in_doubt() {
    let cluster = cluster();
    let mut producer = producer(&cluster);
    for round in 0..20 {
        let end = if round % 4 == 3 { Producer::abort } else { Producer::commit };
        end(&producer, LONG).unwrap();
        producer.begin().unwrap();
        producer.produce(&One, LONG).unwrap();
        producer.flush(LONG).unwrap();
    }
}

/// Whatever is asked afterwards: a copy of a request that was not answered can still arrive.
#[test]
fn a_doubt_stays_for_the_life_of_the_producer() {
    let cluster = cluster();
    let mut producer = producer(&cluster);
    cluster.request_errors(Request::EndTxn, &[Answer::RD_KAFKA_RESP_ERR__TRANSPORT]);
    producer.commit(LONG).unwrap_err();
    producer.begin().unwrap();
    producer.produce(&One, LONG).unwrap();
    producer.flush(LONG).unwrap();
    assert_eq!(producer.commit(LONG).unwrap_err().class(), ErrorClass::Unknown);
}

#[test]
fn a_partition_that_may_be_added_late_leaves_the_end_in_doubt() {
    let cluster = cluster();
    cluster.request_errors(Request::AddPartitionsToTxn, &[Answer::RD_KAFKA_RESP_ERR__TRANSPORT]);
    assert_eq!(producer(&cluster).commit(LONG).unwrap_err().class(), ErrorClass::Unknown);
}
