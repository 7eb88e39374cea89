//! From rows to Kafka records: the layout of a sink, checked when the pipeline is planned.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use arrow::error::ArrowError;

use crate::evaluate::Rows;
use crate::limits::{MAX_MADE_BYTES, MAX_VALUE_BYTES, OutputLimits, record_bytes};
use crate::records::{BytesColumn, Destination, Header, HeadersColumn, OutputBatch, SinkId};

mod json;
mod layout;

use json::{JsonColumn, write_key};
pub(crate) use layout::SinkLayout;

/// How a record key is made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyLayout {
    None,
    /// The text or the bytes of a column.
    Raw(usize),
    /// A JSON object of columns.
    Json(Vec<ObjectField>),
}

/// A column in a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObjectField {
    column: usize,
    /// `"name":`
    prefix: Vec<u8>,
}

/// Guess of the bytes of an encoded record, for the first allocation only.
const RECORD_BYTES: usize = 64;

/// Rows that cannot be written.
#[derive(Debug)]
pub(crate) enum EncodeError {
    /// Kafka would refuse one of them, or they are too large.
    Refused(String),
    /// A bug.
    Columns(ArrowError),
}

impl SinkLayout {
    /// Encodes rows, of `room` bytes at most. Where they came on several ways, their order is that of the records they come from.
    pub(crate) fn encode(
        &self,
        chunks: &[&Rows],
        limits: OutputLimits,
        now_ms: i64,
        room: usize,
    ) -> Result<OutputBatch, EncodeError> {
        let len = chunks.iter().map(|c| c.batch.num_rows()).sum();
        let mut output = Output::new(self, len);
        let encoders = chunks.iter().map(|c| ChunkEncoder::new(self, &c.batch)).collect::<Result<Vec<_>, _>>()?;
        let gate = Gate { layout: self, limits, now_ms, room };
        if let [encoder] = encoders.as_slice() {
            for row in 0..len {
                encoder.encode(row, &gate, &mut output)?;
            }
        } else {
            for (chunk, row) in merged(chunks) {
                if let Some(encoder) = encoders.get(chunk) {
                    encoder.encode(row, &gate, &mut output)?;
                }
            }
        }
        output
            .finish(self)
            .ok_or_else(|| EncodeError::Columns(ArrowError::ComputeError("columns of different lengths".to_owned())))
    }
}

/// Lets through what Kafka will take.
struct Gate<'a> {
    layout: &'a SinkLayout,
    limits: OutputLimits,
    now_ms: i64,
    room: usize,
}

impl Gate<'_> {
    /// Bytes beyond which a record is refused.
    fn max_bytes(&self) -> usize {
        self.limits.max_record_bytes.min(MAX_VALUE_BYTES)
    }

    fn size(&self, bytes: usize, all: usize) -> Result<(), EncodeError> {
        let max = self.max_bytes();
        if bytes > max {
            let who = if max < self.limits.max_record_bytes { "a record may have" } else { "the topic takes" };
            return self.refuse(format_args!("a record of {bytes} bytes or more, and {who} {max} at most"));
        }
        if all > self.room {
            return self.refuse(format_args!("the records made of one take more than {MAX_MADE_BYTES} bytes"));
        }
        Ok(())
    }

    fn timestamp(&self, time: i64) -> Result<(), EncodeError> {
        let ahead = self.limits.max_timestamp_ahead_ms;
        if time < 0 {
            return self.refuse(format_args!(
                "timestampColumn: {time} ms is before 1970, and no message is written with such a timestamp"
            ));
        }
        // It would write the current time in its place.
        if time == 0 {
            return self.refuse(format_args!(
                "timestampColumn: 0 ms (1970-01-01T00:00:00Z) means \"now\" to the Kafka client"
            ));
        }
        if time > self.now_ms.saturating_add(ahead) {
            return self.refuse(format_args!(
                "timestampColumn: {time} ms is more than {ahead} ms after the current time, which is {} ms; the topic does not take it",
                self.now_ms
            ));
        }
        Ok(())
    }

    fn refuse(&self, reason: std::fmt::Arguments<'_>) -> Result<(), EncodeError> {
        Err(EncodeError::Refused(format!("sink `{}`: {reason}", self.layout.name)))
    }
}

/// All rows as (chunk, row), by origin; rows of one origin in the order of the chunks.
fn merged(chunks: &[&Rows]) -> Vec<(usize, usize)> {
    let mut rows: Vec<(u32, usize, usize)> = Vec::new();
    for (i, chunk) in chunks.iter().enumerate() {
        for row in 0..chunk.batch.num_rows() {
            // Without origins the chunks themselves are in order.
            let origin = chunk.origin.as_ref().and_then(|o| o.values().get(row).copied()).unwrap_or_default();
            rows.push((origin, i, row));
        }
    }
    rows.sort_unstable();
    rows.into_iter().map(|(_, chunk, row)| (chunk, row)).collect()
}

