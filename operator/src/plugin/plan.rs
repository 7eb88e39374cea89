//! What a manifest would change.

use std::{fs, io::Read, path::Path, process::ExitCode};

use fencepost_crds::{
    StreamJob, StreamJobSpec, resolve,
    v1alpha1::{Approval, JobState},
};
use fencepost_plan::{
    AcceptedRevision,
    diff::{self, Difference, Effect},
    revision::{newest_first, revision_of},
    validate::{self, Facts, Stage},
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Cluster, PluginError};

/// Tells what every StreamJob of a file would do.
pub(super) async fn run(cluster: &Cluster, file: &Path) -> Result<ExitCode, PluginError> {
    let mut refused = false;
    let manifests = read(file)?;
    for (index, manifest) in manifests.iter().enumerate() {
        let told = one(cluster, manifest).await?;
        if index > 0 {
            anstream::println!();
        }
        anstream::println!("{}", super::harmless(told.text.trim_end()));
        refused |= told.refused;
    }
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The StreamJobs in a file.
fn read(file: &Path) -> Result<Vec<Value>, PluginError> {
    let failed = |error| PluginError::File(file.to_owned(), error);
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        text
    } else {
        fs::read_to_string(file).map_err(failed)?
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| PluginError::Yaml(file.to_owned(), Box::new(error)))?;
    let is_ours = |document: &Value| {
        let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        field("kind") == StreamJob::kind(&()) && field("apiVersion") == StreamJob::api_version(&())
    };
    let jobs: Vec<Value> = documents.into_iter().filter(is_ours).collect();
    if jobs.is_empty() {
        return Err(PluginError::NoManifest(file.to_owned()));
    }
    Ok(jobs)
}

/// What is said of a manifest.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    text: String,
    refused: bool,
}

async fn one(cluster: &Cluster, manifest: &Value) -> Result<Told, PluginError> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let name = text("/metadata/name").unwrap_or_default();
    let namespace = text("/metadata/namespace").unwrap_or_else(|| cluster.namespace.clone());
    let title = format!("StreamJob {namespace}/{name}");
    let jobs: Api<StreamJob> = Api::namespaced(cluster.client.clone(), &namespace);
    let live = jobs.get_opt(&name).await.map_err(PluginError::api(format!("read {title}")))?;
    let new = match dry_run(cluster, (&namespace, &name), manifest, live.as_ref()).await {
        Ok(new) => new,
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 422) => {
            return Ok(Told { text: format!("{title}: refused\n{}", indented(&status.message)), refused: true });
        }
        Err(error) => return Err(PluginError::api(format!("try {title}"))(error)),
    };
    let accepted = match &live {
        Some(live) => accepted(cluster, &namespace, live).await?,
        None => Vec::new(),
    };
    Ok(explain(&title, live.as_ref(), &accepted, &new))
}

/// What the API server makes of a manifest: with defaults, and by the rules of the schema. Nothing is stored.
async fn dry_run(
    cluster: &Cluster,
    (namespace, name): (&str, &str),
    manifest: &Value,
    live: Option<&StreamJob>,
) -> Result<StreamJob, kube::Error> {
    let resource = ApiResource::erase::<StreamJob>(&());
    let jobs: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
    // An apply tells of fields that nobody knows, but leaves what others have set.
    let params = PatchParams::apply("kubectl-fencepost").force().dry_run().validation_strict();
    let mut tried = jobs.patch(name, &params, &Patch::Apply(as_written(manifest, namespace, None))).await?;
    if live.is_some() {
        let whole: DynamicObject =
            serde_json::from_value(as_written(manifest, namespace, live)).map_err(kube::Error::SerdeError)?;
        tried = jobs.replace(name, &PostParams { dry_run: true, ..PostParams::default() }, &whole).await?;
    }
    tried.try_parse().map_err(|error| kube::Error::Service(Box::new(error)))
}

/// The manifest in place of what is there: what it does not have is as if it had never been set, but for the number of workers, which others
/// may own.
fn as_written(manifest: &Value, namespace: &str, live: Option<&StreamJob>) -> Value {
    let object = |name: &str| manifest.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut metadata, mut spec) = (object("metadata"), object("spec"));
    // An exported object has more, which is not for people to say.
    metadata.retain(|name, _| matches!(name.as_str(), "name" | "labels" | "annotations"));
    metadata.insert("namespace".to_owned(), namespace.into());
    if let Some(live) = live {
        metadata.insert("resourceVersion".to_owned(), live.resource_version().into());
        metadata.insert("finalizers".to_owned(), live.finalizers().into());
        spec.entry("replicas").or_insert_with(|| live.spec.replicas.into());
    }
    json!({
        "apiVersion": StreamJob::api_version(&()), "kind": StreamJob::kind(&()), "metadata": metadata, "spec": spec,
    })
}

