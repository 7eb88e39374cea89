//! What holds for every input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{Destination, Header, Pipeline, Plan, Processed, RawRecord, SourceId, plan};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

const EVERY_TYPE: &str = r#"
sources:
- name: s
  kafka: {topic: s, format: {json: {}}}
  onBadRecord: DeadLetter
  deadLetterTopic: dead
  columns:
  - {name: k, type: STRING, metadata: {key: {}}}
  - {name: h, type: BYTES, metadata: {header: {name: h}}}
  - {name: off, type: BIGINT, metadata: {offset: {}}}
  - {name: b, type: BOOLEAN}
  - {name: i, type: INT}
  - {name: l, type: BIGINT}
  - {name: d, type: DOUBLE}
  - {name: m, type: "DECIMAL(20, 4)"}
  - {name: s, type: STRING}
  - {name: by, type: BYTES}
  - {name: da, type: DATE}
  - {name: ts, type: TIMESTAMP_MS}
  - {name: ar, type: "ARRAY<STRUCT<x INT, y STRING>>"}
  - {name: st, type: "STRUCT<a ARRAY<BIGINT>, b STRING>"}
sql: INSERT INTO t SELECT * FROM s
sinks:
- name: t
  kafka: {topic: t, format: {json: {}}}
"#;

/// Functions and operators that fail on some values.
const FALLIBLE: &str = r#"
sources:
- name: s
  kafka: {topic: s, format: {json: {}}}
  onBadRecord: DeadLetter
  deadLetterTopic: dead
  columns:
  - {name: off, type: BIGINT, metadata: {offset: {}}}
  - {name: x, type: BIGINT}
  - {name: t, type: STRING}
sql: |
  INSERT INTO t SELECT off, 100 / x AS q, x * x AS sq, CAST(t AS BIGINT) AS n FROM s WHERE x <> 3;
sinks:
- name: t
  kafka: {topic: t, format: {json: {}}}
"#;

fn pipeline(yaml: &str) -> (Plan, Pipeline) {
    let spec: PipelineSpec = serde_saphyr::from_str(yaml).unwrap();
    let plan = plan(&spec).unwrap();
    let pipeline = plan.instantiate().unwrap();
    (plan, pipeline)
}

fn process(pipeline: &mut Pipeline, values: &[Option<Vec<u8>>]) -> Processed {
    let records: Vec<RawRecord<'_>> = (0..)
        .zip(values)
        .map(|(offset, value)| RawRecord {
            partition: 0,
            offset,
            timestamp_ms: 0,
            key: None,
            value: value.as_deref(),
            headers: Vec::new(),
        })
        .collect();
    pipeline.process(SourceId(0), &records, 0).unwrap()
}

/// Offsets of the rows that came out, from the column `off`.
fn offsets_out(processed: &Processed) -> Vec<i64> {
    let rows = processed.outputs.iter().filter(|o| matches!(o.destination(), Destination::Sink(_)));
    rows.flat_map(|batch| (0..batch.len()).map(|i| batch.value(i).unwrap().to_vec()).collect::<Vec<_>>())
        .map(|value| serde_json::from_slice::<Value>(&value).unwrap()["off"].as_i64().unwrap())
        .collect()
}

