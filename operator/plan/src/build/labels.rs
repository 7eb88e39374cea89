//! Labels, and the metadata that all children share.

use std::collections::BTreeMap;

use fencepost_crds::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::revision::Identity;

/// Value of `app.kubernetes.io/name`.
const APP: &str = "fencepost";

/// Metadata of a child: name, owner, labels.
#[must_use]
pub fn metadata(identity: &Identity, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(identity.namespace.clone()),
        labels: Some(of_job(&identity.name)),
        owner_references: Some(vec![identity.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Labels that every object of a job carries.
#[must_use]
pub fn of_job(job: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), APP.to_owned()),
        ("app.kubernetes.io/instance".to_owned(), job.to_owned()),
        (names::LABEL_MANAGED_BY.to_owned(), names::MANAGER.to_owned()),
        (names::LABEL_JOB.to_owned(), job.to_owned()),
    ])
}

/// Labels of the pods of a job with a role.
#[must_use]
pub fn of_pods(job: &str, role: &str) -> BTreeMap<String, String> {
    let mut labels = of_job(job);
    labels.insert(names::LABEL_ROLE.to_owned(), role.to_owned());
    labels.insert("app.kubernetes.io/component".to_owned(), role.to_owned());
    labels
}

/// What selects the workers of a job. Immutable in a StatefulSet, so it holds names only.
#[must_use]
pub fn worker_selector(job: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([
            (names::LABEL_JOB.to_owned(), job.to_owned()),
            (names::LABEL_ROLE.to_owned(), names::ROLE_WORKER.to_owned()),
        ])),
        match_expressions: None,
    }
}

/// [`worker_selector`] as text, for `/scale` and for lists.
#[must_use]
pub fn worker_selector_text(job: &str) -> String {
    pod_selector_text(job, names::ROLE_WORKER)
}

/// Selects the pods of a job with a role.
#[must_use]
pub fn pod_selector_text(job: &str, role: &str) -> String {
    format!("{}={job},{}={role}", names::LABEL_JOB, names::LABEL_ROLE)
}

/// Selects the accepted revisions of a job. The StatefulSet controller copies the labels of the pod template, with the role,
/// to its own ControllerRevisions.
#[must_use]
pub fn revision_selector_text(job: &str) -> String {
    format!("{},!{}", job_selector_text(job), names::LABEL_ROLE)
}

/// Selects every object of a job.
#[must_use]
pub fn job_selector_text(job: &str) -> String {
    format!("{}={},{}={job}", names::LABEL_MANAGED_BY, names::MANAGER, names::LABEL_JOB)
}

/// Sets a label.
pub fn label(metadata: &mut ObjectMeta, key: &str, value: &str) {
    metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// Sets an annotation.
pub fn annotate(metadata: &mut ObjectMeta, key: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}
