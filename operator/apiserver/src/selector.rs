//! Label selectors, as far as equality and sets of values go.

use serde_json::Value;

/// What all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<(String, Term)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    /// Reads `a=b,c!=d,e in (f,g),h,!i`. `None`: it is not one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        split(text).into_iter().filter(|part| !part.is_empty()).map(term).collect::<Option<_>>().map(Self)
    }

    /// Whether an object has the labels.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(label, term)| {
            let found = object.pointer("/metadata/labels").and_then(|labels| labels.get(label)).and_then(Value::as_str);
            match term {
                Term::In(values) => found.is_some_and(|found| values.iter().any(|value| value == found)),
                Term::NotIn(values) => found.is_none_or(|found| values.iter().all(|value| value != found)),
                Term::Exists => found.is_some(),
                Term::Absent => found.is_none(),
            }
        })
    }
}

/// At commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn term(part: &str) -> Option<(String, Term)> {
    let set = |values: &str| {
        let inner = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>())
    };
    let of = |label: &str, term| Some((label.trim().to_owned(), term));
    if let Some((label, values)) = part.split_once(" notin ") {
        return of(label, Term::NotIn(set(values)?));
    }
    if let Some((label, values)) = part.split_once(" in ") {
        return of(label, Term::In(set(values)?));
    }
    if let Some((label, value)) = part.split_once("!=") {
        return of(label, Term::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((label, value)) = part.split_once('=') {
        return of(label, Term::In(vec![value.trim_start_matches('=').trim().to_owned()]));
    }
    match part.strip_prefix('!') {
        Some(label) => of(label, Term::Absent),
        None => of(part, Term::Exists),
    }
}
