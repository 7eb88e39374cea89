//! A Kubernetes API server in memory: what a controller relies on, and the moments in which it may be killed.
//!
//! It has resource versions and their conflicts, generations, status as a subresource, finalizers, graceful deletion of pods, preconditions,
//! dry runs, merge patches, server-side apply with owners of fields, label selectors, watches with bookmarks, time-outs, interruptions and
//! "too old", and metadata-only answers. It has no schemas (so no defaults, no validation, no admission), no discovery, and no pages.
//! Lists are owned as a whole, but for those that [`apply`] names.
//!
//! Garbage collection, StatefulSets and kubelets are no part of an API server: whoever tests plays them, with [`ApiServer::update`] and its
//! siblings, which pass no gate.

#![deny(missing_docs)]

pub mod apply;
mod request;
mod selector;
mod serve;
mod store;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use request::{Asked, Verb};
pub use store::{Kind, Refusal};
use store::{Manager, Store};

/// When, as seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The request has not been looked at.
    Before,
    /// It was carried out, and nobody knows yet.
    After,
}

/// What stands between a client and the server. One that never comes back is how a client dies.
pub trait Gate: Send + Sync {
    /// A request passes.
    fn pass(&self, moment: Moment, asked: &Asked) -> BoxFuture<'static, ()>;
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    fn pass(&self, _: Moment, _: &Asked) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The server. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// What the server, its clients and their watches share.
struct Shared {
    store: Mutex<Store>,
    /// The newest version, and how often all watches were interrupted.
    news: tokio::sync::watch::Sender<(u64, u64)>,
    clock: fn() -> Timestamp,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the store, and tells the watches.
    fn write<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        let (outcome, version) = {
            let mut store = self.store();
            store.now = (self.clock)();
            (work(&mut store), store.version())
        };
        self.news.send_if_modified(|(newest, _)| std::mem::replace(newest, version) != version);
        outcome
    }
}

impl ApiServer {
    /// An empty server that knows these kinds.
    #[must_use]
    pub fn new(kinds: Vec<Kind>, clock: fn() -> Timestamp) -> Self {
        let store = Store::new(kinds, clock());
        let (news, _) = tokio::sync::watch::channel((store.version(), 0));
        Self { shared: Arc::new(Shared { store: Mutex::new(store), news, clock }) }
    }

    /// A server that has these objects already, with their uids and versions, as [`everything`](Self::everything) gives them, and that has given no
    /// version after `version` yet. Every status, and what has an owner, was applied by `applier`; nobody owns the other fields.
    ///
    /// # Errors
    /// When it does not know the kind of one.
    pub fn restored(
        kinds: Vec<Kind>,
        clock: fn() -> Timestamp,
        (version, applier): (u64, &str),
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<Self, Refusal> {
        let server = Self::new(kinds, clock);
        server.shared.write(|store| store.restore((version, applier), objects))?;
        Ok(server)
    }

    /// The same objects in a server of its own, which nobody watches yet.
    #[must_use]
    pub fn fork(&self) -> Self {
        let store = self.shared.store().clone();
        let (news, _) = tokio::sync::watch::channel((store.version(), 0));
        Self { shared: Arc::new(Shared { store: Mutex::new(store), news, clock: self.shared.clock }) }
    }

    /// A client whose requests pass a gate.
    #[must_use]
    pub fn client(&self, gate: Arc<dyn Gate>) -> Client {
        Client::new(serve::Serve { shared: Arc::clone(&self.shared), gate }, "default")
    }

    /// One object.
    #[must_use]
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let found = self.shared.store().find::<K>(namespace, name)?;
        serde_json::from_value(found).ok()
    }

    /// All objects of a kind, in the order of their names.
    #[must_use]
    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let found = self.shared.store().all::<K>();
        found.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect()
    }

    /// What objects of a kind looked like after each change since a version. One that is gone is as it was last.
    #[must_use]
    pub fn history<K>(&self, version: u64) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let store = self.shared.store();
        let Ok(kind) = store.kind_of::<K>() else { return Vec::new() };
        let changed = store.after(kind, version).filter_map(|change| change.after.as_ref().or(change.before.as_ref()));
        changed.filter_map(|object| serde_json::from_value(object.clone()).ok()).collect()
    }

    /// All objects, as `Kind namespace/name` and content.
    #[must_use]
    pub fn everything(&self) -> Vec<(String, Value)> {
        self.shared.store().everything()
    }

    /// Shows every object, which is faster than [`everything`](Self::everything). The server must not be asked meanwhile.
    pub fn each(&self, show: impl FnMut(&Value)) {
        self.shared.store().all_objects().for_each(show);
    }

    /// Creates an object as somebody.
    ///
    /// # Errors
    /// As the server would.
    pub fn create<K: Resource<DynamicType = ()>>(&self, who: &str, object: Value) -> Result<(), Refusal> {
        self.shared.write(|store| {
            let kind = store.kind_of::<K>()?;
            store.create(kind, object, &Manager::update(who, false), false).map(drop)
        })
    }

    /// Changes an object, status included, as somebody who has just read it. Nothing when it is not there.
    ///
    /// # Errors
    /// As the server would.
    pub fn update<K: Resource<DynamicType = ()>>(
        &self,
        who: &str,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Refusal> {
        self.shared.write(|store| {
            let Some(mut object) = store.find::<K>(namespace, name) else { return Ok(()) };
            change(&mut object);
            let key = store.key_of::<K>(namespace, name)?;
            store.put_whole(&key, object, &Manager::update(who, false)).map(drop)
        })
    }

    /// Removes an object for good, as garbage collector or kubelet. Finalizers hold it as ever.
    ///
    /// # Errors
    /// As the server would.
    pub fn remove<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        self.shared.write(|store| {
            let key = store.key_of::<K>(namespace, name)?;
            store.delete(&key, Some(0), (None, None)).map(drop)
        })
    }

    /// Asks an object to go, as a user does. Pods take their time.
    ///
    /// # Errors
    /// As the server would.
    pub fn delete<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        self.shared.write(|store| {
            let key = store.key_of::<K>(namespace, name)?;
            store.delete(&key, None, (None, None)).map(drop)
        })
    }

    /// The log that a pod's containers have.
    pub fn set_log(&self, namespace: &str, pod: &str, log: &str) {
        self.shared.store().set_log(namespace, pod, log);
    }

    /// Every request that was carried out, each verb on each resource once.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.store().asked.iter().cloned().collect()
    }

    /// Ends all watches, as a server that is restarted does.
    pub fn interrupt(&self) {
        self.shared.news.send_modify(|(_, interruptions)| *interruptions += 1);
    }

    /// Forgets what happened: watches from an older version are too old.
    pub fn compact(&self) {
        self.shared.store().compact();
        self.interrupt();
    }

    /// The newest resource version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.store().version()
    }
}
