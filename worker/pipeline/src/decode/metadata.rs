use std::borrow::Cow;

use fencepost_crds::v1alpha1::ColumnMetadata;

use super::cell::Cell;
use crate::records::RawRecord;
use crate::types::ColumnType;

/// The part of a message that a column shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetadataKind {
    Key,
    Timestamp,
    Topic,
    Partition,
    Offset,
    Header(String),
}

impl From<&ColumnMetadata> for MetadataKind {
    fn from(metadata: &ColumnMetadata) -> Self {
        match metadata {
            ColumnMetadata::Key {} => Self::Key,
            ColumnMetadata::Timestamp {} => Self::Timestamp,
            ColumnMetadata::Topic {} => Self::Topic,
            ColumnMetadata::Partition {} => Self::Partition,
            ColumnMetadata::Offset {} => Self::Offset,
            ColumnMetadata::Header { name } => Self::Header(name.clone()),
        }
    }
}

impl MetadataKind {
    /// Whether a column of the type can show this part.
    pub(crate) fn allows(&self, column_type: &ColumnType) -> bool {
        match self {
            Self::Key => {
                matches!(column_type, ColumnType::String | ColumnType::Bytes | ColumnType::BigInt | ColumnType::Int)
            }
            Self::Timestamp => *column_type == ColumnType::TimestampMs,
            Self::Topic => *column_type == ColumnType::String,
            Self::Partition => *column_type == ColumnType::Int,
            Self::Offset => *column_type == ColumnType::BigInt,
            Self::Header(_) => matches!(column_type, ColumnType::String | ColumnType::Bytes),
        }
    }

    /// The types that can, for people.
    pub(crate) fn types(&self) -> &'static str {
        match self {
            Self::Key => "STRING, BYTES, BIGINT or INT",
            Self::Timestamp => "TIMESTAMP_MS",
            Self::Topic => "STRING",
            Self::Partition => "INT",
            Self::Offset => "BIGINT",
            Self::Header(_) => "STRING or BYTES",
        }
    }
}

pub(super) fn read<'a>(
    kind: &MetadataKind,
    column_type: &ColumnType,
    record: &RawRecord<'a>,
    topic: &'a str,
) -> Result<Cell<'a>, String> {
    match kind {
        MetadataKind::Key => record.key.map_or(Ok(Cell::Null), |key| bytes("key", key, column_type)),
        // A time before 1970 is one; the protocol says "none" by the last millisecond before it.
        MetadataKind::Timestamp if record.timestamp_ms == -1 => Ok(Cell::Null),
        MetadataKind::Timestamp => Ok(Cell::BigInt(record.timestamp_ms)),
        MetadataKind::Topic => Ok(Cell::String(Cow::Borrowed(topic))),
        MetadataKind::Partition => Ok(Cell::Int(record.partition)),
        MetadataKind::Offset => Ok(Cell::BigInt(record.offset)),
        MetadataKind::Header(name) => {
            let last = record.headers.iter().rev().find(|h| h.name == name.as_str());
            match last.and_then(|h| h.value) {
                Some(value) => bytes("header", value, column_type),
                None => Ok(Cell::Null),
            }
        }
    }
}

fn bytes<'a>(what: &str, value: &'a [u8], column_type: &ColumnType) -> Result<Cell<'a>, String> {
    if *column_type == ColumnType::Bytes {
        return Ok(Cell::Bytes(Cow::Borrowed(value)));
    }
    let text = std::str::from_utf8(value)
        .map_err(|e| format!("the {what} is not UTF-8: byte {} is wrong", e.valid_up_to()))?;
    let number =
        || format!("expected the {what} to be {column_type} as decimal text, found {}", super::json::quote(text));
    match column_type {
        ColumnType::Int => text.parse().map(Cell::Int).map_err(|_| number()),
        ColumnType::BigInt => text.parse().map(Cell::BigInt).map_err(|_| number()),
        _ => Ok(Cell::String(Cow::Borrowed(text))),
    }
}
