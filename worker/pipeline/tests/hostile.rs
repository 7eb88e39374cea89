//! Bytes that nobody means well with: what becomes of each, and that none takes long.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{Header, Pipeline, RawRecord, SourceId, plan};
use rstest::rstest;
use serde_json::json;

/// A column of each type under its own name, of which the last is never used.
fn pipeline() -> Pipeline {
    let column = |name: &str, data_type: &str| json!({"name": name, "type": data_type});
    let spec: PipelineSpec = serde_json::from_value(json!({
        "sources": [{"name": "s", "kafka": {"topic": "s", "format": {"json": {}}}, "onBadRecord": "Skip", "columns": [
            column("t", "STRING"), column("i", "INT"), column("l", "BIGINT"), column("f", "FLOAT"), column("d", "DOUBLE"),
            column("m", "DECIMAL(10, 2)"), column("by", "BYTES"), column("da", "DATE"), column("ms", "TIMESTAMP_MS"),
            column("us", "TIMESTAMP_US"), column("ar", "ARRAY<ARRAY<INT>>"), column("st", "STRUCT<x STRUCT<y INT>>"),
            column("unused", "INT")]}],
        "sql": "INSERT INTO k SELECT t, i, l, f, d, m, by, da, ms, us, ar, st FROM s",
        "sinks": [{"name": "k", "kafka": {"topic": "k", "format": {"json": {}}}}],
    }))
    .unwrap();
    let mut pipeline = plan(&spec).unwrap().instantiate().unwrap();
    let limits = fencepost_pipeline::OutputLimits { max_record_bytes: usize::MAX, ..Default::default() };
    pipeline.set_output_limits("k", limits);
    pipeline
}

/// The value of a field in the output, or why there is none. Small stack: a slot has no more.
fn outcome(value: Vec<u8>, field: &str) -> Result<String, String> {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = move || {
        let mut pipeline = pipeline();
        let header = Header { name: "h", value: Some(b"x") };
        let record = RawRecord {
            partition: 0,
            offset: 0,
            timestamp_ms: 0,
            key: None,
            value: Some(&value),
            headers: vec![header],
        };
        let processed = pipeline.process(SourceId(0), &[record], 0).unwrap();
        match processed.bad.first() {
            Some(bad) => Err(bad.reason.clone()),
            None => Ok(String::from_utf8(processed.outputs[0].value(0).unwrap().to_vec()).unwrap()),
        }
    };
    let row = thread.spawn(run).unwrap().join().expect("nothing panics")?;
    let fields: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_str(&row).unwrap();
    Ok(fields[field].get().to_owned())
}

/// `=` before what comes out; otherwise what the reason contains.
fn check(value: impl Into<Vec<u8>>, field: &str, expected: &str) {
    let value = value.into();
    let shown: String = String::from_utf8_lossy(&value).chars().take(80).collect();
    match (outcome(value, field), expected.strip_prefix('=')) {
        (Ok(found), Some(expected)) => assert_eq!(found, expected, "{shown}"),
        (Err(reason), None) => assert!(reason.contains(expected), "{shown}: {reason}"),
        (found, _) => panic!("{shown}: {found:?} instead of {expected}"),
    }
}

