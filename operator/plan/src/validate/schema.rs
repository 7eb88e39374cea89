//! Rules that the API server enforces too. They matter when the CRD in the cluster is older than the operator.

use std::collections::HashSet;

use fencepost_crds::v1alpha1::{OnBadRecord, SaslMechanism};

use super::{Facts, Findings, Rule, violation};

pub(super) const RULES: &[Rule] = &[replicas_and_slots, plain_needs_tls, names_are_unique, dead_letter_topics];

fn replicas_and_slots(facts: Facts<'_>, findings: &mut Findings) {
    for (field, value, most) in
        [("spec.replicas", facts.spec.replicas, 1000), ("spec.worker.slots", facts.spec.worker.slots, 64)]
    {
        if !(1..=most).contains(&value) {
            findings.spec.push(violation("OutOfRange", field, format!("{value} is not between 1 and {most}")));
        }
    }
}

fn plain_needs_tls(facts: Facts<'_>, findings: &mut Findings) {
    let kafka = &facts.spec.kafka;
    if kafka.tls.is_none() && kafka.sasl.as_ref().is_some_and(|sasl| sasl.mechanism == SaslMechanism::Plain) {
        findings.spec.push(violation(
            "PlainWithoutTls",
            "spec.kafka.sasl.mechanism",
            "PLAIN sends the password as it is: set spec.kafka.tls, or use SCRAM-SHA-512".to_owned(),
        ));
    }
}

fn names_are_unique(facts: Facts<'_>, findings: &mut Findings) {
    let pipeline = &facts.spec.pipeline;
    let sources = pipeline.sources.iter().map(|source| ("spec.pipeline.sources", &source.name));
    let sinks = pipeline.sinks.iter().map(|sink| ("spec.pipeline.sinks", &sink.name));
    let mut seen = HashSet::new();
    for (field, name) in sources.chain(sinks) {
        if !seen.insert(name) {
            let message = format!("the table name `{name}` is used twice: rename one of them");
            findings.spec.push(violation("DuplicateName", field, message));
        }
    }
}

fn dead_letter_topics(facts: Facts<'_>, findings: &mut Findings) {
    for source in &facts.spec.pipeline.sources {
        let field = format!("spec.pipeline.sources[{}].deadLetterTopic", source.name);
        match (&source.dead_letter_topic, source.on_bad_record) {
            (None, OnBadRecord::DeadLetter) => findings.spec.push(violation(
                "DeadLetterTopicMissing",
                &field,
                "onBadRecord: DeadLetter needs a topic to write to".to_owned(),
            )),
            (Some(_), OnBadRecord::Fail | OnBadRecord::Skip) => findings.spec.push(violation(
                "DeadLetterTopicUnused",
                &field,
                format!(
                    "is not used with onBadRecord: {}: remove it, or set onBadRecord: DeadLetter",
                    source.on_bad_record
                ),
            )),
            _ => {}
        }
    }
}
