//! TLS: the broker's certificate must be signed by a trusted authority and carry the name that was dialled.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsConnector;

use crate::settings::TlsSettings;

use super::error::RpcError;

pub(super) fn connector(settings: &TlsSettings) -> Result<TlsConnector, RpcError> {
    let setup = |problem: String| RpcError::TlsSetup { problem };
    let mut roots = RootCertStore::empty();
    match &settings.ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| setup(format!("the CA is not PEM: {error}")))?;
                roots.add(certificate).map_err(|error| setup(format!("the CA certificate is not usable: {error}")))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(setup("no authority to trust; set spec.kafka.tls.caSecretRef".to_owned()));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(error.to_string()))?
        .with_root_certificates(roots);
    let config = match &settings.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let chain = CertificateDer::pem_slice_iter(&client.certificate_pem).collect::<Result<Vec<_>, _>>();
            let chain = chain.map_err(|error| setup(format!("the client certificate is not PEM: {error}")))?;
            // The error could repeat what it read.
            let key = PrivateKeyDer::from_pem_slice(client.key_pem.expose().as_bytes())
                .map_err(|_| setup("the key of the client certificate is not PEM".to_owned()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| setup(format!("the client certificate and its key cannot be used: {error}")))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
