//! Records as the judge sees them.

use std::fmt;

use serde::Serialize;

/// Names one input record for ever: also in every output that came from it.
///
/// The order of the fields is the order of sorting: within a source partition, by sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RecordId {
    /// Which input stream, when a job reads several.
    pub stream: u16,
    /// Partition of the input topic.
    pub partition: i32,
    /// Rises with the offset within the partition.
    pub sequence: u64,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stream, self.partition, self.sequence)
    }
}

/// Where a record lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{}", self.topic, self.partition, self.offset)
    }
}

/// One record of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in their order.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

impl Record<'_> {
    /// The last header called `name`, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rfind(|(have, _)| *have == name)?;
        std::str::from_utf8((*value)?).ok()
    }

    /// Where it lies.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { topic: self.topic.to_owned(), partition: self.partition, offset: self.offset }
    }
}
