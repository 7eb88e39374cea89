use std::time::Duration;

use fencepost_crds::names;
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy},
        core::v1::{
            Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, KeyToPath, ObjectFieldSelector,
            PodTemplateSpec, Probe, SecretVolumeSource, TopologySpreadConstraint, Volume,
        },
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{
    Start, config_map, labels,
    pod::{self, Access},
};
use crate::revision::{Identity, RunSpec};

const RUN_VOLUME: &str = "run";
const RUN_LIMIT: &str = "64Mi";

/// What the kubelet gives a worker beyond its drain time, so that it ends by itself and says how.
const GRACE_BEYOND_DRAIN: Duration = Duration::from_secs(10);

/// Readable by the group of the pod, by nobody else.
const SECRET_MODE: i32 = 0o440;

pub(super) fn build(identity: &Identity, run: &RunSpec, start: &Start) -> StatefulSet {
    let name = names::child(&identity.name);
    let mut metadata = labels::metadata(identity, &name);
    labels::label(&mut metadata, names::LABEL_REVISION, run.revision.as_str());
    labels::annotate(&mut metadata, names::ANNOTATION_EPOCH, &start.epoch.to_string());
    StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            // Workers do not wait for each other.
            pod_management_policy: Some("Parallel".to_owned()),
            // Pods are replaced by the operator, and by nobody else: the rolling update of the StatefulSet controller knows
            // nothing of epochs, and waits for pods that cannot become ready.
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            replicas: Some(start.replicas),
            revision_history_limit: Some(2),
            selector: labels::worker_selector(&identity.name),
            service_name: Some(name),
            template: template(identity, run, start),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

/// A function of revision, epoch and credentials only. The version of the operator is not in it: an upgrade of the operator restarts nothing.
fn template(identity: &Identity, run: &RunSpec, start: &Start) -> PodTemplateSpec {
    let worker = &run.worker;
    let mut our_labels = labels::of_pods(&identity.name, names::ROLE_WORKER);
    our_labels.insert(names::LABEL_REVISION.to_owned(), run.revision.to_string());
    let epoch = (names::ANNOTATION_EPOCH.to_owned(), start.epoch.to_string());
    let our_annotations = [Some(epoch), start.secrets.annotation()].into_iter().flatten();

    let mut spec = pod::spec(run, &config_map::name(&identity.name, run), container(run, start));
    spec.service_account_name = Some(names::child(&identity.name));
    let grace = Duration::from(worker.drain_timeout).saturating_add(GRACE_BEYOND_DRAIN);
    spec.termination_grace_period_seconds = Some(whole_seconds_up(grace));
    spec.topology_spread_constraints =
        Some(["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| spread(identity, key)).to_vec());
    let volumes = spec.volumes.get_or_insert_default();
    volumes.push(pod::scratch(RUN_VOLUME, RUN_LIMIT));
    volumes.extend(run.secrets.iter().enumerate().map(|(index, (secret, keys))| Volume {
        name: secret_volume(index),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.clone()),
            default_mode: Some(SECRET_MODE),
            items: Some(keys.iter().map(|key| KeyToPath { key: key.clone(), path: key.clone(), mode: None }).collect()),
            optional: None,
        }),
        ..Volume::default()
    }));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod::overlay(&worker.pod_labels, our_labels)),
            annotations: Some(pod::overlay(&worker.pod_annotations, our_annotations)),
            ..ObjectMeta::default()
        }),
        spec: Some(spec),
    }
}

fn container(run: &RunSpec, start: &Start) -> Container {
    let job = format!("{}/{}", names::JOB_DIR, names::JOB_FILE);
    let mut container = pod::container(run, vec!["run".to_owned(), job]);
    let env = container.env.get_or_insert_default();
    env.push(pod::variable(names::env::EPOCH, &start.epoch.to_string()));
    // Without it a worker that was fenced would start again in its container, and fence its successor.
    env.push(pod::variable(names::env::RUN_DIR, names::RUN_DIR));
    env.push(pod::variable(names::env::TERMINATION_LOG, names::TERMINATION_LOG));
    env.push(EnvVar {
        name: names::env::POD_NAME.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "metadata.name".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    });
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.push(pod::mount(RUN_VOLUME, names::RUN_DIR, Access::Write));
    mounts.extend(run.secrets.keys().enumerate().map(|(index, secret)| {
        pod::mount(&secret_volume(index), &format!("{}/{secret}", names::SECRETS_DIR), Access::Read)
    }));
    container.ports = Some(vec![ContainerPort {
        name: Some(names::WORKER_HTTP_PORT_NAME.to_owned()),
        container_port: names::WORKER_HTTP_PORT,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }]);
    container.resources.clone_from(&run.worker.resources);
    // Liveness says "the process runs its loop". A broker that is away makes a worker not ready, never not alive: a restart
    // would not bring the broker back.
    container.startup_probe = Some(probe("/healthz", 1, 60));
    container.liveness_probe = Some(probe("/healthz", 10, 3));
    container.readiness_probe = Some(probe("/readyz", 2, 2));
    container
}

/// The name of a Secret can be longer than the name of a volume may be, so volumes are numbered.
fn secret_volume(index: usize) -> String {
    format!("secret-{index}")
}

fn probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(names::WORKER_HTTP_PORT_NAME.to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failures),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

/// Workers spread over nodes and zones where there is room, and run anyway where there is none.
fn spread(identity: &Identity, key: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(labels::worker_selector(&identity.name)),
        ..TopologySpreadConstraint::default()
    }
}

fn whole_seconds_up(duration: Duration) -> i64 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