async fn accepted(cluster: &Cluster, namespace: &str, live: &StreamJob) -> Result<Vec<AcceptedRevision>, PluginError> {
    let revisions: Api<ControllerRevision> = Api::namespaced(cluster.client.clone(), namespace);
    let labels = fencepost_plan::build::labels::revision_selector_text(&live.name_any());
    let found = revisions
        .list(&ListParams::default().labels(&labels))
        .await
        .map_err(PluginError::api("list the revisions that were accepted"))?;
    let of_this = |revision: &&ControllerRevision| {
        revision.owner_references().iter().any(|owner| Some(&owner.uid) == live.metadata.uid.as_ref())
    };
    Ok(found.items.iter().filter(of_this).filter_map(|revision| AcceptedRevision::read(revision).ok()).collect())
}

/// In words.
fn explain(title: &str, live: Option<&StreamJob>, accepted: &[AcceptedRevision], new: &StreamJob) -> Told {
    let revision = revision_of(&new.spec, accepted);
    let namespace = new.namespace().unwrap_or_default();
    let prefix = resolve::transactional_id_prefix(&new.spec.kafka, &namespace, &new.name_any());
    let findings = validate::validate(Facts {
        spec: &new.spec,
        transactional_id_prefix: &prefix,
        broker: None,
        stage: Stage::New,
    });
    if !findings.spec.is_empty() {
        return Told {
            text: format!("{title}: refused\n{}", indented(&validate::list(&findings.spec))),
            refused: true,
        };
    }
    let status = live.and_then(|live| live.status.clone()).unwrap_or_default();
    let current = status.revision.as_ref().and_then(|of| of.current.as_deref());
    let newest = newest_first(accepted);
    // Not always the newest: one that failed was taken back.
    let runs = newest.iter().find(|old| Some(old.revision.as_str()) == current).or(newest.first());
    let runs = runs.copied().filter(|_| status.epoch.is_some());
    let mut lines = Vec::new();
    let what = match (live, runs) {
        (Some(live), Some(runs)) => {
            let found = diff::differences(&in_force(&runs.spec, &live.spec), &new.spec);
            lines.extend(found.iter().map(line));
            what_it_takes(&found, &live.spec, &new.spec)
        }
        _ if new.spec.state == JobState::Suspended => "nothing starts, the job is suspended",
        _ => "first start",
    };
    let (epoch, next) = (status.epoch.unwrap_or(0), status.epoch.unwrap_or(0) + 1);
    match what {
        "restart" => lines.push(format!(
            "All workers of epoch {epoch} commit and stop, their ids are fenced, and epoch {next} starts with revision {revision}."
        )),
        "first start" => lines.push(format!("Epoch {next} starts with revision {revision}.")),
        _ => {}
    }
    if matches!(what, "restart" | "first start") {
        lines.push(
            "First its own image plans the pipeline, and the brokers are asked: neither was done here.".to_owned(),
        );
    }
    if what == "restart" && new.spec.upgrade.approval == Approval::Manual {
        lines.push("Then it waits until somebody approves it.".to_owned());
    }
    let failed = status.revision.as_ref().and_then(|of| of.failed.as_ref());
    if let Some(failed) = failed.filter(|failed| failed.revision == revision.as_str()) {
        lines.push(format!("This revision was taken back before: {} ({}).", failed.message, failed.reason));
    }
    lines.extend(findings.warnings.iter().map(|warning| format!("Note: {}: {}", warning.field, warning.message)));
    Told { text: format!("{title}: {what}\n{}", indented(&lines.join("\n"))), refused: false }
}

/// What runs, in the number and state that the object says.
fn in_force(accepted: &StreamJobSpec, live: &StreamJobSpec) -> StreamJobSpec {
    StreamJobSpec {
        replicas: live.replicas,
        state: live.state,
        upgrade: live.upgrade.clone(),
        deletion: live.deletion.clone(),
        ..accepted.clone()
    }
}

fn what_it_takes(found: &[Difference], before: &StreamJobSpec, after: &StreamJobSpec) -> &'static str {
    match (diff::effect(found), before.state, after.state) {
        (_, JobState::Running, JobState::Suspended) => "suspend",
        (_, JobState::Suspended, JobState::Running) => "resume",
        (_, _, JobState::Suspended) => "nothing starts, the job is suspended",
        (None, ..) => "no change",
        (Some(Effect::InPlace), ..) => "in place",
        (Some(Effect::Restart), ..) => "restart",
    }
}

