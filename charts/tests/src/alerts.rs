//! The alerts are PromQL, and the schema knows their names.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::{
    parser::{self, Expr},
    util::{ExprVisitor, parse_duration, walk_expr},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{cases::Case, documents::one, helm::Chart};

/// An alert of a PrometheusRule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alert {
    alert: String,
    expr: String,
    r#for: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn alerts() -> Vec<Alert> {
    serde_saphyr::from_str(&Chart::Operator.read("files/alerts.yaml")).unwrap()
}

/// Collects the names of metrics.
#[derive(Default)]
struct Metrics(BTreeSet<String>);

impl ExprVisitor for Metrics {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.0.extend(selector.name.clone()),
            Expr::MatrixSelector(selector) => self.0.extend(selector.vs.name.clone()),
            _ => {}
        }
        Ok(true)
    }
}

fn metrics(expr: &str) -> BTreeSet<String> {
    let parsed = parser::parse(expr).unwrap_or_else(|error| panic!("{expr}: {error}"));
    let mut metrics = Metrics::default();
    walk_expr(&mut metrics, &parsed).unwrap();
    metrics.0
}

/// The metrics that operator and worker have, from their generated lists.
fn documented() -> BTreeSet<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages =
        ["operator-metrics.md", "worker-metrics.md"].map(|page| std::fs::read_to_string(folder.join(page)).unwrap());
    let names =
        pages.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_alert_is_promql_over_metrics_that_there_are() {
    let documented = documented();
    for alert in alerts() {
        let metrics = metrics(&alert.expr);
        assert!(!metrics.is_empty(), "{}", alert.alert);
        assert!(metrics.is_subset(&documented), "{}: {metrics:?}", alert.alert);
        parse_duration(&alert.r#for).unwrap_or_else(|error| panic!("{}: {error}", alert.alert));
    }
}

#[test]
fn every_alert_says_what_it_means_and_how_bad_it_is() {
    for alert in alerts() {
        assert!(alert.alert.starts_with("Fencepost"), "{}", alert.alert);
        let keys: Vec<&str> = alert.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "summary"], "{}", alert.alert);
        assert!(matches!(alert.labels["severity"].as_str(), "warning" | "critical"), "{}", alert.alert);
    }
}

#[test]
fn the_schema_lists_the_alerts_that_can_be_disabled() {
    let schema: Value = serde_json::from_str(&Chart::Operator.read("values.schema.json")).unwrap();
    let rule = &schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"];
    let names: Vec<String> = alerts().into_iter().map(|alert| alert.alert).collect();
    assert_eq!(rule["disabled"]["items"]["enum"], serde_json::to_value(names).unwrap());
}

#[test]
fn values_leave_alerts_out_and_add_labels() {
    let documents = Case::by_name("monitoring").documents();
    let rules = one(&documents, "PrometheusRule").value["spec"]["groups"][0]["rules"].clone();
    let rendered: Vec<Alert> = serde_json::from_value(rules).unwrap();
    let want = alerts().into_iter().filter(|alert| alert.alert != "FencepostReconcilesFail").map(|mut alert| {
        alert.labels.insert("team".to_owned(), "streaming".to_owned());
        alert
    });
    assert_eq!(rendered, want.collect::<Vec<_>>());
}
