//! What pods say about workers.

use std::time::Duration;

use fencepost_crds::{
    contract::{ExitCode, WorkerError},
    names,
};
use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod},
    jiff::Timestamp,
};
use kube_core::ResourceExt;

use fencepost_crds::conditions::Reason;

use crate::secrets::Fingerprints;

/// A pod with what the rules need of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// Name.
    pub name: String,
    /// Identity of this instance of the pod.
    pub uid: String,
    /// Ordinal, for pods of the StatefulSet.
    pub ordinal: Option<u32>,
    /// Epoch that it was built for.
    pub epoch: Option<i64>,
    /// Secrets that it started with.
    pub secrets: Fingerprints,
    /// Node, for messages.
    pub node: Option<String>,
    /// Someone asked it to stop. It is alive until it is gone.
    pub terminating: bool,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// Why it cannot start.
    pub trouble: Option<Trouble>,
    /// How its container ended last.
    pub last_exit: Option<Exit>,
    /// The kubelet waits before it starts the container again.
    pub backing_off: bool,
}

/// The workers among pods with our labels: made by a StatefulSet, or with an epoch as only the operator gives it. Somebody's own pod, such as a
/// copy for debugging, is none: it must neither stop the job nor be waited for.
#[must_use]
pub fn workers(pods: &[Pod]) -> Vec<PodFacts> {
    let is_worker = |pod: &&Pod| {
        pod.annotations().contains_key(names::ANNOTATION_EPOCH)
            || pod.owner_references().iter().any(|owner| owner.kind == "StatefulSet")
    };
    pods.iter().filter(is_worker).map(PodFacts::of).collect()
}

/// Why a pod cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Reason of the condition.
    pub reason: Reason,
    /// The scheduler's or the kubelet's words.
    pub message: String,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// The worker's last words.
    pub message: Option<String>,
    /// The kubelet's word for it, such as `OOMKilled`.
    pub reason: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
}

/// What an exit asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// A restart may help.
    MayHelp,
    /// It meets the same end again: a person is needed. The reason of the condition.
    DoesNotHelp(Reason),
}

impl Exit {
    /// Whether a restart may help.
    #[must_use]
    pub fn restart(&self) -> Restart {
        match u8::try_from(self.code).ok().and_then(ExitCode::from_repr) {
            Some(ExitCode::Fenced) => Restart::DoesNotHelp(Reason::Fenced),
            Some(ExitCode::InvalidJob) => Restart::DoesNotHelp(Reason::PipelineInvalid),
            Some(ExitCode::BadRecord) => Restart::DoesNotHelp(Reason::BadRecord),
            _ => Restart::MayHelp,
        }
    }

    /// For people: the worker's own words where there are any.
    #[must_use]
    pub fn describe(&self) -> String {
        let how = match (self.code, self.reason.as_deref()) {
            (code, Some(kubelet)) if !matches!(kubelet, "Error" | "Completed") => {
                format!("exit code {code} ({kubelet})")
            }
            (code, _) if code > SIGNALS => format!("ended by signal {}", code - SIGNALS),
            (code, _) => format!("exit code {code}"),
        };
        match self.last_words() {
            Some(words) => format!("{how}: {words}"),
            None => how,
        }
    }

    /// The worker leaves one line of JSON. Without it the kubelet gives the end of the log, which explains an exit, but not a signal.
    fn last_words(&self) -> Option<String> {
        let said = self.message.as_deref().unwrap_or_default().trim();
        if let Some(error) = said.lines().rev().find_map(|line| serde_json::from_str::<WorkerError>(line).ok()) {
            return Some(error.message);
        }
        let line = said.lines().last().filter(|_| self.code <= SIGNALS)?;
        let logged = serde_json::from_str::<serde_json::Value>(line).ok();
        let message = logged.as_ref().and_then(|logged| logged.get("message")?.as_str());
        Some(message.unwrap_or(line).to_owned())
    }
}

/// Exit codes above are this and the number of a signal.
const SIGNALS: i32 = 128;

