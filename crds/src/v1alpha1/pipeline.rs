use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::{Display, IntoStaticStr};

/// Sources, SQL and sinks of a job.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.sources.all(s, self.sinks.all(k, s.name != k.name))").message("a sink must not have the name of a source").field_path(".sinks")
)]
pub struct PipelineSpec {
    /// Tables that the SQL reads.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sources: Vec<SourceSpec>,

    /// `CREATE VIEW` and `INSERT INTO` statements, separated by `;`.
    #[schemars(length(min = 1, max = 65536))]
    pub sql: String,

    /// Tables that the SQL inserts into.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sinks: Vec<SinkSpec>,
}

/// A table made of the records of a topic.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.onBadRecord) && self.onBadRecord == 'DeadLetter') == has(self.deadLetterTopic)").message("deadLetterTopic is required with onBadRecord: DeadLetter, and only then").field_path(".deadLetterTopic"),
    validation = Rule::new("!has(self.deadLetterTopic) || self.deadLetterTopic != self.kafka.topic").message("deadLetterTopic must not be the topic of the source").field_path(".deadLetterTopic")
)]
pub struct SourceSpec {
    /// Name of the table in SQL.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z_][a-z0-9_]*$"))]
    pub name: String,

    /// The topic and how its records are read.
    pub kafka: KafkaSourceSpec,

    /// Columns of the table.
    #[schemars(length(min = 1, max = 1000))]
    pub columns: Vec<ColumnSpec>,

    /// What happens to a record that does not fit the columns.
    #[serde(default)]
    pub on_bad_record: OnBadRecord,

    /// Topic for bad records, written in the transaction that passes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub dead_letter_topic: Option<String>,
}

/// A topic as input.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KafkaSourceSpec {
    /// Topic name.
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub topic: String,

    /// Format of the record values.
    pub format: FormatSpec,

    /// Where a partition without a committed position begins.
    #[serde(default)]
    pub start: StartPosition,
}

/// Where a partition without a committed position begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum StartPosition {
    /// At the oldest record.
    #[default]
    Earliest,
    /// After the newest record at the job's first start.
    Latest,
}

/// The format of record values: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormatSpec {
    /// One JSON object per record.
    pub json: JsonFormat,
}

/// JSON objects. No settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JsonFormat {}

/// A column of a source.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColumnSpec {
    /// Name in SQL, and of the field of the JSON object.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,

    /// `BOOLEAN`, `INT`, `BIGINT`, `FLOAT`, `DOUBLE`, `DECIMAL(p, s)`, `STRING`, `BYTES`, `DATE`, `TIMESTAMP_MS`, `TIMESTAMP_US`,
    /// `ARRAY<type>`, `STRUCT<name type, …>`.
    #[serde(rename = "type")]
    #[schemars(length(min = 3, max = 4096))]
    pub data_type: String,

    /// `true`: a record without a value for this column is a bad record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,

    /// Take the column from the message around the value instead of from the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ColumnMetadata>,
}

/// The parts of a Kafka message besides its value.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ColumnMetadata {
    /// The message key (`STRING` or `BYTES`, or `BIGINT`/`INT` written as decimal text).
    Key {},
    /// The message timestamp (`TIMESTAMP_MS`).
    Timestamp {},
    /// The topic (`STRING`).
    Topic {},
    /// The partition (`INT`).
    Partition {},
    /// The offset (`BIGINT`).
    Offset {},
    /// The last header of this name (`STRING` or `BYTES`).
    Header {
        /// Name of the header.
        name: String,
    },
}

/// What happens to a record that cannot be read, or whose processing fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum OnBadRecord {
    /// Stop before it, and say where it is. Nothing is lost.
    #[default]
    Fail,
    /// Pass over it and count it.
    Skip,
    /// Write it to `deadLetterTopic`, with topic, partition, offset and reason as headers, and go on.
    DeadLetter,
}

/// A table that the SQL inserts into.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkSpec {
    /// Name of the table in SQL.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z_][a-z0-9_]*$"))]
    pub name: String,

    /// The topic and how rows are written.
    pub kafka: KafkaSinkSpec,
}

/// A topic as output.
///
/// A row becomes one record. When the sink has key columns and every other value column of the row is NULL, the record is a
/// tombstone: key, and no value.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.keyColumns) || size(self.keyColumns) <= 1 || (has(self.keyFormat) && self.keyFormat == 'Json')").message("several keyColumns need keyFormat: Json").field_path(".keyFormat")
)]
pub struct KafkaSinkSpec {
    /// Topic name.
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub topic: String,

    /// Format of the record values.
    pub format: FormatSpec,

    /// Columns that make the record key. They stay in the value as well. Empty: records without a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub key_columns: Vec<String>,

    /// How the key is written.
    #[serde(default)]
    pub key_format: KeyFormat,

    /// Column (`TIMESTAMP_*`) that becomes the message timestamp and leaves the value. Absent, or NULL in a row: the time of writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub timestamp_column: Option<String>,

    /// Columns that become headers and leave the value. NULL: no header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub headers: Vec<HeaderColumn>,

    /// Create the topic when it does not exist. An existing topic is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<TopicCreateSpec>,
}

/// How a record key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum KeyFormat {
    /// The text (or the bytes) of the one key column.
    #[default]
    Raw,
    /// A JSON object of the key columns.
    Json,
}

/// A header taken from a column.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderColumn {
    /// Name of the header.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// Column with its value (`STRING` or `BYTES`).
    #[schemars(length(min = 1, max = 255))]
    pub column: String,
}

/// How a topic is made.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicCreateSpec {
    /// Number of partitions.
    #[schemars(range(min = 1, max = 10000))]
    pub partitions: i32,
    /// Number of copies. Absent: the brokers' default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replication_factor: Option<i16>,
    /// Topic configuration, such as `retention.ms`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}
