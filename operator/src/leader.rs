//! Leader election. Losing the lease ends the process: a new one starts with nothing in its hands.
//!
//! The lease keeps two operators from doing the same work. It is not what keeps data safe: every act of an operator that only believes to lead
//! carries what it saw, and is refused when that has changed.

use std::time::Duration;

use kube::{Client, Config};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use thiserror::Error;
use tokio::time::Instant;

/// The lease is good for this long after a renewal.
const LEASE_SECONDS: u64 = 15;
/// It is renewed this long before its end.
const GRACE_SECONDS: u64 = 8;
/// A request for the lease that takes longer has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Renewals that fail for this long end the process: some time before others may take the lease.
const GIVE_UP: Duration = Duration::from_secs(GRACE_SECONDS - 2);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Leadership was not won or was lost.
#[derive(Debug, Error)]
pub enum LeaderError {
    /// The client for the lease cannot be built.
    #[error("no client for the lease")]
    Client(#[source] Box<kube::Error>),
    /// The lease cannot be created or read.
    #[error("the lease cannot be created or read")]
    Lease(#[source] LeaseManagerError),
    /// Another replica leads.
    #[error("another replica took the lease")]
    Lost,
    /// The lease could not be renewed.
    #[error("the lease could not be renewed for {} s", GIVE_UP.as_secs())]
    NotRenewed(#[source] LeaseManagerError),
}

/// A replica that takes part in the election.
pub struct Candidate(LeaseManager);

/// Where the lease is, and who we are.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Name of the lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Name of this replica.
    pub identity: String,
}

impl Candidate {
    /// Prepares to take part.
    ///
    /// # Errors
    /// The lease can neither be created nor read.
    pub async fn new(mut config: Config, lease: Lease) -> Result<Self, LeaderError> {
        // Retries inside the client would hide that the lease runs out.
        config.default_retry = false;
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        config.read_timeout = Some(REQUEST_TIMEOUT);
        config.write_timeout = Some(REQUEST_TIMEOUT);
        let client = Client::try_from(config).map_err(|error| LeaderError::Client(Box::new(error)))?;
        LeaseManagerBuilder::new(client, lease.name)
            .with_namespace(lease.namespace)
            .with_identity(lease.identity)
            .with_duration(LEASE_SECONDS)
            .with_grace(GRACE_SECONDS)
            .build()
            .await
            .map(Self)
            .map_err(LeaderError::Lease)
    }

    /// Waits until this replica leads. Errors are logged and tried again: a standby has time.
    pub async fn lead(&self) {
        loop {
            match self.0.changed().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = crate::error::chain(&error), "the lease cannot be read, trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Keeps the lease; returns when it is lost.
    pub async fn keep(&self) -> LeaderError {
        let mut failing: Option<(Instant, Instant)> = None;
        loop {
            match self.0.changed().await {
                Ok(true) => failing = None,
                Ok(false) => return LeaderError::Lost,
                Err(error) => {
                    let now = Instant::now();
                    // An attempt that went on for long before it failed was a renewal that worked and a later one that did not.
                    let first = failing.filter(|(_, last)| now - *last < GIVE_UP).map_or(now, |(first, _)| first);
                    if now - first >= GIVE_UP {
                        return LeaderError::NotRenewed(error);
                    }
                    tracing::warn!(error = crate::error::chain(&error), "the lease cannot be renewed, trying again");
                    failing = Some((first, now));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives the lease to others at once.
    pub async fn release(&self) {
        if let Err(error) = self.0.release().await {
            tracing::warn!(error = crate::error::chain(&error), "the lease cannot be released; it runs out by itself");
        }
    }
}
