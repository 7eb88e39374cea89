//! Scenarios as text: a pipeline, records, and what comes out. `REWRITE=1 cargo test` writes what comes out into the files;
//! look at the difference before you commit it.
//!
//! - `pipeline`: the YAML of a `spec.pipeline`. Prints `ok`, or the violations.
//! - `report`: the plan of the pipeline above.
//! - `process source=NAME [now=MS]`: a record per line, as `attributes | value` or just the value. Attributes: `p=` partition,
//!   `key=`, `ts=`, `h.NAME=` header, `nullheader=NAME`. Values: the text itself, `TOMBSTONE`, or `hex:…`. Offsets count from 0 per partition.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Write;

use fencepost_crds::v1alpha1::{Guarantee, PipelineSpec};
use fencepost_pipeline::{Header, OutputBatch, Pipeline, Plan, Processed, RawRecord, SourceId, plan};

#[test]
fn scenarios() {
    datadriven::walk("tests/scenarios", |file| {
        let mut scenario = Scenario::default();
        file.run(|case| match case.directive.as_str() {
            "pipeline" => scenario.pipeline(&case.input),
            "report" => scenario.report(),
            "process" => {
                let source = case.args.get("source").map(|s| s[0].clone()).expect("source=");
                let now = case.args.get("now").map_or(0, |n| n[0].parse().expect("now=MS"));
                scenario.process(&source, now, &case.input)
            }
            other => panic!("unknown directive {other}"),
        });
    });
}

#[derive(Default)]
struct Scenario {
    plan: Option<Plan>,
    pipeline: Option<Pipeline>,
    offsets: BTreeMap<(String, i32), i64>,
}

impl Scenario {
    fn pipeline(&mut self, yaml: &str) -> String {
        *self = Self::default();
        let spec: PipelineSpec = serde_saphyr::from_str(yaml).expect("the YAML of a pipeline");
        match plan(&spec) {
            Ok(plan) => {
                self.pipeline = Some(plan.instantiate().expect("a plan can be instantiated"));
                self.plan = Some(plan);
                "ok\n".to_owned()
            }
            Err(violations) => violations.iter().fold(String::new(), |mut out, v| {
                writeln!(out, "{} {}: {}", v.reason, v.field, v.message).unwrap();
                out
            }),
        }
    }

    fn report(&self) -> String {
        let Some(plan) = &self.plan else { return "no pipeline\n".to_owned() };
        let report = plan.report(Guarantee::ExactlyOnce, "test");
        let mut out = String::new();
        for line in report.stages.iter().flat_map(|s| &s.operators) {
            writeln!(out, "{line}").unwrap();
        }
        for topic in &report.topics {
            writeln!(out, "topic {} {} {}", topic.topic, topic.role, topic.table).unwrap();
        }
        out
    }

    fn process(&mut self, source: &str, now: i64, input: &str) -> String {
        let lines: Vec<Line> = input.lines().map(Line::parse).collect();
        let Some(plan) = &self.plan else { return "no pipeline\n".to_owned() };
        let id = SourceId(plan.sources().iter().position(|s| s.name == source).expect("a source"));
        let mut records = Vec::new();
        for line in &lines {
            let offset = self.offsets.entry((source.to_owned(), line.partition)).or_default();
            records.push(line.record(*offset));
            *offset += 1;
        }
        let processed = self.pipeline.as_mut().expect("a pipeline").process(id, &records, now).expect("no bug");
        print(&processed, records.len())
    }
}

#[derive(Default)]
struct Line {
    partition: i32,
    key: Option<Vec<u8>>,
    timestamp: Option<i64>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    value: Option<Vec<u8>>,
}

impl Line {
    fn parse(text: &str) -> Self {
        let mut line = Self::default();
        let (attributes, value) = text.split_once(" | ").unwrap_or(("", text));
        for attribute in attributes.split_whitespace() {
            let (name, value) = attribute.split_once('=').expect("name=value");
            match name {
                "p" => line.partition = value.parse().unwrap(),
                "ts" => line.timestamp = Some(value.parse().unwrap()),
                "key" => line.key = Some(bytes(value)),
                "nullheader" => line.headers.push((value.to_owned(), None)),
                _ => {
                    let header = name.strip_prefix("h.").expect("an attribute");
                    line.headers.push((header.to_owned(), Some(bytes(value))));
                }
            }
        }
        line.value = (value != "TOMBSTONE").then(|| bytes(value));
        line
    }

    fn record(&self, offset: i64) -> RawRecord<'_> {
        RawRecord {
            partition: self.partition,
            offset,
            timestamp_ms: self.timestamp.unwrap_or(-1),
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: self.headers.iter().map(|(n, v)| Header { name: n, value: v.as_deref() }).collect(),
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.strip_prefix("hex:").map_or_else(|| text.as_bytes().to_vec(), |digits| hex::decode(digits).unwrap())
}

fn print(processed: &Processed, given: usize) -> String {
    let mut out = String::new();
    for batch in &processed.outputs {
        for row in 0..batch.len() {
            writeln!(out, "{}: {}", batch.topic(), print_record(batch, row)).unwrap();
        }
    }
    for bad in &processed.bad {
        writeln!(out, "bad {}/{}: {}", bad.partition, bad.offset, bad.reason).unwrap();
    }
    if let Some(fail) = &processed.fail {
        writeln!(
            out,
            "fail {}/{} after {} of {given}: {}",
            fail.partition, fail.offset, processed.consumed, fail.reason
        )
        .unwrap();
    } else {
        assert_eq!(processed.consumed, given);
    }
    if out.is_empty() { "nothing\n".to_owned() } else { out }
}

fn print_record(batch: &OutputBatch, row: usize) -> String {
    let text = |bytes: Option<&[u8]>, absent: &str| match bytes.map(|b| (b, std::str::from_utf8(b))) {
        None => absent.to_owned(),
        Some((_, Ok(text))) if text.chars().any(char::is_control) => format!("{text:?}"),
        Some((_, Ok(text))) => text.to_owned(),
        Some((bytes, Err(_))) => format!("hex:{}", hex::encode(bytes)),
    };
    let mut out = String::new();
    if batch.key(row).is_some() {
        write!(out, "{} -> ", text(batch.key(row), "")).unwrap();
    }
    out.push_str(&text(batch.value(row), "TOMBSTONE"));
    if let Some(timestamp) = batch.timestamp(row) {
        write!(out, " ts={timestamp}").unwrap();
    }
    for header in batch.headers(row) {
        write!(out, " {}={}", header.name, text(header.value, "NULL")).unwrap();
    }
    out
}
