use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;

use super::{Pipeline, ProcessError, panic_message};
use crate::decode::{AtBadRecord, Decoded};
use crate::encode::EncodeError;
use crate::limits::{BATCH_MADE_BYTES, MAX_MADE_BYTES};
use crate::records::{OutputBatch, RawRecord, SourceId};

/// Bytes of records that are evaluated at once. What expressions make of them is a multiple of it.
const SLICE_BYTES: usize = 4 << 20;

/// Evaluates a batch; where that fails, its halves, down to the records that fail alone. All that a record becomes is encoded with
/// it, so a record whose rows one sink cannot take has no rows in the others.
pub(super) struct Isolation<'a> {
    pipeline: &'a Pipeline,
    source: SourceId,
    now_ms: i64,
    at_bad: AtBadRecord,
    batch: RecordBatch,
    /// For each row of the batch: its record.
    rows: Vec<u32>,
    outputs: Outputs,
    /// Bytes of `outputs`.
    made: usize,
    /// Rows from here on are left for another batch.
    enough: Option<usize>,
    bad: Vec<(u32, String)>,
    bug: Option<ProcessError>,
}

/// What became of a batch.
pub(super) struct Isolated {
    pub(super) outputs: Vec<OutputBatch>,
    /// Bad records with their reasons, in the order they were given.
    pub(super) bad: Vec<(u32, String)>,
    /// The first record that was left for another batch.
    pub(super) left: Option<u32>,
}

/// Encoded rows by sink.
type Outputs = Vec<Option<OutputBatch>>;

/// Why rows have no output.
enum Failure {
    /// Something is wrong with one of them, or they are too many at once.
    Rows(String),
    /// Something is wrong with us.
    Bug(ProcessError),
}

impl<'a> Isolation<'a> {
    pub(super) fn new(
        pipeline: &'a Pipeline,
        source: SourceId,
        now_ms: i64,
        at_bad: AtBadRecord,
        decoded: Decoded,
    ) -> Self {
        let Decoded { batch, rows, bad } = decoded;
        let outputs = vec![None; pipeline.layouts.len()];
        Self { pipeline, source, now_ms, at_bad, batch, rows, outputs, made: 0, enough: None, bad, bug: None }
    }

    pub(super) fn run(mut self, records: &[RawRecord<'_>]) -> Result<Isolated, ProcessError> {
        let mut start = 0;
        for end in self.slices(records) {
            if self.range(start, end - start).is_break() {
                break;
            }
            start = end;
        }
        if let Some(bug) = self.bug {
            return Err(bug);
        }
        let left = self.enough.and_then(|row| self.rows.get(row).copied());
        self.bad.retain(|(record, _)| left.is_none_or(|left| *record < left));
        self.bad.sort_unstable_by_key(|(record, _)| *record);
        Ok(Isolated { outputs: self.outputs.into_iter().flatten().collect(), bad: self.bad, left })
    }

    /// Ends of groups of rows that are not too large together.
    fn slices(&self, records: &[RawRecord<'_>]) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut bytes = 0_usize;
        for (row, record) in self.rows.iter().enumerate() {
            let of_record = records.get(*record as usize).map_or(0, RawRecord::byte_len);
            if bytes > 0 && bytes.saturating_add(of_record) > SLICE_BYTES {
                ends.push(row);
                bytes = 0;
            }
            bytes = bytes.saturating_add(of_record);
        }
        ends.push(self.rows.len());
        ends
    }

    fn range(&mut self, start: usize, len: usize) -> ControlFlow<()> {
        if len == 0 {
            return ControlFlow::Continue(());
        }
        let reason = match self.evaluate(start, len) {
            Ok(outputs) => {
                self.add(outputs);
                if self.made < BATCH_MADE_BYTES {
                    return ControlFlow::Continue(());
                }
                self.enough = Some(start + len);
                return ControlFlow::Break(());
            }
            Err(Failure::Rows(reason)) => reason,
            Err(Failure::Bug(bug)) => {
                self.bug = Some(bug);
                return ControlFlow::Break(());
            }
        };
        if len > 1 {
            let half = len / 2;
            self.range(start, half)?;
            return self.range(start + half, len - half);
        }
        if let Some(record) = self.rows.get(start) {
            self.bad.push((*record, reason));
        }
        match self.at_bad {
            AtBadRecord::Stop => ControlFlow::Break(()),
            AtBadRecord::GoOn => ControlFlow::Continue(()),
        }
    }

    fn add(&mut self, outputs: Outputs) {
        self.made += outputs.iter().flatten().map(OutputBatch::byte_len).sum::<usize>();
        for (all, more) in self.outputs.iter_mut().zip(outputs) {
            match (all.as_mut(), more) {
                (Some(all), Some(more)) => all.append(more),
                (None, more) => *all = more,
                (Some(_), None) => {}
            }
        }
    }

    fn evaluate(&self, start: usize, len: usize) -> Result<Outputs, Failure> {
        let batch = self.batch.slice(start, len);
        let first = u32::try_from(start).unwrap_or(u32::MAX);
        // Hundreds of functions of others run on bytes of strangers. A panic in one of them is that record's fault for us; there
        // is no state that could be left half changed.
        let evaluated =
            catch_unwind(AssertUnwindSafe(|| self.pipeline.evaluator.evaluate(self.source.0, &batch, first)));
        let rows = evaluated
            .map_err(|panic| Failure::Rows(format!("a function panicked: {}", panic_message(&*panic))))?
            .map_err(|error| Failure::Rows(error.to_string()))?;
        let mut room = MAX_MADE_BYTES;
        let mut outputs = Vec::with_capacity(self.pipeline.layouts.len());
        for (sink, layout) in self.pipeline.layouts.iter().enumerate() {
            let chunks: Vec<_> = rows.iter().filter(|(s, _)| *s == sink).map(|(_, rows)| rows).collect();
            if chunks.is_empty() {
                outputs.push(None);
                continue;
            }
            let limits = self.pipeline.limits(&layout.topic);
            let output = layout.encode(&chunks, limits, self.now_ms, room).map_err(|error| match error {
                EncodeError::Refused(reason) => Failure::Rows(reason),
                EncodeError::Columns(error) => Failure::Bug(ProcessError::Encode(error)),
            })?;
            room = room.saturating_sub(output.byte_len());
            outputs.push(Some(output));
        }
        Ok(outputs)
    }
}
