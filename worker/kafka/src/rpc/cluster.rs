//! A cluster: its brokers, who coordinates what, and how long to go on trying.

mod retry;
mod route;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::{ConnectionSettings, HostPort};

use super::connection::{Connection, Dialer};
use super::error::RpcError;
use super::types::{BrokerId, Metadata};

pub(super) use retry::Retry;
pub(super) use route::{Answers, CoordinatorKind, Routed, Routes, unanswered};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// TCP, TLS, versions and SASL together.
    pub connect_timeout: Duration,
    /// One request, from sending to its answer.
    pub request_timeout: Duration,
    /// A call with all its attempts.
    pub call_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(20),
        }
    }
}

/// A Kafka cluster.
///
/// Cheap to clone; clones share connections. A call repeats what may be repeated, within [`ClientOptions::call_timeout`],
/// and returns the last error. Everything repeated is safe to repeat; where it is not, the call's documentation says so.
///
/// # Example
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use fencepost_kafka::rpc::Cluster;
/// use fencepost_kafka::settings::ConnectionSettings;
///
/// let cluster = Cluster::new(ConnectionSettings::plaintext("kafka:9092", "example")?)?;
/// if let Some((broker, limit)) = cluster.broker_limits().await?.transaction_max_timeout_ms() {
///     println!("broker {broker} ends transactions after {limit} ms");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
    options: ClientOptions,
}

struct Inner {
    dialer: Dialer,
    known: Mutex<Known>,
}

/// What was learnt. A hint, never the truth: every use of it must cope with being sent to the wrong place.
#[derive(Default)]
struct Known {
    brokers: BTreeMap<BrokerId, HostPort>,
    coordinators: HashMap<(CoordinatorKind, String), BrokerId>,
    connections: HashMap<HostPort, Arc<Slot>>,
    /// Peers whose last dial failed: asked last when any broker will do.
    unreachable: HashSet<HostPort>,
}

/// The connection to a peer. The lock is held while dialling, so that a peer is dialled once.
type Slot = tokio::sync::Mutex<Option<Arc<Connection>>>;

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("bootstrap", &self.inner.dialer.bootstrap()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster with default timeouts. Nothing is dialled yet.
    ///
    /// # Errors
    ///
    /// [`RpcError::TlsSetup`] when there is no authority to trust.
    pub fn new(settings: ConnectionSettings) -> Result<Self, RpcError> {
        Self::with_options(settings, ClientOptions::default())
    }

    /// A cluster with other timeouts.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_options(settings: ConnectionSettings, options: ClientOptions) -> Result<Self, RpcError> {
        let dialer = Dialer::new(settings, options.connect_timeout)?;
        Ok(Self { inner: Arc::new(Inner { dialer, known: Mutex::default() }), options })
    }

    /// The same cluster, over the same connections, whose calls take no longer than this.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> Self {
        Self { inner: Arc::clone(&self.inner), options: ClientOptions { call_timeout, ..self.options } }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn retry(&self) -> Retry {
        Retry::new(&self.options)
    }

    /// A connection to the peer: the one there is, or a new one.
    pub(super) async fn connection(&self, peer: &HostPort, deadline: Instant) -> Result<Arc<Connection>, RpcError> {
        let slot = Arc::clone(self.known().connections.entry(peer.clone()).or_default());
        let started = Instant::now();
        let late = |_| RpcError::ConnectTimeout { peer: peer.clone(), after: started.elapsed() };
        let mut slot = tokio::time::timeout_at(deadline, slot.lock()).await.map_err(late)?;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(Arc::clone(connection));
        }
        let dialled = self.inner.dialer.dial(peer, deadline).await;
        let connection = match dialled {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                self.known().unreachable.insert(peer.clone());
                return Err(error);
            }
        };
        self.known().unreachable.remove(peer);
        tracing::debug!(peer = %peer, "connected");
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Where to look for any broker: connections that are open, then brokers the cluster named and those of the settings,
    /// at last those that could not be reached. A broker that swallows packets costs the whole time for connecting.
    fn candidates(&self) -> Vec<HostPort> {
        let known = self.known();
        let mut peers: Vec<HostPort> = known.brokers.values().cloned().collect();
        for peer in self.inner.dialer.bootstrap() {
            if !peers.contains(peer) {
                peers.push(peer.clone());
            }
        }
        let is_open = |peer: &HostPort| {
            let slot = known.connections.get(peer).and_then(|slot| slot.try_lock().ok());
            slot.is_some_and(|slot| slot.as_ref().is_some_and(|connection| connection.is_usable()))
        };
        peers.sort_by_cached_key(|peer| (!is_open(peer), known.unreachable.contains(peer)));
        peers
    }

    /// A connection to any broker.
    pub(super) async fn any(&self, deadline: Instant) -> Result<Arc<Connection>, RpcError> {
        let mut last = None;
        for peer in self.candidates() {
            match self.connection(&peer, deadline).await {
                Ok(connection) => return Ok(connection),
                // The credentials will not please another broker either, and the more are asked the sooner the user is
                // locked out.
                Err(error @ (RpcError::SaslRefused { .. } | RpcError::SaslMechanism { .. })) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(RpcError::UnknownBroker { id: BrokerId(-1) }))
    }

    /// A connection to a certain broker.
    pub(super) async fn broker(&self, id: BrokerId, deadline: Instant) -> Result<Arc<Connection>, RpcError> {
        let address = self.known().brokers.get(&id).cloned();
        let address = match address {
            Some(address) => address,
            None => {
                self.metadata_once(&[], deadline).await?;
                self.known().brokers.get(&id).cloned().ok_or(RpcError::UnknownBroker { id })?
            }
        };
        self.connection(&address, deadline).await
    }

    /// Takes over where the brokers are now. A broker that is away for a moment is not forgotten: it may still lead.
    pub(super) fn learn(&self, metadata: &Metadata) {
        let mut known = self.known();
        for (id, address) in &metadata.brokers {
            known.brokers.insert(*id, address.clone());
        }
    }
}

#[cfg(test)]
mod tests;
