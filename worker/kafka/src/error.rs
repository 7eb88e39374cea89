//! What an error means: for the worker a class, for its user a cause.
//!
//! An error of Kafka is read twice. The protocol machine asks "what must I do now" and gets an [`ErrorClass`]. The person
//! who runs the job asks "what is wrong, and what do I change" and gets a [`Cause`], which is also the reason of a
//! condition. Both come from one table per library: [`BrokerCode`] for the protocol, [`librdkafka`] for librdkafka.

mod code;
pub mod librdkafka;
#[cfg(test)]
mod tests;

use std::fmt;

use fencepost_crds::conditions::Reason;
use strum::{Display, EnumIter, IntoStaticStr};

pub use code::BrokerCode;

/// What a worker does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter, IntoStaticStr)]
pub enum ErrorClass {
    /// The same step again, after a pause.
    Retry,
    /// Abort, take the new group membership, go back to the committed positions.
    Refresh,
    /// Abort the transaction and do it again; the producer stays.
    Abort,
    /// Drop the producer, make a new one with the same transactional id.
    Recreate,
    /// A newer owner has the transactional id, or the transaction timed out. Find out which; never go on blindly.
    Fenced,
    /// Repeating changes nothing until a person does: report the cause, try again slowly.
    Fatal,
    /// Whether it was done is not known: resolve by what the brokers say, never by doing it again.
    Unknown,
}

impl ErrorClass {
    /// Label of a metric.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Refresh => "refresh",
            Self::Abort => "abort",
            Self::Recreate => "recreate",
            Self::Fenced => "fenced",
            Self::Fatal => "fatal",
            Self::Unknown => "unknown",
        }
    }
}

/// A thing that Kafka's authorizer protects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The cluster itself.
    Cluster,
    /// A topic.
    Topic(String),
    /// A consumer group.
    Group(String),
    /// A transactional id.
    TransactionalId(String),
}

impl Resource {
    /// Options of Kafka's own tools that name the resource.
    fn acl_options(&self) -> String {
        match self {
            Self::Cluster => "--cluster".to_owned(),
            Self::Topic(name) => format!("--topic '{name}'"),
            Self::Group(name) => format!("--group '{name}'"),
            Self::TransactionalId(name) => format!("--transactional-id '{name}'"),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::TransactionalId(name) => write!(f, "transactional id {name}"),
        }
    }
}

/// An operation of Kafka's authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumIter, IntoStaticStr)]
#[allow(missing_docs, reason = "the names are Kafka's")]
pub enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    IdempotentWrite,
}

/// What was being done to what: the context that turns an error code into a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The operation that the request needs.
    pub operation: Operation,
    /// On what.
    pub resource: Resource,
}

impl Subject {
    /// A subject.
    #[must_use]
    pub fn new(operation: Operation, resource: Resource) -> Self {
        Self { operation, resource }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.operation, self.resource)
    }
}

/// What is wrong, for the person who can put it right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The brokers refused user name, password or mechanism.
    AuthenticationFailed,
    /// A permission is missing.
    AuthorizationFailed(Subject),
    /// A broker's certificate is not trusted, does not carry its name, or the port does not speak TLS.
    TlsFailed,
    /// No broker answers.
    BrokerUnreachable,
    /// A topic does not exist.
    UnknownTopic(String),
    /// A Secret, a file of it, or its content is missing or not usable.
    SecretMissing,
    /// The transaction timeout is above the brokers' limit.
    BrokerLimitViolated,
    /// Another producer owns the transactional id.
    Fenced,
    /// The brokers answered with another error.
    BrokerError,
}

impl Cause {
    /// The cause behind a code that a broker answered to a request about `subject`.
    #[must_use]
    pub fn of(code: BrokerCode, subject: &Subject) -> Self {
        match code {
            BrokerCode::SASL_AUTHENTICATION_FAILED
            | BrokerCode::UNSUPPORTED_SASL_MECHANISM
            | BrokerCode::ILLEGAL_SASL_STATE => Self::AuthenticationFailed,
            BrokerCode::TOPIC_AUTHORIZATION_FAILED
            | BrokerCode::GROUP_AUTHORIZATION_FAILED
            | BrokerCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => Self::AuthorizationFailed(subject.clone()),
            // InitProducerId and CreateTopics answer with the cluster's code whatever the resource was.
            BrokerCode::CLUSTER_AUTHORIZATION_FAILED => {
                Self::AuthorizationFailed(Subject::new(subject.operation, Resource::Cluster))
            }
            BrokerCode::UNKNOWN_TOPIC_OR_PARTITION | BrokerCode::UNKNOWN_TOPIC_ID => match &subject.resource {
                Resource::Topic(name) => Self::UnknownTopic(name.clone()),
                _ => Self::BrokerError,
            },
            BrokerCode::NETWORK_EXCEPTION | BrokerCode::BROKER_NOT_AVAILABLE => Self::BrokerUnreachable,
            BrokerCode::INVALID_TRANSACTION_TIMEOUT => Self::BrokerLimitViolated,
            BrokerCode::PRODUCER_FENCED | BrokerCode::INVALID_PRODUCER_EPOCH | BrokerCode::FENCED_INSTANCE_ID => {
                Self::Fenced
            }
            _ => Self::BrokerError,
        }
    }

    /// The reason of a condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::AuthenticationFailed => Reason::AuthenticationFailed,
            Self::AuthorizationFailed(_) => Reason::AuthorizationFailed,
            Self::TlsFailed => Reason::TlsFailed,
            Self::BrokerUnreachable => Reason::BrokerUnreachable,
            Self::UnknownTopic(_) => Reason::UnknownTopic,
            Self::SecretMissing => Reason::SecretMissing,
            Self::BrokerLimitViolated => Reason::BrokerLimitViolated,
            Self::Fenced => Reason::Fenced,
            Self::BrokerError => Reason::BrokerError,
        }
    }

    /// What to do about it, as a sentence.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::AuthenticationFailed => {
                "Check spec.kafka.sasl: mechanism, and the user name and password in its Secrets.".to_owned()
            }
            Self::AuthorizationFailed(subject) => format!(
                "Grant the job's user {subject}: kafka-acls.sh --add --allow-principal 'User:<name>' --operation {} {}",
                subject.operation,
                subject.resource.acl_options()
            ),
            Self::TlsFailed => "Check spec.kafka.tls: the authority in caSecretRef must have signed the brokers' \
                                certificates, they must carry the names in bootstrapServers and advertised.listeners, \
                                and the port must be a TLS listener."
                .to_owned(),
            Self::BrokerUnreachable => "Check spec.kafka.bootstrapServers, the brokers' advertised.listeners, DNS and \
                                        network policies; and that the listener speaks what spec.kafka.tls and sasl say."
                .to_owned(),
            Self::UnknownTopic(topic) => format!("Create topic {topic}, or correct its name in the spec."),
            Self::SecretMissing => "Create the Secret and key that spec.kafka refers to.".to_owned(),
            Self::BrokerLimitViolated => {
                "Lower processing.transactionTimeout, or raise the brokers' transaction.max.timeout.ms.".to_owned()
            }
            Self::Fenced => "Another producer uses this transactional id: check that no other job or cluster has the \
                             same transactionalIdPrefix."
                .to_owned(),
            Self::BrokerError => "See the brokers' logs.".to_owned(),
        }
    }
}

/// An error with all its sources, `outer: inner: innermost`.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
