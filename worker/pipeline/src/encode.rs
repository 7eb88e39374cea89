//! From rows to Kafka records: the layout of a sink, checked when the pipeline is planned.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use arrow::error::ArrowError;

use crate::evaluate::Rows;
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

impl SinkLayout {
    /// Finds rows that Kafka would refuse. Its timestamps begin in 1970.
    pub(crate) fn check(&self, batch: &RecordBatch) -> Result<(), String> {
        let Some(column) = self.timestamp else { return Ok(()) };
        let times = milliseconds(batch, column).map_err(|e| e.to_string())?;
        let times = times.as_primitive::<TimestampMillisecondType>();
        match times.iter().flatten().find(|t| *t < 0) {
            Some(time) => Err(format!("timestampColumn: {time} ms is before 1970, which Kafka cannot store")),
            None => Ok(()),
        }
    }

    /// Encodes rows. Where they came on several ways, their order is that of the records they come from.
    pub(crate) fn encode(&self, chunks: &[Rows]) -> Result<OutputBatch, ArrowError> {
        let len = chunks.iter().map(|c| c.batch.num_rows()).sum();
        let mut output = Output::new(self, len);
        let encoders = chunks.iter().map(|c| ChunkEncoder::new(self, &c.batch)).collect::<Result<Vec<_>, _>>()?;
        if let [encoder] = encoders.as_slice() {
            for row in 0..len {
                encoder.encode(row, &mut output);
            }
        } else {
            for (chunk, row) in merged(chunks) {
                if let Some(encoder) = encoders.get(chunk) {
                    encoder.encode(row, &mut output);
                }
            }
        }
        output.finish(self).ok_or_else(|| ArrowError::ComputeError("columns of different lengths".to_owned()))
    }
}

/// All rows as (chunk, row), by origin; rows of one origin in the order of the chunks.
fn merged(chunks: &[Rows]) -> Vec<(usize, usize)> {
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
    fn new(layout: &'a SinkLayout, batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        let columns = batch.columns().iter().map(JsonColumn::new).collect::<Result<Vec<_>, _>>()?;
        let timestamps = layout.timestamp.map(|c| milliseconds(batch, c)).transpose()?;
        Ok(Self { layout, columns, timestamps })
    }

    fn encode(&self, row: usize, output: &mut Output) {
        let has_key = self.key(row, output);
        if has_key && self.is_tombstone(row) {
            output.values.end(false);
        } else {
            self.object(&self.layout.value, row, output.values.buffer());
            output.values.end(true);
        }
        if let Some(timestamps) = &mut output.timestamps {
            let array = self.timestamps.as_ref().and_then(|t| t.as_primitive_opt::<TimestampMillisecondType>());
            timestamps.push(array.filter(|a| a.is_valid(row)).and_then(|a| a.values().get(row).copied()));
        }
        if let Some(headers) = &mut output.headers {
            for (name, column) in &self.layout.headers {
                if let Some(value) = self.columns.get(*column).and_then(|c| c.bytes(row)) {
                    headers.add(Header { name, value: Some(value) });
                }
            }
            headers.end_row();
        }
    }

    /// Writes the key. Whether there is one.
    fn key(&self, row: usize, output: &mut Output) -> bool {
        let written = match &self.layout.key {
            KeyLayout::None => return false,
            KeyLayout::Raw(column) => {
                self.columns.get(*column).is_some_and(|c| write_key(c, row, output.keys.buffer()))
            }
            KeyLayout::Json(fields) => {
                self.object(fields, row, output.keys.buffer());
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

    fn object(&self, fields: &[ObjectField], row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&field.prefix);
            if let Some(column) = self.columns.get(field.column) {
                column.write(row, out);
            }
        }
        out.push(b'}');
    }
}

fn milliseconds(batch: &RecordBatch, column: usize) -> Result<ArrayRef, ArrowError> {
    let array = batch.columns().get(column).ok_or_else(|| ArrowError::ComputeError("no such column".to_owned()))?;
    cast(array, &DataType::Timestamp(TimeUnit::Millisecond, None))
}

/// Names that are there twice.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}
