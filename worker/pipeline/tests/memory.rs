//! No record makes the worker ask for more memory than a worker has: it is a bad record instead. A worker that the system ends for its
//! memory would meet the same record again, for ever.
//!
//! One test, because the memory that is counted is that of the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says how much each case took"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{OutputBatch, OutputLimits, Processed, RawRecord, SourceId, plan};
use serde_json::{Value, json};

/// What one batch may take at its worst moment, besides the batch itself.
const MOST: usize = 128 << 20;

/// What the machine can bear. Beyond it there is no memory, as in a container, and the test ends like a worker would.
const LIMIT: usize = 2 << 30;

struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands every call on to the system's allocator, and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        if used > LIMIT {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are the system's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc`, so from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn spec(sql: &str) -> PipelineSpec {
    let column = |name: &str, data_type: &str| json!({"name": name, "type": data_type});
    serde_json::from_value(json!({
        "sources": [{"name": "s", "kafka": {"topic": "s", "format": {"json": {}}}, "onBadRecord": "Skip", "columns": [
            column("t", "STRING"), column("u", "STRING"), column("a", "BIGINT"), column("l", "ARRAY<STRING>"),
            column("n", "ARRAY<BIGINT>"), column("st", "STRUCT<x STRING>")]}],
        "sql": sql,
        "sinks": [{"name": "k", "kafka": {"topic": "k", "format": {"json": {}}}}],
    }))
    .unwrap()
}

/// Processes a batch. What comes back is what was processed, and the memory it took besides the batch.
fn run(sql: &str, values: &[Vec<u8>], max_record_bytes: usize) -> (Processed, usize) {
    let plan = plan(&spec(sql)).unwrap_or_else(|violations| panic!("{sql}: {violations:?}"));
    let mut pipeline = plan.instantiate().unwrap();
    pipeline.set_output_limits("k", OutputLimits { max_record_bytes, ..OutputLimits::default() });
    let records: Vec<RawRecord<'_>> = (0..).zip(values).map(|(offset, value)| raw(offset, value)).collect();
    let before = USED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let processed = pipeline.process(SourceId(0), &records, 0).unwrap();
    (processed, PEAK.load(Ordering::Relaxed) - before)
}

fn raw(offset: i64, value: &[u8]) -> RawRecord<'_> {
    RawRecord { partition: 0, offset, timestamp_ms: 0, key: None, value: Some(value), headers: Vec::new() }
}

/// Ways to make much of a record.
const GROWING: &[&str] = &[
    "replace(t, 'x', u)",
    "replace(t, 'xx', u || u)",
    "regexp_replace(t, 'x', u, 'g')",
    "regexp_replace(t, '(x*)', concat(repeat('\\1', 1000), left(u, 1)))",
    "regexp_replace(t, '', u, 'g')",
    "regexp_match(t, concat(repeat('(', 200), 'x*', repeat(')', 200)))",
    "length(array_to_string(array_repeat('', a), t))",
    "array_to_string(array_repeat(1, a), ',')",
    "array_to_string(array_repeat(NULL::STRING, a), ',', t)",
    "array_to_string(l, t)",
    "array_to_string(n, ',')",
    "array_transform(range(a), x -> t)",
    "array_length(array_transform(range(a), x -> concat(t, x::STRING)))",
    "array_length(array_filter(range(a), x -> length(t) > x))",
    "array_length(array_filter(l, x -> x = left(u, 1)))",
    "array_any_match(range(a), x -> t = x::STRING)",
    "array_transform(range(a), x -> array_length(array_transform(range(a), y -> x + y)))",
    "array_transform(n, x -> array_transform(n, y -> x + y))",
    "array_transform(range(a), x -> repeat('long', 10000))",
    "concat(t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t)",
    "concat_ws(t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t)",
    "array_concat(l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l)",
    "[t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t]",
    "repeat(t, a)",
    "repeat('a text', a)",
    "lpad(t, a, u)",
    "rpad(t, a, 'ä')",
    "translate(t, 'x', u)",
    "btrim(t, u)",
    "upper(translate(t, 'x', 'ΐ'))",
    "array_repeat(t, a)",
    "array_repeat(l, a)",
    "array_repeat(array_repeat(NULL, 1000), a)",
    "array_repeat(named_struct('a_long_name_for_a_field', NULL, 'another_long_name_for_a_field', 1), a)",
    "array_resize(l, a, t)",
    "array_replace_all(l, '', t)",
    "array_replace_n(l, '', t, a)",
    "arrays_zip(range(a), l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l)",
    "range(a)",
    "array_length(range(0, a * 1000, 1))",
    "generate_series(0, a)",
    "array_to_string(string_to_array(t, NULL), u)",
    "encode(encode(encode(encode(encode(encode(t, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')",
    "overlay(t PLACING u FROM 1)",
    "CAST(array_repeat(true, a) AS STRING)",
    "CAST(array_repeat(NULL, a) AS STRING)",
    "levenshtein(t, u)",
    "array_has_all(range(a), range(a))",
    "to_char(now(), replace(left(t, 100000), 'x', '%c%c%c%c'))",
    "CASE WHEN a > 0 THEN repeat(t, a) ELSE t END",
    "st.x || st.x || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t",
    "substr(repeat('x', 10000000), 1, 10)",
    "md5(repeat(t, a))",
];

/// What could be too much, and is not: a bound must not make good records bad.
const FITTING: &[&str] = &[
    "length(replace(t, 'z', u))",
    "length(replace(t, repeat('x', 40000), u))",
    "length(regexp_replace(t, 'z', u, 'g'))",
    "length(regexp_replace(t, 'x', u))",
    "length(regexp_replace(concat(t, 'end'), 'END$', u, 'gi'))",
    "length(repeat(t, 41))",
    "length(repeat('x', 16777212))",
    "length(concat(t, u, t, u, t, u, t, u, t, u, t, u, t, u, t, u))",
    "array_length(array_repeat(t, 41))",
    "array_length(range(0, 1000000))",
    "array_length(array_transform(n, x -> x + a))",
    "array_length(array_transform(range(30), x -> concat(t, x::STRING)))",
    "length(array_to_string(n, ', '))",
    "length(encode(encode(t, 'hex')::BYTEA, 'hex'))",
    "t ~ 'x+' AND t ~ left(t, 10)",
];

/// A record of strings that are as long as a record may be.
fn large() -> Value {
    let text = "x".repeat(400_000);
    json!({"t": text, "u": "y".repeat(400_000), "a": 100_000, "l": vec![""; 10_000], "n": (0..20_000).collect::<Vec<_>>(), "st": {"x": "x"}})
}

/// Together, the values of these are ten times of what may be there at once, and none of them comes out.
const TOGETHER: &[&str] = &[
    "length(replace(t, 'x', u))",
    "length(repeat(t, a))",
    "length(concat(t, repeat('x', 60000 + a * 1000)))",
    "length(CASE WHEN a > 0 THEN concat(repeat('x', 60000), repeat('y', 60000), repeat('z', 60000)) ELSE t END)",
    "array_length(array_transform(range(a), x -> concat(t, 'x')))",
    "array_length(array_concat(array_repeat(t, a), ['x']))",
    "length(repeat(CAST(current_date() AS STRING), 50000))",
];

fn peak_of(sql: &str, values: &[Vec<u8>]) -> (Processed, usize) {
    let (processed, took) = run(sql, values, usize::MAX);
    eprintln!("{} MiB: {sql}", took >> 20);
    (processed, took)
}

#[test]
fn no_record_takes_more_memory_than_there_is() {
    let bytes = |v: &Value| serde_json::to_vec(v).unwrap();
    let fine = || bytes(&json!({"t": "x", "u": "y", "a": 1, "l": ["z"], "n": [1], "st": {"x": "x"}}));
    let few = vec![fine(), bytes(&large()), fine()];
    for expression in GROWING {
        let (processed, took) = peak_of(&format!("INSERT INTO k SELECT {expression} AS o FROM s"), &few);
        assert!(took < MOST, "{expression} took {took} bytes");
        let rows = processed.outputs.iter().map(OutputBatch::len).sum::<usize>();
        assert!(rows >= 2, "the neighbours are not affected: {expression}: {:?}", processed.bad);
        assert_eq!(rows + processed.bad.len(), 3);
    }
    let moderate = json!({"t": "x".repeat(700), "u": "y".repeat(700), "a": 700});
    let many = vec![bytes(&moderate); 300];
    for expression in TOGETHER {
        let (processed, took) = peak_of(&format!("INSERT INTO k SELECT {expression} AS o FROM s"), &many);
        assert_eq!(processed.outputs[0].len(), 300, "{expression}: {:?}", processed.bad.first());
        assert!(took < MOST / 2, "{expression} took {took} bytes");
    }
    for expression in FITTING {
        let (processed, took) = peak_of(&format!("INSERT INTO k SELECT {expression} AS o FROM s"), &few);
        assert_eq!(processed.bad, [], "{expression}");
        assert!(took < MOST, "{expression} took {took} bytes");
    }
    // Each may be there, but not all at once: the batch ends early, and the rest is given again.
    let many = vec![bytes(&json!({"t": "x".repeat(1000), "u": "y", "a": 900})); 400];
    let (mut rows, mut rest) = (0, &many[..]);
    while !rest.is_empty() {
        let (processed, took) = run("INSERT INTO k SELECT repeat(t, a) AS o FROM s", rest, 1 << 20);
        assert!((1..=rest.len()).contains(&processed.consumed) && processed.bad.is_empty());
        assert!(took < 2 * MOST, "{} records took {took} bytes", processed.consumed);
        rows += processed.outputs.iter().map(OutputBatch::len).sum::<usize>();
        rest = &rest[processed.consumed..];
        assert_eq!(rows, many.len() - rest.len());
    }
    // No function that is measured beforehand, and nothing large comes out.
    let large = "length(upper(encode(encode(encode(encode(encode(t, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')::BYTEA, 'hex')::BYTEA, 'base64')))";
    let (processed, _) = peak_of(&format!("INSERT INTO k SELECT {large} AS o FROM s WHERE length(t || u) > 0"), &few);
    assert_eq!(processed.bad, []);
    let larger = large.replace("'base64'", "'hex'").replace("t, 'hex'", "t || u, 'hex'");
    let (processed, _) = peak_of(&format!("INSERT INTO k SELECT {larger} AS o FROM s"), &few);
    let reason = processed.bad[0].reason.split(", in `").next().unwrap_or_default();
    assert_eq!(reason, "a value of 25600004 bytes, at most 16777216 are possible");
    // Many values of one record, none of which is too large.
    let columns: Vec<String> = (0..100).map(|i| format!("length(repeat(t, 20 + {i} % a)) AS c{i}")).collect();
    let (processed, took) = peak_of(&format!("INSERT INTO k SELECT {} FROM s", columns.join(", ")), &few[1..2]);
    assert_eq!(
        processed.bad[0].reason.split(", in `").next(),
        Some("all that is made of the record takes more than 67108864 bytes")
    );
    assert!(took < MOST);
}
