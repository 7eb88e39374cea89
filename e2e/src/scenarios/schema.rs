//! The rules of the schema, as the real API server applies them.

use std::fs;

use serde_json::{Value, json};

use super::failure::ensure;
use super::{Bench, Failure, OrdersJob, Outcome};
use crate::paths;

/// What is wrong, where, the wrong value, and a part of what the API server must say.
type Wrong = (&'static str, &'static str, fn() -> Value, &'static str);

const WRONG: [Wrong; 23] = [
    ("no bootstrap servers", "/spec/kafka/bootstrapServers", || Value::Null, "bootstrapServers"),
    ("bootstrap servers without a port", "/spec/kafka/bootstrapServers", || json!("kafka"), "bootstrapServers"),
    ("a prefix with a space", "/spec/kafka/transactionalIdPrefix", || json!("my prefix"), "transactionalIdPrefix"),
    ("no workers", "/spec/replicas", || json!(0), "replicas"),
    ("a state that is none", "/spec/state", || json!("Paused"), "state"),
    ("too many workers", "/spec/replicas", || json!(1001), "replicas"),
    ("no slots", "/spec/worker", || json!({"slots": 0}), "slots"),
    ("an unknown guarantee", "/spec/processing/guarantee", || json!("AtMostOnce"), "guarantee"),
    ("a protocol nobody knows", "/spec/processing/protocol", || json!({"magic": {}}), "magic"),
    ("a time without a unit", "/spec/processing/transactionTimeout", || json!("30"), "transactionTimeout"),
    (
        "a transaction timeout of nothing",
        "/spec/processing/transactionTimeout",
        || json!("1ms"),
        "must be between 1s and 24h",
    ),
    (
        "a commit interval of hours",
        "/spec/processing/protocol",
        || json!({"transactional": {"commitInterval": "1h"}}),
        "must be between 1ms and 10m",
    ),
    ("a drain timeout of nothing", "/spec/worker", || json!({"drainTimeout": "10ms"}), "must be between 1s and 1h"),
    ("no SQL", "/spec/pipeline/sql", || json!(""), "sql"),
    ("no sources", "/spec/pipeline/sources", || json!([]), "sources"),
    ("no sinks", "/spec/pipeline/sinks", || json!([]), "sinks"),
    (
        "a sink called as a source",
        "/spec/pipeline/sinks/0/name",
        || json!("orders"),
        "must not have the name of a source",
    ),
    ("a table with an upper-case name", "/spec/pipeline/sinks/0/name", || json!("Purchases"), "name"),
    (
        "dead letters without a topic",
        "/spec/pipeline/sources/0/onBadRecord",
        || json!("DeadLetter"),
        "deadLetterTopic is required",
    ),
    (
        "a topic for dead letters that nobody writes",
        "/spec/pipeline/sources/0/deadLetterTopic",
        || json!("bad"),
        "deadLetterTopic is required",
    ),
    (
        "several raw keys",
        "/spec/pipeline/sinks/0/kafka/keyColumns",
        || json!(["customer", "seq"]),
        "several keyColumns need keyFormat",
    ),
    ("a field nobody knows", "/spec/replica", || json!(3), "replica"),
    (
        "PLAIN without TLS",
        "/spec/kafka/sasl",
        || json!({"mechanism": "PLAIN", "usernameSecretRef": {"name": "s", "key": "u"}, "passwordSecretRef": {"name": "s", "key": "p"}}),
        "set tls",
    ),
];

/// Each wrong manifest is refused, with a message that names what is wrong.
pub(super) fn refused(bench: &Bench<'_>) -> Outcome {
    let good = manifest(bench)?;
    let said = bench.try_apply(&good)?;
    ensure!(said.is_none(), "the good manifest is refused: {}", said.unwrap_or_default());
    for (what, pointer, value, part) in WRONG {
        let mut wrong = good.clone();
        put(&mut wrong, pointer, value())?;
        let said = bench.try_apply(&wrong)?;
        let said = said.ok_or_else(|| Failure::Expectation(format!("{what}: the API server accepts it")))?;
        ensure!(said.contains(part), "{what}: the API server does not say {part:?}: {said}");
    }
    let long = "x".repeat(46);
    let mut wrong = good;
    put(&mut wrong, "/metadata/name", json!(long))?;
    let said = bench.try_apply(&wrong)?.unwrap_or_default();
    ensure!(said.contains("at most 45 characters"), "a name of 46 characters: {said}");
    Ok(vec![format!("{} wrong manifests refused", WRONG.len() + 1)])
}

/// Every example of the project is accepted.
pub(super) fn examples(bench: &Bench<'_>) -> Outcome {
    let mut accepted = Vec::new();
    let folder = paths::repository().join("examples");
    for entry in fs::read_dir(&folder).map_err(Failure::means("read the examples"))?.flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let file = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).map_err(Failure::means("read an example"))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(Failure::means("read an example"))?;
        for mut document in documents {
            put(&mut document, "/metadata/namespace", json!(bench.namespace()))?;
            let said = bench.try_apply(&document)?;
            ensure!(said.is_none(), "{file}: {}", said.unwrap_or_default());
        }
        accepted.push(file);
    }
    accepted.sort();
    ensure!(accepted.len() >= 4, "only these examples were found: {accepted:?}");
    Ok(vec![accepted.join(", ")])
}

