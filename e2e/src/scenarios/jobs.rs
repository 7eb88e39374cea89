//! The job most scenarios run.

use fencepost_crds::StreamJob;
use serde_json::json;

use super::{Bench, Failure};

/// Purchases of orders, doubled: a filter, a projection and a key.
#[derive(Debug, Clone)]
pub struct OrdersJob {
    /// Name of the StreamJob.
    pub name: String,
    /// Workers.
    pub replicas: i32,
    /// `onBadRecord`.
    pub on_bad_record: &'static str,
    /// `deadLetterTopic`.
    pub dead_letter_topic: Option<String>,
    /// `guarantee`.
    pub guarantee: &'static str,
    /// Written into each output, to tell versions of the job apart.
    pub version: u32,
    /// `worker.image`; `None`: the chart's.
    pub image: Option<String>,
    /// `processing.transactionTimeout`; `None`: the default.
    pub transaction_timeout: Option<&'static str>,
    /// `kafka.groupProtocol`; `None`: the default.
    pub group_protocol: Option<&'static str>,
    /// The input topic.
    pub input: String,
    /// The output topic.
    pub output: String,
}

impl OrdersJob {
    /// On the topics `orders` and `purchases` of a bench.
    pub fn new(bench: &Bench) -> Self {
        Self {
            name: "orders".to_owned(),
            replicas: 2,
            on_bad_record: "Fail",
            dead_letter_topic: None,
            guarantee: "ExactlyOnce",
            version: 1,
            image: None,
            transaction_timeout: None,
            group_protocol: None,
            input: bench.topic("orders"),
            output: bench.topic("purchases"),
        }
    }

    /// The SQL.
    pub fn sql(&self) -> String {
        let version = self.version;
        format!(
            "INSERT INTO purchases\n\
             SELECT src, part, seq, customer, amount * 2 AS amount, upper(type) AS kind, {version} AS version\n\
             FROM orders WHERE type = 'purchase'"
        )
    }

    /// The columns of the load's records. The identity is required, so that a record without it is bad.
    pub fn columns() -> serde_json::Value {
        json!([
            {"name": "src", "type": "INT", "required": true},
            {"name": "part", "type": "INT", "required": true},
            {"name": "seq", "type": "BIGINT", "required": true},
            {"name": "customer", "type": "STRING", "required": true},
            {"name": "type", "type": "STRING", "required": true},
            {"name": "amount", "type": "BIGINT", "required": true},
        ])
    }

    /// The manifest.
    ///
    /// # Errors
    /// When it is no StreamJob.
    pub fn manifest(&self, bench: &Bench) -> Result<StreamJob, Failure> {
        let mut source = json!({
            "name": "orders",
            "kafka": {"topic": self.input, "format": {"json": {}}},
            "columns": Self::columns(),
            "onBadRecord": self.on_bad_record,
        });
        if let (Some(topic), Some(source)) = (&self.dead_letter_topic, source.as_object_mut()) {
            source.insert("deadLetterTopic".to_owned(), topic.as_str().into());
        }
        let mut processing = json!({"guarantee": self.guarantee});
        if let (Some(timeout), Some(processing)) = (self.transaction_timeout, processing.as_object_mut()) {
            processing.insert("transactionTimeout".to_owned(), timeout.into());
        }
        let mut kafka = bench.kafka();
        if let (Some(protocol), Some(kafka)) = (self.group_protocol, kafka.as_object_mut()) {
            kafka.insert("groupProtocol".to_owned(), protocol.into());
        }
        let worker = self.image.as_ref().map_or_else(|| json!({}), |image| json!({"image": image}));
        let job = json!({
            "apiVersion": "fencepost.dev/v1alpha1",
            "kind": "StreamJob",
            "metadata": {"name": self.name, "namespace": bench.namespace()},
            "spec": {
                "replicas": self.replicas,
                "kafka": kafka,
                "processing": processing,
                "worker": worker,
                "pipeline": {
                    "sources": [source],
                    "sql": self.sql(),
                    "sinks": [{"name": "purchases", "kafka": {
                        "topic": self.output, "format": {"json": {}}, "keyColumns": ["customer"], "create": {"partitions": 4},
                    }}],
                },
            },
        });
        serde_json::from_value(job).map_err(Failure::means("write the StreamJob"))
    }
}
