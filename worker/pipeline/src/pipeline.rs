//! One processing thread's pipeline: decode, evaluate, encode, and set bad records apart.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use fencepost_crds::v1alpha1::OnBadRecord;

use crate::clock::Clock;
use crate::decode::{AtBadRecord, Decoded, Decoder};
use crate::encode::SinkLayout;
use crate::evaluate::{Evaluator, Rows};
use crate::records::{BadRecord, Destination, Header, OutputBatch, Processed, RawRecord, SourceId};

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
    clock: Clock,
}

impl Pipeline {
    pub(crate) fn new(
        sources: Vec<SourcePipeline>,
        evaluator: Evaluator,
        layouts: Vec<SinkLayout>,
        clock: Clock,
    ) -> Self {
        Self { sources, evaluator, layouts, clock }
    }

    /// Processes records of a source, of any of its partitions. `now_ms` is what `now()` gives.
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
        let mut isolation = Isolation::new(self, source, at_bad, decoded);
        isolation.run();
        let Isolation { chunks, mut bad, .. } = isolation;
        bad.sort_unstable_by_key(|(record, _)| *record);
        self.finish(source, records, &chunks, bad)
    }

    fn finish(
        &self,
        source: SourceId,
        records: &[RawRecord<'_>],
        chunks: &[Vec<Rows>],
        bad: Vec<(u32, String)>,
    ) -> Result<Processed, ProcessError> {
        let from = self.sources.get(source.0).ok_or(ProcessError::UnknownSource(source))?;
        let mut processed = Processed { consumed: records.len(), ..Processed::default() };
        for (layout, chunks) in self.layouts.iter().zip(chunks) {
            if !chunks.is_empty() {
                processed.outputs.push(layout.encode(chunks).map_err(ProcessError::Encode)?);
            }
        }
        let mut dead_letters = from
            .dead_letter_topic
            .as_ref()
            .map(|topic| OutputBatch::new(Arc::clone(topic), Destination::DeadLetter(source)));
        for (index, reason) in bad {
            let index = index as usize;
            let Some(record) = records.get(index) else { continue };
            let reason = fencepost_crds::conditions::clamp(&reason, MAX_REASON);
            if let Some(dead_letters) = &mut dead_letters {
                dead_letter(dead_letters, &from.topic, record, &reason);
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
        Ok(processed)
    }
}

fn check_size(source: &SourcePipeline, records: &[RawRecord<'_>]) -> Result<(), ProcessError> {
    let of_record = |r: &RawRecord<'_>| {
        let headers: usize = r.headers.iter().map(|h| h.value.map_or(0, <[u8]>::len)).sum();
        r.key.map_or(0, <[u8]>::len) + r.value.map_or(0, <[u8]>::len) + headers + source.topic.len()
    };
    let bytes = records.iter().map(of_record).fold(0, usize::saturating_add);
    // Rows are counted with 32 bits, so records without any byte count as well.
    if bytes.saturating_add(records.len()) > MAX_BATCH_BYTES {
        return Err(ProcessError::BatchTooLarge { bytes });
    }
    Ok(())
}

/// The record as it was, with headers that say where it was and why it is here.
fn dead_letter(batch: &mut OutputBatch, topic: &str, record: &RawRecord<'_>, reason: &str) {
    let partition = record.partition.to_string();
    let offset = record.offset.to_string();
    let ours = [
        ("fencepost.source.topic", topic),
        ("fencepost.source.partition", &partition),
        ("fencepost.source.offset", &offset),
        ("fencepost.reason", reason),
    ];
    let ours = ours.into_iter().map(|(name, value)| Header { name, value: Some(value.as_bytes()) });
    batch.push(record.key, record.value, None, record.headers.iter().copied().chain(ours));
}

/// Evaluates a batch; where that fails, its halves, down to the records that fail alone.
struct Isolation<'a> {
    pipeline: &'a Pipeline,
    source: SourceId,
    at_bad: AtBadRecord,
    batch: RecordBatch,
    /// For each row of the batch: its record.
    records: Vec<u32>,
    /// Rows by sink.
    chunks: Vec<Vec<Rows>>,
    bad: Vec<(u32, String)>,
}

impl<'a> Isolation<'a> {
    fn new(pipeline: &'a Pipeline, source: SourceId, at_bad: AtBadRecord, decoded: Decoded) -> Self {
        let Decoded { batch, rows, bad } = decoded;
        let chunks = vec![Vec::new(); pipeline.layouts.len()];
        Self { pipeline, source, at_bad, batch, records: rows, chunks, bad }
    }

    fn run(&mut self) {
        match self.range(0, self.records.len()) {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => {}
        }
    }

    fn range(&mut self, start: usize, len: usize) -> ControlFlow<()> {
        if len == 0 {
            return ControlFlow::Continue(());
        }
        let reason = match self.evaluate(start, len) {
            Ok(rows) => {
                for (sink, rows) in rows {
                    if let Some(chunks) = self.chunks.get_mut(sink) {
                        chunks.push(rows);
                    }
                }
                return ControlFlow::Continue(());
            }
            Err(reason) => reason,
        };
        if len > 1 {
            let half = len / 2;
            self.range(start, half)?;
            return self.range(start + half, len - half);
        }
        if let Some(record) = self.records.get(start) {
            self.bad.push((*record, reason));
        }
        match self.at_bad {
            AtBadRecord::Stop => ControlFlow::Break(()),
            AtBadRecord::GoOn => ControlFlow::Continue(()),
        }
    }

    fn evaluate(&self, start: usize, len: usize) -> Result<Vec<(usize, Rows)>, String> {
        let batch = self.batch.slice(start, len);
        let first = u32::try_from(start).unwrap_or(u32::MAX);
        // Hundreds of functions of others run on bytes of strangers. A panic in one of them is that record's fault for us; there
        // is no state that could be left half changed.
        let evaluated =
            catch_unwind(AssertUnwindSafe(|| self.pipeline.evaluator.evaluate(self.source.0, &batch, first)));
        let rows = evaluated
            .map_err(|panic| format!("a function panicked: {}", panic_message(&*panic)))?
            .map_err(|error| error.to_string())?;
        for (sink, rows) in &rows {
            if let Some(layout) = self.pipeline.layouts.get(*sink) {
                layout.check(&rows.batch)?;
            }
        }
        Ok(rows)
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
