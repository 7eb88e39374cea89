//! What the judge found.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use strum::{Display, EnumIter, IntoStaticStr};

use crate::{
    judge::Promise,
    record::{Position, RecordId},
};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display, EnumIter, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Fault {
    /// It must be there and is not.
    Lost,
    /// It is there more often than it must be.
    Duplicated,
    /// In its place is a record with another content.
    Changed,
    /// It was made from an input record whose transaction was aborted or never ended.
    Uncommitted,
    /// No committed input leads to it.
    Unexpected,
    /// It stands behind a record that came later in its source partition.
    Reordered,
    /// Its key is in another partition too, so that readers see no order for the key.
    Scattered,
    /// An open transaction keeps readers from the end of the partition.
    OpenTransaction,
    /// Not everything that is stable was read.
    Unread,
    /// The job did not get to the end of its input in time.
    Unprocessed,
    /// The input cannot be judged: no identity, or sequences that do not rise.
    BadInput,
    /// There was no input at all.
    NothingJudged,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub fault: Fault,
    /// The input record it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<RecordId>,
    /// Topic it is about.
    pub topic: String,
    /// The record that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// More, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How many records this finding stands for.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        if self.count > 1 {
            write!(f, " {} times", self.count)?;
        }
        if let Some(id) = self.id {
            write!(f, ": input {id}")?;
        }
        match &self.at {
            Some(at) => write!(f, " at {at}")?,
            None => write!(f, " in {}", self.topic)?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// How many findings of each fault are kept in full. All are counted.
pub const SHOWN_PER_FAULT: u64 = 10;

/// The judgement on one run.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What was promised.
    pub promise: Promise,
    /// Committed input records.
    pub inputs: u64,
    /// Input records of transactions that were not committed.
    pub withdrawn: u64,
    /// Records that must be in the outputs.
    pub expected: u64,
    /// Records that are in the outputs.
    pub found: u64,
    /// Records that are there again, where the promise allows it.
    pub repeats: u64,
    /// Records by fault.
    pub faults: BTreeMap<Fault, u64>,
    /// The first findings of each fault.
    pub findings: Vec<Finding>,
    #[serde(skip)]
    kept: BTreeMap<Fault, u64>,
}

impl Verdict {
    pub(crate) fn new(promise: Promise) -> Self {
        Self {
            promise,
            inputs: 0,
            withdrawn: 0,
            expected: 0,
            found: 0,
            repeats: 0,
            faults: BTreeMap::new(),
            findings: Vec::new(),
            kept: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        *self.faults.entry(finding.fault).or_default() += finding.count.max(1);
        let kept = self.kept.entry(finding.fault).or_default();
        if *kept < SHOWN_PER_FAULT {
            *kept += 1;
            self.findings.push(finding);
        }
    }

    /// Whether the promise was kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.faults.is_empty()
    }

    /// Records with this fault.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    /// One line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let promise = self.promise;
        let Self { inputs, expected, found, .. } = self;
        let mut line = if self.holds() {
            format!("{promise} holds: ")
        } else {
            let faults: Vec<_> = self.faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
            format!("{promise} BROKEN ({}): ", faults.join(", "))
        };
        line.push_str(&format!("{inputs} committed inputs, {expected} outputs expected, {found} found"));
        if self.withdrawn > 0 {
            line.push_str(&format!(", {} inputs of aborted transactions", self.withdrawn));
        }
        if self.repeats > 0 {
            line.push_str(&format!(", {} repeats (allowed)", self.repeats));
        }
        line
    }

    /// The whole verdict as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Maps with unit-variant keys and plain structs: nothing in it that JSON cannot say.
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        let hidden = self.faults.values().sum::<u64>() - self.findings.iter().map(|f| f.count.max(1)).sum::<u64>();
        if hidden > 0 { write!(f, "\n  and {hidden} more") } else { Ok(()) }
    }
}
