//! What the brokers would refuse for ever never reaches them: the record it was made of is bad.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use fencepost_crds::v1alpha1::PipelineSpec;
use fencepost_pipeline::{
    Destination, Header, OutputBatch, OutputLimits, Pipeline, Processed, RawRecord, SourceId, plan,
};
use rstest::rstest;
use serde_json::json;

const NOW: i64 = 1_000_000;

fn pipeline(on_bad_record: &str) -> Pipeline {
    let spec: PipelineSpec = serde_json::from_value(json!({
        "sources": [{
            "name": "s", "kafka": {"topic": "in", "format": {"json": {}}}, "onBadRecord": on_bad_record,
            "deadLetterTopic": (on_bad_record == "DeadLetter").then_some("dead"),
            "columns": [{"name": "k", "type": "STRING"}, {"name": "v", "type": "STRING"}, {"name": "ts", "type": "TIMESTAMP_MS"},
                {"name": "sec", "type": "BIGINT"}]}],
        "sql": "INSERT INTO small SELECT k, v, v AS h, ts FROM s; INSERT INTO wide SELECT v FROM s; \
                INSERT INTO wide SELECT v FROM s WHERE k = 'twice'; INSERT INTO timed SELECT v, to_timestamp_seconds(sec) AS at FROM s",
        "sinks": [
            {"name": "small", "kafka": {"topic": "small-topic", "format": {"json": {}}, "keyColumns": ["k"], "timestampColumn": "ts",
                "headers": [{"name": "hh", "column": "h"}]}},
            {"name": "wide", "kafka": {"topic": "wide-topic", "format": {"json": {}}}},
            {"name": "timed", "kafka": {"topic": "timed-topic", "format": {"json": {}}, "timestampColumn": "at"}}],
    }))
    .unwrap();
    plan(&spec).unwrap().instantiate().unwrap()
}

fn process(pipeline: &mut Pipeline, values: &[String]) -> Processed {
    let record = |(offset, value)| RawRecord { offset, ..raw(value) };
    let records: Vec<RawRecord<'_>> = (0..).zip(values).map(record).collect();
    pipeline.process(SourceId(0), &records, NOW).unwrap()
}

fn raw(value: &String) -> RawRecord<'_> {
    RawRecord {
        partition: 0,
        offset: 0,
        timestamp_ms: 0,
        key: None,
        value: Some(value.as_bytes()),
        headers: Vec::new(),
    }
}

fn of_topic<'a>(processed: &'a Processed, topic: &str) -> Option<&'a OutputBatch> {
    processed.outputs.iter().find(|o| o.topic() == topic)
}

fn values(processed: &Processed, topic: &str) -> Vec<String> {
    let of = |batch: &OutputBatch| {
        (0..batch.len()).map(|i| String::from_utf8(batch.value(i).unwrap().to_vec()).unwrap()).collect()
    };
    of_topic(processed, topic).map(of).unwrap_or_default()
}

fn limits(max_record_bytes: usize, max_timestamp_ahead_ms: i64) -> OutputLimits {
    OutputLimits { max_record_bytes, max_timestamp_ahead_ms }
}

#[rstest]
// Key `k`, value `{"k":"k","v":"…"}`, header `hh` and ten bytes: 1 + 16 + 2n + 2 + 10.
#[case::what_fits_exactly(10, 1 + 16 + 20 + 12, None)]
#[case::one_byte_too_much(
    10,
    1 + 16 + 20 + 11,
    Some("sink `small`: a record of 49 bytes or more, and the topic takes 48 at most")
)]
fn the_size_of_a_record_is_its_key_value_and_headers(
    #[case] n: usize,
    #[case] max: usize,
    #[case] reason: Option<&str>,
) {
    let mut pipeline = pipeline("Skip");
    pipeline.set_output_limits("small-topic", limits(max, 0));
    let processed = process(&mut pipeline, &[json!({"k": "k", "v": "x".repeat(n)}).to_string()]);
    assert_eq!(processed.bad.first().map(|b| b.reason.as_str()), reason);
    assert_eq!(processed.outputs.is_empty(), reason.is_some());
}