/// JSON that looks like a record, and often is not one.
fn almost_json() -> impl Strategy<Value = Vec<u8>> {
    let scalar = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|i| json!(i)),
        any::<u64>().prop_map(|i| json!(i)),
        any::<f64>().prop_filter("JSON has no text for it", |f| f.is_finite()).prop_map(|f| json!(f)),
        ".{0,12}".prop_map(|s| json!(s)),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2}))?".prop_map(|s| json!(s)),
        "-?[0-9]{1,25}(\\.[0-9]{1,6})?([eE][+-]?[0-9]{1,3})?".prop_map(|s| json!(s)),
    ];
    let value = scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map("[abxy]", inner, 0..4).prop_map(|m| m.into_iter().collect()),
        ]
    });
    let names = prop_oneof!["k|h|off|b|i|l|d|m|s|by|da|ts|ar|st", "[a-z]{1,3}"];
    vec((names, value), 0..6).prop_map(|fields| {
        let object: serde_json::Map<String, Value> = fields.into_iter().collect();
        serde_json::to_vec(&object).unwrap()
    })
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    (almost_json(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)).prop_map(|(mut bytes, changes)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No bytes make it panic, and each record comes out once: as a row, or as a bad record and a dead letter with its bytes.
    #[test]
    fn every_record_comes_out_or_is_bad(
        values in vec(option::weighted(0.9, prop_oneof![vec(any::<u8>(), 0..40), almost_json(), mutated()]), 0..20)
    ) {
        let (_, mut pipeline) = pipeline(EVERY_TYPE);
        let processed = process(&mut pipeline, &values);
        let mut seen: Vec<i64> = offsets_out(&processed);
        prop_assert!(seen.is_sorted());
        seen.extend(processed.bad.iter().map(|b| b.offset));
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..i64::try_from(values.len()).unwrap()).collect::<Vec<_>>());
        let dead: Vec<_> = processed.outputs.iter().filter(|o| matches!(o.destination(), Destination::DeadLetter(_))).collect();
        prop_assert_eq!(dead.iter().map(|d| d.len()).sum::<usize>(), processed.bad.len());
        for batch in dead {
            for (i, bad) in processed.bad.iter().enumerate() {
                prop_assert_eq!(batch.value(i), values[usize::try_from(bad.offset).unwrap()].as_deref());
            }
        }
    }

    /// A batch does the same as its records one by one: a bad record has no influence on its neighbours.
    #[test]
    fn a_batch_is_its_records_one_by_one(
        rows in vec((prop_oneof![Just(0_i64), Just(3), -5..5_i64, any::<i64>()], prop_oneof!["[0-9]{1,3}", "[a-z]{0,2}"]), 0..40)
    ) {
        let values: Vec<_> = rows.iter().map(|(x, t)| Some(json!({"x": x, "t": t}).to_string().into_bytes())).collect();
        let (_, mut pipeline) = pipeline(FALLIBLE);
        let whole = process(&mut pipeline, &values);
        let mut out = Vec::new();
        let mut bad = Vec::new();
        for (i, value) in (0_i64..).zip(&values) {
            let one = process(&mut pipeline, std::slice::from_ref(value));
            out.extend(offsets_out(&one).iter().map(|_| i));
            bad.extend(one.bad.iter().map(|b| (i, b.reason.clone())));
        }
        prop_assert_eq!(offsets_out(&whole), out);
        prop_assert_eq!(whole.bad.iter().map(|b| (b.offset, b.reason.clone())).collect::<Vec<_>>(), bad);
        // And what is bad is what should be.
        for (i, (x, t)) in (0_i64..).zip(&rows) {
            let fails = *x != 3 && (*x == 0 || x.checked_mul(*x).is_none() || t.parse::<i64>().is_err());
            prop_assert_eq!(whole.bad.iter().any(|b| b.offset == i), fails, "x={} t={}", x, t);
        }
    }

    /// What was read and written is the same value.
    #[test]
    fn values_survive_the_way_through(
        b in any::<bool>(), i in any::<i32>(), l in any::<i64>(), d in any::<f64>().prop_filter("finite", |f| f.is_finite()),
        s in any::<String>(), by in vec(any::<u8>(), 0..20), ts in any::<i64>(), m in -10_i64.pow(15)..10_i64.pow(15),
        ar in vec((any::<i32>(), any::<String>()), 0..4), key in option::of("[a-z]{0,5}"),
    ) {
        use base64::Engine;
        let by_text = base64::engine::general_purpose::STANDARD.encode(&by);
        let ar: Vec<Value> = ar.into_iter().map(|(x, y)| json!({"x": x, "y": y})).collect();
        let input = json!({"b": b, "i": i, "l": l, "d": d, "s": s, "by": by_text, "ts": ts, "m": m, "ar": ar, "da": "1999-12-31",
            "st": {"a": [l, null], "b": s}}).to_string();
        let (_, mut pipeline) = pipeline(EVERY_TYPE);
        let record = RawRecord { partition: 0, offset: 7, timestamp_ms: 0, key: key.as_deref().map(str::as_bytes),
            value: Some(input.as_bytes()), headers: vec![Header { name: "h", value: Some(&by) }] };
        let processed = pipeline.process(SourceId(0), &[record], 0).unwrap();
        prop_assert!(processed.bad.is_empty(), "{:?}", processed.bad);
        let text = String::from_utf8(processed.outputs[0].value(0).unwrap().to_vec()).unwrap();
        let expected_decimal = format!("\"m\":{m}.0000,");
        prop_assert!(text.contains(&expected_decimal), "{} in {}", expected_decimal, text);
        let mut output: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        output.remove("m");
        let mut expected: BTreeMap<String, Value> = serde_json::from_str(&input).unwrap();
        expected.remove("m");
        expected.extend([("k".to_owned(), json!(key)), ("h".to_owned(), json!(by_text)), ("off".to_owned(), json!(7))]);
        prop_assert_eq!(output, expected);
    }

    /// No text makes the planner panic.
    #[test]
    fn any_sql_is_planned_or_refused(sql in prop_oneof![
        ".{0,60}",
        "(SELECT|INSERT INTO|FROM|WHERE|t|s|a|b|\\(|\\)|,|;|\\*|'|\"| |1|\\.|\\[|\\]|UNION ALL|CASE|WHEN|END|AS|CREATE VIEW|=|/|::|x -> ){0,25}",
        "INSERT INTO t SELECT (a|b|l|st|x|upper|abs|\\+|-|\\*|/|\\(|\\)|,| |1|'s'|::INT|\\[1\\]|\\.x){1,12} AS o FROM s( WHERE (a|b|l|=|>| |1|NOT ){0,6})?",
    ]) {
        let yaml = json!({
            "sources": [{"name": "s", "kafka": {"topic": "s", "format": {"json": {}}}, "columns": [
                {"name": "a", "type": "BIGINT"}, {"name": "b", "type": "STRING"}, {"name": "l", "type": "ARRAY<INT>"},
                {"name": "st", "type": "STRUCT<x INT>"}]}],
            "sql": sql,
            "sinks": [{"name": "t", "kafka": {"topic": "t", "format": {"json": {}}}}],
        });
        let spec: PipelineSpec = serde_json::from_value(yaml).unwrap();
        if let Err(violations) = plan(&spec) {
            prop_assert!(!violations.is_empty());
        }
    }
}