/// The columns of a batch in the making.
struct Output {
    keys: BytesColumn,
    values: BytesColumn,
    timestamps: Option<Vec<Option<i64>>>,
    headers: Option<HeadersColumn>,
}

impl Output {
    fn new(layout: &SinkLayout, rows: usize) -> Self {
        let keys = match layout.key {
            KeyLayout::None => BytesColumn::absent(rows),
            _ => BytesColumn::with_capacity(rows, rows * 16),
        };
        Self {
            keys,
            values: BytesColumn::with_capacity(rows, rows * RECORD_BYTES),
            timestamps: layout.timestamp.map(|_| Vec::with_capacity(rows)),
            headers: (!layout.headers.is_empty()).then(HeadersColumn::default),
        }
    }

    fn finish(self, layout: &SinkLayout) -> Option<OutputBatch> {
        let destination = Destination::Sink(SinkId(layout.sink));
        let topic = Arc::clone(&layout.topic);
        OutputBatch::from_columns(topic, destination, self.keys, self.values, self.timestamps, self.headers)
    }
}

/// Encodes the rows of a chunk.
struct ChunkEncoder<'a> {
    layout: &'a SinkLayout,
    columns: Vec<JsonColumn<'a>>,
    timestamps: Option<ArrayRef>,
}

impl<'a> ChunkEncoder<'a> {
    fn new(layout: &'a SinkLayout, batch: &'a RecordBatch) -> Result<Self, EncodeError> {
        let columns = batch.columns().iter().map(JsonColumn::new).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(EncodeError::Columns)?;
        let timestamps = layout.timestamp.map(|c| milliseconds(batch, c)).transpose();
        let timestamps =
            timestamps.map_err(|e| EncodeError::Refused(format!("sink `{}`: timestampColumn: {e}", layout.name)))?;
        Ok(Self { layout, columns, timestamps })
    }

    fn encode(&self, row: usize, gate: &Gate<'_>, output: &mut Output) -> Result<(), EncodeError> {
        let (keys, values) = (output.keys.byte_len(), output.values.byte_len());
        let max = gate.max_bytes();
        let has_key = self.key(row, keys + max, output);
        if has_key && self.is_tombstone(row) {
            output.values.end(false);
        } else {
            self.object(&self.layout.value, row, values + max, output.values.buffer());
            output.values.end(true);
        }
        let headers = || {
            let value = |column: &usize| self.columns.get(*column).and_then(|c| c.bytes(row));
            let header = move |(name, column): &'a (String, usize)| Some(Header { name, value: Some(value(column)?) });
            self.layout.headers.iter().filter_map(header)
        };
        let all = output.keys.byte_len() + output.values.byte_len();
        gate.size(all - keys - values + record_bytes(None, None, headers()), all)?;
        if let Some(timestamps) = &mut output.timestamps {
            let array = self.timestamps.as_ref().and_then(|t| t.as_primitive_opt::<TimestampMillisecondType>());
            let time = array.filter(|a| a.is_valid(row)).and_then(|a| a.values().get(row).copied());
            time.map_or(Ok(()), |time| gate.timestamp(time))?;
            timestamps.push(time);
        }
        if let Some(column) = &mut output.headers {
            headers().for_each(|header| column.add(header));
            column.end_row();
        }
        Ok(())
    }

    /// Writes the key. Whether there is one.
    fn key(&self, row: usize, stop: usize, output: &mut Output) -> bool {
        let written = match &self.layout.key {
            KeyLayout::None => return false,
            KeyLayout::Raw(column) => {
                self.columns.get(*column).is_some_and(|c| write_key(c, row, output.keys.buffer()))
            }
            KeyLayout::Json(fields) => {
                self.object(fields, row, stop, output.keys.buffer());
                true
            }
        };
        output.keys.end(written);
        written
    }

    fn is_tombstone(&self, row: usize) -> bool {
        let payload = &self.layout.payload;
        !payload.is_empty() && payload.iter().all(|c| self.columns.get(*c).is_none_or(|c| c.is_null(row)))
    }

    fn object(&self, fields: &[ObjectField], row: usize, stop: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&field.prefix);
            if let Some(column) = self.columns.get(field.column) {
                column.write(row, stop, out);
            }
        }
        out.push(b'}');
    }
}

fn milliseconds(batch: &RecordBatch, column: usize) -> Result<ArrayRef, ArrowError> {
    let array = batch.columns().get(column).ok_or_else(|| ArrowError::ComputeError("no such column".to_owned()))?;
    // Where it does not fit, NULL would be the time of writing.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, &DataType::Timestamp(TimeUnit::Millisecond, None), &options)
}

/// Names that are there twice.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}
