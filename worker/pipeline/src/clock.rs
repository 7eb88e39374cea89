//! `now()` and its relatives. Time is an input: one instant per batch, given by the caller.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

const MS_PER_DAY: i64 = 86_400_000;

/// The time of the batch in Unix milliseconds. Shared by a pipeline and its expressions, and by nobody else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn set(&self, now_ms: i64) {
        // One thread both sets and reads.
        self.0.store(now_ms, Ordering::Relaxed);
    }

    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Timestamp,
    Date,
    Time,
}

/// A function of the clock. Volatile for the optimizer, which would otherwise put the time of planning in its place.
#[derive(Debug)]
struct ClockFunction {
    kind: Kind,
    clock: Clock,
    aliases: Vec<String>,
    signature: Signature,
}

impl ClockFunction {
    fn new(kind: Kind, clock: Clock) -> Self {
        let aliases: &[&str] = match kind {
            Kind::Timestamp => &["current_timestamp"],
            Kind::Date => &["today"],
            Kind::Time => &[],
        };
        let aliases = aliases.iter().map(ToString::to_string).collect();
        Self { kind, clock, aliases, signature: Signature::nullary(Volatility::Volatile) }
    }
}

/// Two of a kind are the same function, whatever clock they read: expressions are compared while they are planned.
impl PartialEq for ClockFunction {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for ClockFunction {}

impl Hash for ClockFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl ScalarUDFImpl for ClockFunction {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Timestamp => "now",
            Kind::Date => "current_date",
            Kind::Time => "current_time",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, None),
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time32(TimeUnit::Millisecond),
        })
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let now = self.clock.now_ms();
        Ok(ColumnarValue::Scalar(match self.kind {
            Kind::Timestamp => ScalarValue::TimestampMillisecond(Some(now), None),
            Kind::Date => ScalarValue::Date32(i32::try_from(now.div_euclid(MS_PER_DAY)).ok()),
            Kind::Time => ScalarValue::Time32Millisecond(i32::try_from(now.rem_euclid(MS_PER_DAY)).ok()),
        }))
    }
}

/// The functions of the clock, to be planned with.
pub(crate) fn functions(clock: &Clock) -> Vec<Arc<ScalarUDF>> {
    [Kind::Timestamp, Kind::Date, Kind::Time]
        .into_iter()
        .map(|kind| Arc::new(ScalarUDF::from(ClockFunction::new(kind, clock.clone()))))
        .collect()
}

/// The expression with its functions of the clock reading `clock`.
pub(crate) fn bind(expr: Expr, clock: &Clock) -> Result<Expr> {
    let bound = expr.transform(|e| match e {
        Expr::ScalarFunction(mut call) => {
            let kind = call.func.inner().downcast_ref::<ClockFunction>().map(|f| f.kind);
            let Some(kind) = kind else {
                return Ok(Transformed::no(Expr::ScalarFunction(call)));
            };
            call.func = Arc::new(ScalarUDF::from(ClockFunction::new(kind, clock.clone())));
            Ok(Transformed::yes(Expr::ScalarFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(bound.data)
}
