//! Annotations by which people ask the operator for something.

use fencepost_crds::{
    StreamJob,
    conditions::{self, ConditionType, Reason},
    names,
    v1alpha1::JobState,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, json};

use super::{Cluster, PluginError};

/// Lets the newest revision start.
pub(super) async fn approve(cluster: &Cluster, name: &str, looked_at: Option<&str>) -> Result<String, PluginError> {
    let job = cluster.job(name).await?;
    let (revision, told) = waiting(&job, looked_at).map_err(PluginError::Pointless)?;
    annotate(cluster, &job, name, names::ANNOTATION_APPROVE, &revision).await?;
    Ok(format!("{told}\n\nrevision {revision} is approved"))
}

/// The revision that waits, and what the operator says of it.
fn waiting(job: &StreamJob, looked_at: Option<&str>) -> Result<(String, String), String> {
    let status = job.status.clone().unwrap_or_default();
    let approved = conditions::get(&status.conditions, ConditionType::Approved);
    let needed: &str = Reason::ApprovalNeeded.into();
    let is_newest = status.observed_generation == job.metadata.generation;
    let Some(approved) = approved.filter(|approved| approved.reason == needed && is_newest) else {
        return Err("no revision waits for approval".to_owned());
    };
    let target = status.revision.and_then(|revision| revision.target).unwrap_or_default();
    match looked_at {
        Some(other) if other != target => {
            Err(format!("revision {target} waits for approval, not {other}: look at what it changes first"))
        }
        _ => {
            // The last line says how to do what is being done.
            let told = approved.message.rsplit_once('\n').map_or(approved.message.as_str(), |(told, _)| told);
            Ok((target, told.to_owned()))
        }
    }
}

/// Asks for a restart.
pub(super) async fn restart(cluster: &Cluster, name: &str) -> Result<String, PluginError> {
    let job = cluster.job(name).await?;
    if job.spec.state == JobState::Suspended {
        let text = "the job is suspended, and a restart starts nothing: set spec.state to Running".to_owned();
        return Err(PluginError::Pointless(text));
    }
    let asked = Timestamp::now().to_string();
    annotate(cluster, &job, name, names::ANNOTATION_RESTART, &asked).await?;
    let epoch = job.status.and_then(|status| status.epoch).unwrap_or(0);
    Ok(format!("a restart is asked for: workers of epoch {epoch} commit and stop, then epoch {} starts", epoch + 1))
}

/// The object must be the one that was looked at.
async fn annotate(
    cluster: &Cluster,
    job: &StreamJob,
    name: &str,
    annotation: &str,
    value: &str,
) -> Result<(), PluginError> {
    let annotations = Map::from_iter([(annotation.to_owned(), value.into())]);
    let patch = json!({ "metadata": { "uid": job.metadata.uid, "annotations": annotations } });
    let written = cluster.jobs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map(drop).map_err(PluginError::api(format!("annotate StreamJob {name}")))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn job(reason: &str, seen: i64) -> StreamJob {
        let mut job = StreamJob::new(
            "spend",
            serde_json::from_value(json!({
                "kafka": { "bootstrapServers": "kafka:9092" },
                "pipeline": { "sources": [], "sql": "", "sinks": [] },
            }))
            .unwrap(),
        );
        job.metadata.generation = Some(2);
        let condition = json!({
            "type": "Approved", "status": "False", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "revision b waits:\n- spec.pipeline.sql has changed\nTo let it: …",
        });
        let status = json!({ "observedGeneration": seen, "revision": { "target": "b" }, "conditions": [condition] });
        job.status = Some(serde_json::from_value(status).unwrap());
        job
    }

    #[rstest]
    #[case::it_waits("ApprovalNeeded", 2, None, Ok("b"))]
    #[case::it_was_looked_at("ApprovalNeeded", 2, Some("b"), Ok("b"))]
    #[case::another_was_looked_at("ApprovalNeeded", 2, Some("a"), Err("revision b waits for approval, not a"))]
    #[case::the_operator_has_not_seen_the_newest("ApprovalNeeded", 1, None, Err("no revision waits"))]
    #[case::it_needs_none("ApprovalNotNeeded", 2, None, Err("no revision waits"))]
    fn what_waits_is_approved(
        #[case] reason: &str,
        #[case] seen: i64,
        #[case] looked_at: Option<&str>,
        #[case] wanted: Result<&str, &str>,
    ) {
        match (waiting(&job(reason, seen), looked_at), wanted) {
            (Ok((revision, told)), Ok(wanted)) => {
                assert_eq!(
                    (revision.as_str(), told.as_str()),
                    (wanted, "revision b waits:\n- spec.pipeline.sql has changed")
                );
            }
            (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
            (found, _) => panic!("{found:?}"),
        }
    }
}
