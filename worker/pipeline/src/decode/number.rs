/// Exponents beyond this are out of the range of every decimal, and would only burn time.
const MAX_EXPONENT: i64 = 100;

/// Reads the text of a number as a decimal of the given shape, exactly or not at all.
pub(super) fn decimal(text: &str, precision: u8, scale: u8) -> Result<i128, String> {
    let invalid = || format!("{} is not a decimal number", super::json::quote(text));
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| invalid())?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
    if !all_digits || whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let too_large = || format!("{} has more digits than DECIMAL({precision}, {scale}) holds", super::json::quote(text));
    // Zeros at both ends do not count.
    let significant = format!("{whole}{fraction}");
    let trailing = significant.len() - significant.trim_end_matches('0').len();
    let significant = significant.trim_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if exponent.abs() > MAX_EXPONENT {
        return Err(too_large());
    }
    let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let trailing = i64::try_from(trailing).unwrap_or(i64::MAX);
    // value = significant * 10^power; in units of the column: significant * 10^(power + scale)
    let shift = exponent - fraction_digits + trailing + i64::from(scale);
    let Ok(shift) = usize::try_from(shift) else {
        return Err(format!("{} has more than {scale} digits after the point", super::json::quote(text)));
    };
    if significant.len().saturating_add(shift) > usize::from(precision) {
        return Err(too_large());
    }
    let mut value: i128 = 0;
    for digit in significant.bytes().map(|b| b - b'0').chain(std::iter::repeat_n(0, shift)) {
        value = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit))).ok_or_else(too_large)?;
    }
    Ok(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1.5", 150)]
    #[case("-0.01", -1)]
    #[case("100", 10_000)]
    #[case("1e2", 10_000)]
    #[case("1.50000", 150)]
    #[case("12E-1", 120)]
    #[case("0.0e99999", 0)]
    #[case("99999999.99", 9_999_999_999)]
    fn a_number_that_fits_is_exact(#[case] text: &str, #[case] units: i128) {
        assert_eq!(decimal(text, 10, 2), Ok(units));
    }

    #[rstest]
    #[case("1.005", "more than 2 digits after the point")]
    #[case("100000000", "more digits than DECIMAL(10, 2) holds")]
    #[case("1e99999", "more digits than DECIMAL(10, 2) holds")]
    #[case("1e-9", "more than 2 digits after the point")]
    #[case("1e9", "more digits than DECIMAL(10, 2) holds")]
    #[case("", "not a decimal number")]
    #[case(".", "not a decimal number")]
    #[case("-", "not a decimal number")]
    #[case("1.2.3", "not a decimal number")]
    #[case("0x10", "not a decimal number")]
    #[case("NaN", "not a decimal number")]
    fn a_number_that_does_not_fit_is_refused_and_never_rounded(#[case] text: &str, #[case] why: &str) {
        let error = decimal(text, 10, 2).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    proptest! {
        #[test]
        fn every_decimal_reads_back_from_its_text(units in -(10_i128.pow(38) - 1)..10_i128.pow(38)) {
            let sign = if units < 0 { "-" } else { "" };
            let digits = units.unsigned_abs();
            let text = format!("{sign}{}.{:05}", digits / 100_000, digits % 100_000);
            prop_assert_eq!(decimal(&text, 38, 5), Ok(units));
        }
    }
}