#[rstest]
#[case::empty(b"", "the value is empty")]
#[case::spaces(b"  \n ", "not valid JSON: EOF")]
#[case::null(b"null", "expected a JSON object, found null")]
#[case::an_array(b"[{}]", "expected a JSON object, found an array")]
#[case::a_number(b"1", "expected a JSON object, found integer `1`")]
#[case::a_text(b"\"{}\"", "expected a JSON object, found string")]
#[case::true_(b"true", "expected a JSON object, found boolean `true`")]
#[case::byte_order_mark(b"\xEF\xBB\xBF{}", "byte order mark")]
#[case::utf16(b"\xFF\xFE{\0}\0", "not valid JSON")]
#[case::garbage_behind(b"{}x", "trailing characters")]
#[case::a_second_object(b"{}{}", "trailing characters")]
#[case::zero_behind(b"{}\0", "trailing characters")]
#[case::spaces_around(b" \t\r\n{} \n", "=null")]
#[case::cut_short(b"{\"t\":\"a", "EOF")]
#[case::a_comment(b"{/*x*/}", "not valid JSON")]
#[case::wrong_bytes_in_a_value(b"{\"t\":\"\xFF\"}", "invalid unicode code point")]
#[case::wrong_bytes_in_a_key(b"{\"\xFF\":1}", "invalid unicode code point")]
#[case::overlong_bytes(b"{\"t\":\"\xC0\x80\"}", "invalid unicode code point")]
#[case::a_surrogate_as_bytes(b"{\"t\":\"\xED\xA0\x80\"}", "invalid unicode code point")]
// What nothing reads is passed over: only its end is looked for.
#[case::wrong_bytes_in_an_unknown_field(b"{\"zz\":\"\xFF\"}", "=null")]
#[case::wrong_bytes_in_a_column_that_nothing_uses(b"{\"unused\":\"\xFF\"}", "=null")]
#[case::control_characters(b"{\"t\":\"\x01\"}", "control character")]
#[case::escaped_control_characters(b"{\"t\":\"\\u0000\\u001f\"}", "=\"\\u0000\\u001f\"")]
#[case::a_lone_high_surrogate(br#"{"t":"\ud800"}"#, "unexpected end of hex escape")]
#[case::a_lone_low_surrogate(br#"{"t":"\udc00"}"#, "lone leading surrogate")]
#[case::two_high_surrogates(br#"{"t":"\ud800\ud800"}"#, "lone leading surrogate")]
#[case::a_pair(br#"{"t":"\ud83d\ude00"}"#, "=\"\u{1F600}\"")]
#[case::a_lone_surrogate_in_an_unknown_field(br#"{"zz":"\ud800"}"#, "=null")]
#[case::an_unknown_escape(br#"{"t":"\x"}"#, "invalid escape")]
#[case::a_field_twice(br#"{"t":"a","t":"b"}"#, "=\"b\"")]
#[case::a_field_twice_the_last_null(br#"{"t":"a","t":null}"#, "=null")]
#[case::a_field_twice_the_first_bad(br#"{"t":1,"t":"b"}"#, "expected STRING, found number 1")]
#[case::a_field_with_an_escaped_name(br#"{"\u0074":"b"}"#, "=\"b\"")]
#[case::a_field_in_another_case(br#"{"T":"b"}"#, "=null")]
fn what_is_no_record_is_a_bad_record(#[case] value: &[u8], #[case] expected: &str) {
    check(value, "t", expected);
}

