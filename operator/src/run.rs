//! Putting the parts together.

use std::{io, net::SocketAddr, sync::Arc};

use fencepost_plan::Settings;
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use thiserror::Error;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    broker,
    cli::Args,
    controller::{self, Context},
    events::Events,
    http::{self, Readiness},
    jobs::AllJobs,
    leader::{Candidate, LeaderError, Lease},
    memory::Memory,
    metrics::Metrics,
    served, worker,
};

/// Why the operator ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// No way to the API server is configured.
    #[error("no kubeconfig and no service account: where is the API server?")]
    Config(#[source] Box<kube::config::InferConfigError>),
    /// The client cannot be built.
    #[error("no client for the API server")]
    Client(#[source] Box<kube::Error>),
    /// The address is taken.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Signals cannot be caught.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// The server of health and metrics ended.
    #[error("the server of health and metrics ended")]
    Http(#[source] io::Error),
    /// Leadership was lost.
    #[error("this replica does not lead any more")]
    Leader(#[from] LeaderError),
    /// A controller ended by itself.
    #[error("a controller ended by itself")]
    ControllerEnded,
}

/// Runs until a signal or the loss of the lease.
///
/// # Errors
/// Anything that a restart of the process may cure.
pub async fn run(args: Args) -> Result<(), RunError> {
    // Libraries bring more than one TLS implementation along.
    drop(rustls::crypto::ring::default_provider().install_default());
    let stop = stop_signal()?;
    let metrics = Metrics::default();
    let (ready, readiness) = watch::channel(Readiness::Waiting);
    let listener = TcpListener::bind(args.http_addr)
        .await
        .map_err(|source| RunError::Listen { address: args.http_addr, source })?;
    let router = http::router(metrics.clone(), readiness);
    // It answers until the work has ended, which after a signal takes as long as reconciliations under way and the return of the
    // lease.
    let server = async { axum::serve(listener, router).await };
    tokio::select! {
        outcome = work(args, metrics, ready, stop) => outcome,
        outcome = server => outcome.map_err(RunError::Http),
    }
}

fn stop_signal() -> Result<CancellationToken, RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "lives as long as the process and cannot fail")]
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
        token.cancel();
    });
    Ok(stop)
}

async fn work(
    args: Args,
    metrics: Metrics,
    ready: watch::Sender<Readiness>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let config = Config::infer().await.map_err(|error| RunError::Config(Box::new(error)))?;
    let client = Client::try_from(config.clone()).map_err(|error| RunError::Client(Box::new(error)))?;
    tokio::select! {
        () = served::wait(&client) => {}
        () = stop.cancelled() => return Ok(()),
    }
    ready.send_replace(Readiness::Ready);
    if !args.leader_elect {
        tracing::info!("leader election is off");
        metrics.leads();
        return controllers(&args, client, metrics, stop).await;
    }
    let lease = lease(&args, &config);
    tracing::info!(lease = lease.name, namespace = lease.namespace, identity = lease.identity, "waiting to lead");
    let candidate = tokio::select! {
        candidate = Candidate::new(config, lease) => candidate?,
        () = stop.cancelled() => return Ok(()),
    };
    tokio::select! {
        () = candidate.lead() => {}
        () = stop.cancelled() => return Ok(()),
    }
    tracing::info!("this replica leads");
    metrics.leads();
    tokio::select! {
        lost = candidate.keep() => return Err(lost.into()),
        outcome = controllers(&args, client, metrics, stop) => outcome?,
    }
    candidate.release().await;
    Ok(())
}

fn lease(args: &Args, config: &Config) -> Lease {
    Lease {
        name: args.lease_name.clone(),
        namespace: args
            .lease_namespace
            .clone()
            .or_else(|| args.pod_namespace.clone())
            .unwrap_or_else(|| config.default_namespace.clone()),
        identity: args.identity.clone(),
    }
}

/// Runs one controller per namespace, or one for all. Returns after a stop when reconciliations under way have ended.
async fn controllers(args: &Args, client: Client, metrics: Metrics, stop: CancellationToken) -> Result<(), RunError> {
    let context = Arc::new(Context {
        events: Events::new(client.clone(), args.identity.clone()),
        client,
        settings: Settings { worker_image: args.worker_image.clone() },
        broker: Box::new(broker::Kafka),
        workers: Box::new(worker::Http::default()),
        jobs: AllJobs::default(),
        memory: Memory::default(),
        metrics,
        clock: Timestamp::now,
    });
    let namespaces = args.watched();
    tracing::info!(namespaces = namespaces.join(","), worker_image = args.worker_image, "looking after StreamJobs");
    let scopes: Vec<Option<String>> =
        if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(Some).collect() };
    let controllers: Vec<_> = scopes
        .iter()
        .map(|namespace| {
            let stopped = stop.clone().cancelled_owned().boxed().shared();
            controller::run(Arc::clone(&context), namespace.as_deref(), args.concurrency, stopped)
        })
        .collect();
    let mut tasks: JoinSet<()> = controllers.into_iter().collect();
    while let Some(_ended) = tasks.join_next().await {
        if !stop.is_cancelled() {
            return Err(RunError::ControllerEnded);
        }
    }
    Ok(())
}
