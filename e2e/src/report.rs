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

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped_by_three() {
        let shown: Vec<_> = [0, 999, 1000, 123_456, 1_234_567].map(grouped).into();
        assert_eq!(shown, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }
}
