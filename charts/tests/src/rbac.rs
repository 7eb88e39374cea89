//! The operator may do what it must, and each rule says why.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use crate::{
    cases::{CASES, Case},
    documents::{Document, one},
    helm::Chart,
};

const RULE_FILES: [&str; 2] = ["files/operator-rules.yaml", "files/leader-election-rules.yaml"];

fn is_role(document: &Document) -> bool {
    matches!(document.kind(), "Role" | "ClusterRole")
}

/// The roles that people get through the cluster's own roles.
fn is_for_people(document: &Document) -> bool {
    let labels = document.value["metadata"]["labels"].as_object().unwrap();
    labels.keys().any(|key| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
}

fn rules(document: &Document) -> Vec<PolicyRule> {
    serde_json::from_value(document.value["rules"].clone()).unwrap()
}

/// Lines that start a rule without a comment of at least three words in the line above.
fn rules_without_reason(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let has_reason =
        |line: &str| line.trim().strip_prefix('#').is_some_and(|reason| reason.split_whitespace().count() >= 3);
    let starts = (0..lines.len()).filter(|index| lines[*index].trim_start().starts_with("- apiGroups:"));
    starts.filter(|index| *index == 0 || !has_reason(lines[index - 1])).map(|index| lines[index..].join("\n")).collect()
}

#[test]
fn every_rule_has_a_reason() {
    for file in RULE_FILES {
        let text = Chart::Operator.read(file);
        assert!(text.contains("- apiGroups:"), "{file}");
        assert_eq!(rules_without_reason(&text), Vec::<String>::new(), "{file}");
    }
    for case in CASES {
        for role in case.documents().iter().filter(|document| is_role(document)) {
            assert_eq!(rules_without_reason(&role.text), Vec::<String>::new(), "{} {}", case.name, role.name());
            let starts = role.text.lines().filter(|line| line.trim_start().starts_with("- apiGroups:")).count();
            assert_eq!(
                starts,
                rules(role).len(),
                "a rule of {} is written in a way this test does not see",
                role.name()
            );
        }
    }
}

#[test]
fn a_rule_without_a_reason_is_seen() {
    let text = "# Why it is so.\n- apiGroups: [a]\n  verbs: [get]\n- apiGroups: [b]\n# no\n- apiGroups: [c]";
    assert_eq!(rules_without_reason(text), ["- apiGroups: [b]\n# no\n- apiGroups: [c]", "- apiGroups: [c]"]);
}

#[test]
fn nothing_is_granted_by_a_wildcard() {
    for case in CASES {
        for role in case.documents().iter().filter(|document| is_role(document)) {
            for rule in rules(role) {
                let words = [rule.api_groups, rule.resources, Some(rule.verbs)].into_iter().flatten().flatten();
                assert!(words.into_iter().all(|word| !word.contains('*')), "{} {}", case.name, role.name());
                assert!(rule.non_resource_urls.is_none(), "{} {}", case.name, role.name());
            }
        }
    }
}

#[test]
fn secrets_can_be_read_by_name_only() {
    let mut seen = 0;
    for case in CASES {
        for role in case.documents().iter().filter(|document| is_role(document)) {
            for rule in rules(role) {
                if rule.resources.iter().flatten().any(|resource| resource == "secrets") {
                    assert_eq!(rule.verbs, ["get"], "{} {}", case.name, role.name());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn nothing_that_raises_rights_is_granted() {
    let raising =
        ["roles", "clusterroles", "rolebindings", "clusterrolebindings", "serviceaccounts/token", "pods/exec", "nodes"];
    for case in CASES {
        for rule in case.documents().iter().filter(|document| is_role(document)).flat_map(rules) {
            let resources = rule.resources.unwrap_or_default();
            assert!(
                resources.iter().all(|resource| !raising.contains(&resource.as_str())),
                "{}: {resources:?}",
                case.name
            );
            assert!(!rule.verbs.iter().any(|verb| ["escalate", "bind", "impersonate"].contains(&verb.as_str())));
        }
    }
}

#[test]
fn the_lease_is_in_the_namespace_of_the_release_and_is_the_only_one() {
    for case in CASES {
        let documents = case.documents();
        let args = one(&documents, "Deployment").value["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        let args: Vec<String> = serde_json::from_value(args).unwrap();
        let lease = args.iter().find_map(|arg| arg.strip_prefix("--lease-name="));
        for role in documents.iter().filter(|document| is_role(document)) {
            for rule in rules(role).iter().filter(|rule| rule.resources.iter().flatten().any(|name| name == "leases")) {
                assert_eq!((role.kind(), role.namespace()), ("Role", Some(case.release.namespace)), "{}", case.name);
                if rule.verbs != ["create"] {
                    let names: Vec<&str> = rule.resource_names.iter().flatten().map(String::as_str).collect();
                    assert_eq!(names, [lease.unwrap()], "{}", case.name);
                }
            }
        }
    }
}

/// What a role allows, as `group/resource verb`.
fn grants(documents: &[&Document]) -> BTreeSet<String> {
    let mut grants = BTreeSet::new();
    for rule in documents.iter().flat_map(|document| rules(document)) {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                grants.extend(rule.verbs.iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    grants
}

#[test]
fn a_namespaced_operator_has_the_same_rights_in_its_namespaces_and_none_elsewhere() {
    let everywhere = Case::by_name("default").documents();
    let cluster: Vec<&Document> =
        everywhere.iter().filter(|document| document.kind() == "ClusterRole" && !is_for_people(document)).collect();
    let documents = Case::by_name("namespaced").documents();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        assert!(documents.iter().all(|document| document.kind() != kind), "{kind}");
    }
    for namespace in ["shop", "billing"] {
        let roles: Vec<&Document> = documents
            .iter()
            .filter(|document| document.kind() == "Role" && document.namespace() == Some(namespace))
            .collect();
        assert_eq!(grants(&roles), grants(&cluster), "{namespace}");
    }
    let namespaces: BTreeSet<_> =
        documents.iter().filter(|document| is_role(document)).map(Document::namespace).collect();
    assert_eq!(namespaces, [Some("billing"), Some("shop"), Some("streaming")].into());
    let args = one(&documents, "Deployment").value["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("--namespace=shop") && args.contains("--namespace=billing"), "{args}");
}

#[test]
fn every_role_is_bound_to_the_account_of_the_operator() {
    for case in CASES {
        let documents = case.documents();
        let pod = &one(&documents, "Deployment").value["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let mut bound: BTreeMap<(Option<&str>, &str), &Value> = BTreeMap::new();
        for binding in documents.iter().filter(|document| document.kind().ends_with("RoleBinding")) {
            let subjects = &binding.value["subjects"];
            assert_eq!(subjects.as_array().unwrap().len(), 1);
            assert_eq!(subjects[0]["name"], account, "{}", case.name);
            assert_eq!(subjects[0]["namespace"], case.release.namespace, "{}", case.name);
            bound.insert((binding.namespace(), binding.value["roleRef"]["name"].as_str().unwrap()), subjects);
        }
        let roles = documents.iter().filter(|document| is_role(document) && !is_for_people(document));
        let roles: BTreeSet<_> = roles.map(|role| (role.namespace(), role.name())).collect();
        assert_eq!(bound.into_keys().collect::<BTreeSet<_>>(), roles, "{}", case.name);
    }
}

#[test]
fn roles_for_people_are_about_stream_jobs_only_and_seeing_does_not_change() {
    let documents = Case::by_name("default").documents();
    let people: Vec<&Document> = documents.iter().filter(|document| is_for_people(document)).collect();
    assert_eq!(
        people.iter().map(|role| role.name()).collect::<BTreeSet<_>>(),
        ["fencepost-edit", "fencepost-view"].into()
    );
    for role in people {
        for grant in grants(&[role]) {
            assert!(grant.starts_with(&format!("{}/streamjobs", fencepost_crds::names::GROUP)), "{grant}");
            let reads = ["get", "list", "watch"].iter().any(|verb| grant.ends_with(&format!(" {verb}")));
            assert_eq!(reads, role.name().ends_with("-view"), "{grant}");
            // The status is the operator's journal: people read it.
            assert!(reads || !grant.contains("/status"), "{grant}");
        }
        let viewer = role.value["metadata"]["labels"].get("rbac.authorization.k8s.io/aggregate-to-view");
        assert_eq!(viewer.is_some(), role.name().ends_with("-view"));
    }
}
