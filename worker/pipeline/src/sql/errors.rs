use datafusion_common::{DataFusionError, SchemaError};
use fencepost_crds::v1alpha1::Violation;

use crate::violation::{Position, Reason, sql_violation};

/// The error of the planner as violations: at the place the planner knows, otherwise at `fallback`.
pub(super) fn violations(error: &DataFusionError, fallback: Option<Position>) -> Vec<Violation> {
    error.iter().map(|e| violation(e, fallback)).collect()
}

fn violation(error: &DataFusionError, fallback: Option<Position>) -> Violation {
    let diagnostic = error.diagnostic();
    let at = diagnostic
        .and_then(|d| d.span)
        .map(|span| Position { line: span.start.line, column: span.start.column })
        .or(fallback);
    let message = describe(error);
    sql_violation(reason(error, &message), at, message)
}

/// Whether the planner itself knows the place.
pub(super) fn has_position(error: &DataFusionError) -> bool {
    error.iter().all(|e| e.diagnostic().is_some_and(|d| d.span.is_some()))
}

/// The innermost message, without the prefixes of the layers around it.
pub(crate) fn describe(error: &DataFusionError) -> String {
    let root = error.find_root();
    if let DataFusionError::SchemaError(schema_error, _) = root
        && let SchemaError::FieldNotFound { field, valid_fields } = schema_error.as_ref()
    {
        return unknown_column(&field.name, &valid_fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>());
    }
    let text = root.strip_backtrace();
    let mut text = text.as_str();
    for prefix in PREFIXES {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    // What follows asks the reader to report a bug to another project.
    let text = text.split("This issue was likely caused by").next().unwrap_or(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_end_matches('.').to_owned()
}

const PREFIXES: &[&str] = &[
    "External error: ",
    "Error during planning: ",
    "This feature is not implemented: ",
    "Schema error: ",
    "Execution error: ",
    "Arrow error: ",
    "Optimizer rule ",
    "type_coercion\ncaused by\n",
    "Internal error: ",
];

fn unknown_column(name: &str, valid: &[&str]) -> String {
    let close = valid.iter().find(|v| v.eq_ignore_ascii_case(name));
    match close {
        Some(close) => {
            format!("column `{name}` does not exist; a column that differs only in case does: write \"{close}\"")
        }
        None => {
            let mut names: Vec<&str> = valid.to_vec();
            names.sort_unstable();
            names.dedup();
            format!("column `{name}` does not exist here; there are: {}", names.join(", "))
        }
    }
}

fn reason(error: &DataFusionError, message: &str) -> Reason {
    match error.find_root() {
        DataFusionError::SchemaError(schema_error, _) => match schema_error.as_ref() {
            SchemaError::FieldNotFound { .. } => Reason::UnknownColumn,
            _ => Reason::DuplicateName,
        },
        DataFusionError::NotImplemented(_) => Reason::UnsupportedSql,
        _ if message.starts_with("Invalid function") => Reason::UnknownFunction,
        _ if message.starts_with("table '") && message.ends_with("not found") => Reason::UnknownTable,
        DataFusionError::Plan(_) if is_about_types(message) => Reason::TypeMismatch,
        _ => Reason::InvalidSql,
    }
}

fn is_about_types(message: &str) -> bool {
    ["coerc", "type", "Cannot infer", "signature", "No function matches", "not castable", "cast"]
        .iter()
        .any(|word| message.contains(word))
}
