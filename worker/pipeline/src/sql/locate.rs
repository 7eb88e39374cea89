//! Finds the part of a query that an error is about, where the planner does not say: each item of each SELECT is planned alone.

use datafusion_common::Result;
use datafusion_sql::sqlparser::ast::{Query, Select, SelectItem, SetExpr, Spanned, TableFactor, Value, With};
use fencepost_crds::v1alpha1::Violation;

use super::{errors, position};

/// All errors of the query, each at its item. `plan` plans a query and checks its types.
pub(super) fn locate(query: &Query, plan: &dyn Fn(&Query) -> Result<()>) -> Vec<Violation> {
    let mut violations = Vec::new();
    Locator { with: query.with.as_ref(), plan }.set_expr(&query.body, &mut violations);
    violations.dedup();
    violations
}

struct Locator<'a> {
    with: Option<&'a With>,
    plan: &'a dyn Fn(&Query) -> Result<()>,
}

impl Locator<'_> {
    fn set_expr(&self, body: &SetExpr, violations: &mut Vec<Violation>) {
        match body {
            SetExpr::Select(select) => self.select(select, violations),
            SetExpr::SetOperation { left, right, .. } => {
                self.set_expr(left, violations);
                self.set_expr(right, violations);
            }
            SetExpr::Query(query) => violations.extend(locate(query, self.plan)),
            _ => {}
        }
    }

    fn select(&self, select: &Select, violations: &mut Vec<Violation>) {
        let bare = Select { projection: vec![constant()], selection: None, ..select.clone() };
        if let Err(error) = (self.plan)(&self.query(bare.clone())) {
            self.from(select, &error, violations);
            return;
        }
        for item in &select.projection {
            let alone = Select { projection: vec![item.clone()], ..bare.clone() };
            if let Err(error) = (self.plan)(&self.query(alone)) {
                violations.extend(errors::violations(&error, position(item.span())));
            }
        }
        if let Some(condition) = &select.selection {
            let alone = Select { selection: Some(condition.clone()), ..bare };
            if let Err(error) = (self.plan)(&self.query(alone)) {
                violations.extend(errors::violations(&error, position(condition.span())));
            }
        }
    }

    /// The error is in FROM: in a query inside it, or about a table.
    fn from(&self, select: &Select, error: &datafusion_common::DataFusionError, violations: &mut Vec<Violation>) {
        let before = violations.len();
        for table in &select.from {
            if let TableFactor::Derived { subquery, .. } = &table.relation {
                violations.extend(locate(subquery, self.plan));
            }
        }
        if violations.len() == before {
            let at = select.from.first().and_then(|t| position(t.relation.span()));
            violations.extend(errors::violations(error, at));
        }
    }

    fn query(&self, select: Select) -> Query {
        Query {
            with: self.with.cloned(),
            body: Box::new(SetExpr::Select(Box::new(select))),
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks: Vec::new(),
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
        }
    }
}

fn constant() -> SelectItem {
    SelectItem::UnnamedExpr(datafusion_sql::sqlparser::ast::Expr::Value(Value::Boolean(true).into()))
}
