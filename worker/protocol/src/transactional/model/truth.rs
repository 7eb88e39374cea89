use std::collections::BTreeMap;

use crate::Partition;

use super::Record;
use super::broker::Written;

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Violation {
    /// An output was committed twice.
    Duplicate,
    /// The committed positions and the committed outputs are not of the same records.
    Torn,
    /// A position was committed whose outputs are not there.
    Loss,
    /// A position of a partition that is not owned, or metadata of another assignment, was sent.
    Foreign,
    /// The machine went into a state that its table does not have.
    Broken,
    /// The machine's answers are not what the runtime was promised; says which promise.
    Promise(&'static str),
    /// All faults are over, and still it does not come to an end.
    Stuck,
    /// The end was reached with a transaction open.
    LeftOpen,
}

/// Records whose identity says that the pipeline filters them out.
pub(super) fn is_filtered(record: Record) -> bool {
    (record.1 + i64::from(record.0.number)) % 3 == 2
}

/// The outputs of the first records of each partition.
pub(in super::super) fn outputs_of(positions: &BTreeMap<Partition, i64>) -> impl Iterator<Item = Record> + '_ {
    positions
        .iter()
        .flat_map(|(partition, after)| (0..*after).map(move |offset| (*partition, offset)))
        .filter(|record| !is_filtered(*record))
}

/// Exactly once: the outputs that can be read are those of the records before the committed positions, each once.
pub(super) fn exactly_once(outputs: &Written, positions: &BTreeMap<Partition, i64>) -> Option<Violation> {
    if outputs.values().any(|times| *times > 1) {
        return Some(Violation::Duplicate);
    }
    let is_whole = outputs.keys().copied().eq(outputs_of(positions));
    (!is_whole).then_some(Violation::Torn)
}

/// At least once: no position is committed before its outputs.
pub(super) fn at_least_once(outputs: &Written, positions: &BTreeMap<Partition, i64>) -> Option<Violation> {
    let is_covered = outputs_of(positions).all(|record| outputs.contains_key(&record));
    (!is_covered).then_some(Violation::Loss)
}
