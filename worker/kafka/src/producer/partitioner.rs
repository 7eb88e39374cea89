//! Which partition a record goes to: the same one that Kafka's own clients would choose.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Partition of a keyed record, as Kafka's default partitioner computes it.
///
/// Computed here and not by librdkafka, because a batch with explicit partitions costs one lock instead of one per record; and
/// because librdkafka's default differs from Kafka's, which would spread a key over two partitions when a topic also has Java
/// producers.
#[must_use]
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    let positive = i32::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    positive.checked_rem(partitions).unwrap_or(0)
}

/// Murmur2, 32 bit, with the seed of Kafka's `Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (shift, byte) in (0..).step_by(8).zip(tail) {
            hash ^= u32::from(*byte) << shift;
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Chooses a partition for records without a key: another one for each batch, so that batches stay whole and partitions fill
/// evenly.
#[derive(Debug)]
pub(super) struct Sticky(u64);

impl Sticky {
    /// Seeded differently in each process, so that workers do not all write to the same partition.
    pub(super) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }

    pub(super) fn next(&mut self, partitions: i32) -> i32 {
        // xorshift64: plenty for spreading load.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i32::try_from((self.0 >> 33) & 0x7fff_ffff).unwrap_or(0).checked_rem(partitions).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    // The vectors of Kafka's `UtilsTest.testMurmur2`.
    #[rstest]
    #[case("21", -973_932_308)]
    #[case("foobar", -790_332_482)]
    #[case("a-little-bit-long-string", -985_981_536)]
    #[case("a-little-bit-longer-string", -1_486_304_829)]
    #[case("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971)]
    #[case("abc", 479_470_107)]
    fn the_hash_is_that_of_kafkas_clients(#[case] key: &str, #[case] hash: i32) {
        assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash);
    }

    #[test]
    fn every_partition_gets_its_share_of_keyless_batches() {
        let mut sticky = Sticky::new();
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[usize::try_from(sticky.next(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (700..1_300).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_topic_without_partitions_is_no_division_by_zero() {
        assert_eq!((partition_of(b"k", 0), Sticky::new().next(0)), (0, 0));
    }
}
