use fencepost_crds::names;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::labels;
use crate::revision::Identity;

/// Headless: one name per worker. Workers that are not ready have a name too, since they are asked for their state as well.
pub(super) fn build(identity: &Identity) -> Service {
    Service {
        metadata: labels::metadata(identity, &names::child(&identity.name)),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: labels::worker_selector(&identity.name).match_labels,
            ports: Some(vec![ServicePort {
                name: Some(names::WORKER_HTTP_PORT_NAME.to_owned()),
                port: names::WORKER_HTTP_PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String(names::WORKER_HTTP_PORT_NAME.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
