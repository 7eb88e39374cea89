//! Limits on what expressions make. Every node of an expression whose values can be large is wrapped: what it made is measured, so
//! that the next one gets no more than it can multiply, and functions that make more than a few times of what they get are asked
//! beforehand (see `sql::guard`).

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, exec_err};
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, Column, LambdaExpr, LambdaVariable, Literal};
use datafusion_physical_expr::{HigherOrderFunctionExpr, PhysicalExpr, ScalarFunctionExpr};

use super::kept::Kept;
use crate::limits::{MAX_MADE_BYTES, MAX_VALUE_BYTES};
use crate::size::{array_bytes, is_variable, value_bytes};
use crate::sql::guard::{self, MAX_PATTERNS};

/// Bytes that expressions have made since it was reset. Shared by a pipeline and its expressions, and by nobody else.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<AtomicUsize>);

impl Meter {
    pub(super) fn reset(&self) {
        // One thread both sets and reads.
        self.0.store(0, Ordering::Relaxed);
    }

    /// Counts a column that was made. Refused batches are tried again in halves, so this is about one record in the end.
    pub(super) fn count(&self, bytes: usize) -> std::result::Result<(), String> {
        if bytes > MAX_VALUE_BYTES {
            return Err(format!("a value of {bytes} bytes, at most {MAX_VALUE_BYTES} are possible"));
        }
        self.count_copy(bytes)
    }

    /// Counts a copy of what was there: a record is as large as its topic takes it.
    pub(super) fn count_copy(&self, bytes: usize) -> std::result::Result<(), String> {
        let made = self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if made > MAX_MADE_BYTES {
            return Err(format!("all that is made of the record takes more than {MAX_MADE_BYTES} bytes"));
        }
        Ok(())
    }

    fn count_value(&self, value: &ColumnarValue, rows: usize) -> Result<()> {
        let bytes = match value {
            ColumnarValue::Array(array) => array_bytes(array),
            // It will be an array.
            ColumnarValue::Scalar(scalar) => array_bytes(&scalar.to_array()?).saturating_mul(rows.max(1)),
        };
        self.count(bytes).or_else(|message| exec_err!("{message}"))
    }
}

/// The node with its limits, and whether it has any.
pub(super) fn capped(
    node: Arc<dyn PhysicalExpr>,
    input: &Schema,
    meter: &Meter,
) -> Result<(Arc<dyn PhysicalExpr>, bool)> {
    let (node, is_bounded) = match node.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) if guard::is_measured(call.fun().name()) => (bounded(call, input)?, true),
        _ => (node, false),
    };
    let (node, check) = if let Some(call) = node.downcast_ref::<HigherOrderFunctionExpr>() {
        let lists: Vec<_> = call.args().iter().map(Kept::unless_lambda).collect();
        (Arc::clone(&node).with_new_children(lists)?, Check::Lambda)
    } else if let Some(binary) = node.downcast_ref::<BinaryExpr>()
        && is_pattern(*binary.op())
    {
        let pattern = Kept::wrap(Arc::clone(binary.right()));
        let children = vec![Arc::clone(binary.left()), pattern];
        (Arc::clone(&node).with_new_children(children)?, Check::Pattern)
    } else {
        let is_leaf = node.is::<Column>() || node.is::<Literal>() || node.is::<LambdaVariable>();
        if is_leaf || node.is::<LambdaExpr>() || is_field(&node) || !is_variable(&node.data_type(input)?) {
            return Ok((node, is_bounded));
        }
        (node, Check::Size)
    };
    Ok((Arc::new(Capped { node, check, meter: meter.clone() }), true))
}

/// The call with a function that measures beforehand. When it was planned, not all of them went through the list of functions.
fn bounded(call: &ScalarFunctionExpr, input: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    let function = guard::bounded(Arc::new(call.fun().clone()));
    let field = call.return_field(input)?;
    let options = Arc::new(call.config_options().clone());
    Ok(Arc::new(ScalarFunctionExpr::new(call.name(), function, call.args().to_vec(), field, options)))
}

/// A part of a struct is there already.
fn is_field(node: &Arc<dyn PhysicalExpr>) -> bool {
    node.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| call.fun().name() == "get_field")
}

fn is_pattern(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch
    )
}

/// What is looked at before a node is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Check {
    /// Nothing: what it makes is measured.
    Size,
    /// What a lambda uses of the row is copied for each element.
    Lambda,
    /// Each pattern is compiled.
    Pattern,
}

