//! What plan pods and workers share. One builder, so that neither can miss a setting of the spec.

use std::collections::BTreeMap;

use fencepost_crds::names;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
        PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use crate::revision::RunSpec;

/// User and group of the worker image.
const USER: i64 = 65_532;

const JOB_VOLUME: &str = "job";
const TMP_VOLUME: &str = "tmp";
const TMP_LIMIT: &str = "64Mi";

/// The container: image, log filter, the job and `/tmp` mounted, no rights.
pub(super) fn container(run: &RunSpec, args: Vec<String>) -> Container {
    let log = run.worker.log.as_ref();
    Container {
        name: names::WORKER_CONTAINER.to_owned(),
        image: Some(run.image.clone()),
        image_pull_policy: run.worker.image_pull_policy.map(|policy| policy.to_string()),
        args: Some(args),
        env: log.map(|filter| vec![variable(names::env::LOG, filter)]),
        volume_mounts: Some(vec![
            mount(JOB_VOLUME, names::JOB_DIR, Access::Read),
            mount(TMP_VOLUME, "/tmp", Access::Write),
        ]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        // A worker that cannot even write its last words is explained by its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The pod around the container.
pub(super) fn spec(run: &RunSpec, config_map: &str, container: Container) -> PodSpec {
    let worker = &run.worker;
    PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![container],
        enable_service_links: Some(false),
        image_pull_secrets: not_empty(
            worker
                .image_pull_secrets
                .iter()
                .map(|secret| LocalObjectReference { name: secret.name.clone() })
                .collect::<Vec<_>>(),
        ),
        node_selector: (!worker.node_selector.is_empty()).then(|| worker.node_selector.clone()),
        tolerations: not_empty(worker.tolerations.clone()),
        security_context: Some(PodSecurityContext {
            fs_group: Some(USER),
            run_as_group: Some(USER),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        volumes: Some(vec![
            Volume {
                name: JOB_VOLUME.to_owned(),
                config_map: Some(ConfigMapVolumeSource {
                    name: config_map.to_owned(),
                    ..ConfigMapVolumeSource::default()
                }),
                ..Volume::default()
            },
            scratch(TMP_VOLUME, TMP_LIMIT),
        ]),
        ..PodSpec::default()
    }
}

/// Whether a mount can be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

pub(super) fn mount(volume: &str, path: &str, access: Access) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: (access == Access::Read).then_some(true),
        ..VolumeMount::default()
    }
}

pub(super) fn scratch(name: &str, limit: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: None, size_limit: Some(Quantity(limit.to_owned())) }),
        ..Volume::default()
    }
}

pub(super) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

pub(super) fn not_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Labels or annotations of the user, with ours on top.
pub(super) fn overlay(
    user: &BTreeMap<String, String>,
    ours: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let mut merged = user.clone();
    merged.extend(ours);
    merged
}
