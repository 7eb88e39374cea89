use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{PERMISSIONS, Scope};

type Granted = BTreeMap<(String, String), BTreeSet<String>>;

fn chart(file: &str) -> Granted {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/fencepost/files").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text: String = text.lines().filter(|line| !line.contains("{{")).map(|line| format!("{line}\n")).collect();
    let rules: Vec<PolicyRule> = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut granted = Granted::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                granted.entry((group.clone(), resource.clone())).or_default().extend(rule.verbs.clone());
            }
        }
    }
    granted
}

fn needed(scope: Scope) -> Granted {
    let mut needed = Granted::new();
    for permission in PERMISSIONS.iter().filter(|permission| permission.scope == scope) {
        needed
            .entry((permission.group.to_owned(), permission.resource.to_owned()))
            .or_default()
            .extend(permission.verbs.iter().map(|verb| (*verb).to_owned()));
    }
    needed
}

#[test]
fn the_chart_grants_what_the_operator_needs_and_no_more() {
    assert_eq!(chart("operator-rules.yaml"), needed(Scope::Watched));
    assert_eq!(chart("leader-election-rules.yaml"), needed(Scope::Release));
}

#[test]
fn secrets_are_neither_listed_nor_watched_and_nothing_is_a_wildcard() {
    for permission in PERMISSIONS {
        if permission.resource == "secrets" {
            assert_eq!(permission.verbs, ["get"]);
        }
        assert!(!permission.reason.is_empty());
        assert!(permission.verbs.iter().all(|verb| *verb != "*") && permission.resource != "*");
    }
}
