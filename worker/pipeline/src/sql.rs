//! From SQL text to optimized logical plans, with every problem at its place in the text.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Query, Spanned, Visit};
use datafusion_sql::sqlparser::tokenizer::Span;
use fencepost_crds::v1alpha1::Violation;

pub(crate) mod catalog;
mod check;
mod dialect;
mod errors;
pub(crate) use errors::describe;
pub(crate) mod functions;
mod locate;
pub(crate) mod names;
mod parse;
pub(crate) mod planner;

use crate::violation::Position;

/// A statement that the pipeline can run.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    /// The view or the sink.
    pub(crate) target: String,
    pub(crate) target_position: Option<Position>,
    /// Names given to the columns after the target; empty: those of the query.
    pub(crate) columns: Vec<String>,
    pub(crate) query: Box<Query>,
}

/// What a statement does with its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// `CREATE VIEW`
    View,
    /// `INSERT INTO`
    Insert,
}

/// Reads the text. Either all of it is fine, or everything that is wrong with its form is listed.
pub(crate) fn read(sql: &str) -> Result<Vec<Statement>, Vec<Violation>> {
    let (statements, mut violations) = parse::parse(sql);
    let mut read = Vec::new();
    for statement in &statements {
        match check::check(statement) {
            Ok(statement) => read.push(statement),
            Err(more) => violations.extend(more),
        }
    }
    if violations.is_empty() { Ok(read) } else { Err(violations) }
}

impl Statement {
    /// Place of the query.
    pub(crate) fn position(&self) -> Option<Position> {
        position(self.query.span())
    }

    /// Names of the tables that the query mentions, as often as it does.
    pub(crate) fn relations(&self) -> Vec<String> {
        let mut relations = Vec::new();
        let _: ControlFlow<()> = datafusion_sql::sqlparser::ast::visit_relations(&self.query, |name| {
            relations.push(name.to_string());
            ControlFlow::Continue(())
        });
        relations
    }
}

/// Start of a span; `None` for an empty one.
pub(crate) fn position(span: Span) -> Option<Position> {
    (span.start.line > 0).then_some(Position { line: span.start.line, column: span.start.column })
}

/// Walks over a part of the syntax tree.
fn walk<V: datafusion_sql::sqlparser::ast::Visitor<Break = ()>>(node: &impl Visit, visitor: &mut V) {
    let _: ControlFlow<()> = node.visit(visitor);
}
