//! One processing thread's pipeline: decode, evaluate, encode, and set bad records apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use fencepost_crds::v1alpha1::OnBadRecord;

use crate::clock::Clock;
use crate::decode::{AtBadRecord, Decoder};
use crate::encode::SinkLayout;
use crate::evaluate::Evaluator;
use crate::limits::OutputLimits;
use crate::records::{BadRecord, Destination, OutputBatch, Processed, RawRecord, SourceId};

mod dead_letter;
mod isolation;

use isolation::{Isolated, Isolation};

/// Bytes that a batch may have: the columns of a batch are addressed with 31 bits.
const MAX_BATCH_BYTES: usize = i32::MAX as usize;

/// Characters of a reason. Values of users are in it.
const MAX_REASON: usize = 1000;

/// A bug, or a batch that is too large. Bad records are not errors: see [`Processed`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The expressions of a plan could not be built.
    #[error("cannot build the expressions of the pipeline")]
    Instantiate(#[source] DataFusionError),
    /// Expressions are built on a thread of their own.
    #[error("cannot start a thread to build the expressions of the pipeline")]
    Thread(#[source] std::io::Error),
    /// The source is not of this pipeline.
    #[error("the pipeline has no source {}", .0.0)]
    UnknownSource(SourceId),
    /// More than 2 GiB at once. Give fewer records.
    #[error("a batch of {bytes} bytes is too large, {MAX_BATCH_BYTES} are possible")]
    BatchTooLarge {
        /// Bytes of the batch.
        bytes: usize,
    },
    /// Columns could not be put together.
    #[error("cannot build the columns of a batch")]
    Columns(#[source] ArrowError),
    /// Rows could not be written.
    #[error("cannot encode rows")]
    Encode(#[source] ArrowError),
}

/// What a pipeline knows of a source.
#[derive(Debug)]
pub(crate) struct SourcePipeline {
    pub(crate) topic: Arc<str>,
    pub(crate) decoder: Decoder,
    pub(crate) on_bad_record: OnBadRecord,
    pub(crate) dead_letter_topic: Option<Arc<str>>,
}

/// The operators of one processing thread.
#[derive(Debug)]
pub struct Pipeline {
    sources: Vec<SourcePipeline>,
    evaluator: Evaluator,
    layouts: Vec<SinkLayout>,
    /// By topic; the default for those that are not in it.
    limits: BTreeMap<String, OutputLimits>,
    clock: Clock,
}

impl Pipeline {
    pub(crate) fn new(
        sources: Vec<SourcePipeline>,
        evaluator: Evaluator,
        layouts: Vec<SinkLayout>,
        clock: Clock,
    ) -> Self {
        Self { sources, evaluator, layouts, limits: BTreeMap::new(), clock }
    }

    /// Says what the brokers take for a topic, be it of a sink or of dead letters. Until it is said, Kafka's defaults are assumed.
    pub fn set_output_limits(&mut self, topic: impl Into<String>, limits: OutputLimits) {
        self.limits.insert(topic.into(), limits);
    }

    fn limits(&self, topic: &str) -> OutputLimits {
        self.limits.get(topic).copied().unwrap_or_default()
    }

    /// Processes records of a source, of any of its partitions. `now_ms` is what `now()` gives, and what the timestamps of outputs may
    /// not be too far ahead of.
    ///
    /// A batch ends early when its outputs take as much memory as they may: see [`Processed::consumed`]. At least one record is processed.
    ///
    /// The records of a partition must come in their order; the records of an output then come in the order of the records they
    /// were made from.
    ///
    /// # Errors
    ///
    /// Only for reasons that are not in a record: see [`ProcessError`]. Nothing was produced then.
    pub fn process(
        &mut self,
        source: SourceId,
        records: &[RawRecord<'_>],
        now_ms: i64,
    ) -> Result<Processed, ProcessError> {
        let from = self.sources.get(source.0).ok_or(ProcessError::UnknownSource(source))?;
        check_size(from, records)?;
        self.clock.set(now_ms);
        let at_bad = match from.on_bad_record {
            OnBadRecord::Fail => AtBadRecord::Stop,
            OnBadRecord::Skip | OnBadRecord::DeadLetter => AtBadRecord::GoOn,
        };
        let decoded = from.decoder.decode(records, at_bad).map_err(ProcessError::Columns)?;
        let isolated = Isolation::new(self, source, now_ms, at_bad, decoded).run(records)?;
        Ok(self.finish(source, from, records, isolated))
    }

    fn finish(
        &self,
        source: SourceId,
        from: &SourcePipeline,
        records: &[RawRecord<'_>],
        isolated: Isolated,
    ) -> Processed {
        let Isolated { outputs, bad, left } = isolated;
        let consumed = left.map_or(records.len(), |left| left as usize);
        let mut processed = Processed { outputs, consumed, ..Processed::default() };
        let mut dead_letters = from
            .dead_letter_topic
            .as_ref()
            .map(|topic| OutputBatch::new(Arc::clone(topic), Destination::DeadLetter(source)));
        for (index, reason) in bad {
            let index = index as usize;
            let Some(record) = records.get(index) else { continue };
            let reason = fencepost_crds::conditions::clamp(&reason, MAX_REASON);
            if let Some(dead_letters) = &mut dead_letters {
                let limits = self.limits(dead_letters.topic());
                dead_letter::push(dead_letters, &from.topic, record, &reason, limits);
            }
            let bad = BadRecord { partition: record.partition, offset: record.offset, reason };
            if from.on_bad_record == OnBadRecord::Fail {
                processed.consumed = index;
                processed.fail = Some(bad);
                break;
            }
            processed.bad.push(bad);
        }
        processed.outputs.extend(dead_letters.filter(|d| !d.is_empty()));
        processed
    }
}

fn check_size(source: &SourcePipeline, records: &[RawRecord<'_>]) -> Result<(), ProcessError> {
    let bytes = records.iter().map(|r| r.byte_len() + source.topic.len()).fold(0, usize::saturating_add);
    // Rows are counted with 32 bits, so records without any byte count as well.
    if bytes.saturating_add(records.len()) > MAX_BATCH_BYTES {
        return Err(ProcessError::BatchTooLarge { bytes });
    }
    Ok(())
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