#[rstest]
#[case::int_max("i", "2147483647", "=2147483647")]
#[case::int_above("i", "2147483648", "out of the range of INT")]
#[case::bigint_min("l", "-9223372036854775808", "=-9223372036854775808")]
#[case::bigint_above("l", "9223372036854775808", "out of the range of BIGINT")]
#[case::bigint_far_above("l", "18446744073709551616", "expected BIGINT, found number 1.8446744073709552e19")]
#[case::bigint_with_a_fraction("l", "1.5", "expected BIGINT, found number 1.5")]
#[case::bigint_that_is_whole("l", "2.0", "=2")]
#[case::bigint_that_is_whole_with_an_exponent("l", "1e3", "=1000")]
#[case::bigint_beyond_what_a_double_holds("l", "1e17", "expected BIGINT, found number 1e17")]
#[case::a_number_as_text("l", "\"1\"", "expected BIGINT, found string")]
#[case::nan("d", "NaN", "not valid JSON")]
#[case::infinity("d", "Infinity", "not valid JSON")]
#[case::minus_infinity("d", "-Infinity", "not valid JSON")]
#[case::nan_as_text("d", "\"NaN\"", "expected DOUBLE, found string")]
#[case::beyond_double("d", "1e999", "number out of range")]
#[case::tiny("d", "1e-999", "=0.0")]
#[case::double_max("d", "1.7976931348623157e308", "=1.7976931348623157e+308")]
#[case::minus_zero("d", "-0.0", "=-0.0")]
#[case::beyond_float("f", "1e39", "out of the range of FLOAT")]
#[case::decimal("m", "12345678.90", "=12345678.90")]
#[case::decimal_as_text("m", "\"0.01\"", "=0.01")]
#[case::decimal_too_precise("m", "0.001", "more than 2 digits after the point")]
#[case::decimal_too_large("m", "123456789", "more digits than DECIMAL(10, 2) holds")]
#[case::decimal_with_a_huge_exponent("m", "1e999999999", "more digits than DECIMAL(10, 2) holds")]
#[case::decimal_with_an_exponent_beyond_all("m", "1e99999999999999999999", "is not a decimal number")]
#[case::bytes("by", "\"AP8=\"", "=\"AP8=\"")]
#[case::bytes_without_padding("by", "\"AP8\"", "expected BYTES as base64")]
#[case::bytes_with_a_newline("by", "\"AP\\n8=\"", "expected BYTES as base64")]
#[case::date_first("da", "\"0001-01-01\"", "=\"0001-01-01\"")]
#[case::date_year_zero("da", "\"0000-01-01\"", "=\"0000-01-01\"")]
#[case::date_last("da", "\"9999-12-31\"", "=\"9999-12-31\"")]
#[case::date_that_is_none("da", "\"2023-02-29\"", "expected DATE as YYYY-MM-DD")]
#[case::date_of_five_digits("da", "\"10000-01-01\"", "expected DATE as YYYY-MM-DD")]
#[case::date_before_all("da", "\"-001-01-01\"", "expected DATE as YYYY-MM-DD")]
#[case::time_year_zero("ms", "\"0000-01-01T00:00:00Z\"", "=-62167219200000")]
#[case::time_last("ms", "\"9999-12-31T23:59:59.999Z\"", "=253402300799999")]
#[case::time_beyond("ms", "\"10000-01-01T00:00:00Z\"", "RFC 3339 text")]
#[case::time_with_a_leap_second("ms", "\"2016-12-31T23:59:60Z\"", "=1483228800000")]
#[case::time_of_no_clock("ms", "\"2024-01-01T24:00:00Z\"", "RFC 3339 text")]
#[case::time_far_ahead("us", "9223372036854775807", "=9223372036854775807")]
#[case::time_as_a_fraction("us", "1.5", "expected TIMESTAMP_US, found number 1.5")]
#[case::an_object_for_an_array("ar", "{}", "expected an array, found an object")]
#[case::one_level_too_few("ar", "[1]", "field `ar[0]`: expected an array, found number 1")]
#[case::one_level_too_many("ar", "[[[1]]]", "field `ar[0][0]`: expected INT, found an array")]
#[case::nulls("ar", "[null,[null]]", "=[null,[null]]")]
#[case::a_text_for_an_object("st", "\"\"", "expected an object, found string")]
#[case::deep_in_an_object("st", "{\"x\":{\"y\":\"z\"}}", "field `st.x.y`: expected INT, found string \"z\"")]
#[case::an_absent_field("st", "{\"x\":{}}", "={\"x\":{\"y\":null}}")]
#[case::a_field_twice("st", "{\"x\":null,\"x\":{\"y\":1}}", "={\"x\":{\"y\":1}}")]
fn a_value_fits_its_column_or_its_record_is_bad(#[case] field: &str, #[case] value: &str, #[case] expected: &str) {
    check(format!("{{\"{field}\":{value}}}"), field, expected);
}

