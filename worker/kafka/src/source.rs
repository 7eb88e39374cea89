//! Where records come from, whoever fetches them: batches of byte slices. [`Consumer`](crate::consumer::Consumer) is one source.

use std::time::Duration;

use fencepost_protocol::{Offset, Partition};

use crate::consumer::Trouble;

/// Reads batches of records.
pub trait Source {
    /// What is read at once.
    type Batch<'s>: RecordBatch
    where
        Self: 's;

    /// Reads up to `limit` records. Waits up to `wait` for the first, and then up to `gather` for more, so that a trickle makes one batch
    /// and not many.
    fn poll(&mut self, limit: usize, wait: Duration, gather: Duration) -> Self::Batch<'_>;
}

/// Records that were read at once. Their bytes live as long as it.
pub trait RecordBatch {
    /// A record in it.
    type Record<'b>: Record<'b>
    where
        Self: 'b;

    /// Number of records.
    fn len(&self) -> usize;

    /// No records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records, in order within each partition.
    fn records(&self) -> impl Iterator<Item = Self::Record<'_>>;

    /// Partitions whose last stable offset was reached: everything below was delivered, in this batch or before.
    ///
    /// The offset is where the next record will be, which may be behind control records. It is the one position that does not come
    /// from a record. Without it the lag of a transactional topic would never be 0, and retention that deletes a last control record
    /// would look like loss.
    fn ends(&self) -> &[(Partition, Offset)];

    /// Errors that came among the records.
    fn troubles(&self) -> &[Trouble];
}

/// A record that borrows its bytes.
pub trait Record<'b>: Copy {
    /// Its partition.
    fn partition(self) -> Partition;

    /// Its offset.
    fn offset(self) -> Offset;

    /// Its key.
    fn key(self) -> Option<&'b [u8]>;

    /// Its value; `None` is a tombstone.
    fn value(self) -> Option<&'b [u8]>;

    /// Its timestamp in Unix milliseconds; -1: none.
    fn timestamp_ms(self) -> i64;

    /// Its headers, in order. Decoded by the first call; what is not UTF-8 in a name becomes U+FFFD.
    fn headers(self) -> Vec<(&'b str, Option<&'b [u8]>)>;
}
