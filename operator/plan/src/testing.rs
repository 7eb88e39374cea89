//! Builders for tests, and a small world to run decisions in.

mod world;

use std::collections::BTreeMap;

use fencepost_crds::StreamJob;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    observed::{BrokerFacts, BrokerLimits, BrokerObserved, Observed, PlanObserved, Settings, TopicFacts},
    revision::{Identity, Revision, RunSpec},
};

pub(crate) use self::world::{Ended, World};

/// A job as JSON, to be changed by a test before it is read.
pub(crate) fn job_json() -> Value {
    json!({
        "apiVersion": "fencepost.dev/v1alpha1",
        "kind": "StreamJob",
        "metadata": {
            "name": "spend", "namespace": "shop", "uid": "u-1", "generation": 1, "resourceVersion": "1",
            "finalizers": ["fencepost.dev/fence"],
        },
        "spec": {
            "replicas": 2,
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

/// A job, after `change`.
pub(crate) fn job(change: impl FnOnce(&mut Value)) -> StreamJob {
    let mut json = job_json();
    change(&mut json);
    serde_json::from_value(json).unwrap()
}

pub(crate) fn identity() -> Identity {
    Identity::of(&job(|_| {})).unwrap()
}

pub(crate) fn run_spec(change: impl FnOnce(&mut Value)) -> RunSpec {
    let job = job(change);
    RunSpec::of(&job, &job.spec, Revision::read("0123456789"), "worker:1")
}

/// Brokers that allow everything in [`job_json`].
pub(crate) fn facts() -> BrokerFacts {
    let limits =
        BrokerLimits { transaction_max_timeout_ms: Some(900_000), transactional_id_expiration_ms: Some(604_800_000) };
    BrokerFacts {
        cluster_id: Some("c-1".to_owned()),
        limits: BTreeMap::from([(1, limits)]),
        topics: BTreeMap::from([
            ("orders".to_owned(), TopicFacts::Exists { partitions: 4 }),
            ("totals".to_owned(), TopicFacts::Exists { partitions: 4 }),
        ]),
        has_consumer_protocol: None,
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn observed(job: StreamJob) -> Observed {
    Observed {
        now: at(1_000),
        settings: Settings { worker_image: "worker:1".to_owned() },
        job,
        accepted: Vec::new(),
        newest_number: 0,
        stateful_set: None,
        pods: Vec::new(),
        plan: PlanObserved::default(),
        broker: BrokerObserved::Facts(facts()),
        rivals: Vec::new(),
        workers: BTreeMap::new(),
        positions: None,
        replacements: BTreeMap::new(),
        secrets: crate::secrets::Fingerprints::default(),
        fence: None,
        refused_act: None,
        refused_children: None,
    }
}
