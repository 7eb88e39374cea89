//! Why a scenario did not pass.

use std::error::Error;

use fencepost_oracle::Verdict;

/// What a scenario ends with: lines worth showing, or why it did not pass.
pub type Outcome = Result<Vec<String>, Failure>;

/// Why a scenario did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The judge found faults.
    #[error("the judge: {0}")]
    Verdict(Box<Verdict>),
    /// Something that must be so is not.
    #[error("{0}")]
    Expectation(String),
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s; seen last: {last}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was there instead.
        last: String,
    },
    /// The means of the test failed.
    #[error("cannot {what}")]
    Means {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The scenario panicked or its thread could not be made.
    #[error("the thread of the scenario ended without an answer")]
    Thread,
}

impl Failure {
    pub(crate) fn means<E: Error + Send + Sync + 'static>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Means { what, source: Box::new(source) }
    }
}

/// Fails the scenario unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::scenarios::Failure::Expectation(format!($($message)+)));
        }
    };
}

pub(crate) use ensure;
