//! How large things may get.

use crate::records::Header;

/// Bytes of a value that an expression makes of a record, and of a record that is made of it. Far above what fits into a topic.
pub(crate) const MAX_VALUE_BYTES: usize = 16 << 20;

/// Bytes of all that is made of a record, values in between included. For several records at once it is only the point at which
/// they are taken in smaller groups.
pub(crate) const MAX_MADE_BYTES: usize = 64 << 20;

/// Bytes of the outputs of a batch at which it ends, with records left over. So a batch makes less than twice of this, whatever a
/// query makes of its records.
pub(crate) const BATCH_MADE_BYTES: usize = 64 << 20;

/// What Kafka adds to a record: the batch around it (61 bytes), and the lengths, attributes and deltas, of the largest size that
/// they can have. See <https://kafka.apache.org/documentation/#recordbatch>.
const RECORD_OVERHEAD: usize = 61 + 36;

/// What Kafka adds to a header: two lengths.
const HEADER_OVERHEAD: usize = 10;

/// Kafka's default of `max.message.bytes`.
const MAX_MESSAGE_BYTES: usize = 1_048_588;

/// Kafka's default of `message.timestamp.after.max.ms`.
const TIMESTAMP_AFTER_MAX_MS: i64 = 3_600_000;

/// What the brokers take for a topic. They refuse a whole batch for one record beyond it, and would refuse it again for ever, so the
/// record that such a record was made of is a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Bytes of the key, the value, and the names and values of the headers, with ten more for each header.
    pub max_record_bytes: usize,
    /// Milliseconds that a timestamp may be ahead of the clock. [`i64::MAX`]: no limit, as for topics with `LogAppendTime`.
    pub max_timestamp_ahead_ms: i64,
}

impl OutputLimits {
    /// The limits of a topic with these settings: `max.message.bytes` and `message.timestamp.after.max.ms`.
    #[must_use]
    pub fn of_topic(max_message_bytes: usize, timestamp_after_max_ms: i64) -> Self {
        Self {
            max_record_bytes: max_message_bytes.saturating_sub(RECORD_OVERHEAD),
            max_timestamp_ahead_ms: timestamp_after_max_ms,
        }
    }

    /// Bytes of a batch of records, as the brokers count them.
    #[must_use]
    pub fn max_batch_bytes(&self) -> usize {
        self.max_record_bytes.saturating_add(RECORD_OVERHEAD)
    }
}

/// Those of a topic without settings of its own.
impl Default for OutputLimits {
    fn default() -> Self {
        Self::of_topic(MAX_MESSAGE_BYTES, TIMESTAMP_AFTER_MAX_MS)
    }
}

/// Bytes of a record as [`OutputLimits`] counts them.
pub(crate) fn record_bytes<'h>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'h>>,
) -> usize {
    let headers: usize = headers.map(|h| h.name.len() + h.value.map_or(0, <[u8]>::len) + HEADER_OVERHEAD).sum();
    key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + headers
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Bytes of a zigzag varint.
    fn varint(n: usize) -> usize {
        let zigzag = n << 1;
        (usize::BITS - zigzag.leading_zeros()).div_ceil(7).max(1) as usize
    }

    /// The size of a batch of one record as the format says it, which is what brokers compare with `max.message.bytes`.
    fn batch_bytes(key: usize, value: usize, headers: &[(usize, usize)]) -> usize {
        let field = |len: usize| varint(len) + len;
        let headers: usize = varint(headers.len()) + headers.iter().map(|(n, v)| field(*n) + field(*v)).sum::<usize>();
        let body = 1 + varint(0) + varint(0) + field(key) + field(value) + headers;
        61 + varint(body) + body
    }

    proptest! {
        #[test]
        fn a_record_within_the_limit_is_within_that_of_the_brokers(
            key in 0..300_usize, value in 0..3_000_usize, headers in vec((0..100_usize, 0..300_usize), 0..50)
        ) {
            let texts: Vec<_> = headers.iter().map(|(n, v)| ("n".repeat(*n), vec![0_u8; *v])).collect();
            let given = texts.iter().map(|(name, value)| Header { name, value: Some(value) });
            let counted = record_bytes(Some(&vec![0; key]), Some(&vec![0; value]), given);
            let limits = OutputLimits::of_topic(counted + RECORD_OVERHEAD, 0);
            prop_assert_eq!(limits.max_record_bytes, counted);
            prop_assert!(batch_bytes(key, value, &headers) <= counted + RECORD_OVERHEAD);
        }
    }
}
