//! The same two readings for librdkafka's codes.
//!
//! librdkafka also flags errors of the transactional producer (fatal, abortable, retriable). Where there are flags they are
//! newer knowledge than a code, see [`class_with_flags`]; everywhere else the code is all there is, see [`class`].

use rdkafka::types::RDKafkaErrorCode as Code;

use super::{BrokerCode, Cause, ErrorClass, Subject};

/// What the transactional calls of librdkafka say beside the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The producer instance cannot be used any more.
    pub fatal: bool,
    /// The same call may succeed.
    pub retriable: bool,
    /// Only an abort leads on.
    pub abort: bool,
}

/// The class of an error of a transactional call.
///
/// Timeouts of such calls are `retriable` for librdkafka, which means: call again and wait on. Whoever gives up waiting
/// has an unknown outcome, so they are [`ErrorClass::Unknown`] here.
#[must_use]
pub fn class_with_flags(code: Code, flags: Flags) -> ErrorClass {
    let by_code = class(code);
    match by_code {
        ErrorClass::Fenced | ErrorClass::Refresh => by_code,
        _ if flags.fatal => match by_code {
            ErrorClass::Fatal | ErrorClass::Unknown => by_code,
            _ => ErrorClass::Recreate,
        },
        ErrorClass::Fatal | ErrorClass::Recreate => by_code,
        // A copy of the request may still be on its way, and must not meet the next transaction of the same producer. That an abort
        // would lead on does not change that.
        ErrorClass::Unknown => by_code,
        _ if code == Code::BrokerTransportFailure && (flags.abort || flags.retriable) => ErrorClass::Unknown,
        _ if flags.abort => ErrorClass::Abort,
        _ if flags.retriable => ErrorClass::Retry,
        _ => by_code,
    }
}

/// The class of a code.
#[must_use]
pub fn class(code: Code) -> ErrorClass {
    match code {
        // Local, and passing.
        Code::BrokerTransportFailure
        | Code::Resolve
        | Code::AllBrokersDown
        | Code::QueueFull
        | Code::NodeUpdate
        | Code::WaitingForCoordinator
        | Code::InProgress
        | Code::PreviousInProgress
        | Code::Outdated
        | Code::TimedOutQueue
        | Code::WaitCache
        | Code::Interrupted
        | Code::Partial
        | Code::Retry
        | Code::ISRInsufficient
        | Code::PartitionEOF
        | Code::NoOffset
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownBroker
        | Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::Noop
        | Code::BadMessage => ErrorClass::Retry,

        Code::AssignmentLost | Code::PollExceeded => ErrorClass::Refresh,

        // Records that will not be sent any more, or of which nobody knows: the instance may still have requests of
        // this transaction on the way, and those must not meet the next one.
        Code::MessageTimedOut
        | Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Inconsistent
        | Code::GaplessGuarantee
        | Code::Fatal => ErrorClass::Recreate,

        Code::Fenced => ErrorClass::Fenced,

        Code::OperationTimedOut | Code::Unknown => ErrorClass::Unknown,

        Code::BadCompression
        | Code::Fail
        | Code::CriticalSystemResource
        | Code::FileSystem
        | Code::InvalidArgument
        | Code::SSL
        | Code::UnknownGroup
        | Code::ExistingSubscription
        | Code::AssignPartitions
        | Code::RevokePartitions
        | Code::Conflict
        | Code::State
        | Code::UnknownProtocol
        | Code::NotImplemented
        | Code::Authentication
        | Code::UnsupportedFeature
        | Code::KeySerialization
        | Code::ValueSerialization
        | Code::KeyDeserialization
        | Code::ValueDeserialization
        | Code::ReadOnly
        | Code::NoEnt
        | Code::Underflow
        | Code::InvalidType
        | Code::NotConfigured
        | Code::Application
        | Code::AutoOffsetReset
        | Code::LogTruncation
        | Code::InvalidDifferentRecord => ErrorClass::Fatal,

        // Positive codes are the protocol's own.
        other => broker_code(other).map_or(ErrorClass::Unknown, BrokerCode::class),
    }
}

/// The cause behind a code of librdkafka.
#[must_use]
pub fn cause(code: Code, subject: &Subject) -> Cause {
    match code {
        Code::Authentication | Code::UnsupportedFeature => Cause::AuthenticationFailed,
        Code::SSL => Cause::TlsFailed,
        Code::BrokerTransportFailure
        | Code::Resolve
        | Code::AllBrokersDown
        | Code::OperationTimedOut
        | Code::TimedOutQueue
        | Code::MessageTimedOut
        | Code::WaitingForCoordinator => Cause::BrokerUnreachable,
        Code::UnknownTopic | Code::UnknownPartition => Cause::of(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION, subject),
        Code::Fenced => Cause::Fenced,
        other => broker_code(other).map_or(Cause::BrokerError, |code| Cause::of(code, subject)),
    }
}

/// The protocol's code, where it is one.
#[must_use]
pub fn broker_code(code: Code) -> Option<BrokerCode> {
    let number = i16::try_from(code as i32).ok().filter(|number| *number > 0)?;
    BrokerCode::from_response(number).filter(|code| code.name().is_some())
}