#[test]
fn a_shared_view_gives_the_same_random_value_to_all_its_readers() {
    let (_, mut pipeline) = pipeline(
        r#"
sources:
- {name: s, kafka: {topic: s, format: {json: {}}}, columns: [{name: a, type: INT}]}
sql: |
  CREATE VIEW v AS SELECT uuid() AS id, random() AS r FROM s;
  INSERT INTO x SELECT id, r FROM v;
  INSERT INTO y SELECT id, r FROM v;
sinks:
- {name: x, kafka: {topic: x, format: {json: {}}}}
- {name: y, kafka: {topic: y, format: {json: {}}}}
"#,
    );
    let processed = process(&mut pipeline, &[Some(b"{}".to_vec()), Some(b"{}".to_vec())]);
    let values = |i: usize| (0..2).map(|row| processed.outputs[i].value(row).unwrap().to_vec()).collect::<Vec<_>>();
    assert_eq!(values(0), values(1));
    assert_ne!(values(0)[0], values(0)[1], "each row has its own");
}

#[test]
fn pipelines_of_one_plan_have_their_own_time() {
    let yaml = r#"
sources:
- {name: s, kafka: {topic: s, format: {json: {}}}, columns: [{name: a, type: INT}]}
sql: INSERT INTO x SELECT now() AS n FROM s
sinks:
- {name: x, kafka: {topic: x, format: {json: {}}}}
"#;
    let (plan, mut first) = pipeline(yaml);
    let mut second = plan.instantiate().unwrap();
    let record =
        || RawRecord { partition: 0, offset: 0, timestamp_ms: -1, key: None, value: Some(b"{}"), headers: Vec::new() };
    let text = |p: &Processed| String::from_utf8(p.outputs[0].value(0).unwrap().to_vec()).unwrap();
    let one = first.process(SourceId(0), &[record()], 1).unwrap();
    let two = second.process(SourceId(0), &[record()], 2).unwrap();
    let three = first.process(SourceId(0), &[record()], 3).unwrap();
    assert_eq!((text(&one), text(&two), text(&three)), (r#"{"n":1}"#.into(), r#"{"n":2}"#.into(), r#"{"n":3}"#.into()));
}

#[test]
fn nesting_without_end_is_a_bad_record() {
    let (_, mut pipeline) = pipeline(EVERY_TYPE);
    let deep = |open: &str| Some(format!("{{\"ar\":{}", open.repeat(100_000)).into_bytes());
    let unused = Some(format!("{{\"zz\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes());
    let processed = process(&mut pipeline, &[deep("["), deep("{\"x\":"), deep("[{\"y\":"), unused]);
    assert_eq!(processed.bad.len(), 3);
    assert_eq!(offsets_out(&processed), vec![3], "nesting that nothing reads is passed over");
}

#[test]
fn a_source_of_another_pipeline_is_an_error() {
    let (_, mut pipeline) = pipeline(EVERY_TYPE);
    assert!(pipeline.process(SourceId(1), &[], 0).is_err());
    assert_eq!(pipeline.process(SourceId(0), &[], 0).unwrap(), Processed::default());
}

#[test]
fn a_pipeline_can_be_moved_to_its_thread() {
    fn is_send<T: Send>(_: &T) {}
    let (plan, pipeline) = pipeline(EVERY_TYPE);
    is_send(&pipeline);
    is_send(&plan);
}