/// The names that fence a job and hold its positions stay as they are. A job that is new does not look as if it had been seen.
pub(super) fn immutable(bench: &Bench<'_>) -> Outcome {
    let mut good = manifest(bench)?;
    put(&mut good, "/spec/kafka/transactionalIdPrefix", json!(format!("{}.first", bench.namespace())))?;
    let made = bench.applied(&good)?;
    let seen = made.pointer("/status/observedGeneration");
    ensure!(
        seen == Some(&json!(-1)),
        "who waits for a new job is told that it is as it should be: {:?}",
        made.get("status")
    );
    for (pointer, part) in [
        ("/spec/kafka/transactionalIdPrefix", "transactionalIdPrefix is immutable"),
        ("/spec/kafka/consumerGroup", "consumerGroup is immutable"),
    ] {
        let mut changed = good.clone();
        put(&mut changed, pointer, json!("another"))?;
        let said = bench.try_apply(&changed)?;
        let said = said.ok_or_else(|| Failure::Expectation(format!("{pointer} can be changed")))?;
        ensure!(said.contains(part), "{pointer}: {said}");
    }
    let mut without = good.clone();
    if let Some(kafka) = without.pointer_mut("/spec/kafka").and_then(Value::as_object_mut) {
        kafka.remove("transactionalIdPrefix");
    }
    let said = bench.try_apply(&without)?.unwrap_or_default();
    ensure!(said.contains("transactionalIdPrefix is immutable"), "the prefix can be removed: {said}");
    let mut scaled = good;
    put(&mut scaled, "/spec/replicas", json!(3))?;
    let said = bench.try_apply(&scaled)?;
    ensure!(said.is_none(), "replicas cannot be changed: {}", said.unwrap_or_default());
    Ok(Vec::new())
}

fn manifest(bench: &Bench<'_>) -> Result<Value, Failure> {
    let mut manifest =
        serde_json::to_value(OrdersJob::new(bench).manifest(bench)?).map_err(Failure::means("write a manifest"))?;
    // Typed manifests spell defaults out; people do not.
    for (parent, field) in [("", "status"), ("/spec", "worker")] {
        if let Some(object) = manifest.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(field);
        }
    }
    Ok(manifest)
}

/// Sets what `pointer` points to. Null removes it.
fn put(manifest: &mut Value, pointer: &str, value: Value) -> Result<(), Failure> {
    let missing = || Failure::Expectation(format!("the manifest has no place for {pointer}"));
    let (parent, field) = pointer.rsplit_once('/').ok_or_else(missing)?;
    let parent = manifest.pointer_mut(parent).and_then(Value::as_object_mut).ok_or_else(missing)?;
    if value.is_null() {
        parent.remove(field);
    } else {
        parent.insert(field.to_owned(), value);
    }
    Ok(())
}
