//! Contents of records, reduced to what may not differ.
//!
//! A few million records must fit into memory, so the judge keeps fingerprints. Two contents are only ever compared for
//! the same [`RecordId`](crate::RecordId), where 64 bits leave no room for chance.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Fingerprint of key, value and the headers that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(u64);

/// The value of a record, in the form in which it is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Body<'a> {
    /// Compared as JSON: the order of fields and white space do not matter, `1` and `1.0` differ.
    Json(&'a Value),
    /// Compared byte by byte.
    Bytes(&'a [u8]),
    /// No value.
    Tombstone,
}

impl Content {
    /// Content without headers.
    #[must_use]
    pub fn new(key: Option<&[u8]>, body: &Body<'_>) -> Self {
        Self::with_headers(key, body, [])
    }

    /// Content with the headers that matter, in the order given.
    #[must_use]
    pub fn with_headers<'h>(
        key: Option<&[u8]>,
        body: &Body<'_>,
        headers: impl IntoIterator<Item = (&'h str, Option<&'h [u8]>)>,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        match body {
            Body::Json(value) => hash_json(value, &mut hasher),
            Body::Bytes(bytes) => (1_u8, bytes).hash(&mut hasher),
            Body::Tombstone => 2_u8.hash(&mut hasher),
        }
        for header in headers {
            header.hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

fn hash_json(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 10_u8.hash(hasher),
        Value::Bool(value) => (11_u8, value).hash(hasher),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => (12_u8, value).hash(hasher),
            (_, Some(value), _) => (13_u8, value).hash(hasher),
            (.., value) => (14_u8, value.map(f64::to_bits)).hash(hasher),
        },
        Value::String(text) => (15_u8, text).hash(hasher),
        Value::Array(items) => {
            (16_u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash_json(item, hasher));
        }
        Value::Object(fields) => {
            (17_u8, fields.len()).hash(hasher);
            // serde_json keeps the order of the text when any crate of the build asks it to: sort, so that it never matters.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in fields {
                name.hash(hasher);
                hash_json(field, hasher);
            }
        }
    }
}

/// Key of a record, reduced for the check that one key stays in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Body, Content};

    fn of(value: &serde_json::Value) -> Content {
        Content::new(Some(b"k"), &Body::Json(value))
    }

    #[test]
    fn the_order_of_json_fields_does_not_matter() {
        let a: serde_json::Value = serde_json::from_str(r#"{"a":1,"b":[1,2]}"#).unwrap();
        let b: serde_json::Value = serde_json::from_str(r#"{ "b":[1,2], "a":1 }"#).unwrap();
        assert_eq!(of(&a), of(&b));
    }

    #[test]
    fn every_difference_that_a_reader_can_see_is_a_difference() {
        let values = [
            json!({"a": 1}),
            json!({"a": 2}),
            json!({"a": "1"}),
            json!({"a": 1.0}),
            json!({"a": null}),
            json!({}),
            json!({"b": 1}),
            json!({"a": true}),
            json!({"a": [1]}),
            json!({"a": {"a": 1}}),
            json!({"a": u64::MAX}),
        ];
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                assert_eq!(of(a) == of(b), i == j, "{a} {b}");
            }
        }
    }

    #[test]
    fn key_headers_and_the_kind_of_value_are_content() {
        let base = Content::new(Some(b"k"), &Body::Bytes(b"v"));
        assert_ne!(base, Content::new(None, &Body::Bytes(b"v")));
        assert_ne!(base, Content::new(Some(b""), &Body::Bytes(b"v")));
        assert_ne!(base, Content::new(Some(b"k"), &Body::Tombstone));
        assert_ne!(base, Content::with_headers(Some(b"k"), &Body::Bytes(b"v"), [("h", Some(&b"x"[..]))]));
        assert_ne!(Content::new(None, &Body::Bytes(b"")), Content::new(None, &Body::Tombstone));
        assert_ne!(Content::new(None, &Body::Bytes(b"1")), Content::new(None, &Body::Json(&json!(1))));
    }
}
