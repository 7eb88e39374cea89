use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};

use super::functions::Functions;

/// What a table of the SQL text stands for.
#[derive(Clone, Debug)]
pub(crate) enum TableKind {
    /// The source of this index.
    Source(usize),
    /// A view with several readers: it is evaluated once, and this is its index among the statements.
    SharedView(usize),
    /// A view with one reader: it becomes a part of the reader's plan.
    InlineView(Box<LogicalPlan>),
}

/// A table that can be selected from.
pub(crate) struct Table {
    pub(crate) kind: TableKind,
    pub(crate) schema: SchemaRef,
}

impl TableSource for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        match &self.kind {
            TableKind::InlineView(plan) => Some(Cow::Borrowed(plan)),
            TableKind::Source(_) | TableKind::SharedView(_) => None,
        }
    }
}

/// Tables and functions, as the planner asks for them.
pub(crate) struct Catalog {
    tables: BTreeMap<String, Arc<Table>>,
    functions: Functions,
    options: ConfigOptions,
}

impl Catalog {
    pub(crate) fn new(functions: Functions) -> Self {
        let mut options = ConfigOptions::default();
        // Names were resolved before (see `names`), and keep their case.
        options.sql_parser.enable_ident_normalization = false;
        options.sql_parser.collect_spans = true;
        options.sql_parser.map_string_types_to_utf8view = false;
        Self { tables: BTreeMap::new(), functions, options }
    }

    pub(crate) fn insert(&mut self, name: &str, table: Table) {
        self.tables.insert(name.to_owned(), Arc::new(table));
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tables.contains_key(name)
    }

    pub(crate) fn table_names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }
}

impl ContextProvider for Catalog {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.tables.get(name.table()) {
            Some(table) if name.schema().is_none() => Ok(Arc::clone(table) as Arc<dyn TableSource>),
            _ => plan_err!("table '{name}' not found"),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.functions.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.functions.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.functions.higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.functions.higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
