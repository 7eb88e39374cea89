//! The column types of the user's spec.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

mod parse;

pub(crate) use parse::TypeError;

/// Type of a source column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Boolean,
    Int,
    BigInt,
    Float,
    Double,
    Decimal { precision: u8, scale: u8 },
    String,
    Bytes,
    Date,
    TimestampMs,
    TimestampUs,
    Array(Box<ColumnType>),
    Struct(Vec<StructField>),
}

/// A field of a `STRUCT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StructField {
    pub(crate) name: String,
    pub(crate) column_type: ColumnType,
}

impl ColumnType {
    /// Reads the text of a spec.
    pub(crate) fn parse(text: &str) -> Result<Self, TypeError> {
        parse::parse(text)
    }

    /// The Arrow type. Everything inside a nested type may be NULL: JSON can always leave it out.
    pub(crate) fn arrow(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            // The parser allows 38 digits at most, so the scale fits.
            Self::Decimal { precision, scale } => {
                DataType::Decimal128(*precision, i8::try_from(*scale).unwrap_or(i8::MAX))
            }
            Self::String => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::TimestampMs => DataType::Timestamp(TimeUnit::Millisecond, None),
            Self::TimestampUs => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Array(element) => DataType::List(Arc::new(element_field(element))),
            Self::Struct(fields) => DataType::Struct(struct_fields(fields)),
        }
    }
}

/// The name of an Arrow type for people: that of a column type where there is one.
pub(crate) fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int32 => "INT".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::Float32 => "FLOAT".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES".to_owned(),
        DataType::Date32 => "DATE".to_owned(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => "TIMESTAMP_MS".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => "TIMESTAMP_US".to_owned(),
        DataType::List(element) => format!("ARRAY<{}>", sql_name(element.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(|f| format!("{} {}", f.name(), sql_name(f.data_type()))).collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The field of the elements of an `ARRAY`.
pub(crate) fn element_field(element: &ColumnType) -> Field {
    Field::new_list_field(element.arrow(), true)
}

/// The fields of a `STRUCT`.
pub(crate) fn struct_fields(fields: &[StructField]) -> Fields {
    fields.iter().map(|f| Field::new(&f.name, f.column_type.arrow(), true)).collect()
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal { precision, scale } => write!(f, "DECIMAL({precision}, {scale})"),
            Self::String => f.write_str("STRING"),
            Self::Bytes => f.write_str("BYTES"),
            Self::Date => f.write_str("DATE"),
            Self::TimestampMs => f.write_str("TIMESTAMP_MS"),
            Self::TimestampUs => f.write_str("TIMESTAMP_US"),
            Self::Array(element) => write!(f, "ARRAY<{element}>"),
            Self::Struct(fields) => {
                f.write_str("STRUCT<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}\"{}\" {}", field.name.replace('"', "\"\""), field.column_type)?;
                }
                f.write_str(">")
            }
        }
    }
}
