//! What changes from one spec to another, field by field, and what that asks for.

use std::{collections::BTreeSet, fmt};

use fencepost_crds::StreamJobSpec;
use serde_json::{Map, Value};

/// What a change asks for, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Workers that run are left alone; some may be added or taken away.
    InPlace,
    /// All workers commit and stop, their ids are fenced, and new ones start.
    Restart,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its path, such as `spec.pipeline.sources[orders].columns[amount].type`.
    pub field: String,
    /// What it was. `None`: it was not there.
    pub before: Option<Value>,
    /// What it is. `None`: it is not there any more.
    pub after: Option<Value>,
    /// What it asks for.
    pub effect: Effect,
}

/// Longest value that is shown.
const SHOWN: usize = 40;
/// Fields that are no part of a revision.
const IN_PLACE: [&str; 4] = ["replicas", "state", "upgrade", "deletion"];

/// All fields that differ, in the order of their paths. Empty: the specs mean the same.
#[must_use]
pub fn differences(before: &StreamJobSpec, after: &StreamJobSpec) -> Vec<Difference> {
    let json = |spec| serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    walk("spec", Some(&json(before)), Some(&json(after)), &mut found);
    found
}

/// What all of them together ask for. `None`: nothing.
#[must_use]
pub fn effect(differences: &[Difference]) -> Option<Effect> {
    differences.iter().map(|difference| difference.effect).max()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        match (self.before.as_ref().map(short), self.after.as_ref().map(short)) {
            (None, Some(Some(after))) => write!(f, " is {after}"),
            (Some(Some(before)), Some(Some(after))) => write!(f, " is {after}, not {before}"),
            (Some(_), None) => f.write_str(" is gone"),
            (None, _) => f.write_str(" is new"),
            (Some(_), Some(_)) => f.write_str(" has changed"),
        }
    }
}

/// A value that fits into a line. `None`: it does not.
fn short(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => return None,
        other => other.to_string(),
    };
    (text.len() <= SHOWN && !text.contains('\n')).then_some(text)
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for name in names(before, after) {
                walk(&format!("{path}.{name}"), before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => lists(path, before, after, found),
        _ => found.push(Difference {
            field: path.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
            effect: if is_in_place(path) { Effect::InPlace } else { Effect::Restart },
        }),
    }
}

fn names<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> BTreeSet<&'a str> {
    before.keys().chain(after.keys()).map(String::as_str).collect()
}

/// Items that have names are compared with those of the same name, wherever they are; their order is compared too.
fn lists(path: &str, before: &[Value], after: &[Value], found: &mut Vec<Difference>) {
    let names_of = |items: &[Value]| -> Option<Vec<String>> {
        let names: Option<Vec<String>> =
            items.iter().map(|item| Some(item.get("name")?.as_str()?.to_owned())).collect();
        names.filter(|names| names.iter().collect::<BTreeSet<_>>().len() == names.len())
    };
    let (Some(old), Some(new)) = (names_of(before), names_of(after)) else {
        for index in 0..before.len().max(after.len()) {
            walk(&format!("{path}[{index}]"), before.get(index), after.get(index), found);
        }
        return;
    };
    let item = |items: &'_ [Value], names: &[String], name: &String| -> Option<Value> {
        items.get(names.iter().position(|other| other == name)?).cloned()
    };
    for name in old.iter().chain(&new).collect::<BTreeSet<_>>() {
        walk(&format!("{path}[{name}]"), item(before, &old, name).as_ref(), item(after, &new, name).as_ref(), found);
    }
    let order = |names: &[String], others: &[String]| -> Vec<Value> {
        names.iter().filter(|name| others.contains(name)).map(|name| Value::from(name.as_str())).collect()
    };
    let (old_order, new_order) = (order(&old, &new), order(&new, &old));
    if old_order != new_order {
        walk(&format!("{path} (their order)"), Some(&old_order.into()), Some(&Value::Null), found);
    }
}

