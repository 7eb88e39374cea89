//! Names that operator, worker, chart and tests share.

/// API group.
pub const GROUP: &str = "fencepost.dev";

/// Label: name of the StreamJob a pod or object belongs to.
pub const LABEL_JOB: &str = "fencepost.dev/job";
/// Label: what a pod is for, `worker` or `plan`.
pub const LABEL_ROLE: &str = "fencepost.dev/role";
/// Annotation and label: revision of the spec.
pub const LABEL_REVISION: &str = "fencepost.dev/revision";
/// Annotation: epoch the pod belongs to.
pub const ANNOTATION_EPOCH: &str = "fencepost.dev/epoch";
/// Annotation of a StreamJob: the revision that a person lets start. See `spec.upgrade.approval`.
pub const ANNOTATION_APPROVE: &str = "fencepost.dev/approve";

/// Annotation of a StreamJob: whoever sets it to something new asks for a restart of all workers with the revision that runs.
pub const ANNOTATION_RESTART: &str = "fencepost.dev/restart";

/// Annotation: fingerprints of the Secrets that the pod started with.
pub const ANNOTATION_SECRETS: &str = "fencepost.dev/secrets";

/// Finalizer of a StreamJob: its transactional ids may be in use.
pub const FINALIZER: &str = "fencepost.dev/fence";

/// Standard label for the program that manages an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`], and the field manager of server-side apply.
pub const MANAGER: &str = "fencepost-operator";

/// Value of [`LABEL_ROLE`] for workers.
pub const ROLE_WORKER: &str = "worker";
/// Value of [`LABEL_ROLE`] for plan pods.
pub const ROLE_PLAN: &str = "plan";

/// Key of the certificate in a Secret of type `kubernetes.io/tls`.
pub const TLS_CERTIFICATE: &str = "tls.crt";
/// Key of the private key in it.
pub const TLS_KEY: &str = "tls.key";

/// Name of the container of workers and plan pods.
pub const WORKER_CONTAINER: &str = "worker";

/// Port of the worker that serves health, metrics and status.
pub const WORKER_HTTP_PORT: i32 = 8080;
/// Name of that port.
pub const WORKER_HTTP_PORT_NAME: &str = "http";

/// Where the ConfigMap with the resolved job is mounted.
pub const JOB_DIR: &str = "/etc/fencepost/job";
/// Key in the ConfigMap, and file in [`JOB_DIR`], with the resolved job as JSON.
pub const JOB_FILE: &str = "job.json";
/// Where Secrets are mounted: `<dir>/<secret name>/<key>`.
pub const SECRETS_DIR: &str = "/etc/fencepost/secrets";
/// A scratch folder that outlives a restart of the container, not of the pod.
pub const RUN_DIR: &str = "/run/fencepost";
/// Where the kubelet picks up the last words of a container: its default, writable also where the root file system is not.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// Environment variables of a worker pod.
pub mod env {
    /// Epoch, a number.
    pub const EPOCH: &str = "FENCEPOST_EPOCH";
    /// Name of the pod; it ends in the ordinal.
    pub const POD_NAME: &str = "FENCEPOST_POD_NAME";
    /// Filter of the log.
    pub const LOG: &str = "FENCEPOST_LOG";
    /// [`super::RUN_DIR`].
    pub const RUN_DIR: &str = "FENCEPOST_RUN_DIR";
    /// File for the reason of an exit, [`super::TERMINATION_LOG`].
    pub const TERMINATION_LOG: &str = "FENCEPOST_TERMINATION_LOG";
}

/// Transactional id of a slot.
#[must_use]
pub fn transactional_id(prefix: &str, ordinal: u32, slot: u32) -> String {
    format!("{prefix}-{ordinal}-{slot}")
}

/// Name of the StatefulSet, the Service, the ConfigMap and the ServiceAccount of a job.
#[must_use]
pub fn child(job: &str) -> String {
    job.to_owned()
}

/// The ordinal at the end of the name of a StatefulSet's pod.
#[must_use]
pub fn ordinal_of_pod(pod: &str) -> Option<u32> {
    pod.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinal_is_the_number_after_the_last_dash() {
        assert_eq!(ordinal_of_pod("spend-2-11"), Some(11));
        assert_eq!(ordinal_of_pod("spend"), None);
        assert_eq!(ordinal_of_pod("spend-x"), None);
    }
}
