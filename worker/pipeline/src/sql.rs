//! From SQL text to optimized logical plans, with every problem at its place in the text.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{ObjectName, Query, Spanned, Visit, Visitor};
use datafusion_sql::sqlparser::tokenizer::Span;
use fencepost_crds::v1alpha1::Violation;

pub(crate) mod catalog;
mod check;
mod depth;
mod dialect;
mod errors;
pub(crate) use errors::describe;
pub(crate) mod functions;
pub(crate) mod guard;
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

    /// The tables that the query mentions, as often as it does, without those it defines itself (`WITH`).
    pub(crate) fn relations(&self) -> Vec<Relation> {
        let mut relations = Relations::default();
        walk(&self.query, &mut relations);
        relations.mentioned.retain(|r| !relations.defined.contains(&r.name));
        relations.mentioned
    }
}

/// A table that a query mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) name: String,
    pub(crate) position: Option<Position>,
}

#[derive(Default)]
struct Relations {
    mentioned: Vec<Relation>,
    defined: BTreeSet<String>,
}

impl Visitor for Relations {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Infallible> {
        self.defined.extend(query.with.iter().flat_map(|w| &w.cte_tables).map(|c| c.alias.name.value.clone()));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Infallible> {
        let parts: Vec<&str> = relation.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
        self.mentioned.push(Relation { name: parts.join("."), position: position(relation.span()) });
        ControlFlow::Continue(())
    }
}

/// An expression as SQL text, for people.
pub(crate) fn text(expr: &datafusion_expr::Expr) -> String {
    datafusion_sql::unparser::expr_to_sql(expr).map_or_else(|_| expr.to_string(), |sql| sql.to_string())
}

/// Start of a span; `None` for an empty one.
pub(crate) fn position(span: Span) -> Option<Position> {
    (span.start.line > 0).then_some(Position { line: span.start.line, column: span.start.column })
}

/// Walks over a part of the syntax tree.
fn walk<V: Visitor<Break = Infallible>>(node: &impl Visit, visitor: &mut V) {
    let ControlFlow::Continue(()) = node.visit(visitor);
}
