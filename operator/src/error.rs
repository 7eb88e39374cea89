//! Errors of a reconciliation, with a class that decides how soon it is tried again.

use fencepost_plan::decide::DecideError;
use thiserror::Error;

pub use fencepost_kafka::error::chain;

/// A reconciliation that did not finish. Whatever it did is found by the next one.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server did not answer or refused a read.
    #[error("cannot read {what}")]
    Read {
        /// What was being read.
        what: &'static str,
        /// The client's words.
        source: Box<kube::Error>,
    },
    /// The status could not be written, so nothing was done.
    #[error("cannot write the status")]
    Status(#[source] Box<kube::Error>),
    /// Someone else changed the object since it was read.
    #[error("{0} changed meanwhile")]
    Changed(&'static str),
    /// The API server refused an act.
    #[error("cannot {what}")]
    Act {
        /// What was being done.
        what: String,
        /// The client's words.
        source: Box<kube::Error>,
    },
    /// An object that the job needs has a name that is taken.
    #[error(
        "{kind} {name} exists already and does not belong to this StreamJob: delete it, or give the StreamJob another name"
    )]
    Foreign {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// An accepted revision cannot be read: a newer operator wrote it, or somebody changed it.
    #[error("an accepted revision cannot be read")]
    Revision(#[from] fencepost_plan::revision::RevisionError),
    /// The decision failed.
    #[error("nothing can be decided")]
    Decide(#[from] DecideError),
    /// The reconciliation took too long.
    #[error("the reconciliation took longer than {0} s")]
    TimedOut(u64),
}

impl Error {
    /// Label of a metric.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Changed(_) => "changed",
            Self::TimedOut(_) => "timeout",
            _ => "error",
        }
    }

    /// The API server, or what is there already, says no, and will say so again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Foreign { .. } => true,
            Self::Act { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
            }
            _ => false,
        }
    }

    /// An error of an act: a change by someone else is told apart, since it is cured by looking again.
    #[must_use]
    pub fn act(what: impl Into<String>, changed: &'static str, source: kube::Error) -> Self {
        if is_conflict(&source) {
            return Self::Changed(changed);
        }
        Self::Act { what: what.into(), source: Box::new(source) }
    }
}

/// The API server refused because the object is not the one that was seen.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// The object does not exist.
#[must_use]
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}