/// Ten times what a record may be in Kafka by default. Work that grows with the square of the size would not end today.
#[rstest]
#[case::a_long_text(|n| format!("{{\"t\":\"{}\"}}", "x".repeat(n)), "t", None)]
#[case::a_long_text_of_escapes(|n| format!("{{\"t\":\"{}\"}}", "\\u0041".repeat(n / 6)), "t", None)]
#[case::a_long_unknown_text(|n| format!("{{\"zz\":\"{}\"}}", "x".repeat(n)), "t", Some("=null"))]
#[case::a_long_name(|n| format!("{{\"{}\":1}}", "x".repeat(n)), "t", Some("=null"))]
#[case::many_unknown_fields(|n| format!("{{{}\"t\":\"a\"}}", "\"zz\":1,".repeat(n / 7)), "t", Some("=\"a\""))]
#[case::one_field_many_times(|n| format!("{{{}\"t\":\"a\"}}", "\"t\":\"b\",".repeat(n / 8)), "t", Some("=\"a\""))]
#[case::deep_in_an_unknown_field(|n| format!("{{\"zz\":{}{}}}", "[".repeat(n / 2), "]".repeat(n / 2)), "t", Some("=null"))]
#[case::deep_objects_in_an_unknown_field(|n| format!("{{\"zz\":{}1{}}}", "{\"z\":".repeat(n / 6), "}".repeat(n / 6)), "t", Some("=null"))]
#[case::deep_and_not_closed(|n| format!("{{\"zz\":{}", "[".repeat(n)), "t", Some("not valid JSON: EOF"))]
#[case::deep_in_a_column(|n| format!("{{\"ar\":{}{}}}", "[".repeat(n / 2), "]".repeat(n / 2)), "ar", Some("field `ar[0][0]`: expected INT, found an array"))]
#[case::deep_in_a_text_column(|n| format!("{{\"t\":{}{}}}", "[".repeat(n / 2), "]".repeat(n / 2)), "t", Some("expected STRING, found an array"))]
#[case::deep_in_a_decimal(|n| format!("{{\"m\":{}{}}}", "[".repeat(n / 2), "]".repeat(n / 2)), "m", Some("expected DECIMAL(10, 2), found an array"))]
#[case::deep_in_a_text_column_that_wants_an_object(
    |n| format!("{{\"t\":{}1{}}}", "{\"z\":".repeat(n / 6), "}".repeat(n / 6)), "t", Some("expected STRING, found an object"))]
#[case::a_long_array(|n| format!("{{\"ar\":[{}[]]}}", "[],".repeat(n / 3)), "ar", None)]
#[case::an_error_at_the_end_of_many_lines(|n| format!("{{{}\"t\":1}}", "\n".repeat(n)), "t", Some("expected STRING, found number 1"))]
#[case::a_long_number(|n| format!("{{\"l\":{}}}", "1".repeat(n)), "l", Some("number out of range"))]
#[case::a_long_fraction(|n| format!("{{\"d\":0.{}}}", "1".repeat(n)), "d", Some("=0.1111111111111111"))]
#[case::a_long_decimal(|n| format!("{{\"m\":{}}}", "1".repeat(n)), "m", Some("more digits than DECIMAL(10, 2) holds"))]
#[case::a_long_decimal_of_zeros(|n| format!("{{\"m\":1.5{}}}", "0".repeat(n)), "m", Some("=1.50"))]
#[case::a_long_base64(|n| format!("{{\"by\":\"{}!\"}}", "A".repeat(n)), "by", Some("expected BYTES as base64"))]
#[case::a_long_date(|n| format!("{{\"da\":\"{}\"}}", "1".repeat(n)), "da", Some("expected DATE as YYYY-MM-DD"))]
#[case::a_long_time(|n| format!("{{\"ms\":\"2024-01-01T00:00:00.{}Z\"}}", "1".repeat(n)), "ms", Some("=1704067200111"))]
#[case::spaces(|n| format!("{}{{}}{}", " ".repeat(n / 2), " ".repeat(n / 2)), "t", Some("=null"))]
fn ten_megabytes_are_read_or_refused_in_time(
    #[case] value: impl Fn(usize) -> String,
    #[case] field: &str,
    #[case] expected: Option<&str>,
) {
    let value = value(10_000_000);
    match expected {
        Some(expected) => check(value, field, expected),
        None => drop(outcome(value.into_bytes(), field).unwrap()),
    }
}
