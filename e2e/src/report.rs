//! What the harness tells the person in front of it: one line a step, on standard error, so that standard output stays
//! free for what a command was asked for.

use std::error::Error;
use std::io::Write;

/// Prints one progress line.
pub fn step(line: impl AsRef<str>) {
    // A closed standard error must not stop a cluster from coming up.
    writeln!(std::io::stderr().lock(), "==> {}", line.as_ref()).ok();
}

/// Prints one line below the current step.
pub fn detail(line: impl AsRef<str>) {
    writeln!(std::io::stderr().lock(), "    {}", line.as_ref()).ok();
}

/// Prints `text` to standard output.
pub fn answer(text: impl AsRef<str>) {
    writeln!(std::io::stdout().lock(), "{}", text.as_ref()).ok();
}

/// An error and everything that caused it, one line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
