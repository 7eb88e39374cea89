use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode as Code;
use thiserror::Error;

use super::text_of;
use crate::error::librdkafka::{Flags, cause, class_with_flags};
use crate::error::{Cause, ErrorClass, Subject};

/// What a producer or a consumer could not do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// A setting that librdkafka does not take.
    #[error("cannot set {name} of the Kafka client: {message}")]
    Property {
        /// Name of the setting.
        name: String,
        /// Why not.
        message: String,
    },
    /// No instance can be made.
    #[error("cannot create the Kafka client: {message}")]
    Create {
        /// Why not.
        message: String,
    },
    /// A name with a zero byte.
    #[error("{text:?} cannot be the name of anything in Kafka")]
    Name {
        /// The name.
        text: String,
    },
    /// A call failed.
    #[error("cannot {step}: {message} ({code:?})")]
    Call {
        /// What was attempted.
        step: &'static str,
        /// librdkafka's code.
        code: Code,
        /// What librdkafka says beside the code.
        flags: Flags,
        /// librdkafka's text.
        message: String,
        /// What it was about, where that is known better here than where the error is handled.
        subject: Option<Subject>,
    },
    /// The brokers answer, but the positions are not stable.
    #[error(
        "the committed positions of group {group} are undecided: a transaction that is still open, or whose end was not written \
         everywhere, holds some of them"
    )]
    UndecidedPositions {
        /// The group.
        group: String,
    },
    /// A committed position is not in the log any more, or not yet.
    #[error(
        "position {wanted} of {topic}/{partition} is outside of the log, which holds {low} to {high}: the records in between were \
         deleted before the job read them, or the topic was made anew"
    )]
    UnknownPosition {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The committed position.
        wanted: i64,
        /// First offset in the log.
        low: i64,
        /// Offset after the last record.
        high: i64,
    },
}

impl ClientError {
    pub(crate) fn call(step: &'static str, code: Code, message: String) -> Self {
        Self::Call { step, code, flags: Flags::default(), message, subject: None }
    }

    pub(crate) fn about(mut self, about: Subject) -> Self {
        if let Self::Call { subject, .. } = &mut self {
            *subject = Some(about);
        }
        self
    }

    pub(crate) fn fatal(mut self, text: String) -> Self {
        if let Self::Call { flags, message, .. } = &mut self {
            flags.fatal = true;
            *message = text;
        }
        self
    }

    /// librdkafka's code, where there is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What a worker does about it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Call { code, flags, .. } => class_with_flags(*code, *flags),
            Self::UndecidedPositions { .. } => ErrorClass::Retry,
            Self::Property { .. } | Self::Create { .. } | Self::Name { .. } | Self::UnknownPosition { .. } => {
                ErrorClass::Fatal
            }
        }
    }

    /// What is wrong, for the person who can put it right. `subject`: what the failed call was about.
    #[must_use]
    pub fn cause(&self, subject: &Subject) -> Cause {
        match self {
            Self::Call { code, subject: known, .. } => cause(*code, known.as_ref().unwrap_or(subject)),
            _ => Cause::BrokerError,
        }
    }
}

/// An error for every code but "no error".
pub(crate) fn check(step: &'static str, code: sys::rd_kafka_resp_err_t) -> Result<(), ClientError> {
    if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: the text is static.
    let message = text_of(unsafe { sys::rd_kafka_err2str(code) });
    Err(ClientError::call(step, code.into(), message))
}

/// Takes over an error object, with its flags.
pub(crate) fn check_error(step: &'static str, error: *mut sys::rd_kafka_error_t) -> Result<(), ClientError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: librdkafka hands over ownership of a valid object, which is destroyed here after its last use.
    unsafe {
        let flags = Flags {
            fatal: sys::rd_kafka_error_is_fatal(error) != 0,
            retriable: sys::rd_kafka_error_is_retriable(error) != 0,
            abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
        };
        let code = sys::rd_kafka_error_code(error).into();
        let message = text_of(sys::rd_kafka_error_string(error));
        sys::rd_kafka_error_destroy(error);
        Err(ClientError::Call { step, code, flags, message, subject: None })
    }
}
