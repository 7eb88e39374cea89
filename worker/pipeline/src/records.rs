//! What goes into a pipeline and what comes out of it: borrowed Kafka records in, columns of bytes out.

use std::sync::Arc;

pub use self::bytes_column::BytesColumn;
pub(crate) use self::headers_column::HeadersColumn;

mod bytes_column;
mod headers_column;

/// A source of the pipeline: its place in [`Plan::sources`](crate::Plan::sources).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub usize);

/// A sink of the pipeline: its place in [`Plan::sinks`](crate::Plan::sinks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId(pub usize);

/// A record as it was consumed. Borrows from the message it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Partition of the source's topic.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Unix milliseconds; -1: the message has no timestamp.
    pub timestamp_ms: i64,
    /// Key; `None`: the message has none.
    pub key: Option<&'a [u8]>,
    /// Value; `None`: a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in the order of the message. May be left empty when the source does not need them
    /// ([`PlannedSource::needs_headers`](crate::PlannedSource::needs_headers)).
    pub headers: Vec<Header<'a>>,
}

impl RawRecord<'_> {
    /// Bytes of the key, the value and the headers' values.
    pub(crate) fn byte_len(&self) -> usize {
        let headers: usize = self.headers.iter().map(|h| h.value.map_or(0, <[u8]>::len)).sum();
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Name.
    pub name: &'a str,
    /// Value; `None`: a header without one.
    pub value: Option<&'a [u8]>,
}

/// Where an [`OutputBatch`] comes from, and so why it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Rows of a sink.
    Sink(SinkId),
    /// Bad records of a source, on their way to its dead-letter topic.
    DeadLetter(SourceId),
}

/// Records to be written to one topic, in order. A struct of arrays: one buffer with all keys, one with all values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputBatch {
    topic: Arc<str>,
    destination: Destination,
    keys: BytesColumn,
    values: BytesColumn,
    timestamps: Option<Vec<Option<i64>>>,
    headers: Option<HeadersColumn>,
}

impl OutputBatch {
    /// An empty batch.
    #[must_use]
    pub fn new(topic: Arc<str>, destination: Destination) -> Self {
        Self {
            topic,
            destination,
            keys: BytesColumn::default(),
            values: BytesColumn::default(),
            timestamps: None,
            headers: None,
        }
    }

    /// A batch made of columns. `None` when they are not of the same length.
    pub(crate) fn from_columns(
        topic: Arc<str>,
        destination: Destination,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: Option<Vec<Option<i64>>>,
        headers: Option<HeadersColumn>,
    ) -> Option<Self> {
        let len = values.len();
        let aligned = keys.len() == len
            && timestamps.as_ref().is_none_or(|t| t.len() == len)
            && headers.as_ref().is_none_or(|h| h.len() == len);
        aligned.then_some(Self { topic, destination, keys, values, timestamps, headers })
    }

    /// Adds the records of another batch that was made in the same way.
    pub(crate) fn append(&mut self, other: Self) {
        let (len, more) = (self.len(), other.len());
        self.keys.append(other.keys);
        self.values.append(other.values);
        if self.timestamps.is_some() || other.timestamps.is_some() {
            let timestamps = self.timestamps.get_or_insert_with(|| vec![None; len]);
            timestamps.extend(other.timestamps.unwrap_or_else(|| vec![None; more]));
        }
        if self.headers.is_some() || other.headers.is_some() {
            let headers = self.headers.get_or_insert_with(|| HeadersColumn::of_empty_rows(len));
            headers.append(other.headers.unwrap_or_else(|| HeadersColumn::of_empty_rows(more)));
        }
    }

    /// Adds a record.
    pub fn push<'h>(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp_ms: Option<i64>,
        headers: impl IntoIterator<Item = Header<'h>>,
    ) {
        let len = self.len();
        self.keys.push(key);
        self.values.push(value);
        if timestamp_ms.is_some() || self.timestamps.is_some() {
            self.timestamps.get_or_insert_with(|| vec![None; len]).push(timestamp_ms);
        }
        let mut headers = headers.into_iter().peekable();
        if headers.peek().is_some() || self.headers.is_some() {
            let column = self.headers.get_or_insert_with(|| HeadersColumn::of_empty_rows(len));
            for header in headers {
                column.add(header);
            }
            column.end_row();
        }
    }

    /// Topic to write to.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Sink or dead letters.
    #[must_use]
    pub fn destination(&self) -> Destination {
        self.destination
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// No record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.keys.byte_len() + self.values.byte_len()
    }

    /// Key of a record; `None`: it has none.
    #[must_use]
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        self.keys.get(row)
    }

    /// Value of a record; `None`: a tombstone.
    #[must_use]
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        self.values.get(row)
    }

    /// Timestamp of a record in Unix milliseconds; `None`: the time of writing.
    #[must_use]
    pub fn timestamp(&self, row: usize) -> Option<i64> {
        self.timestamps.as_ref().and_then(|t| t.get(row).copied().flatten())
    }

    /// Headers of a record, in order.
    pub fn headers(&self, row: usize) -> impl Iterator<Item = Header<'_>> {
        self.headers.iter().flat_map(move |h| h.row(row))
    }
}

/// A record that could not be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Partition of the source's topic.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// What is wrong with it, for people.
    pub reason: String,
}

/// What became of the records given to [`Pipeline::process`](crate::Pipeline::process).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Processed {
    /// Records to write, dead letters included. At most one batch per destination.
    pub outputs: Vec<OutputBatch>,
    /// Records that were passed over (`onBadRecord: Skip` or `DeadLetter`), in the order they were given.
    pub bad: Vec<BadRecord>,
    /// With `onBadRecord: Fail`: the first bad record in the order given. `outputs` then covers exactly the records before it.
    pub fail: Option<BadRecord>,
    /// How many of the given records `outputs` and `bad` account for: all, or with `fail` those before it, or fewer when that many make
    /// more than 64 MiB of outputs. The rest is to be given again.
    pub consumed: usize,
}
