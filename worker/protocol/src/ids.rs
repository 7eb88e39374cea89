use std::fmt;

/// A partition of an input topic. `topic` is the number of the topic in the job, so that a partition is small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Number of the topic among the job's sources.
    pub topic: u16,
    /// Number of the partition in the topic.
    pub number: i32,
}

impl Partition {
    /// Partition `number` of topic `topic`.
    #[must_use]
    pub const fn new(topic: u16, number: i32) -> Self {
        Self { topic, number }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.number)
    }
}

/// A position in a partition: the offset of the next record to read, as Kafka commits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names the consumer group metadata (generation, member) that was captured together with an assignment.
///
/// Metadata fences a worker only while it is as old as the list of partitions it vouches for: fresh metadata with a stale list
/// overwrites the offsets of the new owner without an error. So the two travel together, and this is their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);
