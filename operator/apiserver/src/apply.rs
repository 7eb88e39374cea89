//! Who owns which field, and server-side apply.
//!
//! A field is a path to a value that is no object. Lists are fields as a whole, except those of [`list_key`], whose items have names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Into an object.
    Field(String),
    /// To the item of a list whose key (name, value) it is.
    Item(&'static str, String),
}

/// Where a field is.
pub type Path = Vec<Step>;

/// The fields of a value.
pub type Fields = BTreeMap<Path, Value>;

/// Fields of an object that nobody owns.
const NOBODYS: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// The name of the key of the items of a list, by the name of the list. Kubernetes says it per type; the names that are used here mean the
/// same everywhere, with one key or with one that is always there.
#[must_use]
pub fn list_key(name: &str) -> Option<&'static str> {
    match name {
        "conditions" => Some("type"),
        "ownerReferences" => Some("uid"),
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        _ => None,
    }
}

/// The fields of an object that somebody can own.
#[must_use]
pub fn fields(object: &Value) -> Fields {
    let mut owned = object.clone();
    if let Some(object) = owned.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !NOBODYS.contains(&name.as_str()));
        }
    }
    let mut found = Fields::new();
    walk(&owned, &mut Vec::new(), &mut found);
    found
}

fn walk(value: &Value, path: &mut Path, found: &mut Fields) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, value) in object {
                path.push(Step::Field(name.clone()));
                walk(value, path, found);
                path.pop();
            }
        }
        Value::Array(items) => match keyed(items, path) {
            Some(keyed) => {
                for (step, item) in keyed {
                    path.push(step);
                    walk(item, path, found);
                    path.pop();
                }
            }
            None => drop(found.insert(path.clone(), value.clone())),
        },
        _ if path.is_empty() => {}
        _ => drop(found.insert(path.clone(), value.clone())),
    }
}

/// The items of a list with names, unless it is none, or empty.
fn keyed<'a>(items: &'a [Value], path: &Path) -> Option<Vec<(Step, &'a Value)>> {
    let Some(Step::Field(name)) = path.last() else { return None };
    let key = list_key(name)?;
    if items.is_empty() {
        return None;
    }
    let name_of = |item: &'a Value| Some((Step::Item(key, item.get(key)?.as_str()?.to_owned()), item));
    items.iter().map(name_of).collect()
}

/// What a manager has, and how it came to it.
pub type Owners<M> = BTreeMap<M, BTreeSet<Path>>;

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict<M> {
    /// Who.
    pub owner: M,
    /// What.
    pub path: Path,
}

/// Applies what a manager wants to what is there: its fields are set, those that it had and does not name any more are removed unless
/// somebody else has them too.
///
/// # Errors
/// Without `force`: a field that another manager owns would change.
pub fn apply<M: Ord + Clone>(
    live: &mut Value,
    owners: &mut Owners<M>,
    manager: &M,
    wanted: &Fields,
    force: bool,
) -> Result<(), Conflict<M>> {
    let before = fields(live);
    let changes = |path: &Path, value: &Value| before.get(path) != Some(value);
    let taken: BTreeSet<&Path> =
        wanted.iter().filter(|(path, value)| changes(path, value)).map(|(path, _)| path).collect();
    if !force {
        let others = owners.iter().filter(|(owner, _)| *owner != manager);
        for (owner, theirs) in others {
            if let Some(path) = theirs.iter().find(|path| taken.contains(path) && before.contains_key(*path)) {
                return Err(Conflict { owner: owner.clone(), path: path.clone() });
            }
        }
    }
    for path in owners.remove(manager).unwrap_or_default() {
        if !wanted.contains_key(&path) && !owners.values().any(|theirs| theirs.contains(&path)) {
            remove(live, &path);
        }
    }
    for (path, value) in wanted {
        set(live, path, value);
    }
    for theirs in owners.values_mut() {
        theirs.retain(|path| !taken.contains(path));
    }
    owners.insert(manager.clone(), wanted.keys().cloned().collect());
    owners.retain(|_, theirs| !theirs.is_empty());
    Ok(())
}

/// Somebody wrote an object in another way: what changed is theirs.
pub fn changed<M: Ord + Clone>(before: &Value, after: &Value, owners: &mut Owners<M>, manager: &M) {
    let (before, after) = (fields(before), fields(after));
    let written: BTreeSet<Path> =
        after.iter().filter(|(path, value)| before.get(*path) != Some(value)).map(|(path, _)| path.clone()).collect();
    for theirs in owners.values_mut() {
        theirs.retain(|path| after.contains_key(path) && !written.contains(path));
    }
    owners.entry(manager.clone()).or_default().extend(written);
    owners.retain(|_, theirs| !theirs.is_empty());
}

fn set(value: &mut Value, path: &[Step], to: &Value) {
    let Some((step, rest)) = path.split_first() else {
        *value = to.clone();
        return;
    };
    match step {
        Step::Field(name) => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            if let Some(object) = value.as_object_mut() {
                set(object.entry(name.clone()).or_insert(Value::Null), rest, to);
            }
        }
        Step::Item(key, of) => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            let Some(items) = value.as_array_mut() else { return };
            let found = items.iter().position(|item| is_named(item, key, of)).unwrap_or_else(|| {
                items.push(Value::Object(Map::from_iter([((*key).to_owned(), of.as_str().into())])));
                items.len() - 1
            });
            if let Some(item) = items.get_mut(found) {
                set(item, rest, to);
            }
        }
    }
}

/// Removes a field, and what is empty without it.
fn remove(value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (step, value) {
        (Step::Field(name), Value::Object(object)) => {
            if let Some(inner) = object.get_mut(name) {
                remove(inner, rest);
                let empty = inner.as_object().is_some_and(Map::is_empty) || inner.as_array().is_some_and(Vec::is_empty);
                if rest.is_empty() || empty {
                    object.remove(name);
                }
            }
        }
        (Step::Item(key, of), Value::Array(items)) => {
            if let Some(item) = items.iter_mut().find(|item| is_named(item, key, of)) {
                remove(item, rest);
            }
            // Its last field is gone.
            items.retain(|item| !item.as_object().is_some_and(Map::is_empty));
        }
        _ => {}
    }
}

fn is_named(item: &Value, key: &str, of: &str) -> bool {
    item.get(key).and_then(Value::as_str) == Some(of)
}
