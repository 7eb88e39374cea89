//! The objects and what happened to them.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::{Map, Value, json};

use crate::apply::{self, Owners, Path, Step};
use crate::request::Asked;

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    has_status: bool,
    grace: Option<u64>,
}

impl Kind {
    /// A kind without status.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            has_status: false,
            grace: None,
        }
    }

    /// Status is a subresource.
    #[must_use]
    pub fn with_status(self) -> Self {
        Self { has_status: true, ..self }
    }

    /// Whoever deletes one only asks it to go, and it has so many seconds.
    #[must_use]
    pub fn with_grace(self, seconds: u64) -> Self {
        Self { grace: Some(seconds), ..self }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// What the server says to a request that it does not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: StatusCode,
    /// The word for it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    const fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self { code, reason, message }
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{what} not found"))
    }

    pub(crate) const fn conflict(message: String) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    pub(crate) const fn bad(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn gone(version: u64) -> Self {
        Self::new(StatusCode::GONE, "Expired", format!("too old resource version: {version}"))
    }

    /// As the server writes it.
    pub(crate) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        })
    }
}

/// Who writes, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    name: String,
    applies: bool,
    status: bool,
}

impl Manager {
    pub(crate) fn update(name: &str, status: bool) -> Self {
        Self { name: name.to_owned(), applies: false, status }
    }

    pub(crate) fn apply(name: &str, status: bool) -> Self {
        Self { name: name.to_owned(), applies: true, status }
    }
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub kind: usize,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug)]
struct Stored {
    object: Value,
    owners: Owners<Manager>,
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Uid and resource version that an object must have.
pub(crate) type Expected<'a> = (Option<&'a str>, Option<&'a str>);

#[derive(Clone)]
pub(crate) struct Store {
    kinds: Vec<Kind>,
    objects: BTreeMap<Key, Stored>,
    logs: BTreeMap<(String, String), String>,
    changes: Vec<Change>,
    version: u64,
    compacted: u64,
    uids: u64,
    pub now: Timestamp,
    pub asked: BTreeSet<Asked>,
}

impl Store {
    pub(crate) const fn new(kinds: Vec<Kind>, now: Timestamp) -> Self {
        Self {
            kinds,
            objects: BTreeMap::new(),
            logs: BTreeMap::new(),
            changes: Vec::new(),
            version: 1,
            compacted: 0,
            uids: 0,
            now,
            asked: BTreeSet::new(),
        }
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.changes.clear();
    }

    pub(crate) const fn is_too_old(&self, version: u64) -> bool {
        version < self.compacted
    }

