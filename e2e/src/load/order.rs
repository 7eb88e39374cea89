//! The records of the load: orders of customers.

use fencepost_oracle::{Record, RecordId};
use serde::{Deserialize, Serialize};

/// One order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Input stream.
    pub src: u16,
    /// Partition it was written to.
    pub part: i32,
    /// Sequence within the partition.
    pub seq: u64,
    /// Customer; each has a home partition.
    pub customer: String,
    /// `purchase`, `refund` or `view`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Cents.
    pub amount: i64,
}

/// Customers whose home is one partition.
const CUSTOMERS: u64 = 50;

impl Order {
    /// The order with this identity.
    #[must_use]
    pub fn numbered(src: u16, part: i32, seq: u64) -> Self {
        // Fibonacci hashing: neighbours differ in everything.
        let mixed = (seq + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(part.unsigned_abs()) << 32);
        let kind = match mixed >> 61 {
            0 => "refund",
            1..=3 => "view",
            _ => "purchase",
        };
        Self {
            src,
            part,
            seq,
            customer: format!("c-{part}-{}", (mixed >> 40) % CUSTOMERS),
            kind: kind.to_owned(),
            amount: i64::try_from((mixed >> 20) % 100_000).unwrap_or_default(),
        }
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> RecordId {
        RecordId { stream: self.src, partition: self.part, sequence: self.seq }
    }

    /// The key of its record.
    #[must_use]
    pub fn key(&self) -> String {
        self.customer.clone()
    }

    /// The value of its record.
    #[must_use]
    pub fn value(&self) -> String {
        let Self { customer, kind, amount, .. } = self;
        format!("{},\"customer\":\"{customer}\",\"type\":\"{kind}\",\"amount\":{amount}}}", self.head())
    }

    /// A time of its own between the years 0 and 9999, in Unix milliseconds; the first orders have the first and the last.
    #[must_use]
    pub fn time(&self) -> i64 {
        const FIRST: i64 = -62_167_219_200_000;
        const LAST: i64 = 253_402_300_799_999;
        /// Odd, and far from what a day or a second is.
        const STEP: u64 = 7_919_191_919_191;
        match self.seq {
            0 => FIRST,
            1 => LAST,
            seq => {
                let at = seq.wrapping_mul(STEP) % LAST.abs_diff(FIRST);
                FIRST.saturating_add_unsigned(at)
            }
        }
    }

    /// The same with so many bytes in a field that nobody reads.
    #[must_use]
    pub fn padded(&self, bytes: usize) -> String {
        let value = self.value();
        format!("{},\"note\":\"{}\"}}", value.trim_end_matches('}'), "n".repeat(bytes))
    }

    pub(super) fn head(&self) -> String {
        format!("{{\"src\":{},\"part\":{},\"seq\":{}", self.src, self.part, self.seq)
    }

    pub(super) fn tombstone_key(&self) -> String {
        format!("gone-{}-{}-{}", self.src, self.part, self.seq)
    }

    /// The order in a value, if it is one.
    #[must_use]
    pub fn parse(value: Option<&[u8]>) -> Option<Self> {
        serde_json::from_slice(value?).ok()
    }
}

/// The identity of an input record, defective or not, without understanding the rest.
#[must_use]
pub fn identity(record: &Record<'_>) -> Option<RecordId> {
    let Some(value) = record.value else {
        let key = std::str::from_utf8(record.key?).ok()?;
        let mut numbers = key.strip_prefix("gone-")?.splitn(3, '-');
        return Some(RecordId {
            stream: numbers.next()?.parse().ok()?,
            partition: numbers.next()?.parse().ok()?,
            sequence: numbers.next()?.parse().ok()?,
        });
    };
    let (stream, rest) = number(value.strip_prefix(b"{\"src\":")?)?;
    let (partition, rest) = number(rest.strip_prefix(b",\"part\":")?)?;
    let (sequence, _) = number(rest.strip_prefix(b",\"seq\":")?)?;
    Some(RecordId { stream: u16::try_from(stream).ok()?, partition: i32::try_from(partition).ok()?, sequence })
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use fencepost_oracle::Record;

    use super::{Order, identity};

    #[test]
    fn a_written_order_is_read_back() {
        for seq in 0..1000 {
            let order = Order::numbered(1, 7, seq);
            let value = order.value();
            assert_eq!(Order::parse(Some(value.as_bytes())), Some(order.clone()));
            assert_eq!(Order::parse(Some(order.padded(1_000).as_bytes())), Some(order.clone()));
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            assert_eq!(identity(&record), Some(order.id()));
        }
    }

    #[test]
    fn a_load_has_every_kind_of_order() {
        let kinds: std::collections::BTreeSet<_> = (0..100).map(|seq| Order::numbered(0, 0, seq).kind).collect();
        assert_eq!(kinds.len(), 3, "{kinds:?}");
    }

    #[test]
    fn orders_are_of_every_age() {
        let times: Vec<i64> = (0..1_000).map(|seq| Order::numbered(0, 0, seq).time()).collect();
        let (first, last) = (-62_167_219_200_000, 253_402_300_799_999);
        assert_eq!((times[0], times[1]), (first, last));
        assert!(times.iter().all(|time| (first..=last).contains(time)));
        let centuries: std::collections::BTreeSet<_> =
            times.iter().map(|time| (time - first) / (100 * 365 * 86_400_000)).collect();
        assert!(centuries.len() > 90, "{centuries:?}");
    }

    #[test]
    fn what_carries_no_identity_has_none() {
        for value in [&b""[..], b"{", b"{\"src\":1}", b"{\"src\":1,\"part\":x", b"null"] {
            assert_eq!(identity(&Record { value: Some(value), ..Record::default() }), None);
        }
        assert_eq!(identity(&Record { key: Some(b"gone-1-2"), ..Record::default() }), None);
    }
}
