//! Runs the graph of operators over batches of rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{filter, filter_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::Expr;
use datafusion_expr::Operator::Minus;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};

use crate::clock::{self, Clock};
use crate::compile::{Graph, StreamOperator};
use crate::size::{array_bytes, is_variable};
use crate::sql;

mod cap;
mod kept;

use cap::Meter;

/// Bytes of an expression that an error shows.
const MAX_TEXT: usize = 120;

/// Rows on their way through the graph.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) batch: RecordBatch,
    /// For each row: the place of the record it comes from. Only where the order of rows could get lost.
    pub(crate) origin: Option<UInt32Array>,
}

/// An expression that failed on a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}, in `{expression}`")]
pub(crate) struct EvaluateError {
    expression: String,
    message: String,
}

/// A physical expression, and the text of the user's that it came from.
#[derive(Debug)]
struct Expression {
    physical: Arc<dyn PhysicalExpr>,
    text: String,
    /// Bytes of its constants. They become columns.
    constants: usize,
}

#[derive(Debug)]
enum Operator {
    Source { source: usize, columns: Vec<usize> },
    Select { columns: Vec<usize> },
    Filter(Expression),
    Project { exprs: Vec<Expression>, schema: SchemaRef },
    Union,
    Empty,
}

#[derive(Debug)]
struct Node {
    operator: Operator,
    inputs: Vec<usize>,
}

/// The graph, ready to run.
#[derive(Debug)]
pub(crate) struct Evaluator {
    nodes: Vec<Node>,
    /// For each node, whether rows of a source reach it: `reached[source][node]`.
    reached: Vec<Vec<bool>>,
    /// Sink and node.
    outputs: Vec<(usize, usize)>,
    track_origin: bool,
    meter: Meter,
}

impl Evaluator {
    /// `decoded[source]` are the declared columns that the source's batches have, in order. `sink` finds a sink by name.
    pub(crate) fn new(
        graph: &Graph,
        decoded: &[Vec<usize>],
        sink: impl Fn(&str) -> Option<usize>,
        clock: &Clock,
    ) -> Result<Self, DataFusionError> {
        let meter = Meter::default();
        let builder = Builder { clock, meter: &meter };
        let nodes = graph
            .nodes
            .iter()
            .map(|n| Ok(Node { operator: builder.operator(&n.operator, decoded)?, inputs: n.inputs.clone() }))
            .collect::<Result<Vec<_>, DataFusionError>>()?;
        let outputs: Vec<_> = graph.outputs.iter().filter_map(|(name, node)| Some((sink(name)?, *node))).collect();
        let paths: Vec<Vec<usize>> = (0..decoded.len()).map(|source| paths(&nodes, source)).collect();
        let track_origin = paths.iter().any(|paths| meets_itself(paths, &outputs));
        let reached = paths.iter().map(|p| p.iter().map(|n| *n > 0).collect()).collect();
        Ok(Self { nodes, reached, outputs, track_origin, meter })
    }

    /// Evaluates a batch of a source whose first row has the place `first`. Either all rows of all sinks, or an error.
    pub(crate) fn evaluate(
        &self,
        source: usize,
        batch: &RecordBatch,
        first: u32,
    ) -> Result<Vec<(usize, Rows)>, EvaluateError> {
        self.meter.reset();
        let origin = self.track_origin.then(|| {
            let len = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            UInt32Array::from_iter_values(first..first.saturating_add(len))
        });
        let input = Rows { batch: batch.clone(), origin };
        let reached = self.reached.get(source).map(Vec::as_slice).unwrap_or_default();
        let mut results: Vec<Vec<Rows>> = Vec::with_capacity(self.nodes.len());
        for (node, reached) in self.nodes.iter().zip(reached) {
            let rows = if *reached { node.run(&input, &results, &self.meter)? } else { Vec::new() };
            results.push(rows);
        }
        let mut outputs = Vec::new();
        for (sink, node) in &self.outputs {
            for rows in results.get(*node).into_iter().flatten().filter(|r| r.batch.num_rows() > 0) {
                outputs.push((*sink, rows.clone()));
            }
        }
        Ok(outputs)
    }
}

