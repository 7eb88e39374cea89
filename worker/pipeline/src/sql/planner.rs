use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{Column, Result};
use datafusion_expr::planner::ContextProvider;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::eliminate_filter::EliminateFilter;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimize_unions::OptimizeUnions;
use datafusion_optimizer::optimizer::{Optimizer, OptimizerContext};
use datafusion_optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_sql::planner::SqlToRel;
use datafusion_sql::sqlparser::ast::{self, Query, Select, SelectItem, SetExpr, Spanned};
use fencepost_crds::v1alpha1::Violation;

use super::catalog::{Catalog, Table, TableKind};
use super::{Statement, StatementKind, depth, errors, locate, position};
use crate::violation::{Position, Reason, sql_violation};

/// A statement with its plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedStatement {
    /// Its place in the text, from 0.
    pub(crate) index: usize,
    pub(crate) kind: StatementKind,
    /// The view or the sink.
    pub(crate) target: String,
    pub(crate) position: Option<Position>,
    /// Optimized. Columns have plain names.
    pub(crate) plan: LogicalPlan,
}

impl PlannedStatement {
    /// Names and types of the columns.
    pub(crate) fn columns(&self) -> Vec<(String, DataType)> {
        self.plan.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
    }
}

/// How many live statements read each view. A view that no INSERT reaches is not in it.
pub(crate) fn view_readers(statements: &[Statement]) -> BTreeMap<String, usize> {
    let mut readers: BTreeMap<String, usize> = BTreeMap::new();
    for statement in statements.iter().rev() {
        let live = statement.kind == StatementKind::Insert || readers.contains_key(&statement.target);
        if live {
            for relation in statement.relations() {
                *readers.entry(relation.name).or_default() += 1;
            }
        }
    }
    readers
}

/// Plans statement by statement. What comes back is what runs: the INSERTs, and the views that several of them read.
pub(crate) fn plan(catalog: &mut Catalog, statements: &[Statement]) -> (Vec<PlannedStatement>, Vec<Violation>) {
    let readers = view_readers(statements);
    let mut planned = Vec::new();
    let mut violations = Vec::new();
    // Views that do not plan: who reads them is not blamed for it.
    let mut broken: BTreeSet<String> = BTreeSet::new();
    for (index, statement) in statements.iter().enumerate() {
        let is_new = statement.kind == StatementKind::View && !catalog.contains(&statement.target);
        let outcome = if statement.relations().iter().any(|r| broken.contains(&r.name)) {
            Err(Vec::new())
        } else {
            let shared = readers.get(&statement.target).copied().unwrap_or_default() > 1;
            plan_one(catalog, index, statement, shared)
        };
        match outcome {
            Ok(statement) => planned.extend(statement),
            Err(more) => {
                violations.extend(more);
                if is_new {
                    broken.insert(statement.target.clone());
                }
            }
        }
    }
    (planned, violations)
}

fn plan_one(
    catalog: &mut Catalog,
    index: usize,
    statement: &Statement,
    shared: bool,
) -> Result<Option<PlannedStatement>, Vec<Violation>> {
    let mut violations = check_names(catalog, statement);
    if violations.iter().any(|v| v.reason == Reason::UnknownTable.to_string()) {
        return Err(violations);
    }
    let raw = match to_plan(catalog, &statement.query) {
        Ok(plan) => plan,
        Err(error) => {
            violations.extend(explain(catalog, statement, &error));
            return Err(violations);
        }
    };
    violations.extend(check_columns(statement, &raw));
    violations.extend(check_depth(statement, &raw));
    if !violations.is_empty() {
        return Err(violations);
    }
    let analyzed = rename(raw.clone(), &statement.columns).and_then(|raw| Ok((analyze(catalog, raw.clone())?, raw)));
    let (plan, raw) = analyzed.map_err(|e| explain(catalog, statement, &e))?;
    if statement.kind == StatementKind::View {
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let kind = if shared { TableKind::SharedView(index) } else { TableKind::InlineView(Box::new(raw)) };
        catalog.insert(&statement.target, Table { kind, schema });
        if !shared {
            return Ok(None);
        }
    }
    let plan = optimize(plan).map_err(|e| errors::violations(&e, statement.position()))?;
    Ok(Some(PlannedStatement {
        index,
        kind: statement.kind,
        target: statement.target.clone(),
        position: statement.target_position,
        plan,
    }))
}

fn to_plan(catalog: &Catalog, query: &Query) -> Result<LogicalPlan> {
    SqlToRel::new(catalog).sql_statement_to_plan(ast::Statement::Query(Box::new(query.clone())))
}

