use serde_json::{Value, json};

use super::{Start, children, plan_children};
use crate::secrets::Fingerprints;
use crate::testing::{identity, run_spec};

/// A job that uses every setting that reaches a manifest.
fn everything(json: &mut Value) {
    let spec = &mut json["spec"];
    let secret = |name: &str, key: &str| json!({ "name": name, "key": key });
    spec["kafka"] = json!({
        "bootstrapServers": "kafka:9093",
        "tls": { "caSecretRef": secret("kafka-ca", "ca.crt") },
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "usernameSecretRef": secret("kafka-user", "name"),
            "passwordSecretRef": secret("kafka-user", "password"),
        },
    });
    spec["worker"] = json!({
        "image": "registry/worker:7",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{ "name": "registry" }],
        "slots": 2,
        "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
        "nodeSelector": { "disk": "fast" },
        "tolerations": [{ "key": "stream", "operator": "Exists" }],
        "podLabels": { "team": "shop", "fencepost.dev/job": "not-yours" },
        "podAnnotations": { "note": "x", "fencepost.dev/epoch": "99", "fencepost.dev/secrets": "{}" },
        "drainTimeout": "1500ms",
        "log": "debug",
    });
}

fn start() -> Start {
    let mut secrets = Fingerprints::default();
    secrets.insert("kafka-user", "0123456789abcdef".to_owned());
    Start { epoch: 4, replicas: 3, secrets }
}

#[test]
fn children_of_a_small_job() {
    let start = Start { secrets: Fingerprints::default(), ..start() };
    let built = children(&identity(), &run_spec(|_| {}), &start).unwrap();
    insta::assert_yaml_snapshot!("small-stateful-set", built.stateful_set);
    insta::assert_yaml_snapshot!("small-service", built.service);
    insta::assert_yaml_snapshot!("small-service-account", built.service_account);
    insta::assert_yaml_snapshot!("small-disruption-budget", built.disruption_budget);
    insta::assert_yaml_snapshot!("small-config-map", built.config_map);
}

#[test]
fn every_setting_of_the_spec_reaches_the_workers() {
    let built = children(&identity(), &run_spec(everything), &start()).unwrap();
    insta::assert_yaml_snapshot!("everything-stateful-set", built.stateful_set);
}

#[test]
fn every_setting_that_a_plan_needs_reaches_the_plan_pod() {
    let built = plan_children(&identity(), &run_spec(everything)).unwrap();
    insta::assert_yaml_snapshot!("everything-plan-pod", built.pod);
}

#[test]
fn labels_and_annotations_of_a_user_never_replace_ours() {
    let built = children(&identity(), &run_spec(everything), &start()).unwrap();
    let metadata = built.stateful_set.spec.unwrap().template.metadata.unwrap();
    assert_eq!(metadata.labels.unwrap()["fencepost.dev/job"], "spend");
    let annotations = metadata.annotations.unwrap();
    assert_eq!(annotations["fencepost.dev/epoch"], "4");
    assert_eq!(annotations["fencepost.dev/secrets"], r#"{"kafka-user":"0123456789abcdef"}"#);
}

#[test]
fn the_pod_template_depends_on_revision_epoch_and_credentials_and_not_on_the_number_of_workers() {
    let template = |start: Start| {
        let built = children(&identity(), &run_spec(|_| {}), &start).unwrap();
        built.stateful_set.spec.unwrap().template
    };
    assert_eq!(template(start()), template(Start { replicas: 9, ..start() }));
    assert_ne!(template(start()), template(Start { epoch: 5, ..start() }));
    assert_ne!(template(start()), template(Start { secrets: Fingerprints::default(), ..start() }));
}

#[test]
fn the_kubelet_waits_longer_than_a_worker_may_drain() {
    let built = children(&identity(), &run_spec(everything), &start()).unwrap();
    let spec = built.stateful_set.spec.unwrap().template.spec.unwrap();
    // 1.5 s and 10 s, in whole seconds.
    assert_eq!(spec.termination_grace_period_seconds, Some(12));
}

#[test]
fn secrets_are_mounted_by_key_and_never_read_into_a_manifest() {
    let built = children(&identity(), &run_spec(everything), &start()).unwrap();
    let spec = built.stateful_set.spec.unwrap().template.spec.unwrap();
    let mounted: Vec<(String, Vec<String>)> = spec
        .volumes
        .unwrap()
        .into_iter()
        .filter_map(|volume| volume.secret)
        .map(|secret| {
            let keys = secret.items.unwrap().into_iter().map(|item| item.key).collect();
            (secret.secret_name.unwrap(), keys)
        })
        .collect();
    let keys = |list: &[&str]| list.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        mounted,
        [("kafka-ca".to_owned(), keys(&["ca.crt"])), ("kafka-user".to_owned(), keys(&["name", "password"]))]
    );
}

/// The longest name of a job, so that names built from it are the longest.
#[test]
fn names_of_children_fit_into_a_label() {
    let name = "n".repeat(45);
    let change = |json: &mut Value| json["metadata"]["name"] = name.clone().into();
    let job = crate::testing::job(change);
    let identity = crate::revision::Identity::of(&job).unwrap();
    let run = run_spec(change);
    let built = children(&identity, &run, &start()).unwrap();
    let plan = plan_children(&identity, &run).unwrap();
    let revision = crate::revision::AcceptedRevision::object_name(&name, 1_000_000);
    let pod = format!("{}-999", built.stateful_set.metadata.name.unwrap());
    for name in [pod, built.config_map.metadata.name.unwrap(), plan.pod.metadata.name.unwrap(), revision] {
        assert!(name.len() <= 63, "{name}");
    }
}
