use std::collections::HashMap;
use std::sync::Arc;

use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{HigherOrderUDF, ScalarUDF};

use super::guard;
use crate::clock::{self, Clock};

/// What a function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunctionClass {
    /// One row.
    Scalar,
    /// All rows of a group.
    Aggregate,
    /// Neighbouring rows, or windows of time.
    Window,
    /// One row, and makes several of it.
    Unnest,
}

const AGGREGATES: &[&str] = &[
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar",
    "covar_pop",
    "covar_samp",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "nth_value",
    "percentile_cont",
    "quantile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_samp",
    "var_sample",
    "variance",
];

const WINDOWS: &[&str] = &[
    "cume_dist",
    "dense_rank",
    "hop",
    "hop_end",
    "hop_start",
    "lag",
    "lead",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
    "session",
    "session_end",
    "session_start",
    "tumble",
    "tumble_end",
    "tumble_start",
];

pub(super) fn classify(name: &str) -> FunctionClass {
    let name = name.to_ascii_lowercase();
    if AGGREGATES.contains(&name.as_str()) {
        FunctionClass::Aggregate
    } else if WINDOWS.contains(&name.as_str()) {
        FunctionClass::Window
    } else if name == "unnest" {
        FunctionClass::Unnest
    } else {
        FunctionClass::Scalar
    }
}

/// Every function that SQL can call, by name and alias.
pub(crate) struct Functions {
    pub(super) scalar: HashMap<String, Arc<ScalarUDF>>,
    pub(super) higher_order: HashMap<String, Arc<HigherOrderUDF>>,
    pub(super) planners: Vec<Arc<dyn ExprPlanner>>,
}

impl Functions {
    pub(crate) fn new() -> Self {
        let mut scalar = HashMap::new();
        // Ours come last: the time is that of the batch.
        let all = datafusion_functions::all_default_functions()
            .into_iter()
            .chain(datafusion_functions_nested::all_default_nested_functions())
            .chain(clock::functions(&Clock::default()));
        for function in all.map(guard::bounded) {
            for alias in function.aliases() {
                scalar.insert(alias.clone(), Arc::clone(&function));
            }
            scalar.insert(function.name().to_owned(), function);
        }
        let mut higher_order = HashMap::new();
        for function in datafusion_functions_nested::all_default_higher_order_functions() {
            for alias in function.aliases() {
                higher_order.insert(alias.clone(), Arc::clone(&function));
            }
            higher_order.insert(function.name().to_owned(), function);
        }
        let planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
            Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
            Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
            Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
            Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
        ];
        Self { scalar, higher_order, planners }
    }
}
