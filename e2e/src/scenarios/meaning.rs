//! What the jobs of the scenarios mean, said without the worker's code.

use std::sync::Arc;

use fencepost_oracle::{Body, Content, Expected, Model, Recognised, Record, RecordId};
use serde_json::{Value, json};

use crate::load::{Order, order};

/// What a branch of a query makes of an order: key and value.
pub type Branch = fn(&Order) -> Option<(String, Value)>;

/// What must happen to a bad record.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bad {
    /// Nothing is written.
    Passed,
    /// It is written to this topic as it was.
    Kept(Arc<str>),
}

/// The meaning of a job that reads [`Order`]s.
#[derive(Debug, Clone)]
pub struct Meaning {
    branches: Vec<(Arc<str>, Branch)>,
    bad: Bad,
}

impl Meaning {
    /// Nothing is written and bad records are passed over.
    #[must_use]
    pub fn new() -> Self {
        Self { branches: Vec::new(), bad: Bad::Passed }
    }

    /// What [`OrdersJob`](super::OrdersJob) means.
    #[must_use]
    pub fn purchases(topic: &str) -> Self {
        Self::new().branch(topic, |order| {
            let Order { src, part, seq, customer, kind, amount } = order;
            let value = json!({"src": src, "part": part, "seq": seq, "customer": customer, "amount": amount * 2, "kind": "PURCHASE"});
            (kind == "purchase").then(|| (customer.clone(), value))
        })
    }

    /// With another branch, into `topic`.
    #[must_use]
    pub fn branch(mut self, topic: &str, branch: Branch) -> Self {
        self.branches.push((Arc::from(topic), branch));
        self
    }

    /// With a topic for bad records.
    #[must_use]
    pub fn dead_letters(self, topic: &str) -> Self {
        Self { bad: Bad::Kept(Arc::from(topic)), ..self }
    }
}

impl Default for Meaning {
    fn default() -> Self {
        Self::new()
    }
}

impl Model for Meaning {
    fn identify(&self, input: &Record<'_>) -> Option<RecordId> {
        order::identity(input)
    }

    fn expect(&self, input: &Record<'_>) -> Vec<Expected> {
        let Some(order) = Order::parse(input.value) else {
            return match &self.bad {
                Bad::Passed => Vec::new(),
                Bad::Kept(topic) => {
                    let content = dead_letter(input, input.topic, input.partition, input.offset);
                    vec![Expected { topic: Arc::clone(topic), content }]
                }
            };
        };
        let mut expected = Vec::new();
        for (topic, branch) in &self.branches {
            if let Some((key, value)) = branch(&order) {
                let content = Content::new(Some(key.as_bytes()), &Body::Json(&value));
                expected.push(Expected { topic: Arc::clone(topic), content });
            }
        }
        expected
    }

    fn recognise(&self, output: &Record<'_>) -> Option<Recognised> {
        if matches!(&self.bad, Bad::Kept(topic) if **topic == *output.topic) {
            return recognise_dead_letter(output);
        }
        let mut value: Value = serde_json::from_slice(output.value?).ok()?;
        let id = RecordId {
            stream: u16::try_from(value.get("src")?.as_u64()?).ok()?,
            partition: i32::try_from(value.get("part")?.as_i64()?).ok()?,
            sequence: value.get("seq")?.as_u64()?,
        };
        // Which version of the job wrote a record is judged apart: both mean the same.
        value.as_object_mut()?.remove("version");
        Some(Recognised { id, content: Content::new(output.key, &Body::Json(&value)), lane: 0 })
    }
}

/// A dead letter is the record as it was, and where it was.
fn dead_letter(record: &Record<'_>, topic: &str, partition: i32, offset: i64) -> Content {
    let body = record.value.map_or(Body::Tombstone, Body::Bytes);
    let place = [topic.to_owned(), partition.to_string(), offset.to_string()];
    Content::with_headers(record.key, &body, place.iter().map(|part| ("place", Some(part.as_bytes()))))
}

fn recognise_dead_letter(output: &Record<'_>) -> Option<Recognised> {
    let id = order::identity(output)?;
    let partition = output.header("fencepost.source.partition")?.parse().ok()?;
    let offset = output.header("fencepost.source.offset")?.parse().ok()?;
    let content = dead_letter(output, output.header("fencepost.source.topic")?, partition, offset);
    // Without a reason nobody can do anything about it.
    let reason = output.header("fencepost.reason")?;
    (!reason.is_empty()).then_some(Recognised { id, content, lane: 0 })
}
