//! Rules about the consumer group.

use fencepost_crds::{conditions::Reason, v1alpha1::GroupProtocol};

use super::{Facts, Findings, Rule, violation};

pub(super) const RULES: &[Rule] = &[protocol_of_the_brokers];

fn protocol_of_the_brokers(facts: Facts<'_>, findings: &mut Findings) {
    let is_offered = facts.broker.and_then(|broker| broker.has_consumer_protocol);
    if facts.spec.kafka.group_protocol == GroupProtocol::Consumer && is_offered == Some(false) {
        findings.broker.push((
            Reason::BrokerIncompatible,
            violation(
                "ConsumerProtocolNotOffered",
                "spec.kafka.groupProtocol",
                "the brokers do not have the group protocol Consumer (KIP-848, from Kafka 4.0): set groupProtocol to Classic, or upgrade \
                 them and raise their feature group.version to 1"
                    .to_owned(),
            ),
        ));
    }
}
