//! Nanoseconds per record of decode, evaluate and encode for a filter job, on one thread and without Kafka.
//!
//! `cargo run --profile image -p fencepost-pipeline --example throughput`

use std::time::{Duration, Instant};

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{RawRecord, SourceId, plan};

const RECORDS: usize = 10_000;
const ROUNDS: u32 = 200;

const JOB: &str = r"
sources:
- name: orders
  kafka: {topic: orders, format: {json: {}}}
  columns:
  - {name: id, type: BIGINT}
  - {name: user, type: STRING}
  - {name: type, type: STRING}
  - {name: amount, type: BIGINT}
  - {name: ts, type: TIMESTAMP_MS}
  - {name: url, type: STRING}
sql: INSERT INTO totals SELECT id, user, amount * 2 AS amount FROM orders WHERE type = 'purchase'
sinks:
- name: totals
  kafka: {topic: totals, format: {json: {}}, keyColumns: [user]}
";

#[expect(clippy::disallowed_methods, reason = "a stopwatch has nothing but the clock to read")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "the result is for the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("one row in four comes out:");
    measure(JOB)?;
    println!("no row comes out, so decode and filter only:");
    measure(&JOB.replace("'purchase'", "'nothing'"))
}

#[expect(clippy::print_stdout, reason = "the result is for the terminal")]
fn measure(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let spec: PipelineSpec = serde_saphyr::from_str(job)?;
    let plan = plan(&spec).map_err(|violations| format!("{violations:?}"))?;
    let mut pipeline = plan.instantiate()?;
    let values: Vec<Vec<u8>> = (0..RECORDS).map(value).collect();
    let records: Vec<RawRecord<'_>> = (0..).zip(&values).map(|(offset, value)| record(offset, value)).collect();
    let bytes: usize = values.iter().map(Vec::len).sum();
    for batch in [1_000, RECORDS] {
        let mut best = Duration::MAX;
        let mut out = 0;
        for _ in 0..ROUNDS {
            let start = now();
            out = 0;
            for records in records.chunks(batch) {
                let processed = pipeline.process(SourceId(0), records, 0)?;
                out += processed.outputs.iter().map(fencepost_pipeline::OutputBatch::len).sum::<usize>();
            }
            best = best.min(start.elapsed());
        }
        let per_record = best.as_nanos() / RECORDS as u128;
        println!(
            "batch {batch}: {per_record} ns/record, {} bytes/record, {out} of {RECORDS} rows out",
            bytes / RECORDS
        );
    }
    Ok(())
}

fn value(i: usize) -> Vec<u8> {
    let kind = if i.is_multiple_of(4) { "purchase" } else { "view" };
    format!(
        r#"{{"id":{i},"user":"user-{:05}","type":"{kind}","amount":{},"ts":{},"url":"/shop/item/{:06}"}}"#,
        i % 5_000,
        i % 1_000,
        1_700_000_000_000_usize + i,
        i % 100_000
    )
    .into_bytes()
}

fn record(offset: i64, value: &[u8]) -> RawRecord<'_> {
    RawRecord { partition: 0, offset, timestamp_ms: 0, key: None, value: Some(value), headers: Vec::new() }
}
