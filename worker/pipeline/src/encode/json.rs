use arrow::array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array,
    FixedSizeBinaryArray, FixedSizeListArray, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    PrimitiveArray, StringArray, StringViewArray, StructArray, Time32MillisecondArray, Time32SecondArray,
    Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;
use arrow::temporal_conversions::{
    date32_to_datetime, date64_to_datetime, time32ms_to_time, time32s_to_time, time64ns_to_time, time64us_to_time,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A column whose values can be written as JSON.
pub(super) struct JsonColumn<'a> {
    nulls: Option<NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    UInt8(&'a PrimitiveArray<UInt8Type>),
    UInt16(&'a PrimitiveArray<UInt16Type>),
    UInt32(&'a PrimitiveArray<UInt32Type>),
    UInt64(&'a PrimitiveArray<UInt64Type>),
    Float16(&'a PrimitiveArray<Float16Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal32(&'a PrimitiveArray<Decimal32Type>),
    Decimal64(&'a PrimitiveArray<Decimal64Type>),
    Decimal128(&'a PrimitiveArray<Decimal128Type>),
    Decimal256(&'a PrimitiveArray<Decimal256Type>),
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedSizeBinary(&'a FixedSizeBinaryArray),
    Date32(&'a Date32Array),
    Date64(&'a Date64Array),
    TimestampS(&'a TimestampSecondArray),
    TimestampMs(&'a TimestampMillisecondArray),
    TimestampUs(&'a TimestampMicrosecondArray),
    TimestampNs(&'a TimestampNanosecondArray),
    Time32S(&'a Time32SecondArray),
    Time32Ms(&'a Time32MillisecondArray),
    Time64Us(&'a Time64MicrosecondArray),
    Time64Ns(&'a Time64NanosecondArray),
    List(&'a ListArray, Box<JsonColumn<'a>>),
    LargeList(&'a LargeListArray, Box<JsonColumn<'a>>),
    FixedSizeList(&'a FixedSizeListArray, Box<JsonColumn<'a>>),
    Struct(Vec<(Vec<u8>, JsonColumn<'a>)>),
}

/// `"name":`
pub(super) fn object_prefix(name: &str) -> Vec<u8> {
    let mut prefix = Vec::new();
    write_string(name, &mut prefix);
    prefix.push(b':');
    prefix
}

impl<'a> JsonColumn<'a> {
    /// The part of a type that cannot be written, if there is one.
    pub(super) fn unsupported(data_type: &DataType) -> Option<DataType> {
        match data_type {
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
                Self::unsupported(f.data_type())
            }
            DataType::Struct(fields) => fields.iter().find_map(|f| Self::unsupported(f.data_type())),
            DataType::Duration(_)
            | DataType::Interval(_)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::Union(..)
            | DataType::Dictionary(..)
            | DataType::Map(..)
            | DataType::RunEndEncoded(..) => Some(data_type.clone()),
            _ => None,
        }
    }

    pub(super) fn new(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        Ok(Self { nulls: array.logical_nulls(), kind: kind(array)? })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        matches!(self.kind, Kind::Null) || self.nulls.as_ref().is_some_and(|n| n.is_null(row))
    }

    /// The bytes of a text or binary column.
    pub(super) fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        if self.is_null(row) {
            return None;
        }
        Some(match &self.kind {
            Kind::Utf8(a) => a.value(row).as_bytes(),
            Kind::LargeUtf8(a) => a.value(row).as_bytes(),
            Kind::Utf8View(a) => a.value(row).as_bytes(),
            Kind::Binary(a) => a.value(row),
            Kind::LargeBinary(a) => a.value(row),
            Kind::BinaryView(a) => a.value(row),
            Kind::FixedSizeBinary(a) => a.value(row),
            _ => return None,
        })
    }

    /// Writes the value of a row. Arrays stop behind `stop` bytes of output, where it is too large anyway: NULLs take no memory in a
    /// column, and four bytes each in JSON.
    pub(super) fn write(&self, row: usize, stop: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.kind {
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Utf8(a) => write_string(a.value(row), out),
            Kind::LargeUtf8(a) => write_string(a.value(row), out),
            Kind::Utf8View(a) => write_string(a.value(row), out),
            Kind::Binary(_) | Kind::LargeBinary(_) | Kind::BinaryView(_) | Kind::FixedSizeBinary(_) => {
                out.push(b'"');
                out.extend_from_slice(STANDARD.encode(self.bytes(row).unwrap_or_default()).as_bytes());
                out.push(b'"');
            }
            Kind::Date32(_)
            | Kind::Date64(_)
            | Kind::Time32S(_)
            | Kind::Time32Ms(_)
            | Kind::Time64Us(_)
            | Kind::Time64Ns(_) => {
                write_quoted(|out| self.write_text(row, out), out);
            }
            Kind::Float16(a) => write_float(a.value(row).to_f32(), out),
            Kind::Float32(a) => write_float(a.value(row), out),
            Kind::Float64(a) => write_float(a.value(row), out),
            Kind::List(a, elements) => {
                let offsets = a.value_offsets();
                let end = |i: usize| offsets.get(i).and_then(|o| usize::try_from(*o).ok()).unwrap_or_default();
                write_array(elements, end(row)..end(row + 1), stop, out);
            }
            Kind::LargeList(a, elements) => {
                let offsets = a.value_offsets();
                let end = |i: usize| offsets.get(i).and_then(|o| usize::try_from(*o).ok()).unwrap_or_default();
                write_array(elements, end(row)..end(row + 1), stop, out);
            }
            Kind::FixedSizeList(a, elements) => {
                let size = usize::try_from(a.value_length()).unwrap_or_default();
                write_array(elements, row * size..(row + 1) * size, stop, out);
            }
            Kind::Struct(fields) => {
                out.push(b'{');
                for (i, (prefix, column)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(prefix);
                    column.write(row, stop, out);
                }
                out.push(b'}');
            }
            _ => self.write_text(row, out),
        }
    }

    /// Writes the text of a scalar that is not NULL, without quotes.
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Boolean(a) => out.extend_from_slice(if a.value(row) { b"true" } else { b"false" }),
            Kind::Int8(a) => write_integer(a.value(row), out),
            Kind::Int16(a) => write_integer(a.value(row), out),
            Kind::Int32(a) => write_integer(a.value(row), out),
            Kind::Int64(a) => write_integer(a.value(row), out),
            Kind::UInt8(a) => write_integer(a.value(row), out),
            Kind::UInt16(a) => write_integer(a.value(row), out),
            Kind::UInt32(a) => write_integer(a.value(row), out),
            Kind::UInt64(a) => write_integer(a.value(row), out),
            Kind::Decimal32(a) => out.extend_from_slice(a.value_as_string(row).as_bytes()),
            Kind::Decimal64(a) => out.extend_from_slice(a.value_as_string(row).as_bytes()),
            Kind::Decimal128(a) => out.extend_from_slice(a.value_as_string(row).as_bytes()),
            Kind::Decimal256(a) => out.extend_from_slice(a.value_as_string(row).as_bytes()),
            // Milliseconds, except where the column has microseconds: as sources read them.
            Kind::TimestampS(a) => write_integer(i128::from(a.value(row)) * 1000, out),
            Kind::TimestampMs(a) => write_integer(a.value(row), out),
            Kind::TimestampUs(a) => write_integer(a.value(row), out),
            Kind::TimestampNs(a) => write_integer(a.value(row).div_euclid(1_000_000), out),
            Kind::Date32(a) => write_display(date32_to_datetime(a.value(row)).map(|t| t.date()), out),
            Kind::Date64(a) => write_display(date64_to_datetime(a.value(row)).map(|t| t.date()), out),
            Kind::Time32S(a) => write_display(time32s_to_time(a.value(row)), out),
            Kind::Time32Ms(a) => write_display(time32ms_to_time(a.value(row)), out),
            Kind::Time64Us(a) => write_display(time64us_to_time(a.value(row)), out),
            Kind::Time64Ns(a) => write_display(time64ns_to_time(a.value(row)), out),
            _ => {}
        }
    }
}

/// Writes a raw key. `false`: NULL, no key.
pub(super) fn write_key(column: &JsonColumn<'_>, row: usize, out: &mut Vec<u8>) -> bool {
    if column.is_null(row) {
        return false;
    }
    match column.bytes(row) {
        Some(bytes) => out.extend_from_slice(bytes),
        None => column.write_text(row, out),
    }
    true
}

fn kind(array: &ArrayRef) -> Result<Kind<'_>, ArrowError> {
    let unsupported = || ArrowError::JsonError(format!("{} cannot be written as JSON", array.data_type()));
    Ok(match array.data_type() {
        DataType::Null => Kind::Null,
        DataType::Boolean => Kind::Boolean(array.as_boolean()),
        DataType::Int8 => Kind::Int8(array.as_primitive()),
        DataType::Int16 => Kind::Int16(array.as_primitive()),
        DataType::Int32 => Kind::Int32(array.as_primitive()),
        DataType::Int64 => Kind::Int64(array.as_primitive()),
        DataType::UInt8 => Kind::UInt8(array.as_primitive()),
        DataType::UInt16 => Kind::UInt16(array.as_primitive()),
        DataType::UInt32 => Kind::UInt32(array.as_primitive()),
        DataType::UInt64 => Kind::UInt64(array.as_primitive()),
        DataType::Float16 => Kind::Float16(array.as_primitive()),
        DataType::Float32 => Kind::Float32(array.as_primitive()),
        DataType::Float64 => Kind::Float64(array.as_primitive()),
        DataType::Decimal32(..) => Kind::Decimal32(array.as_primitive()),
        DataType::Decimal64(..) => Kind::Decimal64(array.as_primitive()),
        DataType::Decimal128(..) => Kind::Decimal128(array.as_primitive()),
        DataType::Decimal256(..) => Kind::Decimal256(array.as_primitive()),
        DataType::Utf8 => Kind::Utf8(array.as_string()),
        DataType::LargeUtf8 => Kind::LargeUtf8(array.as_string()),
        DataType::Utf8View => Kind::Utf8View(array.as_string_view()),
        DataType::Binary => Kind::Binary(array.as_binary()),
        DataType::LargeBinary => Kind::LargeBinary(array.as_binary()),
        DataType::BinaryView => Kind::BinaryView(array.as_binary_view()),
        DataType::FixedSizeBinary(_) => Kind::FixedSizeBinary(array.as_fixed_size_binary()),
        DataType::Date32 => Kind::Date32(array.as_primitive()),
        DataType::Date64 => Kind::Date64(array.as_primitive()),
        DataType::Timestamp(TimeUnit::Second, _) => Kind::TimestampS(array.as_primitive()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Kind::TimestampMs(array.as_primitive()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Kind::TimestampUs(array.as_primitive()),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Kind::TimestampNs(array.as_primitive()),
        DataType::Time32(TimeUnit::Second) => Kind::Time32S(array.as_primitive()),
        DataType::Time32(TimeUnit::Millisecond) => Kind::Time32Ms(array.as_primitive()),
        DataType::Time64(TimeUnit::Microsecond) => Kind::Time64Us(array.as_primitive()),
        DataType::Time64(TimeUnit::Nanosecond) => Kind::Time64Ns(array.as_primitive()),
        DataType::List(_) => {
            let list: &ListArray = array.as_list();
            Kind::List(list, Box::new(JsonColumn::new(list.values())?))
        }
        DataType::LargeList(_) => {
            let list: &LargeListArray = array.as_list();
            Kind::LargeList(list, Box::new(JsonColumn::new(list.values())?))
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            Kind::FixedSizeList(list, Box::new(JsonColumn::new(list.values())?))
        }
        DataType::Struct(_) => struct_kind(array.as_struct())?,
        _ => return Err(unsupported()),
    })
}

fn struct_kind(array: &StructArray) -> Result<Kind<'_>, ArrowError> {
    let columns = array.fields().iter().zip(array.columns());
    let columns = columns.map(|(field, column)| Ok((object_prefix(field.name()), JsonColumn::new(column)?)));
    Ok(Kind::Struct(columns.collect::<Result<_, ArrowError>>()?))
}

fn write_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// JSON has no text for what is not finite: it becomes null.
fn write_float(value: impl serde::Serialize, out: &mut Vec<u8>) {
    to_json(&value, out);
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    to_json(text, out);
}

fn to_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    let written = serde_json::to_writer(&mut *out, value);
    debug_assert!(written.is_ok(), "a scalar always has a text, and memory takes it");
}

fn write_display(value: Option<impl std::fmt::Display>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.extend_from_slice(value.to_string().as_bytes());
    }
}

fn write_quoted(write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn write_array(elements: &JsonColumn<'_>, range: std::ops::Range<usize>, stop: usize, out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, element) in range.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if out.len() > stop {
            break;
        }
        elements.write(element, stop, out);
    }
    out.push(b']');
}
