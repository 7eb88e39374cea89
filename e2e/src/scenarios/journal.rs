//! What pods there were, from the API server's own account: a watch misses nothing and keeps the order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_crds::names;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Follows the worker pods of a namespace until it is dropped.
#[derive(Debug)]
pub struct Journal {
    history: Arc<Mutex<History>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct History {
    alive: BTreeMap<String, String>,
    seen: BTreeMap<String, String>,
    overlaps: Vec<String>,
}

impl Journal {
    /// Starts at the pods that are there.
    pub fn start(runtime: &Handle, client: Client, namespace: &str) -> Self {
        let history = Arc::new(Mutex::new(History::default()));
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let task = runtime.spawn(follow(pods, Arc::clone(&history)));
        Self { history, task }
    }

    /// Names of all worker pods there ever were, one entry a pod.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        self.read(|history| history.seen.values().cloned().collect())
    }

    /// Uids of the worker pods there are.
    #[must_use]
    pub fn uids(&self) -> BTreeSet<String> {
        self.read(|history| history.alive.keys().cloned().collect())
    }

    /// Moments at which pods of different epochs existed.
    #[must_use]
    pub fn overlaps(&self) -> Vec<String> {
        self.read(|history| history.overlaps.clone())
    }

    fn read<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(pods: Api<Pod>, history: Arc<Mutex<History>>) {
    let selector = format!("{}={}", names::LABEL_ROLE, names::ROLE_WORKER);
    let events = watcher(pods, watcher::Config::default().labels(&selector));
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => history.applied(&pod),
            Ok(Event::Delete(pod)) => {
                history.alive.remove(&pod.uid().unwrap_or_default());
            }
            // A new list begins: it names what is alive.
            Ok(Event::Init) => history.alive.clear(),
            Ok(Event::InitDone) | Err(_) => {}
        }
    }
}

impl History {
    /// A pod that is being deleted is alive: its process may still write.
    fn applied(&mut self, pod: &Pod) {
        let epoch = pod.annotations().get(names::ANNOTATION_EPOCH).cloned().unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        self.seen.insert(uid.clone(), pod.name_any());
        self.alive.insert(uid, epoch);
        let epochs: BTreeSet<_> = self.alive.values().collect();
        if epochs.len() > 1 {
            self.overlaps.push(format!("when {} was seen, epochs {epochs:?} existed", pod.name_any()));
        }
    }
}
