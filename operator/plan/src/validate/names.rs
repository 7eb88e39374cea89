//! Names at the brokers.

use fencepost_crds::names::transactional_id;

use super::{Facts, Findings, Rule, transactional, violation};

pub(super) const RULES: &[Rule] = &[transactional_id_length];

/// Workers use their transactional id as `group.instance.id` too, which Kafka limits to the length of a topic name.
const LONGEST_ID: usize = 249;

fn transactional_id_length(facts: Facts<'_>, findings: &mut Findings) {
    if !transactional(facts.spec) {
        return;
    }
    let largest = |count: i32| u32::try_from(count.saturating_sub(1)).unwrap_or(0);
    let longest =
        transactional_id(facts.transactional_id_prefix, largest(facts.spec.replicas), largest(facts.spec.worker.slots));
    if longest.len() > LONGEST_ID {
        findings.spec.push(violation(
            "TransactionalIdTooLong",
            "spec.kafka.transactionalIdPrefix",
            format!(
                "the longest transactional id, `{longest}`, has {} characters; Kafka allows {LONGEST_ID} for the member id made from \
                 it: set a shorter prefix",
                longest.len()
            ),
        ));
    }
}
