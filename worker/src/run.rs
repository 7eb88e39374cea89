//! `run`: slots on threads of their own, HTTP on another, and an orderly end.

mod fenced;
mod termination;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use fencepost_crds::{
    conditions::Reason,
    contract::{CONTRACT_VERSION, ExitCode, ResolvedJob, WorkerError, WorkerStatus},
};
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_pipeline::{Pipeline, Plan, plan};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    cli::{RunArgs, chain},
    describe::WORKER_VERSION,
    http::{self, Observed},
    metrics::{Metrics, SlotGauges},
    slot::{Clock, Shutdown, SlotConfig, SlotExit, SlotStats, SystemClock, run_slot},
};

/// A slot's loop turns many times a second; its calls have deadlines of at most half a minute. When it was silent this long, it hangs.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// What slots get on top of their drain timeout before the process ends without them.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// Everything that is watched from outside.
#[derive(Debug)]
struct Worker {
    revision: String,
    epoch: i64,
    ordinal: u32,
    slots: Vec<SlotStats>,
    shutdown: Shutdown,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Set when this worker was fenced before it started: it only says so.
    fenced: Option<WorkerError>,
}

/// Runs a job until asked to stop, fenced, or stopped by a bad record.
pub(crate) fn run(args: &RunArgs, job: &ResolvedJob) -> ExitCode {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let end = |code: ExitCode, reason: Reason, message: &str| {
        let report = WorkerError { reason: reason.to_string(), message: message.to_owned(), at_ms: clock.unix_ms() };
        termination::write(args.termination_log.as_deref(), &report);
        error!(code = code as u8, reason = report.reason, message, "worker ends");
        code
    };
    let plan = match plan(&job.pipeline) {
        Ok(plan) => plan,
        Err(violations) => {
            return end(ExitCode::InvalidJob, Reason::PipelineInvalid, &fencepost_plan::validate::list(&violations));
        }
    };
    let connection = match ConnectionSettings::from_resolved(&job.kafka, "fencepost-worker") {
        Ok(connection) => connection,
        Err(error) => return end(ExitCode::Failure, error.cause().reason(), &chain(&error)),
    };
    let marker = fenced::Marker::new(args.run_dir.as_deref(), args.epoch);
    let worker = Arc::new(Worker {
        revision: job.revision.clone(),
        epoch: args.epoch,
        ordinal: args.ordinal(),
        slots: (0..job.slots).map(SlotStats::new).collect(),
        shutdown: Shutdown::new(),
        metrics: Metrics::new(),
        clock: Arc::clone(&clock),
        fenced: marker.read(),
    });
    let server = match Server::start(args, &worker) {
        Ok(server) => server,
        Err(error) => return end(ExitCode::Failure, Reason::WorkerErrors, &format!("{}: {error}", args.http_addr)),
    };
    let exit = if worker.fenced.is_some() { stay_idle(&worker) } else { work(&worker, job, &plan, &connection) };
    server.stop();
    match exit {
        SlotExit::Drained => ExitCode::Ok,
        SlotExit::Fenced(message) => {
            let code = end(ExitCode::Fenced, Reason::Fenced, &message);
            marker.write(&message);
            code
        }
        bad @ SlotExit::BadRecord { .. } => end(ExitCode::BadRecord, Reason::BadRecord, &bad.to_string()),
        other => end(other.code(), Reason::WorkerErrors, &other.to_string()),
    }
}

/// A fenced worker whose container was restarted would only fence its successor: it waits to be removed.
fn stay_idle(worker: &Worker) -> SlotExit {
    warn!(epoch = worker.epoch, "fenced before; staying idle until the pod is replaced");
    while !worker.shutdown.is_draining() {
        worker.shutdown.wait(Duration::from_secs(3600));
    }
    SlotExit::Drained
}

fn work(worker: &Arc<Worker>, job: &ResolvedJob, plan: &Plan, connection: &ConnectionSettings) -> SlotExit {
    info!(
        job = job.name,
        namespace = job.namespace,
        revision = job.revision,
        epoch = worker.epoch,
        ordinal = worker.ordinal,
        slots = job.slots,
        "worker starts"
    );
    let (ended, exits) = mpsc::channel();
    let mut running = 0_u32;
    let mut worst = SlotExit::Drained;
    for slot in 0..job.slots {
        let config = SlotConfig::new(job, plan, connection.clone(), worker.ordinal, slot);
        match plan.instantiate().map_err(|e| chain(&e)).and_then(|p| start_slot(worker, config, p, ended.clone())) {
            Ok(()) => running += 1,
            Err(message) => {
                worst = SlotExit::Failed(message);
                worker.shutdown.drain();
            }
        }
    }
    drop(ended);
    let patience = Duration::from_millis(job.drain_timeout_ms).saturating_add(DRAIN_GRACE);
    collect(worker, &exits, running, worst, patience)
}

