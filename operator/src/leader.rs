//! Leader election. Losing the lease ends the process: a new one starts with nothing in its hands.
//!
//! The lease keeps two operators from doing the same work. It is not what keeps data safe: status and StatefulSet are written only over what was
//! seen, and ids are fenced only just after the journal was looked at.

use std::{
    pin::pin,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use thiserror::Error;
use tokio::{sync::watch, time::Instant};
use tower::{Service, layer::layer_fn};

/// The lease is good for this long after a renewal.
const LEASE_SECONDS: u64 = 15;
/// It is renewed this long before its end.
const GRACE_SECONDS: u64 = 8;
/// A request for the lease that takes longer has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The process ends this long after the renewal that worked last: some time before others may take the lease.
const GIVE_UP: Duration = Duration::from_secs(LEASE_SECONDS - 3);
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
    NotRenewed,
}

/// A replica that takes part in the election.
pub struct Candidate {
    manager: LeaseManager,
    /// When the renewal that worked last was asked for.
    renewed: watch::Sender<Instant>,
}

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
        let builder = ClientBuilder::try_from(config).map_err(|error| LeaderError::Client(Box::new(error)))?;
        let renewed = watch::Sender::new(Instant::now());
        let layer = layer_fn(|inner| NoteRenewals { inner, renewed: renewed.clone() });
        Self::with(builder.with_layer(&layer).build(), lease, renewed).await
    }

    async fn with(client: Client, lease: Lease, renewed: watch::Sender<Instant>) -> Result<Self, LeaderError> {
        let manager = LeaseManagerBuilder::new(client, lease.name)
            .with_namespace(lease.namespace)
            .with_identity(lease.identity)
            .with_duration(LEASE_SECONDS)
            .with_grace(GRACE_SECONDS)
            .build()
            .await
            .map_err(LeaderError::Lease)?;
        Ok(Self { manager, renewed })
    }

    /// Waits until this replica leads. Errors are logged and tried again: a standby has time.
    pub async fn lead(&self) {
        loop {
            match self.manager.changed().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = crate::error::chain(&error), "the lease cannot be read, trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Keeps the lease; returns when it is lost, or soon will be.
    ///
    /// ```text
    /// renewed ── 7 s ── renew: fails, fails … ── 12 s: the process ends ── 15 s: others may take the lease
    /// ```
    pub async fn keep(&self) -> LeaderError {
        let mut renewed = self.renewed.subscribe();
        let mut lost = pin!(self.lost());
        loop {
            let end = *renewed.borrow_and_update() + GIVE_UP;
            tokio::select! {
                () = &mut lost => return LeaderError::Lost,
                Ok(()) = renewed.changed() => {}
                () = tokio::time::sleep_until(end) => return LeaderError::NotRenewed,
            }
        }
    }

    /// Renews the lease for as long as nobody else has it.
    async fn lost(&self) {
        loop {
            match self.manager.changed().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(error = crate::error::chain(&error), "the lease cannot be renewed, trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives the lease to others at once.
    pub async fn release(&self) {
        if let Err(error) = self.manager.release().await {
            tracing::warn!(error = crate::error::chain(&error), "the lease cannot be released; it runs out by itself");
        }
    }
}

/// The client of the lease. The lease carries the time at which its renewal was asked for, so that is noted, and not when the answer came.
struct NoteRenewals<S> {
    inner: S,
    renewed: watch::Sender<Instant>,
}

impl<S, B> Service<Request<Body>> for NoteRenewals<S>
where
    S: Service<Request<Body>, Response = Response<B>, Future: Send + 'static>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (asked, is_renewal) = (Instant::now(), request.method() == Method::PATCH);
        let (answer, renewed) = (self.inner.call(request), self.renewed.clone());
        Box::pin(async move {
            let answer = answer.await?;
            if is_renewal && answer.status().is_success() {
                renewed.send_replace(asked);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests;
