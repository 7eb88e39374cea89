//! Rendered objects are what Kubernetes understands: typed, with no field that nobody reads, and fitting together.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cases::{CASES, Case},
    documents::{self, Document, one},
    helm::{self, Chart, RELEASE},
};

/// Reads an object as its type and lists the fields that the type does not have.
fn unknown_fields<T: DeserializeOwned + Serialize>(value: &Value) -> Vec<String> {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}\n{value:#}"));
    let mut lost = Vec::new();
    compare(value, &serde_json::to_value(typed).unwrap(), "", &mut lost);
    lost
}

fn compare(before: &Value, after: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let path = format!("{path}.{key}");
                match after.get(key) {
                    Some(after) => compare(value, after, &path, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(before, after, &format!("{path}[{index}]"), lost);
            }
        }
        // Numbers may come back as another kind of number.
        (Value::Number(before), Value::Number(after)) if before.as_f64() == after.as_f64() => {}
        _ if before == after => {}
        _ => lost.push(path.to_owned()),
    }
}

/// The parts of the Prometheus Operator's kinds that the chart uses. Its own definitions are not at hand as Rust types.
mod monitoring {
    use super::{BTreeMap, Deserialize, Serialize, Value};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub(super) struct Monitor {
        api_version: String,
        kind: String,
        metadata: Value,
        spec: MonitorSpec,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct MonitorSpec {
        selector: Selector,
        namespace_selector: NamespaceSelector,
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoints: Option<Vec<Endpoint>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pod_metrics_endpoints: Option<Vec<Endpoint>>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Selector {
        match_labels: BTreeMap<String, String>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct NamespaceSelector {
        #[serde(skip_serializing_if = "Option::is_none")]
        any: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        match_names: Option<Vec<String>>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Endpoint {
        port: String,
        path: String,
        interval: String,
        scrape_timeout: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        honor_labels: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        relabelings: Option<Vec<Relabeling>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metric_relabelings: Option<Vec<Relabeling>>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Relabeling {
        #[serde(skip_serializing_if = "Option::is_none")]
        source_labels: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        target_label: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        regex: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        action: Option<String>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub(super) struct PrometheusRule {
        api_version: String,
        kind: String,
        metadata: Value,
        spec: RuleSpec,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RuleSpec {
        groups: Vec<Group>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Group {
        name: String,
        rules: Vec<crate::alerts::Alert>,
    }
}

fn unknown_fields_of(document: &Document) -> Vec<String> {
    let value = &document.value;
    match (document.api_version(), document.kind()) {
        ("apps/v1", "Deployment") => unknown_fields::<Deployment>(value),
        ("v1", "Service") => unknown_fields::<Service>(value),
        ("v1", "ServiceAccount") => unknown_fields::<ServiceAccount>(value),
        ("networking.k8s.io/v1", "NetworkPolicy") => unknown_fields::<NetworkPolicy>(value),
        ("policy/v1", "PodDisruptionBudget") => unknown_fields::<PodDisruptionBudget>(value),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => unknown_fields::<ClusterRole>(value),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => unknown_fields::<ClusterRoleBinding>(value),
        ("rbac.authorization.k8s.io/v1", "Role") => unknown_fields::<Role>(value),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => unknown_fields::<RoleBinding>(value),
        ("monitoring.coreos.com/v1", "ServiceMonitor" | "PodMonitor") => unknown_fields::<monitoring::Monitor>(value),
        ("monitoring.coreos.com/v1", "PrometheusRule") => unknown_fields::<monitoring::PrometheusRule>(value),
        other => panic!("the chart renders a kind that no test knows: {other:?}"),
    }
}

#[test]
fn every_object_is_of_its_type_and_has_no_other_fields() {
    for case in CASES {
        for document in case.documents() {
            let unknown = unknown_fields_of(&document);
            assert!(unknown.is_empty(), "{}: {} {}: {unknown:?}", case.name, document.kind(), document.name());
        }
    }
}

#[test]
fn the_comparison_sees_a_field_that_a_type_does_not_have() {
    let mut service = one(&Case::by_name("default").documents(), "Service").value.clone();
    service["spec"]["ports"][0]["targetport"] = "http".into();
    assert_eq!(unknown_fields::<Service>(&service), [".spec.ports[0].targetport"]);
}

#[test]
fn the_other_chart_is_the_definition_and_is_kept_on_uninstall() {
    let documents = documents::parse(&helm::template(Chart::Crds, RELEASE, "{}").unwrap());
    let [crd] = documents.as_slice() else { panic!("{} objects", documents.len()) };
    let typed: CustomResourceDefinition = serde_json::from_value(crd.value.clone()).unwrap();
    assert_eq!(typed.metadata.name.as_deref(), Some("streamjobs.fencepost.dev"));
    assert_eq!(crd.value["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let committed: Value = serde_saphyr::from_str(include_str!("../../../crds/yaml/streamjobs.yaml")).unwrap();
    assert_eq!(crd.value["spec"], committed["spec"], "Helm changed the definition");
}

#[test]
fn everything_that_has_a_selector_finds_the_operator_and_nothing_else_of_it() {
    for case in CASES {
        let documents = case.documents();
        let deployment = &one(&documents, "Deployment").value;
        let pod = deployment["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
        for (document, selector) in documents.iter().filter_map(|document| Some((document, selector(document)?))) {
            let selector = selector.as_object().unwrap();
            assert!(selector.contains_key("app.kubernetes.io/component"), "{selector:?}");
            for (key, value) in selector {
                assert_eq!(pod.get(key), Some(value), "{}: {} {key}", case.name, document.kind());
            }
        }
    }
}

/// The labels by which an object finds the operator's pods, or its Service.
fn selector(document: &Document) -> Option<&Value> {
    let spec = &document.value["spec"];
    match document.kind() {
        "Deployment" | "PodDisruptionBudget" | "ServiceMonitor" => Some(&spec["selector"]["matchLabels"]),
        "NetworkPolicy" => Some(&spec["podSelector"]["matchLabels"]),
        "Service" => Some(&spec["selector"]),
        _ => None,
    }
}

#[test]
fn values_cannot_take_over_the_labels_that_selectors_use() {
    let values = "
commonLabels: {app.kubernetes.io/name: other, app.kubernetes.io/managed-by: me}
podLabels: {app.kubernetes.io/component: other, mine: '1'}
";
    let documents = documents::parse(&helm::template(Chart::Operator, RELEASE, values).unwrap());
    let labels = &one(&documents, "Deployment").value["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/name"], "fencepost");
    assert_eq!(labels["app.kubernetes.io/component"], "operator");
    assert_eq!(labels["mine"], "1");
}

#[test]
fn the_pod_monitor_finds_the_workers_that_the_operator_makes() {
    use fencepost_crds::names::{LABEL_JOB, LABEL_MANAGED_BY, LABEL_ROLE, MANAGER, ROLE_WORKER, WORKER_HTTP_PORT_NAME};
    let documents = Case::by_name("monitoring").documents();
    let spec = &one(&documents, "PodMonitor").value["spec"];
    let want = serde_json::json!({LABEL_MANAGED_BY: MANAGER, LABEL_ROLE: ROLE_WORKER});
    assert_eq!(spec["selector"]["matchLabels"], want);
    let endpoint = &spec["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], WORKER_HTTP_PORT_NAME);
    let label = format!("__meta_kubernetes_pod_label_{}", LABEL_JOB.replace(['.', '/'], "_"));
    assert_eq!(endpoint["relabelings"][0]["sourceLabels"][0], label);
}

#[test]
fn a_single_operator_never_blocks_a_drain() {
    let single = Case::by_name("default").documents();
    assert!(single.iter().all(|document| document.kind() != "PodDisruptionBudget"));
    one(&Case::by_name("high-availability").documents(), "PodDisruptionBudget");
}

#[test]
fn without_a_lease_the_old_operator_stops_before_the_new_one_starts() {
    let strategy =
        |case: &str| one(&Case::by_name(case).documents(), "Deployment").value["spec"]["strategy"]["type"].clone();
    assert_eq!(strategy("default"), "RollingUpdate");
    assert_eq!(strategy("own-roles"), "Recreate");
}

#[test]
fn the_longest_names_still_fit() {
    let values = format!("fullnameOverride: {}", "n".repeat(47));
    let documents = documents::parse(&helm::template(Chart::Operator, RELEASE, &values).unwrap());
    let longest = documents.iter().map(|document| document.name().len()).max().unwrap();
    assert!(longest <= 63, "{longest}");
    let long = helm::Release { name: "r12345678901234567890123456789012345678901234567890-9", namespace: "n" };
    for document in documents::parse(&helm::template(Chart::Operator, long, "{}").unwrap()) {
        assert!(document.name().len() <= 63 && !document.name().contains("--"), "{}", document.name());
    }
}
