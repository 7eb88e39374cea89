//! Refuses what a stream cannot do, before the planner sees it: the planner has no place for it in the text.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CreateTableOptions, CreateView, Expr, GroupByExpr, Insert, ObjectName, Query, Select, SelectItem, SetExpr,
    SetOperator, SetQuantifier, Spanned, Statement as Ast, TableFactor, TableObject, Value, Visitor,
};
use datafusion_sql::sqlparser::tokenizer::Span;
use fencepost_crds::v1alpha1::Violation;

use super::functions::{FunctionClass, classify};
use super::{Statement, StatementKind, position, walk};
use crate::violation::{Reason, sql_violation};

/// The statement in our terms, or what is not supported about it.
pub(super) fn check(ast: &Ast) -> Result<Statement, Vec<Violation>> {
    let mut checker = Checker::default();
    let statement = match ast {
        Ast::CreateView(view) => checker.view(view),
        Ast::Insert(insert) => checker.insert(insert),
        other => {
            let message = "only CREATE VIEW … AS SELECT … and INSERT INTO … SELECT … are statements of a pipeline";
            checker.refuse(other.span(), message);
            None
        }
    };
    match statement {
        Some(statement) if checker.violations.is_empty() => {
            walk(&statement.query, &mut checker);
            if checker.violations.is_empty() { Ok(statement) } else { Err(checker.violations) }
        }
        _ => Err(checker.violations),
    }
}

#[derive(Default)]
struct Checker {
    violations: Vec<Violation>,
}

impl Checker {
    fn refuse(&mut self, span: Span, message: &str) {
        self.violations.push(sql_violation(Reason::UnsupportedSql, position(span), message));
    }

    /// Refuses when the clause is there.
    fn refuse_if(&mut self, present: bool, span: Span, message: &str) {
        if present {
            self.refuse(span, message);
        }
    }

    fn view(&mut self, view: &CreateView) -> Option<Statement> {
        let span = view.name.span();
        self.refuse_if(view.materialized, span, "MATERIALIZED views need state; not supported. Use CREATE VIEW");
        let special = view.or_alter
            || view.or_replace
            || view.secure
            || view.if_not_exists
            || view.temporary
            || view.to.is_some()
            || view.params.is_some()
            || view.options != CreateTableOptions::None;
        self.refuse_if(special, span, "a view of a pipeline has no options: write CREATE VIEW name AS SELECT …");
        let columns = view.columns.iter().map(|c| c.name.value.clone()).collect();
        self.statement(StatementKind::View, &view.name, columns, &view.query)
    }

    fn insert(&mut self, insert: &Insert) -> Option<Statement> {
        let span = insert.table.span();
        let special = insert.or.is_some()
            || insert.overwrite
            || insert.on.is_some()
            || insert.returning.is_some()
            || insert.partitioned.is_some()
            || insert.replace_into
            || insert.ignore
            || insert.table_alias.is_some()
            || !insert.assignments.is_empty();
        self.refuse_if(special, span, "write INSERT INTO sink SELECT …; other forms of INSERT are not supported");
        let TableObject::TableName(name) = &insert.table else {
            self.refuse(span, "INSERT INTO needs the name of a sink");
            return None;
        };
        let Some(query) = &insert.source else {
            self.refuse(span, "INSERT INTO needs a SELECT");
            return None;
        };
        let columns = insert.columns.iter().filter_map(|c| self.name(c)).collect();
        self.statement(StatementKind::Insert, name, columns, query)
    }

    fn statement(
        &mut self,
        kind: StatementKind,
        target: &ObjectName,
        columns: Vec<String>,
        query: &Query,
    ) -> Option<Statement> {
        let target_position = position(target.span());
        let target = self.name(target)?;
        Some(Statement { kind, target, target_position, columns, query: Box::new(query.clone()) })
    }

    /// A name of one part.
    fn name(&mut self, name: &ObjectName) -> Option<String> {
        match name.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.clone()),
            _ => {
                self.refuse(name.span(), "names here have one part: there are no schemas");
                None
            }
        }
    }

    fn set_expr(&mut self, body: &SetExpr) {
        match body {
            // Both are visited on their own.
            SetExpr::Select(_) | SetExpr::Query(_) => {}
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let all = *op == SetOperator::Union && *set_quantifier == SetQuantifier::All;
                let message = match op {
                    SetOperator::Union => "UNION removes duplicates, which needs state over all rows; use UNION ALL",
                    _ => "EXCEPT and INTERSECT need state over all rows; not supported",
                };
                self.refuse_if(!all, right.span(), message);
                self.set_expr(left);
                self.set_expr(right);
            }
            SetExpr::Values(_) => self.refuse(body.span(), "VALUES has no input stream; not supported"),
            _ => self.refuse(body.span(), "a query here is a SELECT, or SELECTs with UNION ALL between them"),
        }
    }

    fn aggregation(&mut self, select: &Select) {
        match &select.group_by {
            GroupByExpr::All(_) => self.refuse(select.span(), "GROUP BY needs keyed state; not supported"),
            GroupByExpr::Expressions(exprs, _) => {
                if let Some(first) = exprs.first() {
                    self.refuse(first.span(), "GROUP BY needs keyed state; not supported");
                }
            }
        }
        if let Some(having) = &select.having {
            self.refuse(having.span(), "HAVING needs keyed state; not supported");
        }
    }
}