impl PodFacts {
    /// Reads a pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let name = pod.name_any();
        let status = pod.status.as_ref();
        let container = status
            .and_then(|s| s.container_statuses.as_ref())
            .and_then(|list| list.iter().find(|status| status.name == names::WORKER_CONTAINER));
        let waiting = container.and_then(|c| c.state.as_ref()).and_then(|state| state.waiting.as_ref());
        Self {
            ordinal: names::ordinal_of_pod(&name),
            name,
            uid: pod.uid().unwrap_or_default(),
            secrets: Fingerprints::read(pod.metadata.annotations.as_ref()),
            epoch: pod.annotations().get(names::ANNOTATION_EPOCH).and_then(|epoch| epoch.parse().ok()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            ready_since: condition(pod, "Ready").filter(|(status, ..)| *status == "True").and_then(|(.., at)| at),
            trouble: waiting.and_then(kubelet_trouble).or_else(|| scheduler_trouble(pod)),
            last_exit: container.and_then(last_exit),
            backing_off: waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff")),
        }
    }

    /// It processes: ready, and nobody asked it to stop.
    #[must_use]
    pub const fn works(&self) -> bool {
        self.ready_since.is_some() && !self.terminating
    }

    /// It has been ready for so long that earlier crashes do not count any more.
    #[must_use]
    pub fn is_stable(&self, now: Timestamp, after: Duration) -> bool {
        self.ready_since.is_some_and(|since| elapsed(since, now) >= after)
    }
}

/// Time between two moments; none when the clock went back.
#[must_use]
pub fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<(&'a str, &'a str, &'a str, Option<Timestamp>)> {
    let list = pod.status.as_ref()?.conditions.as_ref()?;
    let found = list.iter().find(|c| c.type_ == type_)?;
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    Some((
        found.status.as_str(),
        text(&found.reason),
        text(&found.message),
        found.last_transition_time.as_ref().map(|time| time.0),
    ))
}

fn scheduler_trouble(pod: &Pod) -> Option<Trouble> {
    let (status, reason, message, _) = condition(pod, "PodScheduled")?;
    (status == "False" && reason == "Unschedulable")
        .then(|| Trouble { reason: Reason::Unschedulable, message: message.to_owned() })
}

/// The kubelet's reasons that do not go away by waiting a moment.
fn kubelet_trouble(waiting: &ContainerStateWaiting) -> Option<Trouble> {
    let reason = match waiting.reason.as_deref()? {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ErrImageInspect"
        | "RegistryUnavailable" => Reason::ImagePullFailed,
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => Reason::WorkersNotReady,
        _ => return None,
    };
    let word = waiting.reason.as_deref().unwrap_or_default();
    let message = waiting.message.as_deref().filter(|text| !text.is_empty());
    Some(Trouble { reason, message: message.map_or_else(|| word.to_owned(), |text| format!("{word}: {text}")) })
}

fn last_exit(container: &ContainerStatus) -> Option<Exit> {
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().and_then(|state| state.terminated.clone())
    };
    ended(&container.state).or_else(|| ended(&container.last_state)).map(|ended: ContainerStateTerminated| Exit {
        code: ended.exit_code,
        message: ended.message,
        reason: ended.reason,
        at: ended.finished_at.map(|time| time.0),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(137, None, "{\"level\":\"INFO\",\"message\":\"committed\"}", "ended by signal 9")]
    #[case(137, Some("OOMKilled"), "", "exit code 137 (OOMKilled)")]
    #[case(
        66,
        Some("Error"),
        "{\"reason\":\"BadRecord\",\"message\":\"orders-0 offset 3\",\"atMs\":1}",
        "exit code 66: orders-0 offset 3"
    )]
    #[case(1, Some("Error"), "x\n{\"level\":\"ERROR\",\"message\":\"no space\"}", "exit code 1: no space")]
    #[case(101, Some("Error"), "thread main panicked", "exit code 101: thread main panicked")]
    #[case(0, Some("Completed"), "", "exit code 0")]
    fn an_exit_is_told_in_the_words_that_explain_it(
        #[case] code: i32,
        #[case] reason: Option<&str>,
        #[case] message: &str,
        #[case] told: &str,
    ) {
        let exit = Exit { code, message: Some(message.to_owned()), reason: reason.map(str::to_owned), at: None };
        assert_eq!(exit.describe(), told);
    }
}
