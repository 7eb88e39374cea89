use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::Result;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::size::value_bytes;

/// The arguments of a call, row by row. A constant is there once.
pub(super) struct Args {
    args: Vec<Arg>,
    pub(super) rows: usize,
}

struct Arg {
    array: ArrayRef,
    is_constant: bool,
}

impl Args {
    pub(super) fn new(args: &ScalarFunctionArgs) -> Result<Self> {
        let all_constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let arg = |value: &ColumnarValue| {
            Ok(match value {
                ColumnarValue::Array(array) => Arg { array: Arc::clone(array), is_constant: false },
                ColumnarValue::Scalar(scalar) => Arg { array: scalar.to_array()?, is_constant: true },
            })
        };
        let rows = if all_constant { args.number_rows.min(1) } else { args.number_rows };
        Ok(Self { args: args.args.iter().map(arg).collect::<Result<_>>()?, rows })
    }

    pub(super) fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether an argument is the same for all rows.
    pub(super) fn is_constant(&self, arg: usize) -> bool {
        self.args.get(arg).is_none_or(|a| a.is_constant)
    }

    pub(super) fn data_type(&self, arg: usize) -> DataType {
        self.args.get(arg).map_or(DataType::Null, |a| a.array.data_type().clone())
    }

    fn at(&self, arg: usize, row: usize) -> Option<(&ArrayRef, usize)> {
        let arg = self.args.get(arg)?;
        let row = if arg.is_constant { 0 } else { row };
        (row < arg.array.len() && arg.array.is_valid(row)).then_some((&arg.array, row))
    }

    /// Bytes of an argument.
    pub(super) fn bytes(&self, arg: usize, row: usize) -> usize {
        match self.at(arg, row) {
            Some((array, _)) if array.data_type().is_string() => self.text(arg, row).len(),
            Some((array, row)) => value_bytes(array, row),
            None => 0,
        }
    }

    /// A text; empty for NULL.
    pub(super) fn text(&self, arg: usize, row: usize) -> &str {
        let Some((array, row)) = self.at(arg, row) else { return "" };
        match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().value(row),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row),
            DataType::Utf8View => array.as_string_view().value(row),
            _ => "",
        }
    }

    /// Elements of a list, with those of the lists inside it.
    pub(super) fn elements(&self, arg: usize, row: usize) -> usize {
        self.at(arg, row).map_or(0, |(array, row)| leaves(&array.slice(row, 1)))
    }

    /// An argument as numbers, one per row; NULL is 0, and what does not fit is large.
    pub(super) fn numbers(&self, arg: usize) -> Result<Vec<i64>> {
        let Some(Arg { array, is_constant }) = self.args.get(arg) else { return Ok(vec![0; self.rows]) };
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let checked = cast_with_options(array, &DataType::Int64, &options)?;
        let numbers = checked.as_primitive::<Int64Type>();
        let number = |row: usize| {
            let row = if *is_constant { 0 } else { row };
            if row >= array.len() || array.is_null(row) {
                0
            } else if numbers.is_null(row) {
                i64::MAX
            } else {
                numbers.value(row)
            }
        };
        Ok((0..self.rows).map(number).collect())
    }
}

fn leaves(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().iter().flatten().map(|list| list.len().max(leaves(&list))).sum(),
        DataType::LargeList(_) => {
            array.as_list::<i64>().iter().flatten().map(|list| list.len().max(leaves(&list))).sum()
        }
        DataType::FixedSizeList(..) => {
            array.as_fixed_size_list().iter().flatten().map(|list| list.len().max(leaves(&list))).sum()
        }
        _ => array.len(),
    }
}