fn analyze(catalog: &Catalog, plan: LogicalPlan) -> Result<LogicalPlan> {
    Analyzer::new().execute_and_check(plan, catalog.options(), |_, _| {})
}

/// The rules that fit a stream. Left out are those for joins, aggregates, limits and sorting, which do not occur.
fn optimize(plan: LogicalPlan) -> Result<LogicalPlan> {
    let optimizer = Optimizer::with_rules(vec![
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]);
    // Without a start time nothing can put the time of planning into the plan.
    let context = OptimizerContext::new().without_query_execution_start_time();
    optimizer.optimize(plan, &context, |_, _| {})
}

/// The plan with other column names, and without the qualifiers that remember where columns came from.
fn rename(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan> {
    let exprs: Vec<Expr> = plan
        .schema()
        .iter()
        .enumerate()
        .map(|(i, field)| {
            let name = names.get(i).unwrap_or_else(|| field.1.name()).clone();
            Expr::Column(Column::from(field)).alias(name)
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

/// Every error of the statement at its place.
fn explain(catalog: &Catalog, statement: &Statement, error: &datafusion_common::DataFusionError) -> Vec<Violation> {
    let located = locate::locate(&statement.query, &|query| analyze(catalog, to_plan(catalog, query)?).map(drop));
    if located.is_empty() || (located.len() == 1 && errors::has_position(error)) {
        return errors::violations(error, statement.position());
    }
    located
}

/// The name of a view is new, and the tables of the query exist in this order.
fn check_names(catalog: &Catalog, statement: &Statement) -> Vec<Violation> {
    let mut violations = Vec::new();
    if statement.kind == StatementKind::View && catalog.contains(&statement.target) {
        let message = format!("there is a source or a view `{}` already; give this one another name", statement.target);
        violations.push(sql_violation(Reason::DuplicateName, statement.target_position, message));
    }
    for relation in statement.relations().iter().filter(|r| !catalog.contains(&r.name)) {
        let tables: Vec<&str> = catalog.table_names().collect();
        let message = format!(
            "table `{}` is neither a source nor a view defined before; there are: {}",
            relation.name,
            tables.join(", ")
        );
        violations.push(sql_violation(Reason::UnknownTable, relation.position, message));
    }
    violations
}

/// Views become a part of what reads them, and their expressions a part of its expressions.
fn check_depth(statement: &Statement, plan: &LogicalPlan) -> Option<Violation> {
    if depth::of_plan(plan) <= depth::MAX_PLAN_DEPTH {
        return None;
    }
    let message = format!(
        "together with the views that it reads, the query has more than {} levels of operators; use fewer views on top of each other",
        depth::MAX_PLAN_DEPTH
    );
    Some(sql_violation(Reason::UnsupportedSql, statement.position(), message))
}

/// As many names as columns, each column has one, and no two are the same.
fn check_columns(statement: &Statement, plan: &LogicalPlan) -> Vec<Violation> {
    let mut violations = Vec::new();
    let fields = plan.schema().fields();
    if statement.columns.is_empty() {
        for item in unnamed_items(&statement.query.body) {
            let message = format!("the column `{item}` needs a name: add AS name");
            violations.push(sql_violation(Reason::UnnamedColumn, position(item.span()), message));
        }
    } else if statement.columns.len() != fields.len() {
        let message = format!("{} columns are named and the query has {}", statement.columns.len(), fields.len());
        violations.push(sql_violation(Reason::InvalidSql, statement.target_position, message));
    }
    let mut seen = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let name = statement.columns.get(i).unwrap_or_else(|| field.name());
        if !seen.insert(name) {
            let message = format!("the column `{name}` is there twice; give one of them another name with AS");
            violations.push(sql_violation(Reason::DuplicateName, statement.position(), message));
        }
    }
    violations
}

/// Expressions without a name in the SELECT that names the columns: the first one.
fn unnamed_items(body: &SetExpr) -> Vec<&SelectItem> {
    match body {
        SetExpr::Select(select) => unnamed_in(select),
        SetExpr::SetOperation { left, .. } => unnamed_items(left),
        SetExpr::Query(query) => unnamed_items(&query.body),
        _ => Vec::new(),
    }
}

fn unnamed_in(select: &Select) -> Vec<&SelectItem> {
    let named =
        |item: &&SelectItem| !matches!(item, SelectItem::UnnamedExpr(e) if !matches!(e, ast::Expr::Identifier(_)));
    select.projection.iter().filter(|item| !named(item)).collect()
}
