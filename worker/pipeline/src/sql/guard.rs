//! A bound on functions that make more than they get. With a number or a text from a record, `lpad(name, n)` and
//! `replace(text, 'x', other)` ask for more memory than there is, and that ends the process: it is no error, and no panic that could
//! be caught.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, exec_err};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

use crate::limits::MAX_VALUE_BYTES;

mod args;
mod growth;

use args::Args;
use growth::Growth;

/// Bytes of a constant that a function makes while a pipeline is planned. Larger ones are made when they are needed.
const MAX_CONSTANT_BYTES: usize = 64 << 10;

/// Patterns that are compiled at once. One can take 10 MB.
pub(crate) const MAX_PATTERNS: usize = 8;

/// What is in one argument times what is in the other: a second or so.
const MAX_PRODUCT: usize = 1 << 28;

/// Text of a number, a date or a time, at most.
const SCALAR_TEXT: usize = 48;

thread_local! {
    static PLANNING: Cell<bool> = const { Cell::new(false) };
}

/// From here on, this thread plans.
pub(crate) fn start_planning() {
    PLANNING.set(true);
}

/// Whether what the function makes is measured before it is called.
pub(crate) fn is_measured(function: &str) -> bool {
    growth::growth(function).is_some()
}

/// The function, with a bound when it needs one.
pub(crate) fn bounded(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match growth::growth(function.name()) {
        Some(growth) if function.inner().downcast_ref::<Bounded>().is_none() => {
            Arc::new(ScalarUDF::from(Bounded { function, growth }))
        }
        _ => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
    growth: Growth,
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
        let max = if PLANNING.get() { MAX_CONSTANT_BYTES } else { MAX_VALUE_BYTES };
        self.check(&Args::new(&args)?, max)?;
        self.function.invoke_with_args(args)
    }
}

impl Bounded {
    /// A batch that is refused is tried again in halves, so this is about one row in the end.
    fn check(&self, args: &Args, max: usize) -> Result<()> {
        let name = self.name();
        match self.growth {
            Growth::Product => return product(name, args, |arg, row| args.text(arg, row).len()),
            Growth::ListProduct => return product(name, args, |arg, row| args.elements(arg, row)),
            Growth::Regex | Growth::RegexMatch | Growth::RegexReplace => patterns(args)?,
            _ => {}
        }
        let made = self.made(args, max)?;
        if made > max {
            return exec_err!("{name} would make {made} bytes, at most {max} are possible");
        }
        Ok(())
    }

    /// Bytes that the call makes at most, over all its rows.
    fn made(&self, args: &Args, max: usize) -> Result<usize> {
        let rows = 0..args.rows;
        let bytes = |arg: usize| move |row: usize| args.bytes(arg, row);
        Ok(match self.growth {
            Growth::Regex | Growth::Product | Growth::ListProduct => 0,
            Growth::Sum => total(rows, |row| total(0..args.len(), |arg| args.bytes(arg, row))),
            Growth::Join => total(rows, |row| {
                let separators = bytes(0)(row).saturating_mul(args.len().saturating_sub(2));
                total(1..args.len(), |arg| args.bytes(arg, row)).saturating_add(separators)
            }),
            Growth::Repeat => times(&args.numbers(1)?, bytes(0)),
            Growth::Pad => times(&args.numbers(1)?, |row| {
                // Characters of up to four bytes.
                if args.text(0, row).is_ascii() && args.text(2, row).is_ascii() { 1 } else { 4 }
            }),
            Growth::Resize => {
                times(&args.numbers(1)?, |row| bytes(2)(row).max(8)).saturating_add(total(0..args.rows, bytes(0)))
            }
            Growth::Range => range(self.name(), args)?,
            Growth::Replace => total(rows, |row| replaced(args, row, max)),
            Growth::RegexReplace => total(rows, |row| regex_replaced(args, row, max)),
            Growth::RegexMatch => total(rows, |row| {
                let groups = args.text(1, row).bytes().filter(|b| *b == b'(').count() + 1;
                bytes(0)(row).saturating_mul(groups)
            }),
            Growth::ListToText => total(rows, |row| {
                let between = args.text(1, row).len() + args.text(2, row).len() + SCALAR_TEXT;
                bytes(0)(row).saturating_mul(2).saturating_add(args.elements(0, row).saturating_mul(between))
            }),
            Growth::ListReplace => total(rows, |row| {
                let new = args.elements(0, row).saturating_mul(bytes(2)(row));
                bytes(0)(row).saturating_add(new)
            }),
            Growth::Zip => total(rows, |row| {
                let longest = (0..args.len()).map(|arg| args.elements(arg, row)).max().unwrap_or_default();
                let rest = longest.saturating_mul(args.len()).saturating_mul(16);
                total(0..args.len(), |arg| args.bytes(arg, row)).saturating_add(rest)
            }),
        })
    }
}

