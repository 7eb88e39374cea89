//! Records that do not fit the columns.

use strum::{EnumCount, EnumIter, IntoEnumIterator};

use super::Order;

/// Kinds of defects that real topics have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, EnumIter)]
pub enum Defect {
    /// The JSON ends in the middle.
    Truncated,
    /// A text where a number belongs.
    WrongType,
    /// A number that no BIGINT can hold.
    OutOfRange,
    /// Bytes that are no UTF-8.
    InvalidUtf8,
    /// No JSON object at all behind the identity.
    Garbage,
    /// Half of a character that takes two escapes.
    LoneSurrogate,
    /// Nested ten thousand times where a text belongs.
    Deep,
    /// A number of a hundred thousand digits.
    Huge,
    /// No value, where columns are required.
    Tombstone,
}

/// Which records of a partition are defective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defects {
    /// None.
    None,
    /// One of so many; the kinds take turns.
    OneOf(u64),
    /// The one with this sequence in this partition.
    At {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
        /// Kind.
        defect: Defect,
    },
}

impl Defects {
    /// The defect of a record.
    #[must_use]
    pub fn of(self, partition: i32, sequence: u64) -> Option<Defect> {
        match self {
            Self::None => None,
            Self::OneOf(every) => {
                let every = every.max(1);
                let turn = (sequence / every) % Defect::COUNT as u64;
                let defect = Defect::iter().zip(0..).find(|(_, at)| *at == turn).map(|(defect, _)| defect);
                if sequence % every == every - 1 { defect } else { None }
            }
            Self::At { partition: p, sequence: s, defect } => (p == partition && s == sequence).then_some(defect),
        }
    }
}

impl Defect {
    /// Key and value of the record in place of the good one. The identity stays readable for the judge: at the beginning of
    /// the value, or in the key of a tombstone.
    #[must_use]
    pub fn spoil(self, order: &Order) -> (Vec<u8>, Option<Vec<u8>>) {
        let key = order.key().into_bytes();
        let head = order.head();
        let customer = &order.customer;
        let value = match self {
            Self::Truncated => format!("{head},\"customer\":\"{customer}\",\"amo").into_bytes(),
            Self::WrongType => {
                format!("{head},\"customer\":\"{customer}\",\"type\":\"purchase\",\"amount\":\"a lot\"}}").into_bytes()
            }
            Self::OutOfRange => {
                format!("{head},\"customer\":\"{customer}\",\"type\":\"purchase\",\"amount\":99999999999999999999}}")
                    .into_bytes()
            }
            Self::InvalidUtf8 => {
                let mut value = format!("{head},\"customer\":\"").into_bytes();
                value.extend([0xc3, 0x28, 0xff]);
                value.extend_from_slice(b"\",\"type\":\"purchase\",\"amount\":1}");
                value
            }
            Self::Garbage => format!("{head}}} and then some").into_bytes(),
            Self::LoneSurrogate => {
                format!("{head},\"customer\":\"\\ud800\",\"type\":\"purchase\",\"amount\":1}}").into_bytes()
            }
            Self::Deep => {
                let (open, close) = ("[".repeat(10_000), "]".repeat(10_000));
                format!("{head},\"customer\":{open}{close},\"type\":\"purchase\",\"amount\":1}}").into_bytes()
            }
            Self::Huge => {
                let digits = "1".repeat(100_000);
                format!("{head},\"customer\":\"{customer}\",\"type\":\"purchase\",\"amount\":{digits}}}").into_bytes()
            }
            Self::Tombstone => return (order.tombstone_key().into_bytes(), None),
        };
        (key, Some(value))
    }
}

#[cfg(test)]
mod tests {
    use fencepost_oracle::Record;
    use strum::{EnumCount, IntoEnumIterator};

    use super::{Defect, Defects};
    use crate::load::{Order, order};

    #[test]
    fn no_defective_record_is_an_order_and_each_can_still_be_identified() {
        for defect in Defect::iter() {
            let order = Order::numbered(0, 3, 41);
            let (key, value) = defect.spoil(&order);
            assert!(Order::parse(value.as_deref()).is_none(), "{defect:?}");
            let record = Record { key: Some(&key), value: value.as_deref(), ..Record::default() };
            assert_eq!(order::identity(&record), Some(order.id()), "{defect:?}");
        }
    }

    #[test]
    fn every_kind_of_defect_takes_its_turn() {
        let defects: Vec<_> =
            (0..10 * Defect::COUNT as u64).filter_map(|sequence| Defects::OneOf(10).of(0, sequence)).collect();
        assert_eq!(defects, Defect::iter().collect::<Vec<_>>());
    }
}
