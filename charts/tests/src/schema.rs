//! The schema of the values refuses what would otherwise go wrong in the cluster, or be ignored.

use rstest::rstest;
use serde_json::Value;

use crate::{
    cases::{CASES, Case},
    committed,
    helm::{self, Chart, RELEASE},
    values,
};

#[rstest]
#[case::a_misspelt_name("replicaCont: 2", "'replicaCont' not allowed")]
#[case::a_misspelt_name_further_down("{image: {tga: x}}", "'tga' not allowed")]
#[case::a_name_of_another_chart("{rbac: {clusterScoped: true}}", "'clusterScoped' not allowed")]
#[case::text_for_a_number("replicaCount: '2'", "/replicaCount")]
#[case::too_many_operators("replicaCount: 11", "/replicaCount")]
#[case::a_negative_count("replicaCount: -1", "/replicaCount")]
#[case::two_operators_without_a_lease("{replicaCount: 2, leaderElection: {enabled: false}}", "/leaderElection/enabled")]
#[case::a_monitor_without_a_service(
    "metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}",
    "/metrics/service/enabled"
)]
#[case::an_image_with_its_tag("{image: {repository: 'example.com/operator:1.2'}}", "/image/repository")]
#[case::an_image_without_a_name("{workerImage: {repository: ''}}", "/workerImage/repository")]
#[case::a_tag_that_is_a_number("{workerImage: {tag: 1.2}}", "/workerImage/tag")]
#[case::a_short_digest("{image: {digest: 'sha256:0123'}}", "/image/digest")]
#[case::a_pull_policy_that_does_not_exist("{image: {pullPolicy: Sometimes}}", "/image/pullPolicy")]
#[case::a_secret_as_text("imagePullSecrets: [registry]", "/imagePullSecrets/0")]
#[case::namespaces_as_text("watchNamespaces: 'shop,billing'", "/watchNamespaces")]
#[case::a_namespace_that_cannot_exist("watchNamespaces: [Shop]", "/watchNamespaces/0")]
#[case::a_namespace_twice("watchNamespaces: [shop, shop]", "/watchNamespaces")]
#[case::a_port_for_root("httpPort: 80", "/httpPort")]
#[case::a_port_that_does_not_exist("{metrics: {service: {port: 70000}}}", "/metrics/service/port")]
#[case::a_label_that_is_a_number("{podLabels: {a: 1}}", "/podLabels/a")]
#[case::a_label_with_a_space("{commonLabels: {a: 'b c'}}", "/commonLabels/a")]
#[case::a_variable_without_a_name("extraEnv: [{value: x}]", "/extraEnv/0")]
#[case::variables_as_a_map("{extraEnv: {A: b}}", "/extraEnv")]
#[case::resources_of_a_wrong_kind("{resources: {memory: 1Gi}}", "'memory' not allowed")]
#[case::an_affinity_that_does_not_exist("{affinity: {podAffinities: {}}}", "'podAffinities' not allowed")]
#[case::a_budget_that_lets_nothing_go(
    "{podDisruptionBudget: {maxUnavailable: 0}}",
    "/podDisruptionBudget/maxUnavailable"
)]
#[case::an_interval_without_a_unit("{metrics: {podMonitor: {interval: '30'}}}", "/metrics/podMonitor/interval")]
#[case::an_alert_that_does_not_exist(
    "{metrics: {prometheusRule: {disabled: [Nonsense]}}}",
    "/metrics/prometheusRule/disabled/0"
)]
#[case::no_time_to_stop("terminationGracePeriodSeconds: 0", "/terminationGracePeriodSeconds")]
#[case::a_switch_as_text("{rbac: {create: 'yes'}}", "/rbac/create")]
#[case::an_empty_log_filter("log: ''", "/log")]
fn bad_values_are_refused_with_their_place(#[case] values: &str, #[case] says: &str) {
    let error = helm::template(Chart::Operator, RELEASE, values).expect_err(values);
    assert!(error.contains("values don't meet the specifications of the schema"), "{error}");
    assert!(error.contains(says), "{error}");
}

#[test]
fn the_chart_of_the_definitions_has_no_values() {
    let error = helm::template(Chart::Crds, RELEASE, "replicaCount: 1").unwrap_err();
    assert!(error.contains("'replicaCount' not allowed"), "{error}");
}

#[test]
fn a_chart_that_contains_ours_may_set_globals() {
    for chart in Chart::ALL {
        helm::template(chart, RELEASE, "{global: {imageRegistry: example.com}}").unwrap();
    }
}

#[test]
fn good_values_are_accepted() {
    for case in CASES {
        Case::documents(case);
    }
}

fn schema() -> Value {
    serde_json::from_str(&Chart::Operator.read("values.schema.json")).unwrap()
}

/// The schema of one value.
fn at<'a>(schema: &'a mut Value, path: &[String]) -> &'a mut Value {
    let pointer: String = path.iter().map(|part| format!("/properties/{part}")).collect();
    schema.pointer_mut(&pointer).unwrap_or_else(|| panic!("the schema does not have {}", path.join(".")))
}

#[test]
fn the_schema_has_every_value_with_its_meaning() {
    let mut schema = schema();
    for value in values::of_the_chart() {
        at(&mut schema, &value.path)["description"] = value.meaning.into();
    }
    let want = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    committed::check(&Chart::Operator.path().join("values.schema.json"), &want);
}

/// Checks a schema and those below it: closed, and each property is a value or part of one.
fn check_properties(schema: &Value, path: &[String], values: &Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    assert_eq!(schema["additionalProperties"], false, "{} takes any name", path.join("."));
    for (name, below) in properties {
        let path = [path, std::slice::from_ref(name)].concat();
        let pointer = format!("/{}", path.join("/"));
        let documented =
            values::of_the_chart().iter().any(|value| path.len() > value.path.len() && path.starts_with(&value.path));
        assert!(
            documented || name == "global" || values.pointer(&pointer).is_some(),
            "values.yaml lacks {}",
            path.join(".")
        );
        check_properties(below, &path, values);
    }
}

#[test]
fn the_schema_is_closed_and_has_no_value_that_does_not_exist() {
    let values: Value = serde_saphyr::from_str(&Chart::Operator.read("values.yaml")).unwrap();
    check_properties(&schema(), &[], &values);
}