fn line(difference: &Difference) -> String {
    let effect = match difference.effect {
        Effect::InPlace => "in place",
        Effect::Restart => "restart",
    };
    format!("- {difference} ({effect})")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(change: impl FnOnce(&mut Value)) -> StreamJob {
        let mut value = json!({
            "apiVersion": "fencepost.dev/v1alpha1", "kind": "StreamJob",
            "metadata": { "name": "spend", "namespace": "shop", "generation": 3, "uid": "u" },
            "spec": {
                "replicas": 2,
                "kafka": { "bootstrapServers": "kafka:9092" },
                "pipeline": {
                    "sources": [{
                        "name": "orders", "kafka": { "topic": "orders", "format": { "json": {} } },
                        "columns": [{ "name": "user", "type": "STRING" }],
                    }],
                    "sql": "INSERT INTO totals SELECT user FROM orders",
                    "sinks": [{ "name": "totals", "kafka": { "topic": "totals", "format": { "json": {} } } }],
                },
            },
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn running(change: impl FnOnce(&mut Value)) -> (StreamJob, Vec<AcceptedRevision>) {
        let mut live = job(|_| {});
        let accepted = AcceptedRevision {
            object: "spend-spec-1".to_owned(),
            number: 1,
            revision: fencepost_plan::Revision::hash(&live.spec),
            image: "worker:1".to_owned(),
            spec: live.spec.clone(),
        };
        let mut status = json!({ "epoch": 4, "revision": { "current": accepted.revision.as_str() } });
        change(&mut status);
        live.status = Some(serde_json::from_value(status).unwrap());
        (live, vec![accepted])
    }

    fn told(change: impl FnOnce(&mut Value)) -> String {
        let (live, accepted) = running(|_| {});
        explain("job", Some(&live), &accepted, &job(change)).text
    }

    #[test]
    fn what_a_change_asks_for_is_said_with_its_reason() {
        assert_eq!(told(|_| {}), "job: no change\n");
        let scaled = told(|job| job["spec"]["replicas"] = 5.into());
        assert_eq!(scaled, "job: in place\n  - spec.replicas is 5, not 2 (in place)\n");
        let other = told(|job| {
            job["spec"]["pipeline"]["sql"] = "INSERT INTO totals SELECT 'x' FROM orders".into();
            job["spec"]["upgrade"] = json!({ "approval": "Manual" });
        });
        let lines: Vec<&str> = other.lines().map(str::trim).collect();
        assert_eq!(lines[..2], ["job: restart", "- spec.pipeline.sql has changed (restart)"]);
        assert_eq!(lines[2], "- spec.upgrade.approval is Manual, not Automatic (in place)");
        assert!(lines[3].starts_with("All workers of epoch 4 commit and stop"), "{other}");
        assert!(other.contains("epoch 5 starts") && other.ends_with("until somebody approves it.\n"), "{other}");
        assert!(told(|job| job["spec"]["state"] = "Suspended".into()).starts_with("job: suspend\n"));
        let idle = explain("job", None, &[], &job(|job| job["spec"]["state"] = "Suspended".into()));
        assert_eq!(idle.text, "job: nothing starts, the job is suspended\n");
    }

    #[test]
    fn a_first_start_and_a_spec_that_contradicts_itself() {
        let new = explain("job", None, &[], &job(|_| {}));
        assert!(new.text.starts_with("job: first start\n  Epoch 1 starts") && !new.refused, "{}", new.text);
        let wrong = explain(
            "job",
            None,
            &[],
            &job(|job| {
                job["spec"]["processing"] = json!({
                    "transactionTimeout": "2s", "protocol": { "transactional": { "commitInterval": "5s" } },
                });
            }),
        );
        assert!(wrong.refused && wrong.text.contains("spec.processing.transactionTimeout"), "{}", wrong.text);
    }

    #[test]
    fn it_is_compared_with_what_runs_and_not_with_what_was_taken_back() {
        let (live, mut accepted) = running(|_| {});
        let failed = job(|job| job["spec"]["pipeline"]["sql"] = "INSERT INTO totals SELECT 'x' FROM orders".into());
        accepted.push(AcceptedRevision {
            object: "spend-spec-2".to_owned(),
            number: 2,
            revision: fencepost_plan::Revision::hash(&failed.spec),
            image: "worker:1".to_owned(),
            spec: failed.spec,
        });
        assert_eq!(explain("job", Some(&live), &accepted, &job(|_| {})).text, "job: no change\n");
    }

    #[test]
    fn a_revision_that_was_taken_back_is_told() {
        let change =
            |job: &mut Value| job["spec"]["pipeline"]["sql"] = "INSERT INTO totals SELECT 'x' FROM orders".into();
        let revision = fencepost_plan::Revision::hash(&job(change).spec);
        let (live, accepted) = running(|status| {
            status["revision"]["failed"] =
                json!({ "revision": revision.as_str(), "reason": "NoFirstCommit", "message": "nothing came" });
        });
        let told = explain("job", Some(&live), &accepted, &job(change)).text;
        assert!(told.contains("This revision was taken back before: nothing came (NoFirstCommit)."), "{told}");
    }

    #[test]
    fn what_a_manifest_does_not_say_is_not_taken_over_but_for_the_workers() {
        let (mut live, _) = running(|_| {});
        live.spec.replicas = 7;
        live.metadata.resource_version = Some("9".to_owned());
        let manifest = json!({ "metadata": { "name": "spend", "uid": "x", "managedFields": [] }, "spec": {} });
        let wanted = as_written(&manifest, "shop", Some(&live));
        let metadata = json!({ "name": "spend", "namespace": "shop", "resourceVersion": "9", "finalizers": [] });
        assert_eq!((&wanted["metadata"], &wanted["spec"]), (&metadata, &json!({ "replicas": 7 })));
    }
}
