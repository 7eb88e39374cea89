//! From an address to a connection that is ready: TCP, TLS, versions, SASL.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::error::BrokerCode;
use crate::rpc::api::{ApiTable, Wire};
use crate::rpc::error::{RpcError, Sent};
use crate::rpc::sasl::{Exchange, Step};
use crate::rpc::tls;
use crate::settings::{ConnectionSettings, HostPort, SaslSettings};

use super::{Connection, Phase, lock};

const VERSIONS: &str = "ApiVersions";
const HANDSHAKE: &str = "SaslHandshake";
/// Newest version of ApiVersions this client writes.
const VERSIONS_MAX: i16 = 4;
/// Oldest: brokers before 2.4 know only older ones, and are too old for the rest anyway.
const VERSIONS_MIN: i16 = 3;
const HANDSHAKE_VERSION: i16 = 1;

/// Makes connections.
pub(in crate::rpc) struct Dialer {
    settings: ConnectionSettings,
    tls: Option<TlsConnector>,
    timeout: Duration,
}

impl Dialer {
    pub(in crate::rpc) fn new(settings: ConnectionSettings, timeout: Duration) -> Result<Self, RpcError> {
        let tls = settings.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self { settings, tls, timeout })
    }

    pub(in crate::rpc) fn bootstrap(&self) -> &[HostPort] {
        &self.settings.bootstrap
    }

    /// A connection that is ready, or why not, within the dialer's timeout and the deadline.
    pub(in crate::rpc) async fn dial(&self, peer: &HostPort, deadline: Instant) -> Result<Connection, RpcError> {
        let started = Instant::now();
        let until = deadline.min(started + self.timeout);
        let late = || RpcError::ConnectTimeout { peer: peer.clone(), after: until.duration_since(started) };
        match tokio::time::timeout_at(until, self.greet(peer, until)).await {
            Err(_) | Ok(Err(RpcError::Timeout { .. })) => Err(late()),
            // Of what the caller wants to ask, nothing was sent.
            Ok(Err(RpcError::Closed { peer, call, source, .. })) => {
                Err(RpcError::Closed { peer, call, sent: Sent::No, source })
            }
            Ok(result) => result,
        }
    }

    async fn greet(&self, peer: &HostPort, deadline: Instant) -> Result<Connection, RpcError> {
        let failed = |source| RpcError::Connect { peer: peer.clone(), source: Arc::new(source) };
        let stream = TcpStream::connect((peer.host.as_str(), peer.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let client_id = self.settings.client_id.clone();
        let mut connection = match &self.tls {
            None => Connection::start(peer.clone(), client_id, stream),
            Some(tls) => {
                let refused = |source| RpcError::Tls { peer: peer.clone(), source: Arc::new(source) };
                let name =
                    ServerName::try_from(peer.host.clone()).map_err(|error| refused(std::io::Error::other(error)))?;
                let stream = tls.connect(name, stream).await.map_err(refused)?;
                Connection::start(peer.clone(), client_id, stream)
            }
        };
        connection.versions = connection.ask_versions(deadline).await?;
        if let Some(sasl) = &self.settings.sasl {
            connection.authenticate(sasl, deadline).await?;
        }
        lock(&connection.waiting).phase = if self.settings.sasl.is_some() { Phase::Proven } else { Phase::Fresh };
        Ok(connection)
    }
}

impl Connection {
    pub(super) async fn ask_versions(&self, deadline: Instant) -> Result<ApiTable, RpcError> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("fencepost"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let mut version = VERSIONS_MAX;
        loop {
            let answer = self.exchange(VERSIONS, &request, version, deadline).await?;
            let table = match code_at_the_front(&answer) {
                None => return self.read(VERSIONS, answer, version).map(|r: ApiVersionsResponse| ApiTable::new(&r)),
                // KIP-511: a broker that does not know our version says so in the oldest, with the versions it knows.
                Some(BrokerCode::UNSUPPORTED_VERSION) => {
                    self.read(VERSIONS, answer, 0).map(|r: ApiVersionsResponse| ApiTable::new(&r))?
                }
                Some(code) => {
                    let problem = format!("{code}");
                    return Err(RpcError::BadAnswer { peer: self.peer.clone(), call: VERSIONS, problem });
                }
            };
            let theirs = table.max(ApiVersionsRequest::KEY).unwrap_or(0);
            if theirs < VERSIONS_MIN || theirs >= version {
                return Err(RpcError::UnsupportedVersion {
                    peer: self.peer.clone(),
                    call: VERSIONS,
                    offered: format!("0..{theirs}"),
                    ours: format!("{VERSIONS_MIN}..{VERSIONS_MAX}"),
                });
            }
            version = theirs;
        }
    }

    async fn authenticate(&mut self, settings: &SaslSettings, deadline: Instant) -> Result<(), RpcError> {
        let wanted = settings.mechanism.to_string();
        let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(wanted.clone()));
        let answer = self.exchange(HANDSHAKE, &request, HANDSHAKE_VERSION, deadline).await?;
        let answer: SaslHandshakeResponse = self.read(HANDSHAKE, answer, HANDSHAKE_VERSION)?;
        if BrokerCode::from_response(answer.error_code).is_some() {
            let offered = answer.mechanisms.iter().map(ToString::to_string).collect();
            return Err(RpcError::SaslMechanism { peer: self.peer.clone(), wanted, offered });
        }

        let broken = |problem| RpcError::SaslExchange { peer: self.peer.clone(), problem };
        let mut exchange = Exchange::new(settings).map_err(broken)?;
        let mut received: Option<Bytes> = None;
        loop {
            let (bytes, last) = match exchange.step(received.as_deref()).map_err(broken)? {
                Step::Send(bytes) => (bytes, false),
                Step::SendLast(bytes) => (bytes, true),
                Step::Done => return Ok(()),
            };
            let answer = self.call(&SaslAuthenticateRequest::default().with_auth_bytes(bytes.into()), deadline).await?;
            if let Some(code) = BrokerCode::from_response(answer.error_code) {
                let message = answer.error_message.map_or_else(|| code.to_string(), |text| text.to_string());
                let username = settings.username.clone();
                return Err(RpcError::SaslRefused { peer: self.peer.clone(), username, message });
            }
            if let Ok(lifetime @ 1..) = u64::try_from(answer.session_lifetime_ms) {
                // KIP-368: the broker hangs up then. Leave time for the calls that are under way.
                self.expires = Some(Instant::now() + Duration::from_millis(lifetime / 10 * 8));
            }
            if last {
                return Ok(());
            }
            received = Some(answer.auth_bytes);
        }
    }
}

/// The error code of an answer to ApiVersions: it comes first in every version.
fn code_at_the_front(answer: &Bytes) -> Option<BrokerCode> {
    let mut after_header = answer.get(4..).unwrap_or_default();
    after_header.try_get_i16().ok().and_then(BrokerCode::from_response)
}