fn is_in_place(path: &str) -> bool {
    path.strip_prefix("spec.").is_some_and(|rest| {
        IN_PLACE
            .iter()
            .any(|field| rest.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{revision::Revision, testing::job_json};

    fn spec(json: &Value) -> StreamJobSpec {
        serde_json::from_value(json["spec"].clone()).unwrap()
    }

    fn told(change: &Value, at: &str) -> (Vec<String>, Option<Effect>) {
        let (before, mut after) = (job_json(), job_json());
        *after.pointer_mut(at).unwrap() = change.clone();
        let found = differences(&spec(&before), &spec(&after));
        (found.iter().map(ToString::to_string).collect(), effect(&found))
    }

    #[rstest]
    #[case::nothing("/spec/replicas", json!(2), &[], None)]
    #[case::scaled("/spec/replicas", json!(5), &["spec.replicas is 5, not 2"], Some(Effect::InPlace))]
    #[case::other_brokers(
        "/spec/kafka/bootstrapServers",
        json!("other:9092"),
        &["spec.kafka.bootstrapServers is other:9092, not kafka:9092"],
        Some(Effect::Restart)
    )]
    #[case::a_long_text(
        "/spec/pipeline/sql",
        json!("INSERT INTO totals SELECT 'another' AS user FROM orders"),
        &["spec.pipeline.sql has changed"],
        Some(Effect::Restart)
    )]
    #[case::a_column_of_a_source(
        "/spec/pipeline/sources/0/columns/0/type",
        json!("BIGINT"),
        &["spec.pipeline.sources[orders].columns[user].type is BIGINT, not STRING"],
        Some(Effect::Restart)
    )]
    #[case::another_column(
        "/spec/pipeline/sources/0/columns",
        json!([{ "name": "at", "type": "BIGINT" }, { "name": "user", "type": "STRING" }]),
        &["spec.pipeline.sources[orders].columns[at] is new"],
        Some(Effect::Restart)
    )]
    fn a_change_is_told_with_its_field(
        #[case] at: &str,
        #[case] change: Value,
        #[case] wanted: &[&str],
        #[case] asks: Option<Effect>,
    ) {
        assert_eq!(told(&change, at), (wanted.iter().map(|&text| text.to_owned()).collect(), asks));
    }

    #[test]
    fn what_comes_and_goes_and_moves_is_told() {
        let (mut before, mut after) = (job_json(), job_json());
        before["spec"]["worker"] = json!({ "log": "info", "podLabels": { "a": "1" } });
        before["spec"]["pipeline"]["sources"][0]["columns"] = json!([
            { "name": "user", "type": "STRING" }, { "name": "at", "type": "BIGINT" }, { "name": "x", "type": "INT" },
        ]);
        after["spec"]["worker"] = json!({ "slots": 2, "podLabels": { "b": "1" } });
        after["spec"]["state"] = "Suspended".into();
        after["spec"]["pipeline"]["sources"][0]["columns"] =
            json!([{ "name": "at", "type": "BIGINT" }, { "name": "user", "type": "STRING" }]);
        let found = differences(&spec(&before), &spec(&after));
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        let wanted = [
            "spec.pipeline.sources[orders].columns[x] is gone",
            "spec.pipeline.sources[orders].columns (their order) has changed",
            "spec.state is Suspended, not Running",
            "spec.worker.log is gone",
            "spec.worker.podLabels.a is gone",
            "spec.worker.podLabels.b is 1",
            "spec.worker.slots is 2, not 1",
        ];
        assert_eq!(told, wanted);
    }

    proptest! {
        /// The two agree on what makes another revision.
        #[test]
        fn a_restart_is_asked_for_exactly_when_the_revision_is_another(
            replicas in 1_i32..3, suspended: bool, slots in 1_i32..3, never: bool, sql in 0_u8..2, order: bool,
        ) {
            let mut other = job_json();
            let spec_json = &mut other["spec"];
            spec_json["replicas"] = replicas.into();
            spec_json["state"] = if suspended { "Suspended" } else { "Running" }.into();
            spec_json["worker"] = json!({ "slots": slots });
            spec_json["upgrade"] = json!({ "rollback": if never { "Never" } else { "UntilFirstCommit" } });
            spec_json["pipeline"]["sql"] = format!("INSERT INTO totals SELECT '{sql}' FROM orders").into();
            let mut columns = vec![json!({ "name": "user", "type": "STRING" }), json!({ "name": "a", "type": "INT" })];
            if order {
                columns.reverse();
            }
            spec_json["pipeline"]["sources"][0]["columns"] = columns.into();
            let mut first = job_json();
            first["spec"]["pipeline"]["sql"] = "INSERT INTO totals SELECT '0' FROM orders".into();
            first["spec"]["pipeline"]["sources"][0]["columns"] =
                json!([{ "name": "user", "type": "STRING" }, { "name": "a", "type": "INT" }]);
            let (first, other) = (spec(&first), spec(&other));
            let asks = effect(&differences(&first, &other));
            prop_assert_eq!(asks == Some(Effect::Restart), Revision::hash(&first) != Revision::hash(&other));
            prop_assert_eq!(asks.is_none(), first == other);
        }
    }
}
