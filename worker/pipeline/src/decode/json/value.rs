use std::borrow::Cow;
use std::fmt;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::Date32Type;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{ObjectVisitor, Path, quote};
use crate::decode::cell::Cell;
use crate::decode::number;
use crate::types::ColumnType;

/// Whole numbers up to here are exact as floating point.
const EXACT_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Reads a value of a type.
pub(super) struct ValueSeed<'s> {
    pub(super) column_type: &'s ColumnType,
    pub(super) path: &'s Path,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Cell<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Cell<'de>, D::Error> {
        // Floating point in between would not be exact.
        if let ColumnType::Decimal { precision, scale } = *self.column_type {
            let raw = <&RawValue>::deserialize(deserializer)?;
            return decimal(raw.get(), precision, scale).map_err(Error::custom);
        }
        deserializer.deserialize_any(self)
    }
}

pub(super) fn decimal<'de>(raw: &str, precision: u8, scale: u8) -> Result<Cell<'de>, String> {
    let text = match raw.bytes().next() {
        Some(b'n') => return Ok(Cell::Null),
        Some(b'"') => Cow::Owned(serde_json::from_str::<String>(raw).map_err(|e| e.to_string())?),
        Some(b'-' | b'0'..=b'9') => Cow::Borrowed(raw),
        _ => {
            let found = if raw.starts_with('{') {
                "an object"
            } else if raw.starts_with('[') {
                "an array"
            } else {
                raw
            };
            return Err(format!("expected DECIMAL({precision}, {scale}), found {found}"));
        }
    };
    number::decimal(&text, precision, scale).map(Cell::Decimal)
}

impl ValueSeed<'_> {
    /// The type, without what is inside.
    fn name(&self) -> Cow<'static, str> {
        match self.column_type {
            ColumnType::Array(_) => Cow::Borrowed("an array"),
            ColumnType::Struct(_) => Cow::Borrowed("an object"),
            other => Cow::Owned(other.to_string()),
        }
    }

    fn mismatch<E: Error>(&self, found: fmt::Arguments<'_>) -> E {
        E::custom(format_args!("expected {}, found {found}", self.name()))
    }

    fn whole<'de, E: Error>(&self, value: i64) -> Result<Cell<'de>, E> {
        match self.column_type {
            ColumnType::Int => {
                i32::try_from(value).map(Cell::Int).map_err(|_| self.out_of_range(format_args!("{value}")))
            }
            ColumnType::BigInt | ColumnType::TimestampMs | ColumnType::TimestampUs => Ok(Cell::BigInt(value)),
            // Every integer has a nearest float.
            #[expect(clippy::cast_precision_loss, reason = "that is what FLOAT means")]
            ColumnType::Float => Ok(Cell::Float(value as f32)),
            #[expect(clippy::cast_precision_loss, reason = "that is what DOUBLE means")]
            ColumnType::Double => Ok(Cell::Double(value as f64)),
            _ => Err(self.mismatch(format_args!("number {value}"))),
        }
    }

    fn out_of_range<E: Error>(&self, number: fmt::Arguments<'_>) -> E {
        E::custom(format_args!("number {number} is out of the range of {}", self.column_type))
    }

    fn text<'de, E: Error>(&self, text: Cow<'de, str>) -> Result<Cell<'de>, E> {
        match self.column_type {
            ColumnType::String => Ok(Cell::String(text)),
            ColumnType::Bytes => {
                STANDARD.decode(text.as_bytes()).map(|bytes| Cell::Bytes(Cow::Owned(bytes))).map_err(|e| {
                    E::custom(format_args!(
                        "expected BYTES as base64, found string {}: {}",
                        quote(&text),
                        e.to_string().trim_end_matches('.')
                    ))
                })
            }
            ColumnType::Date => date(&text)
                .map(Cell::Date)
                .ok_or_else(|| E::custom(format_args!("expected DATE as YYYY-MM-DD, found string {}", quote(&text)))),
            ColumnType::TimestampMs => instant(&text)
                .map(|t| Cell::BigInt(t.div_euclid(1000)))
                .ok_or_else(|| self.not_an_instant(&text, "milliseconds")),
            ColumnType::TimestampUs => {
                instant(&text).map(Cell::BigInt).ok_or_else(|| self.not_an_instant(&text, "microseconds"))
            }
            _ => Err(self.mismatch(format_args!("string {}", quote(&text)))),
        }
    }

    fn not_an_instant<E: Error>(&self, text: &str, unit: &str) -> E {
        E::custom(format_args!(
            "expected {} as {unit} since 1970 or as RFC 3339 text, found string {}",
            self.column_type,
            quote(text)
        ))
    }
}