#[test]
fn without_limits_those_of_kafka_hold() {
    let max = 1_048_588 - 97;
    // `{"v":"…"}`
    let value = |n: usize| json!({"v": "x".repeat(n - 8)}).to_string();
    let mut pipeline = pipeline("Skip");
    pipeline.set_output_limits("small-topic", limits(usize::MAX, 0));
    let processed = process(&mut pipeline, &[value(max), value(max + 1)]);
    assert_eq!(values(&processed, "wide-topic").iter().map(String::len).collect::<Vec<_>>(), [max]);
    assert_eq!(
        processed.bad[0].reason,
        "sink `wide`: a record of 1048492 bytes or more, and the topic takes 1048491 at most"
    );
    assert_eq!(OutputLimits::default(), limits(max, 3_600_000));
}

#[rstest]
#[case(NOW + 50, 50, None)]
#[case(NOW + 51, 50, Some(
    "sink `small`: timestampColumn: 1000051 ms is more than 50 ms after the current time, which is 1000000 ms; the topic does not take it"
))]
#[case(
    i64::MAX,
    3_600_000,
    Some(
        "sink `small`: timestampColumn: 9223372036854775807 ms is more than 3600000 ms after the current time, which is 1000000 ms; the topic \
     does not take it"
    )
)]
#[case(i64::MAX, i64::MAX, None)]
#[case(1, 0, None)]
#[case(0, 0, Some("sink `small`: timestampColumn: 0 ms (1970-01-01T00:00:00Z) means \"now\" to the Kafka client"))]
#[case(-1, 0, Some("sink `small`: timestampColumn: -1 ms is before 1970, and no message is written with such a timestamp"))]
fn a_timestamp_may_be_ahead_as_far_as_the_topic_takes_it(
    #[case] ts: i64,
    #[case] ahead: i64,
    #[case] reason: Option<&str>,
) {
    let mut pipeline = pipeline("Skip");
    pipeline.set_output_limits("small-topic", limits(1000, ahead));
    let processed = process(&mut pipeline, &[json!({"ts": ts}).to_string()]);
    assert_eq!(processed.bad.first().map(|b| b.reason.as_str()), reason);
}

#[test]
fn a_timestamp_that_milliseconds_do_not_hold_is_not_the_time_of_writing() {
    let processed =
        process(&mut pipeline("Skip"), &[json!({"sec": i64::MAX}).to_string(), json!({"sec": 1}).to_string()]);
    assert_eq!(of_topic(&processed, "timed-topic").unwrap().timestamp(0), Some(1000));
    assert!(processed.bad[0].reason.starts_with("sink `timed`: timestampColumn: "), "{:?}", processed.bad);
    assert_eq!((processed.bad.len(), processed.bad[0].offset), (1, 0));
}

fn mixed() -> Vec<String> {
    let one = |k: &str, v: &str| json!({"k": k, "v": v}).to_string();
    vec![
        one("a", "1"),
        one("twice", "2"),
        one("twice", &"x".repeat(200)),
        one("b", "4"),
        one("c", &"y".repeat(200)),
        one("d", "6"),
    ]
}

#[test]
fn the_outputs_of_a_record_stand_or_fall_together() {
    for (topic, skip) in
        [("small-topic", "Skip"), ("wide-topic", "Skip"), ("timed-topic", "Skip"), ("timed-topic", "DeadLetter")]
    {
        let mut pipeline = pipeline(skip);
        pipeline.set_output_limits(topic, limits(100, 0));
        let processed = process(&mut pipeline, &mixed());
        let v = |v: &str| format!("{{\"v\":\"{v}\"}}");
        assert_eq!(values(&processed, "wide-topic"), ["1", "2", "2", "4", "6"].map(v));
        assert_eq!(values(&processed, "timed-topic"), ["1", "2", "4", "6"].map(v));
        assert_eq!(of_topic(&processed, "small-topic").unwrap().len(), 4);
        assert_eq!(processed.bad.iter().map(|b| b.offset).collect::<Vec<_>>(), [2, 4], "{topic}");
    }
}

#[test]
fn fail_stops_before_the_record_that_a_sink_cannot_take() {
    let mut pipeline = pipeline("Fail");
    pipeline.set_output_limits("wide-topic", limits(100, 0));
    let processed = process(&mut pipeline, &mixed());
    assert_eq!(processed.consumed, 2);
    assert_eq!(processed.fail.as_ref().unwrap().offset, 2);
    assert!(processed.fail.as_ref().unwrap().reason.starts_with("sink `wide`: a record of "));
    assert_eq!(values(&processed, "wide-topic").len(), 3);
    assert_eq!(values(&processed, "timed-topic").len(), 2);
}

