//! The comparison. Pure: no Kafka, no clock, no files.
//!
//! ```text
//!   input records ──► Model::expect ────► expected ─┐
//!                                                   ├─ sort by (topic, id, content) ─► merge ─► lost, changed, duplicated …
//!   output records ─► Model::recognise ─► seen ─────┘                                     │
//!                                                             sort by (topic, partition, offset) ─► reordered, scattered
//! ```

mod compare;
mod order;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use strum::Display;

use crate::{
    content::{Content, KeyHash},
    model::Model,
    record::{Position, Record, RecordId},
    verdict::{Fault, Finding, Verdict},
};

/// What the job promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
pub enum Promise {
    /// Every expected record is there exactly as often as expected.
    ExactlyOnce,
    /// Every expected record is there; after failures some may be there again.
    AtLeastOnce,
}

/// How far a partition was read, and how far it could have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct End {
    /// The reader has got here: everything below was read or belongs to no committed transaction.
    pub reached: i64,
    /// The last stable offset.
    pub stable: i64,
    /// The end of the log (high watermark).
    pub end: i64,
}

/// Number of a topic, so that entries stay small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicIndex(u16);

/// A record that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    topic: TopicIndex,
    id: RecordId,
    content: Content,
}

/// A record that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    topic: TopicIndex,
    id: RecordId,
    content: Content,
    partition: i32,
    offset: i64,
    key: Option<KeyHash>,
    lane: u8,
    standing: Standing,
}

/// What a seen record turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not compared yet.
    Open,
    /// It fills an expected place.
    First,
    /// It repeats one that fills its place already.
    Repeat,
    /// It has no place.
    Stray,
}

/// Collects what must be and what is, and compares.
#[derive(Debug)]
pub struct Judge<M> {
    model: M,
    verdict: Verdict,
    topics: Topics,
    wanted: Vec<Wanted>,
    seen: Vec<Seen>,
    newest: HashMap<(u16, i32), u64>,
    withdrawn: HashSet<RecordId>,
}

#[derive(Debug, Default)]
pub(crate) struct Topics {
    names: Vec<String>,
    indices: BTreeMap<String, TopicIndex>,
}

impl Topics {
    fn index(&mut self, name: &str) -> TopicIndex {
        if let Some(index) = self.indices.get(name) {
            return *index;
        }
        let index = TopicIndex(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), index);
        index
    }

    fn name(&self, index: TopicIndex) -> String {
        self.names.get(usize::from(index.0)).cloned().unwrap_or_default()
    }
}

impl<M: Model> Judge<M> {
    /// A judge who knows nothing yet.
    pub fn new(model: M, promise: Promise) -> Self {
        Self {
            model,
            verdict: Verdict::new(promise),
            topics: Topics::default(),
            wanted: Vec::new(),
            seen: Vec::new(),
            newest: HashMap::new(),
            withdrawn: HashSet::new(),
        }
    }

    /// Takes a committed input record. Each partition in the order of its offsets.
    pub fn input(&mut self, record: &Record<'_>) {
        self.verdict.inputs += 1;
        let Some(id) = self.model.identify(record) else {
            self.bad_input(None, record, "it carries no identity");
            return;
        };
        match self.newest.insert((id.stream, id.partition), id.sequence) {
            Some(before) if before >= id.sequence => {
                self.bad_input(Some(id), record, &format!("its sequence does not rise after {before}"));
            }
            _ => {}
        }
        for expected in self.model.expect(record) {
            let topic = self.topics.index(&expected.topic);
            self.wanted.push(Wanted { topic, id, content: expected.content });
        }
        self.verdict.expected = self.wanted.len() as u64;
    }

    /// Takes an input record whose transaction was aborted, or has not ended. It must lead to nothing.
    pub fn withdrawn_input(&mut self, record: &Record<'_>) {
        if let Some(id) = self.model.identify(record) {
            self.verdict.withdrawn += 1;
            self.withdrawn.insert(id);
        }
    }

    /// Takes a committed output record.
    pub fn output(&mut self, record: &Record<'_>) {
        self.verdict.found += 1;
        let Some(recognised) = self.model.recognise(record) else {
            let detail = "no job with this meaning writes such a record".to_owned();
            self.verdict.add(Finding {
                fault: Fault::Unexpected,
                id: None,
                topic: record.topic.to_owned(),
                at: Some(record.position()),
                detail,
                count: 1,
            });
            return;
        };
        self.seen.push(Seen {
            topic: self.topics.index(record.topic),
            id: recognised.id,
            content: recognised.content,
            partition: record.partition,
            offset: record.offset,
            key: record.key.map(KeyHash::of),
            lane: recognised.lane,
            standing: Standing::Open,
        });
    }

    /// Takes how far a partition was read. A partition with records that nobody can read yet cannot be judged as whole.
    pub fn end(&mut self, topic: &str, partition: i32, end: End) {
        let finding = |fault, detail: String, count: i64| Finding {
            fault,
            id: None,
            topic: topic.to_owned(),
            at: Some(Position { topic: topic.to_owned(), partition, offset: end.stable }),
            detail,
            count: u64::try_from(count).unwrap_or_default(),
        };
        if end.stable < end.end {
            let detail = format!("the last stable offset is {}, the partition ends at {}", end.stable, end.end);
            self.verdict.add(finding(Fault::OpenTransaction, detail, end.end - end.stable));
        }
        if end.reached < end.stable {
            let detail = format!("read to {}, the last stable offset is {}", end.reached, end.stable);
            self.verdict.add(finding(Fault::Unread, detail, end.stable - end.reached));
        }
    }

    /// Takes that the job did not get to the end of its input.
    pub fn unprocessed(&mut self, topic: &str, partition: i32, committed: i64, needed: i64) {
        self.verdict.add(Finding {
            fault: Fault::Unprocessed,
            id: None,
            topic: topic.to_owned(),
            at: Some(Position { topic: topic.to_owned(), partition, offset: committed }),
            detail: format!("the position of the job is {committed}, its input ends at {needed}"),
            count: u64::try_from(needed - committed).unwrap_or_default(),
        });
    }

    /// Records that must be in the outputs according to the input so far.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.verdict.expected
    }

    /// Compares.
    pub fn verdict(mut self) -> Verdict {
        if self.verdict.inputs == 0 {
            self.verdict.add(Finding {
                fault: Fault::NothingJudged,
                id: None,
                topic: "the input".to_owned(),
                at: None,
                detail: "no committed record was found".to_owned(),
                count: 1,
            });
        }
        self.wanted.sort_unstable();
        self.seen.sort_unstable_by_key(|seen| (seen.topic, seen.id, seen.content, seen.partition, seen.offset));
        compare::compare(&self.wanted, &mut self.seen, &self.withdrawn, &self.topics, &mut self.verdict);
        self.wanted = Vec::new();
        order::check(&mut self.seen, &self.topics, &mut self.verdict);
        self.verdict
    }

    fn bad_input(&mut self, id: Option<RecordId>, record: &Record<'_>, detail: &str) {
        self.verdict.add(Finding {
            fault: Fault::BadInput,
            id,
            topic: record.topic.to_owned(),
            at: Some(record.position()),
            detail: detail.to_owned(),
            count: 1,
        });
    }
}

impl Seen {
    fn position(&self, topics: &Topics) -> Position {
        Position { topic: topics.name(self.topic), partition: self.partition, offset: self.offset }
    }

    fn finding(&self, fault: Fault, topics: &Topics) -> Finding {
        let at = self.position(topics);
        Finding { fault, id: Some(self.id), topic: at.topic.clone(), at: Some(at), detail: String::new(), count: 1 }
    }
}
