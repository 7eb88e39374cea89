//! What the operator may do, with the reason for each permission. The chart's rules are compared with this table.

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In each namespace that is looked after.
    Watched,
    /// In the namespace of the operator.
    Release,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Where.
    pub scope: Scope,
    /// API group.
    pub group: &'static str,
    /// Resource, with its subresource.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

/// Made and deleted, never changed.
const REPLACE: &[&str] = &["get", "list", "watch", "create", "delete"];
/// Made and changed by server-side apply; they go with the job that owns them.
const APPLY: &[&str] = &["get", "list", "watch", "create", "patch"];

const fn watched(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Permission {
    Permission { scope: Scope::Watched, group, resource, verbs, reason }
}

/// All permissions.
pub const PERMISSIONS: &[Permission] = &[
    watched(
        "fencepost.dev",
        "streamjobs",
        &["get", "list", "watch", "patch"],
        "read the jobs it runs, and hold one that is deleted until its ids are fenced (a finalizer; the spec is never written)",
    ),
    watched("fencepost.dev", "streamjobs/status", &["patch"], "write status, the journal of every change"),
    watched(
        "fencepost.dev",
        "streamjobs/finalizers",
        &["update"],
        "set blockOwnerDeletion on children where the API server enforces permission for it",
    ),
    watched("apps", "statefulsets", APPLY, "run the workers"),
    watched(
        "apps",
        "controllerrevisions",
        REPLACE,
        "keep the accepted revisions of a spec, so that a refused newer one changes nothing",
    ),
    watched(
        "",
        "pods",
        &["list", "watch", "create", "delete"],
        "plan pods; prove that old workers are gone; replace workers that crash",
    ),
    watched("", "pods/log", &["get"], "read the answer of a plan pod"),
    watched("", "configmaps", REPLACE, "hand the resolved job to workers and plan pods"),
    watched("", "services", APPLY, "give workers stable names"),
    watched("", "serviceaccounts", APPLY, "run workers under an identity without permissions"),
    watched("policy", "poddisruptionbudgets", APPLY, "let node drains take one worker at a time"),
    watched("", "secrets", &["get"], "read the Kafka credentials that a StreamJob names (never list or watch)"),
    watched("events.k8s.io", "events", &["create", "patch"], "tell what happened and why"),
    Permission {
        scope: Scope::Release,
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "patch"],
        reason: "leader election",
    },
];

#[cfg(test)]
mod tests;
