use fencepost_crds::v1alpha1::Guarantee;
use fencepost_kafka::error::librdkafka::Flags;
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_protocol::transactional::{Call, Class};
use serde_json::json;

use super::*;
use crate::slot::{SystemClock, Unobserved};

fn plan() -> fencepost_pipeline::Plan {
    let spec = json!({
        "sources": [{
            "name": "events",
            "kafka": {"topic": "events", "format": {"json": {}}},
            "columns": [{"name": "id", "type": "BIGINT"}],
        }],
        "sql": "INSERT INTO copies SELECT id FROM events",
        "sinks": [{"name": "copies", "kafka": {"topic": "copies", "format": {"json": {}}}}],
    });
    fencepost_pipeline::plan(&serde_json::from_value(spec).unwrap()).unwrap()
}

fn config(bootstrap: &str) -> SlotConfig {
    SlotConfig {
        slot: 0,
        transactional_id: "job-0-0".to_owned(),
        guarantee: Guarantee::ExactlyOnce,
        connection: ConnectionSettings::plaintext(bootstrap, "test").unwrap(),
        consumer_group: "job".to_owned(),
        group_protocol: GroupProtocol::Classic,
        commit_interval: Duration::from_millis(100),
        transaction_timeout: Duration::from_secs(60),
        drain_timeout: Duration::from_secs(10),
        sources: Vec::new(),
        outputs: Vec::new(),
    }
}

/// Why a commit was not answered may be known, and what is told of it sound harmless: it may have happened all the same.
#[test]
fn an_explanation_does_not_change_what_an_error_means() {
    let (shutdown, stats, clock) = (Shutdown::new(), SlotStats::new(0), SystemClock::default());
    // Nobody listens there.
    let config = config("127.0.0.1:1");
    let mut driver = Driver::new(&config, plan().instantiate().unwrap(), &shutdown, &stats, &Unobserved, &clock);
    let producer = driver.producer.insert(Producer::new(&config.producer(1_000_000)).unwrap());
    let deadline = clock.now() + Duration::from_secs(60);
    while producer.notice().is_none() {
        producer.serve();
        assert!(clock.now() < deadline, "the client does not complain");
        std::thread::yield_now();
    }
    let silence = ClientError::Call {
        step: "commit the transaction",
        code: Code::OperationTimedOut,
        flags: Flags::default(),
        message: "no answer".to_owned(),
        subject: None,
    };
    assert_eq!(driver.failed(Call::Commit, &silence), Class::Unknown);
    let shown = stats.status().error.unwrap();
    assert!(shown.message.contains("127.0.0.1:1"), "the explanation is not shown: {}", shown.message);
}
