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
mod pipeline;
mod plan;
pub mod records;
mod sql;
mod types;
mod violation;

pub use pipeline::{Pipeline, ProcessError};
pub use plan::{Plan, PlannedSink, PlannedSource, plan, plan_report};
pub use records::{BadRecord, Destination, Header, OutputBatch, Processed, RawRecord, SinkId, SourceId};
pub use violation::Reason;
