//! What is kept of a scenario that failed.

use std::fs;
use std::path::{Path, PathBuf};

use super::lab::SYSTEM;
use crate::cluster::Cluster;
use crate::command;

/// Writes what the cluster knows about a namespace into a folder, and says which.
pub fn save(cluster: &Cluster, scenario: &str, namespace: &str, failure: &str) -> PathBuf {
    let folder = cluster.run_dir().root().with_extension("failures").join(scenario);
    // A full disk must not hide the failure itself.
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).ok();
    write(&folder, "failure.txt", failure);
    let tell = |file: &str, arguments: &[&str]| {
        let told = cluster.kubectl_command().map(|mut kubectl| command::run(kubectl.args(arguments)));
        let text = match told {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        write(&folder, file, &text);
    };
    tell("streamjobs.yaml", &["get", "streamjobs", "--namespace", namespace, "--output=yaml"]);
    tell("children.yaml", &["get", "statefulsets,configmaps,pods", "--namespace", namespace, "--output=yaml"]);
    tell("describe.txt", &["describe", "streamjobs,statefulsets,pods", "--namespace", namespace]);
    tell("events.txt", &["get", "events", "--namespace", namespace, "--sort-by=.metadata.creationTimestamp"]);
    tell(
        "operator.log",
        &["logs", "--namespace", SYSTEM, "--selector=app.kubernetes.io/name=fencepost", "--tail=3000"],
    );
    tell("nodes.txt", &["describe", "nodes"]);
    let names = cluster.kubectl(&["get", "pods", "--namespace", namespace, "--output=name"]).unwrap_or_default();
    for pod in names.lines() {
        let name = pod.trim_start_matches("pod/");
        tell(&format!("{name}.log"), &["logs", "--namespace", namespace, pod, "--all-containers"]);
        tell(
            &format!("{name}.previous.log"),
            &["logs", "--namespace", namespace, pod, "--all-containers", "--previous"],
        );
    }
    write(
        &folder,
        "components.txt",
        &format!("logs of Kubernetes and Kafka: {}\n", cluster.run_dir().logs().display()),
    );
    folder
}

/// The last events of what [`save`] wrote: for a log that is all that somebody has.
pub fn last_events(folder: &Path) -> Vec<String> {
    let events = fs::read_to_string(folder.join("events.txt")).unwrap_or_default();
    let lines: Vec<&str> = events.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(12)).map(ToString::to_string).collect()
}

fn write(folder: &Path, file: &str, text: &str) {
    fs::write(folder.join(file), text).ok();
}