/// How many ways lead from the source to each node.
fn paths(nodes: &[Node], source: usize) -> Vec<usize> {
    let mut paths: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let count = match &node.operator {
            Operator::Source { source: s, .. } => usize::from(*s == source),
            _ => node.inputs.iter().filter_map(|i| paths.get(*i)).fold(0, |sum: usize, n| sum.saturating_add(*n)),
        };
        paths.push(count);
    }
    paths
}

/// Whether rows of one source come to one sink on several ways, so that their order has to be restored.
fn meets_itself(paths: &[usize], outputs: &[(usize, usize)]) -> bool {
    outputs.iter().any(|(sink, _)| {
        let ways = outputs.iter().filter(|(s, _)| s == sink).filter_map(|(_, node)| paths.get(*node));
        ways.fold(0, |sum: usize, n| sum.saturating_add(*n)) > 1
    })
}

/// Builds operators out of plans.
struct Builder<'a> {
    clock: &'a Clock,
    meter: &'a Meter,
}

impl Builder<'_> {
    fn operator(&self, operator: &StreamOperator, decoded: &[Vec<usize>]) -> Result<Operator, DataFusionError> {
        Ok(match operator {
            StreamOperator::Source { source, columns } => {
                let decoded = decoded.get(*source).map(Vec::as_slice).unwrap_or_default();
                let place = |column: &usize| decoded.iter().position(|d| d == column);
                let places: Option<Vec<usize>> = columns.iter().map(place).collect();
                let columns = places.ok_or_else(|| DataFusionError::Internal("a column that is not decoded".into()))?;
                Operator::Source { source: *source, columns }
            }
            StreamOperator::Select { columns } => Operator::Select { columns: columns.clone() },
            StreamOperator::Filter { input, predicate } => Operator::Filter(self.expression(predicate, input)?),
            StreamOperator::Project { input, exprs } => {
                let fields = exprs.iter().map(|e| {
                    let (_, field) = datafusion_expr::ExprSchemable::to_field(e, input.as_ref())?;
                    // NULL is always allowed: functions do not always say when they give one.
                    Ok(Field::new(field.name(), field.data_type().clone(), true))
                });
                let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>, DataFusionError>>()?));
                let exprs = exprs.iter().map(|e| self.expression(e, input)).collect::<Result<Vec<_>, _>>()?;
                Operator::Project { exprs, schema }
            }
            StreamOperator::Union => Operator::Union,
            StreamOperator::Empty => Operator::Empty,
        })
    }

    fn expression(&self, expr: &Expr, input: &DFSchema) -> Result<Expression, DataFusionError> {
        let text = match expr {
            Expr::Alias(alias) => sql::text(&alias.expr),
            other => sql::text(other),
        };
        let text = fencepost_crds::conditions::clamp(&text, MAX_TEXT);
        let bound = clock::bind(expr.clone(), self.clock)?;
        let physical =
            create_physical_expr(&bound, input, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
        // Integer arithmetic would wrap around. A wrong number is worse than none.
        let mut constants = 0_usize;
        let checked = physical.transform(|e| {
            if let Some(literal) = e.downcast_ref::<Literal>()
                && is_variable(&literal.value().data_type())
            {
                constants = constants.saturating_add(array_bytes(&literal.value().to_array()?));
            }
            let (e, is_capped) = cap::capped(e, input.as_arrow(), self.meter)?;
            if is_capped {
                return Ok(Transformed::yes(e));
            }
            let checked: Arc<dyn PhysicalExpr> = if let Some(binary) = e.downcast_ref::<BinaryExpr>() {
                Arc::new(binary.clone().with_fail_on_overflow(true))
            } else if let Some(negated) = e.downcast_ref::<NegativeExpr>()
                && let data_type = negated.data_type(input.as_arrow())?
                && data_type.is_signed_integer()
            {
                let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
                Arc::new(BinaryExpr::new(zero, Minus, Arc::clone(negated.arg())).with_fail_on_overflow(true))
            } else {
                return Ok(Transformed::no(e));
            };
            Ok(Transformed::yes(checked))
        })?;
        Ok(Expression { physical: checked.data, text, constants })
    }
}