fn date(text: &str) -> Option<i32> {
    // The parser takes more forms than the documented one.
    if text.len() == "YYYY-MM-DD".len() { Date32Type::parse(text) } else { None }
}

/// Microseconds since 1970. Text without an offset is in UTC.
fn instant(text: &str) -> Option<i64> {
    let utc: Tz = "+00:00".parse().ok()?;
    string_to_datetime(&utc, text).ok().map(|t| t.timestamp_micros())
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Cell<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.column_type)
    }

    fn visit_unit<E: Error>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cell<'de>, E> {
        match self.column_type {
            ColumnType::Boolean => Ok(Cell::Boolean(value)),
            _ => Err(self.mismatch(format_args!("{value}"))),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Cell<'de>, E> {
        self.whole(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Cell<'de>, E> {
        match (i64::try_from(value), self.column_type) {
            (Ok(value), _) => self.whole(value),
            #[expect(clippy::cast_precision_loss, reason = "that is what FLOAT means")]
            (Err(_), ColumnType::Float) => Ok(Cell::Float(value as f32)),
            #[expect(clippy::cast_precision_loss, reason = "that is what DOUBLE means")]
            (Err(_), ColumnType::Double) => Ok(Cell::Double(value as f64)),
            (Err(_), ColumnType::Int | ColumnType::BigInt | ColumnType::TimestampMs | ColumnType::TimestampUs) => {
                Err(self.out_of_range(format_args!("{value}")))
            }
            (Err(_), _) => Err(self.mismatch(format_args!("number {value}"))),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Cell<'de>, E> {
        match self.column_type {
            ColumnType::Double => Ok(Cell::Double(value)),
            ColumnType::Float => {
                #[expect(clippy::cast_possible_truncation, reason = "checked on the next line")]
                let narrow = value as f32;
                if narrow.is_finite() {
                    Ok(Cell::Float(narrow))
                } else {
                    Err(self.out_of_range(format_args!("{value}")))
                }
            }
            // JSON has one kind of number: 2.0 is a whole one.
            ColumnType::Int | ColumnType::BigInt | ColumnType::TimestampMs | ColumnType::TimestampUs
                if value.fract() == 0.0 && value.abs() <= EXACT_WHOLE =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and far inside the range")]
                self.whole(value as i64)
            }
            _ => Err(self.mismatch(format_args!("number {value:?}"))),
        }
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cell<'de>, E> {
        self.text(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cell<'de>, E> {
        self.text(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cell<'de>, A::Error> {
        let ColumnType::Array(element) = self.column_type else {
            return Err(self.mismatch(format_args!("an array")));
        };
        let mut cells = Vec::new();
        loop {
            let index = cells.len();
            let cell = seq
                .next_element_seed(ValueSeed { column_type: element, path: self.path })
                .inspect_err(|_| self.path.push(|| format!("[{index}]")))?;
            match cell {
                Some(cell) => cells.push(cell),
                None => return Ok(Cell::Array(cells)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell<'de>, A::Error> {
        let ColumnType::Struct(fields) = self.column_type else {
            // Read on, so that an error of the syntax further on wins over that of the type.
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Err(self.mismatch(format_args!("an object")));
        };
        let mut cells = vec![Cell::Null; fields.len()];
        ObjectVisitor { fields, cells: &mut cells, path: self.path }.visit_map(map)?;
        Ok(Cell::Struct(cells))
    }
}
