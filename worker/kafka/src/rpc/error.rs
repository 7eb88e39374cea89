use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{BrokerCode, Cause, ErrorClass, Subject, chain};
use crate::settings::HostPort;

use super::types::BrokerId;

/// Why a call failed.
///
/// [`RpcError::class`] tells a program what to do, [`RpcError::cause`] and [`RpcError::report`] tell a person.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    /// No TCP connection: name, route, port.
    #[error("cannot connect to {peer}")]
    Connect {
        /// Where to.
        peer: HostPort,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Nobody answered the attempt to connect, to speak TLS, or to authenticate, in time.
    #[error("no connection to {peer} within {} ms", after.as_millis())]
    ConnectTimeout {
        /// Where to.
        peer: HostPort,
        /// How long was waited.
        after: Duration,
    },
    /// TLS could not be set up on this side.
    #[error("cannot set up TLS: {problem}")]
    TlsSetup {
        /// What is missing or wrong.
        problem: String,
    },
    /// The TLS handshake failed.
    #[error("the TLS handshake with {peer} failed")]
    Tls {
        /// With whom.
        peer: HostPort,
        /// Why.
        source: Arc<io::Error>,
    },
    /// The broker does not offer the mechanism.
    #[error("{peer} does not offer SASL mechanism {wanted}; it offers {}", offered.join(", "))]
    SaslMechanism {
        /// The broker.
        peer: HostPort,
        /// The mechanism of the settings.
        wanted: String,
        /// What it offers.
        offered: Vec<String>,
    },
    /// The broker refused the credentials.
    #[error("{peer} refused user {username}: {message}")]
    SaslRefused {
        /// The broker.
        peer: HostPort,
        /// Who wanted in.
        username: String,
        /// What the broker said.
        message: String,
    },
    /// The exchange broke on this side: the text of the broker was wrong, or it could not prove that it knows the password.
    #[error("the SASL exchange with {peer} failed: {problem}")]
    SaslExchange {
        /// The broker.
        peer: HostPort,
        /// Why.
        problem: String,
    },
    /// The connection ended before the answer came.
    #[error("the connection to {peer} ended before {call} was answered")]
    Closed {
        /// The broker.
        peer: HostPort,
        /// The request.
        call: &'static str,
        /// Whether the broker may have got it.
        sent: Sent,
        /// Why it ended.
        source: Arc<CloseReason>,
    },
    /// The answer did not come in time.
    #[error("{peer} did not answer {call} within {} ms", after.as_millis())]
    Timeout {
        /// The broker.
        peer: HostPort,
        /// The request.
        call: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The answer cannot be read, or does not answer what was asked.
    #[error("the answer of {peer} to {call} makes no sense: {problem}")]
    BadAnswer {
        /// The broker.
        peer: HostPort,
        /// The request.
        call: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A request cannot be written in any version: a text is too long, for example.
    #[error("cannot encode {call}: {problem}")]
    Encode {
        /// The request.
        call: &'static str,
        /// Why not.
        problem: String,
    },
    /// The broker is too old, or too new.
    #[error("{peer} speaks {call} in versions {offered}, this program in {ours}")]
    UnsupportedVersion {
        /// The broker.
        peer: HostPort,
        /// The request.
        call: &'static str,
        /// `min..max` of the broker, or `none`.
        offered: String,
        /// `min..max` of this client.
        ours: String,
    },
    /// The broker answered with an error.
    #[error("{call} ({subject}): {code}{}", detail(message.as_deref()))]
    Broker {
        /// The request.
        call: &'static str,
        /// The code.
        code: BrokerCode,
        /// What it was about.
        subject: Subject,
        /// What the broker added.
        message: Option<String>,
    },
    /// The cluster's metadata does not list the broker.
    #[error("the cluster has no broker {id} (any more)")]
    UnknownBroker {
        /// The broker.
        id: BrokerId,
    },
}

fn detail(message: Option<&str>) -> String {
    let message = message.map(|text| text.trim_end_matches('.')).filter(|text| !text.is_empty());
    message.map(|text| format!(": {text}")).unwrap_or_default()
}

/// Whether a request may have reached the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not.
    No,
    /// It may have been received and executed.
    Maybe,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The other side closed it.
    #[error("closed by the broker")]
    ByPeer,
    /// The other side closed it at the first request after the greeting. Brokers do so when they want SASL first.
    #[error("closed by the broker at the first request; its listener probably wants SASL")]
    ByPeerAtFirstRequest,
    /// Reading or writing failed.
    #[error("network")]
    Io(#[source] io::Error),
    /// What answers is not a Kafka broker.
    #[error("the peer does not speak the Kafka protocol, it {0}")]
    NotKafka(LooksLike),
    /// A frame is larger than this client accepts.
    #[error("a frame of {0} bytes was announced")]
    Oversized(i64),
    /// An answer carried another number than the oldest request without an answer.
    #[error("an answer numbered {got} came where {} was due", expected.map_or_else(|| "none".to_owned(), |id| id.to_string()))]
    Correlation {
        /// The number that was due.
        expected: Option<i32>,
        /// The number that came.
        got: i32,
    },
    /// An earlier request was not answered in time, so the connection was given up.
    #[error("given up after a request without an answer")]
    GivenUp,
}

/// What a peer that is not a broker looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooksLike {
    /// A TLS record.
    Tls,
    /// Text of HTTP.
    Http,
}

impl fmt::Display for LooksLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "speaks TLS: set tls, or use the plain listener",
            Self::Http => "speaks HTTP: this is not a Kafka port",
        })
    }
}

