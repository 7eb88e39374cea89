//! The operator's pod meets the `restricted` Pod Security Standard
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>), with whatever values of the cases.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::json;

use crate::{
    cases::{CASES, Case},
    documents::one,
};

/// What the standard has against a pod without volumes.
fn violations(pod: &PodSpec) -> Vec<String> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, name: &str| {
        if !holds {
            found.push(name.to_owned());
        }
    };
    let shared = [pod.host_network, pod.host_pid, pod.host_ipc];
    rule(shared.iter().all(|shared| *shared != Some(true)), "host namespaces");
    rule(pod.volumes.as_ref().is_none_or(Vec::is_empty), "volumes: this check knows none");
    let of_pod = pod.security_context.clone().unwrap_or_default();
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let own = container.security_context.clone().unwrap_or_default();
        rule(own.privileged != Some(true), "privileged");
        rule(own.allow_privilege_escalation == Some(false), "allowPrivilegeEscalation");
        rule(own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true), "runAsNonRoot");
        rule(own.run_as_user.or(of_pod.run_as_user).is_none_or(|user| user != 0), "runAsUser");
        let seccomp = own.seccomp_profile.or_else(|| of_pod.seccomp_profile.clone()).map(|profile| profile.type_);
        rule(matches!(seccomp.as_deref(), Some("RuntimeDefault" | "Localhost")), "seccompProfile");
        let capabilities = own.capabilities.unwrap_or_default();
        rule(capabilities.drop.iter().flatten().any(|name| name == "ALL"), "capabilities.drop");
        rule(capabilities.add.iter().flatten().all(|name| name == "NET_BIND_SERVICE"), "capabilities.add");
        rule(container.ports.iter().flatten().all(|port| port.host_port.is_none()), "hostPort");
    }
    found
}

#[test]
fn pods_meet_the_restricted_standard() {
    for case in CASES {
        let documents = case.documents();
        let pod = &one(&documents, "Deployment").value["spec"]["template"]["spec"];
        let found = violations(&serde_json::from_value(pod.clone()).unwrap());
        assert_eq!(found, Vec::<String>::new(), "{}", case.name);
        assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], json!(true), "{}", case.name);
    }
}

#[test]
fn the_check_sees_what_the_standard_forbids() {
    let documents = Case::by_name("default").documents();
    let mut pod = one(&documents, "Deployment").value["spec"]["template"]["spec"].clone();
    pod["securityContext"] = json!({"runAsUser": 0});
    pod["containers"][0]["securityContext"] = json!({"privileged": true, "capabilities": {"add": ["SYS_ADMIN"]}});
    pod["hostNetwork"] = json!(true);
    let found = violations(&serde_json::from_value(pod).unwrap());
    let want = [
        "host namespaces",
        "privileged",
        "allowPrivilegeEscalation",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
        "capabilities.drop",
        "capabilities.add",
    ];
    assert_eq!(found, want);
}
