//! A bound on functions that make as much as a number says. With a number from a record, `lpad(name, n)` asks for more memory
//! than there is, and that ends the process: it is no error, and no panic that could be caught.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::kernels::length::length;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion_common::{Result, exec_err};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// Characters or elements that one call makes at most, over all its rows. A batch that is refused is tried again in halves, so this
/// is a bound for one row in the end. Far above what fits in a Kafka record.
const MAX_MADE: i64 = 64 << 20;

/// How a function says how much it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Size {
    /// The argument of this index.
    Argument(usize),
    /// The argument of this index, times the length of the first.
    Repeat(usize),
    /// From one number to another.
    Range,
}

fn size(function: &str) -> Option<Size> {
    Some(match function {
        "lpad" | "rpad" | "array_repeat" | "array_resize" => Size::Argument(1),
        "repeat" => Size::Repeat(1),
        "range" | "generate_series" => Size::Range,
        _ => return None,
    })
}

/// The function, with a bound when it needs one.
pub(super) fn bounded(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match size(function.name()) {
        Some(size) => Arc::new(ScalarUDF::from(Bounded { function, size })),
        None => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
    size: Size,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.function.inner().is_strict()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.function.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let made = self.made(&args)?;
        if made > MAX_MADE {
            return exec_err!(
                "{} would make {made} characters or elements, at most {MAX_MADE} are possible",
                self.name()
            );
        }
        self.function.invoke_with_args(args)
    }
}

impl Bounded {
    fn made(&self, args: &ScalarFunctionArgs) -> Result<i64> {
        match self.size {
            Size::Argument(index) => Ok(total(numbers(args, index)?.into_iter())),
            Size::Repeat(index) => {
                let lengths = lengths(args)?;
                Ok(total(numbers(args, index)?.into_iter().zip(lengths).map(|(n, len)| n.max(0).saturating_mul(len))))
            }
            Size::Range => self.range(args),
        }
    }

    fn range(&self, args: &ScalarFunctionArgs) -> Result<i64> {
        if args.arg_fields.iter().any(|f| !f.data_type().is_integer() && !f.data_type().is_null()) {
            return exec_err!("{} works on whole numbers only", self.name());
        }
        let (starts, stops) = match args.args.len() {
            1 => (vec![0; args.number_rows], numbers(args, 0)?),
            _ => (numbers(args, 0)?, numbers(args, 1)?),
        };
        let steps = if args.args.len() > 2 { numbers(args, 2)? } else { vec![1; args.number_rows] };
        let rows = starts.into_iter().zip(stops).zip(steps);
        // One more, as the last number can be a part of it.
        Ok(total(rows.map(|((start, stop), step)| {
            let width = i64::try_from(stop.abs_diff(start)).unwrap_or(i64::MAX);
            (width / step.saturating_abs().max(1)).saturating_add(1)
        })))
    }
}

fn total(made: impl Iterator<Item = i64>) -> i64 {
    made.fold(0, |sum: i64, n| sum.saturating_add(n.max(0)))
}

/// An argument as numbers, one per row; NULL is 0.
fn numbers(args: &ScalarFunctionArgs, index: usize) -> Result<Vec<i64>> {
    let Some(array) = array(args, index)? else { return Ok(vec![0; args.number_rows]) };
    // What does not fit is large.
    let checked = cast_with_options(&array, &DataType::Int64, &CastOptions { safe: true, ..CastOptions::default() })?;
    let numbers = checked.as_primitive::<Int64Type>();
    let number = |row: usize| {
        if array.is_null(row) {
            0
        } else if numbers.is_null(row) {
            i64::MAX
        } else {
            numbers.value(row)
        }
    };
    Ok((0..numbers.len()).map(number).collect())
}

/// Bytes of the first argument, one per row.
fn lengths(args: &ScalarFunctionArgs) -> Result<Vec<i64>> {
    let Some(array) = array(args, 0)? else { return Ok(vec![0; args.number_rows]) };
    let text = if matches!(array.data_type(), DataType::Utf8View) { cast(&array, &DataType::Utf8)? } else { array };
    let lengths = cast(&length(&text)?, &DataType::Int64)?;
    // Characters, of four bytes at most.
    Ok(lengths.as_primitive::<Int64Type>().iter().map(|n| n.unwrap_or_default().saturating_mul(4)).collect())
}

fn array(args: &ScalarFunctionArgs, index: usize) -> Result<Option<ArrayRef>> {
    args.args.get(index).map(|value| value.to_array(args.number_rows)).transpose()
}