impl RpcError {
    /// What a program does about it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } | Self::UnknownBroker { .. } => ErrorClass::Retry,
            Self::Closed { source, .. } if matches!(**source, CloseReason::NotKafka(_)) => ErrorClass::Fatal,
            Self::Closed { sent: Sent::No, .. } => ErrorClass::Retry,
            Self::Closed { .. } | Self::Timeout { .. } | Self::BadAnswer { .. } => ErrorClass::Unknown,
            Self::TlsSetup { .. }
            | Self::Tls { .. }
            | Self::SaslMechanism { .. }
            | Self::SaslRefused { .. }
            | Self::SaslExchange { .. }
            | Self::Encode { .. }
            | Self::UnsupportedVersion { .. } => ErrorClass::Fatal,
            Self::Broker { code, .. } => code.class(),
        }
    }

    /// What is wrong, for the user.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } | Self::Timeout { .. } | Self::UnknownBroker { .. } => {
                Cause::BrokerUnreachable
            }
            Self::TlsSetup { .. } | Self::Tls { .. } => Cause::TlsFailed,
            Self::SaslMechanism { .. } | Self::SaslRefused { .. } | Self::SaslExchange { .. } => {
                Cause::AuthenticationFailed
            }
            Self::Closed { source, .. } => match **source {
                CloseReason::NotKafka(LooksLike::Tls) => Cause::TlsFailed,
                CloseReason::ByPeerAtFirstRequest => Cause::AuthenticationFailed,
                _ => Cause::BrokerUnreachable,
            },
            Self::BadAnswer { .. } | Self::Encode { .. } | Self::UnsupportedVersion { .. } => Cause::BrokerError,
            Self::Broker { code, subject, .. } => Cause::of(*code, subject),
        }
    }

    /// The code, when a broker answered with one.
    #[must_use]
    pub fn code(&self) -> Option<BrokerCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The error with its sources and what to do about it: the message of a condition.
    #[must_use]
    pub fn report(&self) -> String {
        format!("{}. {}", chain(self), self.cause().advice())
    }

    /// Whether the same request may succeed when sent again, for requests that may be sent twice.
    pub(super) fn passes(&self) -> bool {
        matches!(self.class(), ErrorClass::Retry | ErrorClass::Unknown)
    }

    pub(super) fn broker(call: &'static str, code: BrokerCode, subject: Subject, message: Option<String>) -> Self {
        Self::Broker { call, code, subject, message }
    }
}
