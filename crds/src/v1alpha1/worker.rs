use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use kube::{KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::duration_schema;

/// How the workers run.
#[derive(Clone, Debug, PartialEq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    /// Image of the worker. Absent: the image the operator was installed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,

    /// When the image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets for the registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectRef>,

    /// Processing threads of a worker; each has its own consumer and its own transactional producer.
    #[serde(default = "default_slots")]
    #[schemars(range(min = 1, max = 64))]
    pub slots: i32,

    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Nodes that may run the workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the workers tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,

    /// More labels for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,

    /// More annotations for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,

    /// How long a worker may take to finish and commit its transaction when it is asked to stop.
    #[serde(default = "default_drain_timeout")]
    #[schemars(schema_with = "duration_schema")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('1h')").message("drainTimeout must be between 1s and 1h"))]
    pub drain_timeout: Duration,

    /// Filter of the worker's log, such as `info` or `info,fencepost_worker=debug`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub log: Option<String>,
}

impl Default for WorkerSpec {
    fn default() -> Self {
        Self {
            image: None,
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            slots: default_slots(),
            resources: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            drain_timeout: default_drain_timeout(),
            log: None,
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display, IntoStaticStr)]
pub enum ImagePullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never.
    Never,
}

/// An object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

const fn default_slots() -> i32 {
    1
}

fn default_drain_timeout() -> Duration {
    Duration::from(std::time::Duration::from_secs(20))
}
