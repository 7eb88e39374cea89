use std::fmt;

use fencepost_crds::v1alpha1::Violation;
use strum::{Display, EnumIter, IntoStaticStr};

/// Why a pipeline does not plan. The `reason` of a [`Violation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter, IntoStaticStr)]
pub enum Reason {
    /// The text is not SQL.
    SqlSyntax,
    /// It is SQL, and this pipeline cannot run it.
    UnsupportedSql,
    /// It is SQL without a meaning, such as a `UNION ALL` of different widths.
    InvalidSql,
    /// A table that is neither a source nor a view defined before.
    UnknownTable,
    /// A column that the table does not have.
    UnknownColumn,
    /// A function that does not exist.
    UnknownFunction,
    /// Types do not fit together.
    TypeMismatch,
    /// The type of a source column cannot be read, or does not fit its metadata.
    BadColumnType,
    /// Two things have the same name.
    DuplicateName,
    /// Two sources read one topic.
    DuplicateTopic,
    /// `INSERT INTO` something that is not a sink.
    UnknownSink,
    /// A sink that no `INSERT INTO` writes.
    UnusedSink,
    /// A source that no `INSERT INTO` reads.
    UnusedSource,
    /// An output column without a name.
    UnnamedColumn,
    /// The `INSERT INTO` statements of a sink disagree on its columns.
    SinkColumnsDiffer,
    /// A dead-letter topic without `onBadRecord: DeadLetter`, or that without a topic.
    BadDeadLetterTopic,
    /// A column cannot be what the sink wants it to be: key, timestamp, header, or a value at all.
    BadSinkColumn,
}

/// A place in the SQL text, both numbers from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A violation of a field of the pipeline; `field` continues `spec.pipeline.`.
pub(crate) fn violation(reason: Reason, field: &str, message: impl Into<String>) -> Violation {
    Violation { reason: reason.to_string(), field: format!("spec.pipeline.{field}"), message: message.into() }
}

/// A violation at a place of the SQL text.
pub(crate) fn sql_violation(reason: Reason, position: Option<Position>, message: impl fmt::Display) -> Violation {
    let message = match position {
        Some(position) => format!("{position}: {message}"),
        None => message.to_string(),
    };
    violation(reason, "sql", message)
}
