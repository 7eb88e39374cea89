use proptest::prelude::*;
use serde_json::{Value, json};

use super::{AcceptedRevision, Revision, newest_first, revision_of, write_canonical};
use crate::testing::{identity, job};

fn spec(change: impl FnOnce(&mut Value)) -> fencepost_crds::StreamJobSpec {
    job(|json| change(&mut json["spec"])).spec
}

fn accepted(number: i64, revision: &str, spec: fencepost_crds::StreamJobSpec) -> AcceptedRevision {
    let revision = Revision::read(revision);
    let object = AcceptedRevision::object_name("spend", number);
    AcceptedRevision { object, number, revision, image: "worker:1".to_owned(), spec }
}

#[test]
fn the_number_of_workers_is_not_part_of_a_revision() {
    assert_eq!(Revision::hash(&spec(|_| {})), Revision::hash(&spec(|spec| spec["replicas"] = 9.into())));
    let other = spec(|spec| spec["worker"] = json!({ "slots": 2 }));
    assert_ne!(Revision::hash(&spec(|_| {})), Revision::hash(&other));
}

/// Changes only when the spec gains a field that is written even at its default, which then is a decision, not an accident: accepted revisions
/// keep their names, new jobs get other hashes.
#[test]
fn the_hash_of_a_spec_is_stable() {
    assert_eq!(Revision::hash(&spec(|_| {})).as_str().len(), 10);
    insta::assert_snapshot!(Revision::hash(&spec(|_| {})));
}

#[test]
fn an_accepted_spec_keeps_its_name_whatever_it_would_hash_to_now() {
    let old = accepted(1, "fromolderv", spec(|spec| spec["replicas"] = 7.into()));
    assert_eq!(revision_of(&spec(|_| {}), &[old]).as_str(), "fromolderv");
    assert_eq!(revision_of(&spec(|_| {}), &[]), Revision::hash(&spec(|_| {})));
}

#[test]
fn a_kept_revision_reads_back_as_it_was_written() {
    let old = accepted(3, "0123456789", spec(|_| {}));
    assert_eq!(AcceptedRevision::read(&old.write(&identity())).unwrap(), old);
}

#[test]
fn a_kept_revision_of_a_newer_operator_is_refused() {
    let mut object = accepted(3, "0123456789", spec(|_| {})).write(&identity());
    object.data.as_mut().unwrap().0["format"] = 2.into();
    let error = AcceptedRevision::read(&object).unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn the_newest_acceptance_comes_first() {
    let list = [accepted(1, "a", spec(|_| {})), accepted(3, "c", spec(|_| {})), accepted(2, "b", spec(|_| {}))];
    let order: Vec<&str> = newest_first(&list).iter().map(|one| one.revision.as_str()).collect();
    assert_eq!(order, ["c", "b", "a"]);
}

proptest! {
    #[test]
    fn different_values_have_different_canonical_texts(a in value(), b in value()) {
        let text = |value: &Value| {
            let mut text = String::new();
            write_canonical(value, &mut text);
            text
        };
        prop_assert_eq!(a == b, text(&a) == text(&b));
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_i64..3).prop_map(Value::from),
        "[a,:{}\"]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}
