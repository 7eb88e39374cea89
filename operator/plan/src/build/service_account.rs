use k8s_openapi::api::core::v1::ServiceAccount;

use super::labels;
use crate::revision::Identity;

/// Workers never talk to the API server: no token, no role.
pub(super) fn build(identity: &Identity) -> ServiceAccount {
    ServiceAccount {
        metadata: labels::metadata(identity, &fencepost_crds::names::child(&identity.name)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