fn start_slot(
    worker: &Arc<Worker>,
    config: SlotConfig,
    pipeline: Pipeline,
    ended: mpsc::Sender<SlotExit>,
) -> Result<(), String> {
    let worker = Arc::clone(worker);
    let thread = thread::Builder::new().name(format!("slot-{}", config.slot));
    let body = move || {
        let Some(stats) = usize::try_from(config.slot).ok().and_then(|slot| worker.slots.get(slot)) else { return };
        // A slot that panics must not leave its partitions to a worker that looks well.
        let slot = AssertUnwindSafe(|| {
            run_slot(&config, pipeline, &worker.shutdown, stats, worker.metrics.as_ref(), &worker.clock)
        });
        let exit = catch_unwind(slot).unwrap_or_else(|_| {
            SlotExit::Failed(format!("slot {} ended unexpectedly; see the log for the panic", config.slot))
        });
        info!(slot = config.slot, exit = %exit, "slot ended");
        // The other side is gone only when it has stopped waiting.
        drop(ended.send(exit));
    };
    thread.spawn(body).map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Waits for all slots. The first that ends takes the others with it; how bad the end was is decided by the worst.
fn collect(
    worker: &Worker,
    exits: &mpsc::Receiver<SlotExit>,
    mut running: u32,
    mut worst: SlotExit,
    patience: Duration,
) -> SlotExit {
    let mut deadline = None;
    while running > 0 {
        if worker.shutdown.is_draining() && deadline.is_none() {
            deadline = Some(worker.clock.now().saturating_add(patience));
        }
        if deadline.is_some_and(|deadline| worker.clock.now() >= deadline) {
            return worse(worst, SlotExit::DrainTimeout);
        }
        match exits.recv_timeout(Duration::from_millis(100)) {
            Ok(exit) => {
                running -= 1;
                worst = worse(worst, exit);
                worker.shutdown.drain();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return worse(worst, SlotExit::Failed("a slot ended without a word".to_owned()));
            }
        }
    }
    worst
}

fn worse(one: SlotExit, other: SlotExit) -> SlotExit {
    const fn rank(exit: &SlotExit) -> u8 {
        match exit {
            SlotExit::Drained => 0,
            SlotExit::DrainTimeout => 1,
            SlotExit::Failed(_) => 2,
            SlotExit::BadRecord { .. } => 3,
            SlotExit::Fenced(_) => 4,
        }
    }
    if rank(&other) > rank(&one) { other } else { one }
}

impl Observed for Worker {
    fn status(&self) -> WorkerStatus {
        let now = self.clock.now();
        let mut slots: Vec<_> = self.slots.iter().map(SlotStats::status).collect();
        if let (Some(fenced), Some(slot)) = (&self.fenced, slots.first_mut()) {
            slot.error = Some(fenced.clone());
        }
        WorkerStatus {
            contract_version: CONTRACT_VERSION,
            worker_version: WORKER_VERSION.to_owned(),
            revision: self.revision.clone(),
            epoch: self.epoch,
            ordinal: self.ordinal,
            ready: self.fenced.is_none() && self.slots.iter().all(|slot| slot.is_ready(now)),
            draining: self.shutdown.is_draining(),
            slots,
        }
    }

    fn stuck(&self) -> Option<String> {
        if self.fenced.is_some() {
            return None;
        }
        let now = self.clock.now();
        let silent = self.slots.iter().enumerate().map(|(slot, stats)| (slot, stats.silent_for(now)));
        let (slot, silence) = silent.max_by_key(|(_, silence)| *silence)?;
        (silence > STUCK_AFTER).then(|| format!("slot {slot} has been silent for {} s\n", silence.as_secs()))
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let now = self.clock.now();
        let gauges: Vec<SlotGauges> = self
            .slots
            .iter()
            .map(|stats| {
                let status = stats.status();
                SlotGauges {
                    slot: status.slot,
                    ready: stats.is_ready(now),
                    open_seconds: stats.open_for(now).unwrap_or_default().as_secs_f64(),
                    lags: status.partitions.into_iter().map(|p| (p.topic, p.partition, p.lag)).collect(),
                }
            })
            .collect();
        self.metrics.text(&gauges)
    }
}

/// HTTP and signals, on a thread of their own: they must answer while slots block.
struct Server {
    stop: CancellationToken,
    thread: thread::JoinHandle<()>,
}

impl Server {
    fn start(args: &RunArgs, worker: &Arc<Worker>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Handlers are installed before any slot starts, so that an early SIGTERM is not lost.
        let signals = runtime.block_on(async { Signals::new() })?;
        let listener = std::net::TcpListener::bind(args.http_addr)?;
        listener.set_nonblocking(true)?;
        let stop = CancellationToken::new();
        let body = {
            let (worker, stop) = (Arc::clone(worker), stop.clone());
            move || {
                runtime.block_on(async {
                    let observed: Arc<dyn Observed> = Arc::<Worker>::clone(&worker);
                    tokio::select! {
                        served = http::serve(listener, observed, stop.clone()) => {
                            if let Err(error) = served {
                                error!(error = chain(&error), "HTTP server failed");
                            }
                        }
                        never = signals.drain(&worker.shutdown) => match never {},
                    }
                });
            }
        };
        let thread = thread::Builder::new().name("http".to_owned()).spawn(body)?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        self.stop.cancel();
        if self.thread.join().is_err() {
            error!("HTTP thread panicked");
        }
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn drain(mut self, shutdown: &Shutdown) -> std::convert::Infallible {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => info!("SIGTERM: draining"),
                _ = self.interrupt.recv() => info!("SIGINT: draining"),
            }
            shutdown.drain();
        }
    }
}
