//! Watches.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Shared;
use crate::selector::Selector;
use crate::serve::{Answer, metadata_of};
use crate::store::{Change, Refusal, mark};

/// How often an idle watch says how far it is.
const BOOKMARK: Duration = Duration::from_secs(60);

/// What a watch is about.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub kind: usize,
    pub namespace: Option<String>,
    pub selector: Selector,
    pub metadata_only: bool,
    pub bookmarks: bool,
    pub timeout: Duration,
}

struct Watch {
    shared: Arc<Shared>,
    wanted: Wanted,
    news: tokio::sync::watch::Receiver<(u64, u64)>,
    /// How often all watches were interrupted when it began.
    born: u64,
    version: u64,
    ready: VecDeque<Value>,
    ends: Instant,
    bookmark: Instant,
    over: bool,
}

/// Lines of JSON, one for each change after a version.
pub(crate) fn body(shared: Arc<Shared>, wanted: Wanted, from: u64) -> Answer {
    let news = shared.news.subscribe();
    let born = news.borrow().1;
    let now = Instant::now();
    let watch = Watch {
        ends: now + wanted.timeout,
        bookmark: now + BOOKMARK,
        shared,
        wanted,
        news,
        born,
        version: from,
        ready: VecDeque::new(),
        over: false,
    };
    let lines = stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n")))), watch))
    });
    StreamBody::new(lines).boxed_unsync()
}

impl Watch {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.over || self.news.borrow_and_update().1 != self.born {
                return None;
            }
            self.read();
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.news.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep_until(self.bookmark), if self.wanted.bookmarks => {
                    self.bookmark = Instant::now() + BOOKMARK;
                    self.ready.push_back(self.mark());
                }
            }
        }
    }

    /// Takes what has happened since.
    fn read(&mut self) {
        let shared = Arc::clone(&self.shared);
        let store = shared.store();
        if store.is_too_old(self.version) {
            self.over = true;
            self.ready.push_back(json!({ "type": "ERROR", "object": Refusal::gone(self.version).status() }));
            return;
        }
        let lines: Vec<Value> =
            store.after(self.wanted.kind, self.version).filter_map(|change| self.line(change)).collect();
        self.version = self.version.max(store.version());
        self.ready.extend(lines);
    }

    /// A change as it looks through the selector: what does not match any more is gone.
    fn line(&self, change: &Change) -> Option<Value> {
        let wanted = &self.wanted;
        if wanted.namespace.as_ref().is_some_and(|namespace| *namespace != change.key.namespace) {
            return None;
        }
        let seen = |object: &Option<Value>| object.clone().filter(|object| wanted.selector.matches(object));
        let (kind, object) = match (seen(&change.before), seen(&change.after)) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(last), None) => ("DELETED", last),
        };
        let mut object = if wanted.metadata_only { metadata_of(&object) } else { object };
        mark(&mut object, "resourceVersion", change.version.to_string());
        Some(json!({ "type": kind, "object": object }))
    }

    fn mark(&self) -> Value {
        let known = self.shared.store().kind(self.wanted.kind).ok().cloned();
        let (api_version, kind) = match known {
            Some(known) if !self.wanted.metadata_only => (known.api_version(), known.kind),
            _ => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned()),
        };
        let metadata = json!({ "resourceVersion": self.version.to_string() });
        json!({ "type": "BOOKMARK", "object": { "apiVersion": api_version, "kind": kind, "metadata": metadata } })
    }
}
