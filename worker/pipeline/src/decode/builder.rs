use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int32Builder, Int64Builder, ListArray, NullBufferBuilder, StringBuilder, StructArray, TimestampMicrosecondBuilder,
    TimestampMillisecondBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;

use super::cell::Cell;
use crate::types::{ColumnType, element_field, struct_fields};

/// Guess of the bytes of a string, for the first allocation only.
const STRING_BYTES: usize = 16;

/// Collects the cells of a column.
pub(super) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder, DataType),
    String(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    TimestampMs(TimestampMillisecondBuilder),
    TimestampUs(TimestampMicrosecondBuilder),
    Array { field: FieldRef, lengths: Vec<usize>, nulls: NullBufferBuilder, elements: Box<ColumnBuilder> },
    Struct { fields: Fields, len: usize, nulls: NullBufferBuilder, children: Vec<ColumnBuilder> },
}

impl ColumnBuilder {
    pub(super) fn new(column_type: &ColumnType, rows: usize) -> Self {
        match column_type {
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
            ColumnType::Int => Self::Int(Int32Builder::with_capacity(rows)),
            ColumnType::BigInt => Self::BigInt(Int64Builder::with_capacity(rows)),
            ColumnType::Float => Self::Float(Float32Builder::with_capacity(rows)),
            ColumnType::Double => Self::Double(Float64Builder::with_capacity(rows)),
            ColumnType::Decimal { .. } => Self::Decimal(Decimal128Builder::with_capacity(rows), column_type.arrow()),
            ColumnType::String => Self::String(StringBuilder::with_capacity(rows, rows * STRING_BYTES)),
            ColumnType::Bytes => Self::Bytes(BinaryBuilder::with_capacity(rows, rows * STRING_BYTES)),
            ColumnType::Date => Self::Date(Date32Builder::with_capacity(rows)),
            ColumnType::TimestampMs => Self::TimestampMs(TimestampMillisecondBuilder::with_capacity(rows)),
            ColumnType::TimestampUs => Self::TimestampUs(TimestampMicrosecondBuilder::with_capacity(rows)),
            ColumnType::Array(element) => Self::Array {
                field: Arc::new(element_field(element)),
                lengths: Vec::with_capacity(rows),
                nulls: NullBufferBuilder::new(rows),
                elements: Box::new(Self::new(element, rows)),
            },
            ColumnType::Struct(fields) => Self::Struct {
                fields: struct_fields(fields),
                len: 0,
                nulls: NullBufferBuilder::new(rows),
                children: fields.iter().map(|f| Self::new(&f.column_type, rows)).collect(),
            },
        }
    }

    /// Adds a cell. A cell of another type cannot come from the reader of this column; it would be NULL.
    pub(super) fn append(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Boolean(b), Cell::Boolean(v)) => b.append_value(v),
            (Self::Int(b), Cell::Int(v)) => b.append_value(v),
            (Self::BigInt(b), Cell::BigInt(v)) => b.append_value(v),
            (Self::Float(b), Cell::Float(v)) => b.append_value(v),
            (Self::Double(b), Cell::Double(v)) => b.append_value(v),
            (Self::Decimal(b, _), Cell::Decimal(v)) => b.append_value(v),
            (Self::String(b), Cell::String(v)) => b.append_value(v),
            (Self::Bytes(b), Cell::Bytes(v)) => b.append_value(v),
            (Self::Date(b), Cell::Date(v)) => b.append_value(v),
            (Self::TimestampMs(b), Cell::BigInt(v)) => b.append_value(v),
            (Self::TimestampUs(b), Cell::BigInt(v)) => b.append_value(v),
            (Self::Array { lengths, nulls, elements, .. }, Cell::Array(cells)) => {
                lengths.push(cells.len());
                nulls.append_non_null();
                for cell in cells {
                    elements.append(cell);
                }
            }
            (Self::Struct { len, nulls, children, .. }, Cell::Struct(cells)) => {
                *len += 1;
                nulls.append_non_null();
                for (child, cell) in children.iter_mut().zip(cells) {
                    child.append(cell);
                }
            }
            (builder, cell) => {
                debug_assert!(matches!(cell, Cell::Null), "a cell of another type: {cell:?}");
                builder.append_null();
            }
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Boolean(b) => b.append_null(),
            Self::Int(b) => b.append_null(),
            Self::BigInt(b) => b.append_null(),
            Self::Float(b) => b.append_null(),
            Self::Double(b) => b.append_null(),
            Self::Decimal(b, _) => b.append_null(),
            Self::String(b) => b.append_null(),
            Self::Bytes(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::TimestampMs(b) => b.append_null(),
            Self::TimestampUs(b) => b.append_null(),
            Self::Array { lengths, nulls, .. } => {
                lengths.push(0);
                nulls.append_null();
            }
            Self::Struct { len, nulls, children, .. } => {
                *len += 1;
                nulls.append_null();
                for child in children {
                    child.append_null();
                }
            }
        }
    }

    pub(super) fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Boolean(mut b) => Arc::new(b.finish()),
            Self::Int(mut b) => Arc::new(b.finish()),
            Self::BigInt(mut b) => Arc::new(b.finish()),
            Self::Float(mut b) => Arc::new(b.finish()),
            Self::Double(mut b) => Arc::new(b.finish()),
            Self::Decimal(mut b, data_type) => Arc::new(b.finish().with_data_type(data_type)),
            Self::String(mut b) => Arc::new(b.finish()),
            Self::Bytes(mut b) => Arc::new(b.finish()),
            Self::Date(mut b) => Arc::new(b.finish()),
            Self::TimestampMs(mut b) => Arc::new(b.finish()),
            Self::TimestampUs(mut b) => Arc::new(b.finish()),
            Self::Array { field, lengths, mut nulls, elements } => {
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::try_new(field, offsets, elements.finish()?, nulls.finish())?)
            }
            Self::Struct { fields, len, mut nulls, children } => {
                let arrays = children.into_iter().map(Self::finish).collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields, arrays, nulls.finish(), len)?)
            }
        })
    }
}
