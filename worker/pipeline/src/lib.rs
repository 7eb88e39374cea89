//! From SQL text to columnar operators.
//!
//! ```text
//! PipelineSpec ── plan() ──▶ Plan ── instantiate() ──▶ Pipeline ── process(records) ──▶ Processed
//! ```
//!
//! [`plan`] checks everything that can be checked without a broker and reports all problems at once. A [`Pipeline`] belongs to one
//! processing thread: it decodes borrowed Kafka records into Arrow columns, evaluates the statements and encodes the rows for
//! the sinks. It has no clock and does no I/O.

pub mod records;

pub use records::{BadRecord, Destination, Header, OutputBatch, Processed, RawRecord, SinkId, SourceId};