    /// What happened to objects of a kind after a version.
    pub(crate) fn after(&self, kind: usize, version: u64) -> impl Iterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.version <= version);
        self.changes.iter().skip(from).filter(move |change| change.key.kind == kind)
    }

    pub(crate) fn kind(&self, number: usize) -> Result<&Kind, Refusal> {
        self.kinds.get(number).ok_or_else(|| Refusal::not_found("the kind"))
    }

    pub(crate) fn kind_named(&self, group: &str, version: &str, plural: &str) -> Result<usize, Refusal> {
        let is = |kind: &Kind| kind.group == group && kind.version == version && kind.plural == plural;
        self.kinds.iter().position(is).ok_or_else(|| Refusal::not_found(&format!("{plural}.{version}.{group}")))
    }

    pub(crate) fn kind_of<K: Resource<DynamicType = ()>>(&self) -> Result<usize, Refusal> {
        self.kind_named(&K::group(&()), &K::version(&()), &K::plural(&()))
    }

    pub(crate) fn key_of<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Result<Key, Refusal> {
        Ok(Key { kind: self.kind_of::<K>()?, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn find<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Option<Value> {
        self.get(&self.key_of::<K>(namespace, name).ok()?).ok()
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Vec<Value> {
        self.kind_of::<K>().map(|kind| self.objects(kind, None).cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn everything(&self) -> Vec<(String, Value)> {
        let name = |key: &Key| {
            let kind = self.kinds.get(key.kind).map(|kind| kind.kind.as_str()).unwrap_or_default();
            format!("{kind} {}/{}", key.namespace, key.name)
        };
        self.objects.iter().map(|(key, stored)| (name(key), stored.object.clone())).collect()
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Value, Refusal> {
        self.stored(key).map(|stored| stored.object.clone())
    }

    fn stored(&self, key: &Key) -> Result<&Stored, Refusal> {
        let kind = self.kinds.get(key.kind).map(|kind| kind.plural.as_str()).unwrap_or_default();
        self.objects.get(key).ok_or_else(|| Refusal::not_found(&format!("{kind} \"{}\"", key.name)))
    }

    /// The objects of a kind, in the order of their names.
    pub(crate) fn objects(&self, kind: usize, namespace: Option<&str>) -> impl Iterator<Item = &Value> {
        let wanted = move |key: &&Key| key.kind == kind && namespace.is_none_or(|namespace| namespace == key.namespace);
        self.objects.iter().filter(move |(key, _)| wanted(key)).map(|(_, stored)| &stored.object)
    }

    pub(crate) fn all_objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values().map(|stored| &stored.object)
    }

    pub(crate) fn set_log(&mut self, namespace: &str, pod: &str, log: &str) {
        self.logs.insert((namespace.to_owned(), pod.to_owned()), log.to_owned());
    }

    pub(crate) fn log(&self, namespace: &str, pod: &str) -> String {
        self.logs.get(&(namespace.to_owned(), pod.to_owned())).cloned().unwrap_or_default()
    }

    /// Creates an object. Its status is not taken, where status is a subresource.
    pub(crate) fn create(
        &mut self,
        kind: usize,
        mut object: Value,
        manager: &Manager,
        dry_run: bool,
    ) -> Result<Value, Refusal> {
        let known = self.kind(kind)?.clone();
        if !object.is_object() {
            return Err(Refusal::bad("the body is not an object".to_owned()));
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, mut name) = (text("/metadata/namespace"), text("/metadata/name"));
        let generated = text("/metadata/generateName");
        if name.is_empty() && !generated.is_empty() {
            name = format!("{generated}{:05}", self.uids + 1);
        }
        if name.is_empty() || namespace.is_empty() {
            return Err(Refusal::bad("an object needs a name and a namespace".to_owned()));
        }
        let key = Key { kind, namespace, name };
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{}\" already exists", known.plural, key.name);
            return Err(Refusal::new(StatusCode::CONFLICT, "AlreadyExists", message));
        }
        if known.has_status
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
        let mut owners = Owners::new();
        apply::changed(&Value::Null, &object, &mut owners, manager);
        self.born(&key, object, owners, dry_run)
    }

    fn born(&mut self, key: &Key, mut object: Value, owners: Owners<Manager>, dry_run: bool) -> Result<Value, Refusal> {
        let known = self.kind(key.kind)?.clone();
        let uid = self.uids + 1;
        mark(&mut object, "name", key.name.as_str());
        mark(&mut object, "namespace", key.namespace.as_str());
        mark(&mut object, "uid", format!("uid-{uid}"));
        mark(&mut object, "creationTimestamp", self.now.to_string());
        mark(&mut object, "resourceVersion", (self.version + 1).to_string());
        if known.has_status {
            mark(&mut object, "generation", 1);
        }
        merge(&mut object, &json!({ "apiVersion": known.api_version(), "kind": known.kind }));
        if !dry_run {
            self.uids = uid;
            self.version += 1;
            self.changes.push(Change {
                version: self.version,
                key: key.clone(),
                before: None,
                after: Some(object.clone()),
            });
            self.objects.insert(key.clone(), Stored { object: object.clone(), owners });
        }
        Ok(object)
    }

    /// Takes objects as they are. What happened before is too old for a watch.
    pub(crate) fn restore(
        &mut self,
        (version, applier): (u64, &str),
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<(), Refusal> {
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (namespace, name) = (text("/metadata/namespace").to_owned(), text("/metadata/name").to_owned());
            let named = |kind: &Kind| kind.api_version() == text("/apiVersion") && kind.kind == text("/kind");
            let kind = self.kinds.iter().position(named).ok_or_else(|| Refusal::not_found(text("/kind")))?;
            let is_child = object.pointer("/metadata/ownerReferences").is_some();
            let mut owners = Owners::new();
            for path in apply::fields(&object).into_keys() {
                let of_status = path.first() == Some(&Step::Field("status".to_owned()));
                if of_status || is_child {
                    owners.entry(Manager::apply(applier, of_status)).or_default().insert(path);
                }
            }
            self.objects.insert(Key { kind, namespace, name }, Stored { object, owners });
        }
        self.version = version;
        self.compacted = version;
        // There was no birth without a version.
        self.uids = version;
        Ok(())
    }

    /// Writes a whole object, status included: for those who play controllers.
    pub(crate) fn put_whole(&mut self, key: &Key, object: Value, manager: &Manager) -> Result<Value, Refusal> {
        let mut owners = self.stored(key)?.owners.clone();
        apply::changed(&self.get(key)?, &object, &mut owners, manager);
        self.keep(key, object, owners, false)
    }

    /// Replaces an object, or its status.
    pub(crate) fn replace(
        &mut self,
        key: &Key,
        wanted: Value,
        manager: &Manager,
        dry_run: bool,
    ) -> Result<Value, Refusal> {
        expect(&self.get(key)?, &wanted)?;
        self.overwrite(key, wanted, manager, dry_run)
    }

    fn overwrite(&mut self, key: &Key, wanted: Value, manager: &Manager, dry_run: bool) -> Result<Value, Refusal> {
        let Stored { object: before, mut owners } = self.stored(key)?.clone();
        let after = self.part(key, &before, wanted, manager.status)?;
        apply::changed(&before, &after, &mut owners, manager);
        self.keep(key, after, owners, dry_run)
    }

    /// Merges a patch (RFC 7396).
    pub(crate) fn merge(
        &mut self,
        key: &Key,
        patch: &Value,
        manager: &Manager,
        dry_run: bool,
    ) -> Result<Value, Refusal> {
        let mut wanted = self.get(key)?;
        expect(&wanted, patch)?;
        merge(&mut wanted, patch);
        self.overwrite(key, wanted, manager, dry_run)
    }

    /// Server-side apply.
    pub(crate) fn apply(
        &mut self,
        key: &Key,
        wanted: &Value,
        manager: &Manager,
        (force, dry_run): (bool, bool),
    ) -> Result<Value, Refusal> {
        let known = self.kind(key.kind)?.clone();
        let of_status = manager.status;
        let mut named = wanted.clone();
        if let Some(object) = named.as_object_mut() {
            if of_status {
                object.retain(|name, _| name == "status");
            } else if known.has_status {
                object.remove("status");
            }
        }
        let named = apply::fields(&named);
        let Ok(before) = self.get(key) else {
            if of_status {
                return Err(self.stored(key).err().unwrap_or_else(|| Refusal::not_found(&key.name)));
            }
            if let Some(uid) = wanted.pointer("/metadata/uid").and_then(Value::as_str) {
                let message = format!("uid mismatch: the object has uid {uid}, and no existing object was found");
                return Err(Refusal::conflict(message));
            }
            let (mut object, mut owners) = (Value::Object(Map::new()), Owners::new());
            drop(apply::apply(&mut object, &mut owners, manager, &named, true));
            return self.born(key, object, owners, dry_run);
        };
        expect(&before, wanted)?;
        let (mut after, mut owners) = (before, self.stored(key)?.owners.clone());
        apply::apply(&mut after, &mut owners, manager, &named, force).map_err(|conflict| {
            let path = path_text(&conflict.path);
            Refusal::conflict(format!(
                "Apply failed with 1 conflict: conflict with \"{}\": {path}",
                conflict.owner.name
            ))
        })?;
        self.keep(key, after, owners, dry_run)
    }

    /// The object after a write of its status, or of everything else.
    fn part(&self, key: &Key, before: &Value, wanted: Value, of_status: bool) -> Result<Value, Refusal> {
        if !self.kind(key.kind)?.has_status {
            return Ok(wanted);
        }
        let (mut base, status) = if of_status { (before.clone(), wanted) } else { (wanted, before.clone()) };
        if let Some(object) = base.as_object_mut() {
            match status.get("status") {
                Some(status) => drop(object.insert("status".to_owned(), status.clone())),
                None => drop(object.remove("status")),
            }
        }
        Ok(base)
    }

    /// Keeps what a write made of an object. One that changes nothing is no change.
    fn keep(&mut self, key: &Key, mut after: Value, owners: Owners<Manager>, dry_run: bool) -> Result<Value, Refusal> {
        let known = self.kind(key.kind)?.clone();
        let before = self.get(key)?;
        // What only the server writes.
        for field in
            ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"]
        {
            match before.pointer(&format!("/metadata/{field}")) {
                Some(old) => mark(&mut after, field, old.clone()),
                None => unmark(&mut after, field),
            }
        }
        if after == before {
            if !dry_run && let Some(stored) = self.objects.get_mut(key) {
                stored.owners = owners;
            }
            return Ok(after);
        }
        let generation = before.pointer("/metadata/generation").and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|_| known.has_status && body(&before) != body(&after)) {
            mark(&mut after, "generation", generation + 1);
        }
        mark(&mut after, "resourceVersion", (self.version + 1).to_string());
        if dry_run {
            return Ok(after);
        }
        let goes = after.pointer("/metadata/deletionTimestamp").is_some();
        let waits = after.pointer("/metadata/deletionGracePeriodSeconds").is_some_and(|grace| grace != &json!(0));
        if goes && !waits && finalizers(&after) == 0 {
            self.gone(key, before);
            return Ok(after);
        }
        self.version += 1;
        self.changes.push(Change {
            version: self.version,
            key: key.clone(),
            before: Some(before),
            after: Some(after.clone()),
        });
        self.objects.insert(key.clone(), Stored { object: after.clone(), owners });
        Ok(after)
    }

    fn gone(&mut self, key: &Key, last: Value) {
        self.objects.remove(key);
        self.version += 1;
        self.changes.push(Change { version: self.version, key: key.clone(), before: Some(last), after: None });
    }

    /// Deletes an object, or asks it to go: what has finalizers or takes its time is only marked.
    pub(crate) fn delete(
        &mut self,
        key: &Key,
        grace: Option<u64>,
        (uid, version): Expected<'_>,
    ) -> Result<Value, Refusal> {
        let known = self.kind(key.kind)?.clone();
        let before = self.get(key)?;
        let is = |pointer: &str| before.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        for (what, pointer, wanted) in
            [("UID", "/metadata/uid", uid), ("ResourceVersion", "/metadata/resourceVersion", version)]
        {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != is(pointer)) {
                let message =
                    format!("Precondition failed: {what} in precondition: {wanted}, in object: {}", is(pointer));
                return Err(Refusal::conflict(message));
            }
        }
        let grace = grace.or(known.grace).unwrap_or(0);
        let marked = before.pointer("/metadata/deletionTimestamp").is_some();
        if grace == 0 && finalizers(&before) == 0 {
            self.gone(key, before.clone());
            return Ok(before);
        }
        if marked && grace > 0 {
            return Ok(before);
        }
        let mut after = before.clone();
        if !marked {
            mark(&mut after, "deletionTimestamp", self.now.to_string());
            if let Some(generation) = before.pointer("/metadata/generation").and_then(Value::as_i64) {
                mark(&mut after, "generation", generation + 1);
            }
        }
        mark(&mut after, "deletionGracePeriodSeconds", grace);
        self.version += 1;
        mark(&mut after, "resourceVersion", self.version.to_string());
        self.changes.push(Change {
            version: self.version,
            key: key.clone(),
            before: Some(before),
            after: Some(after.clone()),
        });
        if let Some(stored) = self.objects.get_mut(key) {
            stored.object = after.clone();
        }
        Ok(after)
    }
}

/// A write may say which object it means.
fn expect(there: &Value, wanted: &Value) -> Result<(), Refusal> {
    for field in ["uid", "resourceVersion"] {
        let pointer = format!("/metadata/{field}");
        let wanted = wanted.pointer(&pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let found = there.pointer(&pointer).and_then(Value::as_str);
        if wanted.is_some() && wanted != found {
            let message = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Refusal::conflict(message.to_owned()));
        }
    }
    Ok(())
}

/// Sets a field of the metadata.
pub(crate) fn mark(object: &mut Value, field: &str, value: impl Into<Value>) {
    let field = Map::from_iter([(field.to_owned(), value.into())]);
    merge(object, &json!({ "metadata": field }));
}

fn unmark(object: &mut Value, field: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

fn finalizers(object: &Value) -> usize {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Everything but metadata and status.
fn body(object: &Value) -> Value {
    let mut body = object.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("metadata");
        body.remove("status");
    }
    body
}

fn merge(value: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(object) = value.as_object_mut() else { return };
    for (name, patch) in patch {
        if patch.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), patch);
        }
    }
}

fn path_text(path: &Path) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item(key, of) => format!("[{key}=\"{of}\"]"),
        })
        .collect()
}