impl Visitor for Checker {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Infallible> {
        let span = query.span();
        if let Some(with) = query.with.as_ref().filter(|w| w.recursive) {
            self.refuse(with.with_token.0.span, "recursive queries are not supported");
        }
        if let Some(order_by) = &query.order_by {
            self.refuse(order_by.span(), "ORDER BY needs the end of the input, and a stream has none; not supported");
        }
        let limited = query.limit_clause.is_some() || query.fetch.is_some();
        let limit = query.limit_clause.as_ref().map_or(span, Spanned::span);
        self.refuse_if(limited, limit, "LIMIT, OFFSET and FETCH end a query, and a stream has no end; not supported");
        let special = !query.locks.is_empty()
            || query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty();
        self.refuse_if(special, span, "a query here is SELECT … FROM … WHERE …, without clauses after it");
        self.set_expr(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Infallible> {
        let span = select.span();
        self.refuse_if(select.distinct.is_some(), span, "DISTINCT needs state over all rows; not supported");
        self.aggregation(select);
        self.refuse_if(select.from.is_empty(), span, "a SELECT without FROM has no input stream; not supported");
        let joined = select.from.iter().find(|t| !t.joins.is_empty()).or_else(|| select.from.get(1));
        if let Some(table) = joined {
            let at = table.joins.first().map_or_else(|| table.relation.span(), |j| j.relation.span());
            self.refuse(at, "joins need keyed state; not supported");
        }
        if let Some(qualify) = &select.qualify {
            self.refuse(qualify.span(), "QUALIFY needs window functions; not supported");
        }
        let special = select.top.is_some()
            || select.into.is_some()
            || select.prewhere.is_some()
            || select.select_modifiers.is_some()
            || select.exclude.is_some()
            || select.value_table_mode.is_some()
            || !select.lateral_views.is_empty()
            || !select.connect_by.is_empty()
            || !select.cluster_by.is_empty()
            || !select.distribute_by.is_empty()
            || !select.sort_by.is_empty()
            || !select.named_window.is_empty();
        self.refuse_if(special, span, "a SELECT here has the clauses FROM and WHERE only");
        for item in &select.projection {
            let aliases = matches!(item, SelectItem::ExprWithAliases { .. });
            self.refuse_if(aliases, item.span(), "an expression has one name");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Infallible> {
        let plain = match table {
            TableFactor::Table {
                args: None,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                index_hints,
                ..
            } => with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty(),
            TableFactor::Derived { lateral: false, sample: None, .. } => true,
            TableFactor::NestedJoin { .. } => {
                self.refuse(table.span(), "joins need keyed state; not supported");
                return ControlFlow::Continue(());
            }
            _ => false,
        };
        self.refuse_if(!plain, table.span(), "FROM takes a source, a view, or a SELECT in parentheses");
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Infallible> {
        match expr {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                self.refuse(expr.span(), "subqueries in expressions are joins, which need keyed state; not supported");
            }
            Expr::Function(call) => {
                let span = call.name.span();
                let windowed = call.over.is_some();
                self.refuse_if(windowed, span, "window functions (OVER) need keyed state; not supported");
                match classify(&call.name.to_string()) {
                    FunctionClass::Scalar => {}
                    FunctionClass::Aggregate if !windowed => {
                        self.refuse(
                            span,
                            &format!("`{}` is an aggregate, which needs keyed state; not supported", call.name),
                        );
                    }
                    FunctionClass::Window if !windowed => {
                        self.refuse(span, &format!("`{}` needs windows and keyed state; not supported", call.name));
                    }
                    FunctionClass::Unnest => {
                        self.refuse(span, "unnest makes several rows of one; not supported");
                    }
                    FunctionClass::Aggregate | FunctionClass::Window => {}
                }
                let special = call.filter.is_some() || !call.within_group.is_empty() || call.null_treatment.is_some();
                self.refuse_if(
                    special,
                    span,
                    "FILTER, WITHIN GROUP and IGNORE NULLS belong to aggregates; not supported",
                );
            }
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
                self.refuse(value.span, "placeholders have no value here; write the value");
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
