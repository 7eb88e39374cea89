//! Nanoseconds per record of a filter, by what the records look like: `cargo bench -p fencepost-pipeline`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a program for people, which may end by panicking and looks at the clock"
)]

use std::time::Instant;

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{RawRecord, SourceId, plan};
use serde_json::json;

const BATCH: u32 = 2_000;
const ROUNDS: u32 = 100;
const REPEATS: usize = 5;

fn main() {
    let spec: PipelineSpec = serde_json::from_value(json!({
        "sources": [{"name": "s", "kafka": {"topic": "s", "format": {"json": {}}}, "columns": [
            {"name": "id", "type": "BIGINT"}, {"name": "user", "type": "STRING"}, {"name": "type", "type": "STRING"},
            {"name": "amount", "type": "BIGINT"}, {"name": "price", "type": "DECIMAL(12, 2)"}]}],
        "sql": "INSERT INTO k SELECT id, \"user\", amount * 2 AS amount, price FROM s WHERE type = 'purchase'",
        "sinks": [{"name": "k", "kafka": {"topic": "k", "format": {"json": {}}, "keyColumns": ["user"]}}],
    }))
    .expect("a spec");
    let mut pipeline = plan(&spec).expect("a plan").instantiate().expect("a pipeline");
    for (shape, record) in shapes() {
        let values: Vec<String> = (0..BATCH).map(record).collect();
        let records: Vec<RawRecord<'_>> = (0..)
            .zip(&values)
            .map(|(offset, value)| RawRecord {
                partition: 0,
                offset,
                timestamp_ms: 0,
                key: None,
                value: Some(value.as_bytes()),
                headers: Vec::new(),
            })
            .collect();
        let mut times: Vec<f64> = (0..REPEATS)
            .map(|_| {
                let started = Instant::now();
                for _ in 0..ROUNDS {
                    let processed = pipeline.process(SourceId(0), &records, 0).expect("processed");
                    assert!(processed.bad.is_empty(), "{:?}", processed.bad.first());
                }
                started.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS * BATCH)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{shape:<32} {:6.0} ns per record ({:.0} to {:.0})", times[REPEATS / 2], times[0], times[REPEATS - 1]);
    }
}

/// A name, and how its records are written.
type Shape = (&'static str, fn(u32) -> String);

fn shapes() -> [Shape; 5] {
    fn kind(i: u32) -> &'static str {
        if i.is_multiple_of(4) { "purchase" } else { "view" }
    }
    [
        ("flat", |i| {
            format!(
                r#"{{"id":{i},"user":"user-{}","type":"{}","amount":{},"ts":17000000{i:05},"note":"abcdefghijklmnop"}}"#,
                i % 100,
                kind(i),
                i * 7
            )
        }),
        ("flat, with spaces", |i| {
            format!(
                r#"{{ "id": {i}, "user": "user-{}", "type": "{}", "amount": {}, "ts": 17000000{i:05}, "note": "abcdefghijklmnop" }}"#,
                i % 100,
                kind(i),
                i * 7
            )
        }),
        ("with a decimal", |i| {
            format!(r#"{{"id":{i},"user":"user-{}","type":"{}","amount":{},"price":{i}.25}}"#, i % 100, kind(i), i * 7)
        }),
        ("with escapes", |i| {
            format!(
                r#"{{"id":{i},"user":"user \"{}\"","type":"{}","amount":{},"note":"abc\ndef\u00e9"}}"#,
                i % 100,
                kind(i),
                i * 7
            )
        }),
        ("with an object nobody reads", |i| {
            format!(
                r#"{{"id":{i},"context":{{"ip":"10.0.0.1","tags":["a","b"]}},"user":"user-{}","type":"{}","amount":{}}}"#,
                i % 100,
                kind(i),
                i * 7
            )
        }),
    ]
}
