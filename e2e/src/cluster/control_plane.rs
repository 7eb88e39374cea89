//! etcd, the API server, the controller manager and the scheduler.

use super::process::{self, Program};
use super::topology::{API_PORT, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, SERVICE_RANGE};
use super::{Cluster, Error};

const ETCD: &str = "http://127.0.0.1:2379";

fn program(cluster: &Cluster, component: &str) -> Program {
    let namespace = cluster.spec.name.namespace(CONTROL_PLANE);
    Program::new(component, &namespace, cluster.tools.program(component))
}

/// What the others cannot start without.
pub(super) fn start_api(cluster: &Cluster) -> Result<(), Error> {
    let run = &cluster.run;
    let etcd = program(cluster, "etcd").args([
        format!("--data-dir={}", run.member("etcd").display()),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        // A cluster that dies with its machine needs no disk flushes.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]);
    process::start(run, etcd)?;
    let pki = |file: &str| run.pki().join(file).display().to_string();
    let api_server = program(cluster, "kube-apiserver").args([
        format!("--etcd-servers={ETCD}"),
        format!("--advertise-address={CONTROL_PLANE_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        format!("--kubelet-client-certificate={}", pki("admin.crt")),
        format!("--kubelet-client-key={}", pki("admin.key")),
        // Node names resolve nowhere: logs and exec go by address.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--allow-privileged=true".to_owned(),
    ]);
    process::start(run, api_server)?;
    Ok(())
}

/// What needs an API server that is up: both end themselves when they find none.
pub(super) fn start_controllers(cluster: &Cluster) -> Result<(), Error> {
    let pki = |file: &str| cluster.run.pki().join(file).display().to_string();
    let manager = program(cluster, "kube-controller-manager").args([
        format!("--kubeconfig={}", pki("kube-controller-manager.kubeconfig")),
        format!("--service-account-private-key-file={}", pki("service-accounts.key")),
        format!("--root-ca-file={}", pki("ca.crt")),
        "--use-service-account-credentials".to_owned(),
        "--leader-elect=false".to_owned(),
    ]);
    process::start(&cluster.run, manager)?;
    let scheduler = program(cluster, "kube-scheduler")
        .args([format!("--kubeconfig={}", pki("kube-scheduler.kubeconfig")), "--leader-elect=false".to_owned()]);
    process::start(&cluster.run, scheduler)?;
    Ok(())
}
