//! What "healthy" means for each part, and waiting for it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use super::process::{self, Liveness};
use super::{Cluster, Error, topology};
use crate::paths::RunDir;
use crate::report;
use crate::wait::{self, Deadline};

/// A client made from a kubeconfig file.
pub(super) async fn client(kubeconfig: &Path) -> Result<Client, Error> {
    let boxed = |error| Error::Kubeconfig(Box::new(error));
    let file = Kubeconfig::read_from(kubeconfig).map_err(boxed)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(boxed)?;
    // An API server that does not answer is a result here: whoever waits asks again.
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}

/// What was seen when something was looked at.
pub(super) enum Seen {
    Healthy,
    Not(String),
}

/// Waits until `look` says healthy. Fails early when one of the `components` ends meanwhile.
pub(super) fn until_healthy(
    run: &RunDir,
    what: &str,
    components: &[String],
    limit: Duration,
    mut look: impl FnMut() -> Seen,
) -> Result<(), Error> {
    let deadline = Deadline::after(limit);
    let mut last = String::new();
    let log = |component: &String| process::log_path(run, component);
    let healthy = wait::until(deadline, || {
        if let Some(ended) = components.iter().find(|component| is_gone(run, component)) {
            return Err(Error::Ended { component: ended.clone(), logs: process::log_tails(&[log(ended)], 30) });
        }
        Ok(match look() {
            Seen::Healthy => Some(()),
            Seen::Not(state) => {
                last = state;
                None
            }
        })
    })?;
    if healthy.is_none() {
        return Err(Error::NotReady {
            what: format!("{what} not healthy"),
            seconds: deadline.elapsed().as_secs(),
            state: if last.is_empty() { last } else { format!(": {last}") },
            logs: process::log_tails(&components.iter().map(log).collect::<Vec<_>>(), 20),
        });
    }
    report::detail(format!("{what}: healthy after {:.1} s", deadline.elapsed().as_secs_f64()));
    Ok(())
}

fn is_gone(run: &RunDir, component: &str) -> bool {
    process::find(run, component).is_ok_and(|started| started.liveness() == Liveness::Gone)
}

/// Waits until the API server answers `/readyz`.
pub(super) fn api_server(cluster: &Cluster) -> Result<(), Error> {
    let components = ["kube-apiserver", "etcd"].map(str::to_owned);
    in_runtime(cluster, |runtime, kubeconfig| {
        until_healthy(&cluster.run, "API server", &components, Duration::from_secs(90), || {
            runtime.block_on(async {
                let answer = async {
                    let request = http::Request::get("/readyz").body(Vec::new()).map_err(kube::Error::HttpError)?;
                    client(kubeconfig).await?.request_text(request).await.map_err(Error::from)
                };
                match answer.await {
                    Ok(text) if text == "ok" => Seen::Healthy,
                    Ok(text) => Seen::Not(text),
                    Err(error) => Seen::Not(report::chain(&error)),
                }
            })
        })
    })
}

/// Waits until every node is ready, pods can be made and names resolve.
pub(super) fn kubernetes(cluster: &Cluster) -> Result<(), Error> {
    let mut components = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"].map(str::to_owned).to_vec();
    // A node that was crashed on purpose is not waited for.
    let crashed = |node: &topology::Node| is_gone(&cluster.run, &node.name());
    let nodes: Vec<_> = cluster.spec.nodes().into_iter().filter(|node| !crashed(node)).collect();
    for node in &nodes {
        components.push(node.name());
        components.extend(["containerd", "kubelet", "kube-proxy"].map(|part| format!("{node}-{part}")));
    }
    in_runtime(cluster, |runtime, kubeconfig| {
        let client = runtime.block_on(client(kubeconfig))?;
        until_healthy(&cluster.run, "Kubernetes", &components, Duration::from_secs(180), || {
            match runtime.block_on(not_yet(&client, nodes.len())) {
                Ok(None) => Seen::Healthy,
                Ok(Some(state)) => Seen::Not(state),
                Err(error) => Seen::Not(report::chain(&error)),
            }
        })
    })
}

/// What is missing for Kubernetes to be of use.
async fn not_yet(client: &Client, nodes: usize) -> Result<Option<String>, kube::Error> {
    let listed = Api::<Node>::all(client.clone()).list(&kube::api::ListParams::default()).await?;
    let ready = listed.items.iter().filter(|node| is_ready(node)).count();
    if ready < nodes {
        return Ok(Some(format!("{ready} of {nodes} nodes ready")));
    }
    // Without it no pod of the namespace passes admission.
    let account = Api::<ServiceAccount>::namespaced(client.clone(), "default").get_opt("default").await?;
    if account.is_none() {
        return Ok(Some("no default service account yet".to_owned()));
    }
    let dns = Api::<Deployment>::namespaced(client.clone(), "kube-system").get_opt("coredns").await?;
    let available = dns.and_then(|dns| dns.status?.available_replicas).unwrap_or(0);
    Ok((available < 1).then(|| "CoreDNS is not available".to_owned()))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Runs `work` inside the cluster's namespace, with a runtime for the client.
fn in_runtime(
    cluster: &Cluster,
    work: impl FnOnce(&tokio::runtime::Runtime, &Path) -> Result<(), Error> + Send,
) -> Result<(), Error> {
    let kubeconfig = cluster.run.kubeconfig();
    cluster.namespace().within(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        work(&runtime.map_err(Error::file("a tokio runtime"))?, &kubeconfig)
    })?
}
