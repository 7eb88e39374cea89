use std::{fs, path::PathBuf};

use super::{SIZE_LIMIT, stream_job};

fn yaml() -> String {
    let text = serde_saphyr::to_string(&serde_json::to_value(stream_job()).unwrap()).unwrap();
    format!("# Generated from crds/src by `UPDATE=1 cargo test -p fencepost-crds`. Do not edit.\n{text}")
}

/// The chart's copy: kept when the chart is uninstalled, because deleting a CRD deletes every StreamJob.
fn chart_yaml() -> String {
    let mut crd = serde_json::to_value(stream_job()).unwrap();
    crd["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
    let text = serde_saphyr::to_string(&crd).unwrap();
    format!(
        "# Generated from crds/src by `UPDATE=1 cargo test -p fencepost-crds`. Do not edit.\n{}",
        escape_helm(&text)
    )
}

fn escape_helm(text: &str) -> String {
    assert!(!text.contains("{{"), "a template action in the CRD would be run by helm");
    text.to_owned()
}

fn check(path: &str, want: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::vars().any(|(name, _)| name == "UPDATE") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    assert!(have == want, "{} is out of date: run `UPDATE=1 cargo test -p fencepost-crds`", path.display());
}

#[test]
fn committed_yaml_is_what_the_types_say() {
    check("yaml/streamjobs.yaml", &yaml());
    check("../charts/fencepost-crds/templates/streamjobs.yaml", &chart_yaml());
}

#[test]
fn compact_json_stays_below_the_limit_of_client_side_apply() {
    let size = serde_json::to_string(&stream_job()).unwrap().len();
    assert!(size < SIZE_LIMIT, "{size} bytes");
}

#[test]
fn nothing_inside_status_is_required_at_its_top() {
    let crd = serde_json::to_value(stream_job()).unwrap();
    let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert!(status["properties"]["conditions"].is_object(), "{status}");
    assert!(status.get("required").is_none(), "{status}");
}
