//! Publishing events.
//!
//! What is told twice is one event with a count, and what differs in a word is another: kube-runtime's recorder looks at the reason
//! only, so that "epoch 2 starts" would be shown as "epoch 1 starts (x2)".

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use fencepost_crds::names;
use fencepost_plan::events::{Note, NoteKind};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Error as KubeError,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Events that are remembered; the API server forgets them after an hour.
const REMEMBERED: usize = 4096;

/// Publishes events of one operator.
pub struct Events {
    client: Client,
    /// The operator's pod.
    instance: String,
    /// How often each was told. A hint: after a restart of the operator counting begins anew.
    told: Mutex<HashMap<String, i32>>,
}

impl Events {
    /// For the operator in the pod `instance`.
    #[must_use]
    pub fn new(client: Client, instance: String) -> Self {
        Self { client, instance, told: Mutex::default() }
    }

    /// Tells something about an object.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn publish(&self, about: &ObjectReference, note: &Note, now: Timestamp) -> Result<(), KubeError> {
        let event = self.event(about, note, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {
                self.count(&name, |_| 1);
                Ok(())
            }
            Err(KubeError::Api(status)) if status.is_already_exists() => {
                let count = self.count(&name, |before| before.max(1).saturating_add(1));
                let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&series)).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn count(&self, name: &str, next: impl FnOnce(i32) -> i32) -> i32 {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= REMEMBERED && !told.contains_key(name) {
            told.clear();
        }
        let count = told.entry(name.to_owned()).or_default();
        *count = next(*count);
        *count
    }

    fn event(&self, about: &ObjectReference, note: &Note, now: Timestamp) -> Event {
        let kind = match note.kind {
            NoteKind::Normal => "Normal",
            NoteKind::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(name(about, note)),
                namespace: about.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(kind.to_owned()),
            reason: Some(note.reason.clone()),
            action: Some(note.action.to_owned()),
            note: Some(note.text.clone()),
            regarding: Some(about.clone()),
            reporting_controller: Some(names::MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// The same for the same words about the same object, and for no others.
fn name(about: &ObjectReference, note: &Note) -> String {
    let mut hasher = DefaultHasher::new();
    (&about.uid, &note.reason, note.action, &note.text, note.kind == NoteKind::Warning).hash(&mut hasher);
    format!("{}.{:016x}", about.name.as_deref().unwrap_or_default(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use fencepost_plan::events::note;

    use super::*;

    fn about(uid: &str) -> ObjectReference {
        ObjectReference { name: Some("spend".to_owned()), uid: Some(uid.to_owned()), ..ObjectReference::default() }
    }

    #[test]
    fn other_words_are_another_event() {
        let told = |text: &str| note(NoteKind::Normal, "Starting", "Reconcile", text);
        let first = name(&about("1"), &told("epoch 1 starts"));
        assert_eq!(first, name(&about("1"), &told("epoch 1 starts")));
        assert_ne!(first, name(&about("1"), &told("epoch 2 starts")));
        assert_ne!(first, name(&about("2"), &told("epoch 1 starts")), "an object that was made again is another one");
        assert!(first.starts_with("spend.") && first.len() <= 253);
    }

    #[test]
    fn a_warning_and_good_news_are_not_one_event() {
        let told = |kind| note(kind, "Compatible", "BrokerCompatible", "x");
        assert_ne!(name(&about("1"), &told(NoteKind::Normal)), name(&about("1"), &told(NoteKind::Warning)));
    }
}
