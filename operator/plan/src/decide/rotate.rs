//! Workers whose credentials have changed since they started.
//!
//! A worker that works is replaced only when all work, so one at a time, and each has to work before the next is touched: credentials
//! that are wrong stop at the first. A worker that does not work has nothing to lose. Before either, the operator itself has reached
//! the brokers with the new credentials.

use fencepost_crds::v1alpha1::OperationType;
use k8s_openapi::api::apps::v1::StatefulSet;

use super::{
    Act, Case, Cause, Progress, Replace, Step,
    rollout::{self, wanted},
};
use crate::{observed::BrokerObserved, pods::PodFacts, revision::RunSpec, secrets::Fingerprints};

/// The fingerprints that a worker which starts now has.
pub(super) fn newest(case: &Case<'_>, run: &RunSpec) -> Fingerprints {
    let before = case.seen.stateful_set.as_ref().map(of_template).unwrap_or_default();
    Fingerprints::newest(&run.secrets, &case.seen.secrets, &before)
}

fn of_template(set: &StatefulSet) -> Fingerprints {
    let template = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    Fingerprints::read(template.and_then(|metadata| metadata.annotations.as_ref()))
}

/// Goes on with the rotation, or begins one. The StatefulSet with the newest fingerprints is applied in any case.
pub(super) fn proceed(case: &Case<'_>, newest: &Fingerprints, progress: &mut Progress) {
    let Some(set) = &case.seen.stateful_set else { return };
    let outdated: Vec<&PodFacts> = case.pods.iter().filter(|pod| is_outdated(pod, newest)).collect();
    let under_way = case.old.operation.as_ref().and_then(|operation| operation.operation_type);
    let is_rotating = under_way == Some(OperationType::Rotate);
    if !matches!(progress.step, Step::Running | Step::Starting | Step::Scaling) || !may_begin(case) {
        return;
    }
    if progress.step == Step::Running && (!outdated.is_empty() || (is_rotating && !all_work(case))) {
        progress.step = Step::Rotating { pods: outdated.iter().map(|pod| pod.name.clone()).collect() };
        progress.operation = Some(OperationType::Rotate);
    }
    // A pod made from the older template would be outdated again.
    if !rollout::is_observed(set) || of_template(set) != *newest {
        return;
    }
    progress.acts.extend(next(case, &outdated, &progress.step).into_iter().map(|pod| replace(pod, newest)));
}

fn next<'a>(case: &Case<'_>, outdated: &[&'a PodFacts], step: &Step) -> Vec<&'a PodFacts> {
    let idle: Vec<&PodFacts> =
        outdated.iter().copied().filter(|pod| pod.ready_since.is_none() && !pod.terminating).collect();
    if !idle.is_empty() {
        return idle;
    }
    let calm = matches!(step, Step::Rotating { .. }) && all_work(case);
    // As the rolling update of a StatefulSet does.
    outdated.iter().copied().filter(|_| calm).max_by_key(|pod| pod.ordinal).into_iter().collect()
}

fn is_outdated(pod: &PodFacts, newest: &Fingerprints) -> bool {
    pod.secrets.outdated(newest).next().is_some()
}

/// A newer spec that is refused must not keep the running one from new credentials; its own answer says nothing about them.
fn may_begin(case: &Case<'_>) -> bool {
    !case.target_is_accepted || matches!(case.seen.broker, BrokerObserved::Facts(_))
}

fn all_work(case: &Case<'_>) -> bool {
    let set = case.seen.stateful_set.as_ref();
    set.and_then(wanted).is_some_and(|replicas| rollout::settled_pods(case, replicas))
}

fn replace(pod: &PodFacts, newest: &Fingerprints) -> Act {
    let secrets: Vec<&str> = pod.secrets.outdated(newest).collect();
    let why = match secrets.as_slice() {
        [one] => format!("Secret {one} has changed"),
        all => format!("Secrets {} have changed", all.join(", ")),
    };
    Act::Replace(Replace { pod: pod.name.clone(), uid: pod.uid.clone(), cause: Cause::Credentials, why })
}