#[derive(Debug)]
struct Capped {
    node: Arc<dyn PhysicalExpr>,
    check: Check,
    meter: Meter,
}

/// Two are the same when they do the same, whatever they are measured with.
impl PartialEq for Capped {
    fn eq(&self, other: &Self) -> bool {
        self.node.as_ref() == other.node.as_ref() && self.check == other.check
    }
}

impl Eq for Capped {}

impl Hash for Capped {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.hash(state);
    }
}

impl fmt::Display for Capped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl PhysicalExpr for Capped {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.node.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.node.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.node.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let kept: Vec<&Kept> = self.node.children().into_iter().filter_map(|c| c.downcast_ref()).collect();
        match self.check {
            Check::Size => {}
            Check::Lambda => self.check_lambdas(batch, &kept)?,
            Check::Pattern => check_patterns(batch, &kept)?,
        }
        let value = self.node.evaluate(batch);
        kept.iter().for_each(|k| k.forget());
        let value = value?;
        if is_variable(&value.data_type()) {
            self.meter.count_value(&value, batch.num_rows())?;
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.node.children()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let node = Arc::clone(&self.node).with_new_children(children)?;
        Ok(Arc::new(Self { node, check: self.check, meter: self.meter.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt_sql(f)
    }
}

impl Capped {
    fn check_lambdas(&self, batch: &RecordBatch, lists: &[&Kept]) -> Result<()> {
        let mut elements = vec![0; batch.num_rows()];
        for list in lists {
            for (row, count) in lengths(&list.keep(batch)?, batch.num_rows())?.into_iter().enumerate() {
                if let Some(most) = elements.get_mut(row) {
                    *most = count.max(*most);
                }
            }
        }
        let (columns, constants) = self.used_by_lambdas(batch)?;
        let of_row =
            |row: usize| columns.iter().filter_map(|c| batch.columns().get(*c)).map(|c| value_bytes(c, row)).sum();
        let copied = elements.iter().enumerate().map(|(row, count)| {
            let bytes: usize = of_row(row);
            count.saturating_mul(bytes.saturating_add(constants))
        });
        let copied = copied.fold(0, usize::saturating_add);
        if copied > MAX_VALUE_BYTES {
            return exec_err!(
                "the lambda would copy {copied} bytes of its row for the elements, at most {MAX_VALUE_BYTES} are possible"
            );
        }
        Ok(())
    }

    /// Columns of the row, and bytes of constants.
    fn used_by_lambdas(&self, batch: &RecordBatch) -> Result<(BTreeSet<usize>, usize)> {
        let mut columns = BTreeSet::new();
        let mut constants = 0_usize;
        for lambda in self.node.children().into_iter().filter_map(|c| c.downcast_ref::<LambdaExpr>()) {
            lambda.body().apply(|e| {
                if let Some(column) = e.downcast_ref::<Column>() {
                    columns.insert(column.index());
                } else if let Some(variable) = e.downcast_ref::<LambdaVariable>() {
                    // One of the lambda around this one is a column here; its own are not there yet.
                    columns.insert(variable.index());
                } else if let Some(literal) = e.downcast_ref::<Literal>()
                    && is_variable(&literal.value().data_type())
                {
                    constants = constants.saturating_add(array_bytes(&literal.value().to_array()?));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        columns.retain(|c| *c < batch.num_columns());
        Ok((columns, constants))
    }
}

/// Elements of a list, for each row.
fn lengths(list: &ColumnarValue, rows: usize) -> Result<Vec<usize>> {
    let array = list.to_array_of_size(rows)?;
    let length = |row: usize| match array.data_type() {
        _ if array.is_null(row) => 0,
        DataType::List(_) => usize::try_from(array.as_list::<i32>().value_length(row)).unwrap_or_default(),
        DataType::LargeList(_) => usize::try_from(array.as_list::<i64>().value_length(row)).unwrap_or_default(),
        DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or_default(),
        _ => 0,
    };
    Ok((0..array.len()).map(length).collect())
}

fn check_patterns(batch: &RecordBatch, kept: &[&Kept]) -> Result<()> {
    for pattern in kept {
        let ColumnarValue::Array(array) = pattern.keep(batch)? else { continue };
        let patterns: HashSet<Option<&str>> = match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().collect(),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
            DataType::Utf8View => array.as_string_view().iter().collect(),
            _ => continue,
        };
        if patterns.len() > MAX_PATTERNS {
            return exec_err!("{} patterns at once, at most {MAX_PATTERNS} are possible", patterns.len());
        }
    }
    Ok(())
}