fn total(range: std::ops::Range<usize>, bytes: impl Fn(usize) -> usize) -> usize {
    range.map(bytes).fold(0, usize::saturating_add)
}

/// As often as the numbers say, for each row.
fn times(numbers: &[i64], bytes: impl Fn(usize) -> usize) -> usize {
    let count = |row: usize| numbers.get(row).and_then(|n| usize::try_from(*n).ok()).unwrap_or_default();
    total(0..numbers.len(), |row| count(row).saturating_mul(bytes(row)))
}

fn range(name: &str, args: &Args) -> Result<usize> {
    let types: Vec<DataType> = (0..args.len()).map(|arg| args.data_type(arg)).collect();
    if types.iter().any(|t| !t.is_integer() && !t.is_null()) {
        return exec_err!("{name} works on whole numbers only");
    }
    let (starts, stops) = match args.len() {
        1 => (vec![0; args.rows], args.numbers(0)?),
        _ => (args.numbers(0)?, args.numbers(1)?),
    };
    let steps = if args.len() > 2 { args.numbers(2)? } else { vec![1; args.rows] };
    let rows = starts.into_iter().zip(stops).zip(steps);
    // One more, as the last number can be a part of it.
    let made = rows.map(|((start, stop), step)| {
        let numbers = (stop.abs_diff(start) / step.unsigned_abs().max(1)).saturating_add(1);
        usize::try_from(numbers).unwrap_or(usize::MAX).saturating_mul(size_of::<i64>())
    });
    Ok(made.fold(0, usize::saturating_add))
}

/// Only where the most that is possible is too much, it is worth looking for what is to be replaced.
fn replaced(args: &Args, row: usize, max: usize) -> usize {
    let (text, from, to) = (args.text(0, row), args.text(1, row), args.text(2, row));
    if from.is_empty() {
        return text.len();
    }
    let made = |matches: usize| text.len().saturating_add(matches.saturating_mul(to.len()));
    let most = made(text.len() / from.len());
    if most <= max { most } else { made(text.matches(from).count()) }
}

fn regex_replaced(args: &Args, row: usize, max: usize) -> usize {
    let (text, pattern, new, flags) = (args.text(0, row), args.text(1, row), args.text(2, row), args.text(3, row));
    // `\1` and `${1}` stand for a part of the match.
    let groups = new.bytes().filter(|b| matches!(b, b'\\' | b'$')).count();
    let made = |matches: usize, matched: usize| {
        let new = matches.saturating_mul(new.len());
        text.len().saturating_add(new).saturating_add(matched.saturating_mul(groups))
    };
    let is_global = flags.contains('g');
    let most = made(if is_global { text.len() + 1 } else { 1 }, text.len());
    if most <= max {
        return most;
    }
    let flags: String = flags.chars().filter(|c| *c != 'g').collect();
    let pattern = if flags.is_empty() { pattern.to_owned() } else { format!("(?{flags}){pattern}") };
    // The function itself says what is wrong with a pattern.
    let Ok(regex) = regex::Regex::new(&pattern) else { return 0 };
    let found = regex.find_iter(text).take(if is_global { usize::MAX } else { 1 });
    let (matches, matched) = found.fold((0, 0), |(n, bytes), m| (n + 1, bytes + m.len()));
    made(matches, matched)
}

fn patterns(args: &Args) -> Result<()> {
    if args.is_constant(1) {
        return Ok(());
    }
    let patterns: HashSet<&str> = (0..args.rows).map(|row| args.text(1, row)).collect();
    if patterns.len() > MAX_PATTERNS {
        return exec_err!("{} patterns at once, at most {MAX_PATTERNS} are possible", patterns.len());
    }
    Ok(())
}

fn product(name: &str, args: &Args, len: impl Fn(usize, usize) -> usize) -> Result<()> {
    let work = total(0..args.rows, |row| len(0, row).saturating_mul(len(1, row)));
    if work > MAX_PRODUCT {
        return exec_err!("{name} would take {work} steps, at most {MAX_PRODUCT} are possible");
    }
    Ok(())
}
