//! Rules about topics.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_crds::{StreamJobSpec, conditions::Reason};

use super::{Facts, Findings, Rule, Stage, violation};
use crate::observed::{BrokerFacts, TopicFacts};

pub(super) const RULES: &[Rule] = &[unknown_topics, idle_workers, loops];

/// A topic that a sink wants to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicToCreate {
    /// Name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// Number of copies. Absent: the brokers' default.
    pub replication_factor: Option<i16>,
    /// Configuration.
    pub config: BTreeMap<String, String>,
}

/// Every topic that a spec names.
#[must_use]
pub fn topics_of(spec: &StreamJobSpec) -> BTreeSet<String> {
    let pipeline = &spec.pipeline;
    let sources = pipeline.sources.iter();
    let dead_letters = pipeline.sources.iter().filter_map(|source| source.dead_letter_topic.clone());
    sources
        .map(|source| source.kafka.topic.clone())
        .chain(dead_letters)
        .chain(pipeline.sinks.iter().map(|sink| sink.kafka.topic.clone()))
        .collect()
}

/// Topics of sinks with `create` that do not exist.
#[must_use]
pub fn topics_to_create(spec: &StreamJobSpec, broker: &BrokerFacts) -> Vec<TopicToCreate> {
    let mut wanted = BTreeMap::new();
    for sink in &spec.pipeline.sinks {
        let Some(create) = &sink.kafka.create else { continue };
        if missing(broker, &sink.kafka.topic) {
            wanted.entry(sink.kafka.topic.clone()).or_insert_with(|| TopicToCreate {
                name: sink.kafka.topic.clone(),
                partitions: create.partitions,
                replication_factor: create.replication_factor,
                config: create.config.clone(),
            });
        }
    }
    wanted.into_values().collect()
}

fn missing(broker: &BrokerFacts, topic: &str) -> bool {
    matches!(broker.topics.get(topic), Some(TopicFacts::Missing))
}

fn unknown_topics(facts: Facts<'_>, findings: &mut Findings) {
    let Some(broker) = facts.broker else { return };
    let mut refuse = |field: String, topic: &str, remedy: &str| {
        if missing(broker, topic) {
            let message = format!("the topic `{topic}` does not exist: {remedy}");
            findings.broker.push((Reason::UnknownTopic, violation("UnknownTopic", &field, message)));
        }
    };
    for source in &facts.spec.pipeline.sources {
        refuse(
            format!("spec.pipeline.sources[{}].kafka.topic", source.name),
            &source.kafka.topic,
            "create it, or correct the name",
        );
        if let Some(topic) = &source.dead_letter_topic {
            let field = format!("spec.pipeline.sources[{}].deadLetterTopic", source.name);
            refuse(field, topic, "create it, or correct the name");
        }
    }
    for sink in &facts.spec.pipeline.sinks {
        let field = format!("spec.pipeline.sinks[{}].kafka.topic", sink.name);
        match (&sink.kafka.create, facts.stage) {
            (None, _) => refuse(field, &sink.kafka.topic, "create it, correct the name, or set `create` on the sink"),
            (Some(_), Stage::Accepted) => refuse(
                field,
                &sink.kafka.topic,
                "it existed when this revision was accepted, so someone deleted it; a running job does not make it again",
            ),
            (Some(_), Stage::New) => {}
        }
    }
}

fn idle_workers(facts: Facts<'_>, findings: &mut Findings) {
    let Some(broker) = facts.broker else { return };
    let inputs: BTreeSet<&str> = facts.spec.pipeline.sources.iter().map(|s| s.kafka.topic.as_str()).collect();
    let mut partitions = 0;
    for topic in inputs {
        let Some(TopicFacts::Exists { partitions: count }) = broker.topics.get(topic) else { return };
        partitions += count;
    }
    let (replicas, slots) = (facts.spec.replicas, facts.spec.worker.slots);
    let total = i64::from(replicas) * i64::from(slots);
    if i64::try_from(partitions).is_ok_and(|partitions| partitions < total) {
        findings.warnings.push(violation(
            "IdleSlots",
            "spec.replicas",
            format!(
                "{replicas} workers with {slots} slots each are {total} slots for {partitions} input partitions: {} slots stay idle",
                total - i64::try_from(partitions).unwrap_or(total)
            ),
        ));
    }
}

/// Output that is input again may never end. Some pipelines mean it: the SQL decides, so this is a warning.
fn loops(facts: Facts<'_>, findings: &mut Findings) {
    let pipeline = &facts.spec.pipeline;
    let inputs: BTreeSet<&str> = pipeline.sources.iter().map(|source| source.kafka.topic.as_str()).collect();
    let sinks = pipeline
        .sinks
        .iter()
        .map(|sink| (format!("spec.pipeline.sinks[{}].kafka.topic", sink.name), sink.kafka.topic.as_str()));
    let dead_letters = pipeline.sources.iter().filter_map(|source| {
        Some((format!("spec.pipeline.sources[{}].deadLetterTopic", source.name), source.dead_letter_topic.as_deref()?))
    });
    for (field, topic) in sinks.chain(dead_letters) {
        if inputs.contains(topic) {
            findings.warnings.push(violation(
                "OutputIsInput",
                &field,
                format!(
                    "the topic `{topic}` is an input of this job as well: what the job writes there it reads again"
                ),
            ));
        }
    }
}