impl Expression {
    fn evaluate(&self, batch: &RecordBatch, meter: &Meter) -> Result<ArrayRef, EvaluateError> {
        let constants = self.constants.saturating_mul(batch.num_rows());
        meter.count(constants).map_err(|message| self.error(message))?;
        self.physical
            .evaluate(batch)
            .and_then(|value| value.into_array(batch.num_rows()))
            .map_err(|error| self.error(sql::describe(&error)))
    }

    fn error(&self, message: String) -> EvaluateError {
        EvaluateError { expression: self.text.clone(), message }
    }
}

impl Node {
    fn run(&self, input: &Rows, results: &[Vec<Rows>], meter: &Meter) -> Result<Vec<Rows>, EvaluateError> {
        let inputs = self.inputs.iter().filter_map(|i| results.get(*i)).flatten();
        match &self.operator {
            Operator::Source { columns, .. } => Ok(vec![select(input, columns)?]),
            Operator::Select { columns } => inputs.map(|rows| select(rows, columns)).collect(),
            Operator::Filter(predicate) => inputs.map(|rows| apply_filter(rows, predicate, meter)).collect(),
            Operator::Project { exprs, schema } => inputs.map(|rows| project(rows, exprs, schema, meter)).collect(),
            Operator::Union => Ok(inputs.cloned().collect()),
            Operator::Empty => Ok(Vec::new()),
        }
    }
}

fn select(rows: &Rows, columns: &[usize]) -> Result<Rows, EvaluateError> {
    let batch = rows.batch.project(columns).map_err(|e| internal("columns", &e))?;
    Ok(Rows { batch, origin: rows.origin.clone() })
}

fn apply_filter(rows: &Rows, predicate: &Expression, meter: &Meter) -> Result<Rows, EvaluateError> {
    // Some functions fail on no rows at all, and there is nothing to do.
    if rows.batch.num_rows() == 0 {
        return Ok(rows.clone());
    }
    let mask = predicate.evaluate(&rows.batch, meter)?;
    let mask = mask.as_boolean_opt().ok_or_else(|| predicate.error("the condition is not a BOOLEAN".to_owned()))?;
    let batch = filter_record_batch(&rows.batch, mask).map_err(|e| predicate.error(e.to_string()))?;
    let variable = batch.columns().iter().filter(|c| is_variable(c.data_type()));
    // The columns are copies, and stay until all operators are through. Each is counted alone, as it may be as large as a record.
    variable.map(|c| array_bytes(c)).try_for_each(|bytes| meter.count_copy(bytes)).map_err(|m| predicate.error(m))?;
    let origin = match &rows.origin {
        Some(origin) => {
            let kept = filter(origin, mask).map_err(|e| predicate.error(e.to_string()))?;
            kept.as_primitive_opt().cloned()
        }
        None => None,
    };
    Ok(Rows { batch, origin })
}

fn project(rows: &Rows, exprs: &[Expression], schema: &SchemaRef, meter: &Meter) -> Result<Rows, EvaluateError> {
    if rows.batch.num_rows() == 0 {
        let batch = RecordBatch::new_empty(Arc::clone(schema));
        return Ok(Rows { batch, origin: rows.origin.clone() });
    }
    let columns = exprs.iter().map(|e| e.evaluate(&rows.batch, meter)).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns.clone(), &options)
        .or_else(|_| RecordBatch::try_new_with_options(schema_of(schema, &columns), columns, &options))
        .map_err(|e| internal("columns", &e))?;
    Ok(Rows { batch, origin: rows.origin.clone() })
}

/// The schema that the columns really have: planning and evaluation can differ in what may be NULL inside nested types.
fn schema_of(planned: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let fields = planned.fields().iter().zip(columns).map(|(f, c)| Field::new(f.name(), c.data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn internal(expression: &str, error: &ArrowError) -> EvaluateError {
    EvaluateError { expression: expression.to_owned(), message: error.to_string() }
}