/// The dead letter of a record that is bad for its value, under a limit.
fn dead_letter(key: usize, value: usize, header: usize, max: usize) -> (Option<usize>, usize, Vec<(String, String)>) {
    let mut pipeline = pipeline("DeadLetter");
    pipeline.set_output_limits("dead", limits(max, 0));
    let (key, value, header) = (vec![b'k'; key], vec![b'['; value], vec![b'h'; header]);
    let headers = vec![Header { name: "mine", value: Some(&header) }];
    let empty = String::new();
    let record = RawRecord { key: Some(&key), value: Some(&value), headers, ..raw(&empty) };
    let processed = pipeline.process(SourceId(0), &[record], NOW).unwrap();
    assert_eq!(processed.bad.len(), 1);
    let batch = &processed.outputs[0];
    assert_eq!(
        (batch.destination(), batch.len(), processed.outputs.len()),
        (Destination::DeadLetter(SourceId(0)), 1, 1)
    );
    let headers: Vec<(String, String)> =
        batch.headers(0).map(|h| (h.name.to_owned(), String::from_utf8(h.value.unwrap().to_vec()).unwrap())).collect();
    let counted: usize = headers.iter().map(|(n, v)| n.len() + v.len() + 10).sum();
    let bytes = counted + batch.key(0).map_or(0, <[u8]>::len) + batch.value(0).unwrap().len();
    assert!(bytes <= max, "{bytes} of {max}");
    (batch.key(0).map(<[u8]>::len), batch.value(0).unwrap().len(), headers)
}

#[rstest]
#[case::everything_fits(10, 400, 10, 700, Some(10), 400, &["mine"])]
#[case::the_value_does_not(10, 400, 10, 500, Some(10), 0, &["mine", "fencepost.value.dropped=400"])]
#[case::nor_do_the_headers(10, 400, 400, 500, Some(10), 0, &["fencepost.value.dropped=400", "fencepost.headers.dropped=414"])]
#[case::nor_does_the_key(600, 400, 400, 500, None, 0,
    &["fencepost.value.dropped=400", "fencepost.headers.dropped=414", "fencepost.key.dropped=600"])]
#[case::nor_does_the_reason(600, 400, 400, 290, None, 0,
    &["fencepost.value.dropped=400", "fencepost.headers.dropped=414", "fencepost.key.dropped=600"])]
fn a_dead_letter_leaves_out_what_does_not_fit_and_says_so(
    #[case] key: usize,
    #[case] value: usize,
    #[case] header: usize,
    #[case] max: usize,
    #[case] key_left: Option<usize>,
    #[case] value_left: usize,
    #[case] expected: &[&str],
) {
    let (key, value, headers) = dead_letter(key, value, header, max);
    assert_eq!((key, value), (key_left, value_left));
    let text = |(n, v): &(String, String)| if n == "mine" { n.clone() } else { format!("{n}={v}") };
    let others: Vec<String> =
        headers.iter().filter(|(n, _)| n == "mine" || n.ends_with(".dropped")).map(text).collect();
    assert_eq!(others, expected);
    let names: Vec<&str> = headers.iter().map(|(n, _)| n.as_str()).collect();
    for name in ["fencepost.source.topic", "fencepost.source.partition", "fencepost.source.offset", "fencepost.reason"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn a_tombstone_among_dead_letters_stays_one() {
    let mut pipeline = pipeline("DeadLetter");
    pipeline.set_output_limits("dead", limits(300, 0));
    pipeline.set_output_limits("small-topic", limits(1, 0));
    let header = vec![b'h'; 400];
    let headers = vec![Header { name: "mine", value: Some(&header) }];
    let empty = String::new();
    let record = RawRecord { value: None, headers, ..raw(&empty) };
    let processed = pipeline.process(SourceId(0), &[record], NOW).unwrap();
    assert_eq!(processed.outputs[0].value(0), None);
    assert_eq!(processed.outputs[0].headers(0).filter(|h| h.name == "fencepost.headers.dropped").count(), 1);
}
