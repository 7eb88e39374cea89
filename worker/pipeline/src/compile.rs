//! From logical plans to a graph of streaming operators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion_common::DFSchemaRef;
use datafusion_common::tree_node::TreeNode;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan, Operator, TableScan};
use fencepost_crds::v1alpha1::Violation;

use crate::sql::StatementKind;
use crate::sql::catalog::{Table, TableKind};
use crate::sql::planner::PlannedStatement;
use crate::violation::{Reason, sql_violation};

/// Operators, each after its inputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// What is written: sink by name, and the node whose rows it gets. A sink can occur several times.
    pub(crate) outputs: Vec<(String, usize)>,
    /// For each source, the columns that are read (of those declared), in their order.
    pub(crate) used_columns: BTreeMap<usize, BTreeSet<usize>>,
}

impl Graph {
    /// How many rows one record can become, at the operator where it becomes the most.
    pub(crate) fn rows_of_a_record(&self) -> usize {
        let mut rows: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let of_inputs =
                node.inputs.iter().filter_map(|i| rows.get(*i)).fold(0, |sum: usize, n| sum.saturating_add(*n));
            rows.push(if let StreamOperator::Source { .. } = node.operator { 1 } else { of_inputs });
        }
        rows.into_iter().max().unwrap_or_default()
    }
}

/// An operator and where its rows come from.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) operator: StreamOperator,
    pub(crate) inputs: Vec<usize>,
}

/// What is done with rows.
#[derive(Clone, Debug)]
pub(crate) enum StreamOperator {
    /// Columns of a source, by their place among those declared.
    Source { source: usize, columns: Vec<usize> },
    /// Some columns of the input.
    Select { columns: Vec<usize> },
    /// The rows for which the predicate is true.
    Filter { input: DFSchemaRef, predicate: Expr },
    /// An expression per column.
    Project { input: DFSchemaRef, exprs: Vec<Expr> },
    /// The rows of all inputs.
    Union,
    /// No rows: the optimizer found a condition that is never true.
    Empty,
}

pub(crate) fn compile(statements: &[PlannedStatement]) -> Result<Graph, Vec<Violation>> {
    let mut compiler = Compiler::default();
    let mut violations = Vec::new();
    for statement in statements {
        match compiler.node(&statement.plan) {
            Ok(node) if statement.kind == StatementKind::View => {
                compiler.views.insert(statement.index, node);
            }
            Ok(node) => compiler.graph.outputs.push((statement.target.clone(), node)),
            Err(message) => violations.push(sql_violation(
                Reason::UnsupportedSql,
                None,
                format!(
                    "{} `{}`: {message}",
                    if statement.kind == StatementKind::View { "view" } else { "sink" },
                    statement.target
                ),
            )),
        }
    }
    if violations.is_empty() { Ok(compiler.graph) } else { Err(violations) }
}

#[derive(Default)]
struct Compiler {
    graph: Graph,
    /// Shared views by the index of their statement.
    views: BTreeMap<usize, usize>,
}

impl Compiler {
    fn add(&mut self, operator: StreamOperator, inputs: Vec<usize>) -> usize {
        self.graph.nodes.push(Node { operator, inputs });
        self.graph.nodes.len() - 1
    }

    fn node(&mut self, plan: &LogicalPlan) -> Result<usize, String> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            // Only names change, and names are resolved.
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.node(&projection.input)?;
                let schema = Arc::clone(projection.input.schema());
                Ok(self.add(StreamOperator::Project { input: schema, exprs: projection.expr.clone() }, vec![input]))
            }
            LogicalPlan::Filter(filter) => {
                let mut node = self.node(&filter.input)?;
                for predicate in stages(&filter.predicate) {
                    let schema = Arc::clone(filter.input.schema());
                    node = self.add(StreamOperator::Filter { input: schema, predicate }, vec![node]);
                }
                Ok(node)
            }
            LogicalPlan::Union(union) => {
                let inputs = union.inputs.iter().map(|i| self.node(i)).collect::<Result<Vec<_>, _>>()?;
                Ok(self.add(StreamOperator::Union, inputs))
            }
            LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row => {
                Ok(self.add(StreamOperator::Empty, Vec::new()))
            }
            other => Err(format!("`{}` cannot run on a stream", other.display())),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<usize, String> {
        let table = scan.source.downcast_ref::<Table>().ok_or("a table that is not of this pipeline")?;
        let columns = scan.projection.clone().unwrap_or_else(|| (0..table.schema.fields().len()).collect());
        match table.kind {
            TableKind::Source(source) => {
                self.graph.used_columns.entry(source).or_default().extend(&columns);
                Ok(self.add(StreamOperator::Source { source, columns }, Vec::new()))
            }
            TableKind::SharedView(statement) => {
                let view = *self.views.get(&statement).ok_or("a view that did not compile")?;
                Ok(self.add(StreamOperator::Select { columns }, vec![view]))
            }
            TableKind::InlineView(_) => Err("a view that was not put in".to_owned()),
        }
    }
}

/// A condition as filters to be applied one after the other.
///
/// In `x <> 0 AND 10 / x > 1` the right side fails exactly where the left side is false. Whole columns are evaluated at once, so
/// what can fail gets a filter of its own, behind the conditions before it.
fn stages(predicate: &Expr) -> Vec<Expr> {
    let mut stages: Vec<Vec<Expr>> = Vec::new();
    for part in split_conjunction(predicate) {
        match stages.last_mut() {
            Some(stage) if !can_fail(part) => stage.push(part.clone()),
            _ => stages.push(vec![part.clone()]),
        }
    }
    stages.into_iter().filter_map(conjunction).collect()
}

fn can_fail(expr: &Expr) -> bool {
    let fallible = |e: &Expr| {
        Ok(match e {
            Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_) | Expr::Not(_) | Expr::Like(_) | Expr::InList(_) => {
                false
            }
            Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::IsTrue(_) | Expr::IsNotTrue(_) | Expr::Between(_) => false,
            Expr::IsFalse(_) | Expr::IsNotFalse(_) | Expr::IsUnknown(_) | Expr::IsNotUnknown(_) | Expr::TryCast(_) => {
                false
            }
            Expr::BinaryExpr(binary) => matches!(
                binary.op,
                Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
            ),
            _ => true,
        })
    };
    // Errors of the walk itself: be careful.
    expr.exists(fallible).unwrap_or(true)
}
