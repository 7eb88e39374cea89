use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::LambdaExpr;

/// An argument that is looked at before its function is called. It is evaluated once: twice would be exponential where such calls
/// are arguments of each other, and could have two outcomes.
#[derive(Debug)]
pub(super) struct Kept {
    node: Arc<dyn PhysicalExpr>,
    value: Mutex<Option<ColumnarValue>>,
}

impl Kept {
    pub(super) fn wrap(node: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { node, value: Mutex::new(None) })
    }

    /// A lambda is no value.
    pub(super) fn unless_lambda(node: &Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        if node.is::<LambdaExpr>() { Arc::clone(node) } else { Self::wrap(Arc::clone(node)) }
    }

    /// Evaluates, and keeps the value for the function.
    pub(super) fn keep(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let value = self.node.evaluate(batch)?;
        self.put(Some(value.clone()));
        Ok(value)
    }

    /// Drops what the function did not ask for.
    pub(super) fn forget(&self) {
        self.put(None);
    }

    fn put(&self, value: Option<ColumnarValue>) -> Option<ColumnarValue> {
        // Nothing panics while it is locked.
        std::mem::replace(&mut *self.value.lock().unwrap_or_else(PoisonError::into_inner), value)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.node.as_ref() == other.node.as_ref()
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.hash(state);
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl PhysicalExpr for Kept {
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
        self.put(None).map_or_else(|| self.node.evaluate(batch), Ok)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.node]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let node = children.pop().unwrap_or_else(|| Arc::clone(&self.node));
        Ok(Self::wrap(node))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt_sql(f)
    }
}
