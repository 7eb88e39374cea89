//! Reading the answer of a plan pod.

use fencepost_crds::{contract::PlanReport, names};
use fencepost_plan::pods::PodFacts;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::LogParams};

/// The report is one line, the last. The lines before it help to explain a missing report.
const LINES: i64 = 40;
/// Longest log that is read.
const LIMIT: i64 = 4 * 1024 * 1024;
/// How much of a log is repeated in a condition.
const EXCERPT: usize = 2048;

/// The answer of a plan pod that has ended: its report, or why there is none. `None` while it runs.
pub async fn answer(pods: &Api<Pod>, pod: &Pod) -> Option<Result<PlanReport, String>> {
    let phase = pod.status.as_ref()?.phase.as_deref()?;
    if !matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    // By name: whatever a mesh or a policy puts beside it has a log of its own.
    let container = Some(names::WORKER_CONTAINER.to_owned());
    let params = LogParams { container, tail_lines: Some(LINES), limit_bytes: Some(LIMIT), ..LogParams::default() };
    let log = match pods.logs(&pod.name_any(), &params).await {
        Ok(log) => log,
        Err(error) => {
            return Some(Err(format!("{}; its log cannot be read: {}", ending(pod), crate::error::chain(&error))));
        }
    };
    Some(read(&log).ok_or_else(|| explain(pod, &log)))
}

fn read(log: &str) -> Option<PlanReport> {
    let last = log.lines().rev().find(|line| !line.trim().is_empty())?;
    serde_json::from_str(last).ok()
}

fn explain(pod: &Pod, log: &str) -> String {
    let mut start = log.len().saturating_sub(EXCERPT);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    let excerpt = log.get(start..).unwrap_or_default().trim();
    if excerpt.is_empty() {
        format!("{} without output", ending(pod))
    } else {
        format!("{} without a report. The end of its output:\n{excerpt}", ending(pod))
    }
}

fn ending(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let word = status.and_then(|status| status.reason.as_deref()).map(|reason| format!(" ({reason})"));
    let exit = PodFacts::of(pod).last_exit.map(|exit| format!(" with exit code {}", exit.code));
    format!("the plan pod ended{}{}", exit.unwrap_or_default(), word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_the_last_line_that_is_not_empty() {
        let log = "{\"level\":\"info\"}\n{\"contractVersion\":1,\"workerVersion\":\"0.1.0\",\"signature\":\"ab\"}\n\n";
        assert_eq!(read(log).unwrap().signature, "ab");
        assert_eq!(read("thread main panicked"), None);
    }

    #[test]
    fn a_pod_without_a_report_is_explained_by_the_end_of_its_log() {
        let pod = Pod::default();
        let text = explain(&pod, &"ä".repeat(5000));
        assert!(text.starts_with("the plan pod ended without a report") && text.ends_with('ä'), "{text}");
    }
}
