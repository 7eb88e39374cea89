//! From Kafka records to Arrow columns. One record that does not fit never spoils the others: it is read completely before
//! anything of it reaches a column.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::records::RawRecord;
use crate::types::{ColumnType, StructField};

mod builder;
mod cell;
mod json;
mod metadata;
mod number;

use builder::ColumnBuilder;
use cell::Cell;
pub(crate) use metadata::MetadataKind;

/// A column to be decoded.
#[derive(Clone, Debug)]
pub(crate) struct DecodedColumn {
    pub(crate) name: String,
    pub(crate) column_type: ColumnType,
    pub(crate) required: bool,
    pub(crate) from: ColumnSource,
}

/// Where the value of a column comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnSource {
    /// The field of the JSON object with the column's name.
    Value,
    /// The message around it.
    Metadata(MetadataKind),
}

impl DecodedColumn {
    pub(crate) fn field(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow(), !self.required)
    }
}

/// Decoded records.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// One row per good record.
    pub(crate) batch: RecordBatch,
    /// For each row: which of the given records it is.
    pub(crate) rows: Vec<u32>,
    /// The bad records and what is wrong with them.
    pub(crate) bad: Vec<(u32, String)>,
}

/// What to do at a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtBadRecord {
    Stop,
    GoOn,
}

/// Decodes the records of a source.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    topic: Arc<str>,
    columns: Vec<DecodedColumn>,
    object: json::ObjectReader,
    schema: SchemaRef,
}

impl Decoder {
    pub(crate) fn new(topic: Arc<str>, columns: Vec<DecodedColumn>) -> Self {
        let schema = Arc::new(Schema::new(columns.iter().map(DecodedColumn::field).collect::<Vec<_>>()));
        let object = json::ObjectReader::new(
            columns
                .iter()
                .enumerate()
                .filter(|(_, c)| c.from == ColumnSource::Value)
                .map(|(i, c)| (StructField { name: c.name.clone(), column_type: c.column_type.clone() }, i))
                .collect(),
        );
        Self { topic, columns, object, schema }
    }

    /// Decodes. Bad records are in the answer; an error is an error of ours.
    pub(crate) fn decode(&self, records: &[RawRecord<'_>], at_bad: AtBadRecord) -> Result<Decoded, ArrowError> {
        let mut builders: Vec<ColumnBuilder> =
            self.columns.iter().map(|c| ColumnBuilder::new(&c.column_type, records.len())).collect();
        let mut rows = Vec::with_capacity(records.len());
        let mut bad = Vec::new();
        let mut cells: Vec<Cell<'_>> = Vec::with_capacity(self.columns.len());
        let mut names = json::Names::default();
        for (index, record) in (0_u32..).zip(records) {
            cells.clear();
            cells.resize_with(self.columns.len(), || Cell::Null);
            match self.read(record, &mut names, &mut cells) {
                Ok(()) => {
                    for (builder, cell) in builders.iter_mut().zip(cells.drain(..)) {
                        builder.append(cell);
                    }
                    rows.push(index);
                }
                Err(reason) => {
                    bad.push((index, reason));
                    if at_bad == AtBadRecord::Stop {
                        break;
                    }
                }
            }
        }
        let arrays = builders.into_iter().map(ColumnBuilder::finish).collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        Ok(Decoded { batch, rows, bad })
    }

    /// Reads a record into cells. They are complete, or there is a reason.
    fn read<'a>(
        &'a self,
        record: &RawRecord<'a>,
        names: &mut json::Names<'a>,
        cells: &mut [Cell<'a>],
    ) -> Result<(), String> {
        if let Some(value) = record.value {
            // Also without a column that needs it: what is not a JSON object is a bad record.
            self.object.read(value, names, cells)?;
        }
        for (column, cell) in self.columns.iter().zip(cells) {
            if let ColumnSource::Metadata(kind) = &column.from {
                *cell = metadata::read(kind, &column.column_type, record, &self.topic)
                    .map_err(|reason| format!("column `{}`: {reason}", column.name))?;
            }
            if column.required && matches!(cell, Cell::Null) {
                let tombstone = if record.value.is_none() { ", and the record is a tombstone" } else { "" };
                return Err(format!("column `{}` is required and has no value{tombstone}", column.name));
            }
        }
        Ok(())
    }
}
