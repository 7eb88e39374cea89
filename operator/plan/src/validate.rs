//! What is wrong with a spec: everything at once, each finding with both numbers and the setting to change.
//!
//! A rule is a small function `Facts → findings`; the list is at the bottom of each module and its order is the order of the
//! messages. Rules of the schema and of CEL that a wrong CRD version could miss are checked again.

mod groups;
mod names;
mod schema;
#[cfg(test)]
mod tests;
mod timing;
mod topics;

use fencepost_crds::{
    StreamJobSpec,
    conditions::Reason,
    v1alpha1::{Guarantee, Violation},
};

use crate::observed::BrokerFacts;

pub use self::{
    timing::{LONG_TRANSACTION_TIMEOUT, STALL_BUDGET},
    topics::{TopicToCreate, topics_of, topics_to_create},
};

/// What rules see.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The newest spec.
    pub spec: &'a StreamJobSpec,
    /// Prefix of the transactional ids.
    pub transactional_id_prefix: &'a str,
    /// What the brokers said, once they did.
    pub broker: Option<&'a BrokerFacts>,
    /// Whether the revision has been started before: then a topic that the job creates must still be there.
    pub stage: Stage,
}

/// Whether a revision is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not accepted yet: missing topics with `create` are made.
    New,
    /// Accepted: its topics exist or were deleted by someone.
    Accepted,
}

/// Result of all rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Contradictions inside the spec.
    pub spec: Vec<Violation>,
    /// Conflicts between the spec and the brokers, with the reason of the condition.
    pub broker: Vec<(Reason, Violation)>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Violation>,
}

/// Runs all rules.
#[must_use]
pub fn validate(facts: Facts<'_>) -> Findings {
    let mut findings = Findings::default();
    for rule in schema::RULES.iter().chain(names::RULES).chain(timing::RULES).chain(topics::RULES).chain(groups::RULES)
    {
        rule(facts, &mut findings);
    }
    findings
}

type Rule = fn(Facts<'_>, &mut Findings);

fn violation(reason: &str, field: &str, message: String) -> Violation {
    Violation { reason: reason.to_owned(), field: field.to_owned(), message }
}

/// Transactions are used.
fn transactional(spec: &StreamJobSpec) -> bool {
    spec.processing.guarantee == Guarantee::ExactlyOnce
}

/// All violations as one text: a line each.
#[must_use]
pub fn list(violations: &[Violation]) -> String {
    match violations {
        [] => String::new(),
        [only] => line(only),
        many => {
            let lines: Vec<String> =
                many.iter().enumerate().map(|(index, one)| format!("{}. {}", index + 1, line(one))).collect();
            format!("{} problems:\n{}", many.len(), lines.join("\n"))
        }
    }
}

fn line(violation: &Violation) -> String {
    if violation.field.is_empty() {
        violation.message.clone()
    } else {
        format!("{}: {}", violation.field, violation.message)
    }
}
