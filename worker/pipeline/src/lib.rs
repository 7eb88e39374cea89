//! From SQL text to columnar operators.
//!
//! ```text
//! PipelineSpec ── plan() ──▶ Plan ── instantiate() ──▶ Pipeline ── process(records) ──▶ Processed
//! ```
//!
//! [`plan`] checks everything that can be checked without a broker and reports all problems at once. A [`Pipeline`] belongs to one
//! processing thread: it decodes borrowed Kafka records into Arrow columns, evaluates the statements and encodes the rows for
//! the sinks. It has no clock and does no I/O.
//!
//! ```
//! use fencepost_pipeline::{RawRecord, SourceId, plan};
//!
//! let spec = serde_json::from_str(
//!     r#"{
//!         "sources": [{"name": "s", "kafka": {"topic": "in", "format": {"json": {}}}, "columns": [{"name": "a", "type": "BIGINT"}]}],
//!         "sql": "INSERT INTO t SELECT a + 1 AS b FROM s",
//!         "sinks": [{"name": "t", "kafka": {"topic": "out", "format": {"json": {}}}}]
//!     }"#,
//! )?;
//! let plan = plan(&spec).map_err(|violations| format!("{violations:?}"))?;
//! let mut pipeline = plan.instantiate()?;
//! let record = RawRecord {
//!     partition: 0,
//!     offset: 7,
//!     timestamp_ms: -1,
//!     key: None,
//!     value: Some(br#"{"a": 41}"#),
//!     headers: Vec::new(),
//! };
//! let processed = pipeline.process(SourceId(0), &[record], 0)?;
//! assert_eq!(processed.outputs[0].value(0), Some(br#"{"b":42}"#.as_slice()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | from | to |
//! |---|---|---|
//! | `sql` | text | optimized logical plans, by DataFusion |
//! | `compile` | logical plans | a graph of streaming operators |
//! | `decode` | Kafka records | Arrow columns, and bad records with reasons |
//! | `evaluate` | Arrow columns | Arrow columns |
//! | `encode` | Arrow columns | keys, values, headers and timestamps |
//! | `pipeline` | all of it | for one processing thread |

mod clock;
mod compile;
mod decode;
mod encode;
mod evaluate;
mod limits;
mod pipeline;
mod plan;
pub mod records;
mod size;
mod sql;
mod stack;
mod types;
mod violation;

pub use limits::OutputLimits;
pub use pipeline::{Pipeline, ProcessError};
pub use plan::{Plan, PlannedSink, PlannedSource, plan, plan_report};
pub use records::{BadRecord, Destination, Header, OutputBatch, Processed, RawRecord, SinkId, SourceId};
pub use violation::Reason;
