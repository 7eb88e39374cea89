//! Threads that look at the cluster, each at its own pace, and one that shows what they saw. None of them asks the worker:
//! what is shown is what any reader of Kafka and any user of kubectl sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fencepost_crds::StreamJob;
use fencepost_crds::names::{LABEL_JOB, LABEL_ROLE, ROLE_WORKER};
use fencepost_oracle::Connection;
use fencepost_oracle::reader::{Surveyor, Tail, committed};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::facts::{Facts, Job, Rates, Worker, one_line, panel};
use super::screen::Screen;
use super::story::{BAD, GROUP, INPUT, JOB, NAMESPACE, OUTPUT};
use crate::cluster::Cluster;
use crate::wait::{self, Deadline};

/// How often Kafka's positions and Kubernetes are asked.
const ASK: Duration = Duration::from_millis(700);
/// How often the view is drawn.
const DRAW: Duration = Duration::from_millis(250);
/// How often a line is printed where nothing can be redrawn.
const LINE: Duration = Duration::from_secs(5);

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    facts: Mutex<Facts>,
    stop: AtomicBool,
}

impl Shared {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// The live view. Dropping it ends it.
#[derive(Debug)]
pub(super) struct View {
    shared: Arc<Shared>,
    lines: Option<Sender<String>>,
    threads: Vec<JoinHandle<()>>,
}

impl View {
    /// Starts. The calling thread must be inside the network of the cluster.
    pub fn start(cluster: &Cluster, connection: &Connection) -> Self {
        let shared = Arc::new(Shared::default());
        let (lines, said) = mpsc::channel();
        let mut threads = Vec::new();
        let mut start = |work: Box<dyn FnOnce(&Shared) + Send>| {
            let shared = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || work(&shared)));
        };
        let (for_output, for_input, cluster) = (connection.clone(), connection.clone(), cluster.clone());
        start(Box::new(move |shared| watch_output(shared, &for_output)));
        start(Box::new(move |shared| watch_input(shared, &for_input)));
        start(Box::new(move |shared| watch_job(shared, &cluster)));
        start(Box::new(move |shared| show(shared, &said)));
        Self { shared, lines: Some(lines), threads }
    }

    /// Prints a line that stays.
    pub fn say(&self, line: impl Into<String>) {
        if let Some(lines) = &self.lines {
            // It ends only with this.
            lines.send(line.into()).ok();
        }
    }

    /// What is known now.
    pub fn facts(&self) -> Facts {
        self.shared.facts().clone()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.lines = None;
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// Counts committed output as it comes. The topics are made by the job: until then there is nothing to follow.
fn watch_output(shared: &Shared, connection: &Connection) {
    let mut tail: Option<Tail> = None;
    while shared.goes_on() {
        let Some(following) = &mut tail else {
            tail = Tail::new(connection, &[OUTPUT, BAD]).ok();
            if tail.is_none() {
                wait::pause(ASK);
            }
            continue;
        };
        if following.poll(Duration::from_millis(100)).is_err() {
            wait::pause(ASK);
        }
        let mut facts = shared.facts();
        facts.purchases = following.count(OUTPUT);
        facts.letters = following.count(BAD);
    }
}

/// Reads the ends of the input and the positions of the job.
fn watch_input(shared: &Shared, connection: &Connection) {
    let Ok(surveyor) = Surveyor::new(connection) else { return };
    while shared.goes_on() {
        // Positions first: what comes in meanwhile may count as lag, never as less than none.
        let positions = committed(connection, GROUP, INPUT).unwrap_or_default();
        if let Ok(ends) = surveyor.ends(INPUT) {
            let count = |number: i64| u64::try_from(number).unwrap_or_default();
            let lag = |(partition, at): (&i32, &i64)| ends.get(partition).map_or(0, |bounds| count(bounds.end - at));
            let unread = ends.iter().filter(|(partition, _)| !positions.contains_key(partition));
            let unread: u64 = unread.map(|(_, bounds)| count(bounds.end - bounds.start)).sum();
            let mut facts = shared.facts();
            facts.input = ends.values().map(|bounds| count(bounds.end)).sum();
            if !positions.is_empty() {
                facts.lag = Some(positions.iter().map(lag).sum::<u64>() + unread);
            }
        }
        wait::pause(ASK);
    }
}

/// Asks the API server about the job, its pods and events.
fn watch_job(shared: &Shared, cluster: &Cluster) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let Ok(client) = runtime.block_on(cluster.kube_client()) else { return };
    while shared.goes_on() {
        // An API server that does not answer for once is asked again.
        if let Ok(job) = runtime.block_on(look(&client)) {
            shared.facts().job = job;
        }
        wait::pause(ASK);
    }
}

async fn look(client: &Client) -> Result<Job, kube::Error> {
    let job = Api::<StreamJob>::namespaced(client.clone(), NAMESPACE).get_opt(JOB).await?;
    let selector = ListParams::default().labels(&format!("{LABEL_JOB}={JOB},{LABEL_ROLE}={ROLE_WORKER}"));
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&selector).await?;
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?;
    let status = job.and_then(|job| job.status).unwrap_or_default();
    let mut pods: Vec<Worker> = pods.items.iter().map(worker).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Job {
        phase: status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
        epoch: status.epoch,
        workers: status.workers.unwrap_or_default(),
        pods,
        event: newest(&events.items).unwrap_or_default(),
    })
}

fn worker(pod: &Pod) -> Worker {
    let container = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    let ready = container.is_some_and(|container| container.ready);
    let state = container.and_then(|container| container.state.as_ref());
    let state = match state {
        _ if pod.metadata.deletion_timestamp.is_some() => "stopping",
        Some(state) if state.running.is_some() => "starting",
        Some(state) if state.terminated.is_some() => "ended",
        _ => "waiting",
    };
    let restarts = container.map(|container| container.restart_count).unwrap_or_default();
    Worker { name: pod.name_any(), ready, state: state.to_owned(), restarts }
}

/// The newest event about the job itself, or warning about its pods. The rest is what Kubernetes always says.
fn newest(events: &[Event]) -> Option<String> {
    let about = |event: &&Event| {
        let kind = event.involved_object.kind.as_deref();
        kind == Some("StreamJob") || (kind == Some("Pod") && event.type_.as_deref() == Some("Warning"))
    };
    let when = |event: &&Event| {
        // An event that repeats keeps its first time, and has its newest in the series.
        let again = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let times = [again, event.event_time.as_ref()].map(|time| time.map(|time| time.0));
        times.into_iter().chain([event.last_timestamp.as_ref().map(|time| time.0)]).flatten().max()
    };
    let event = events.iter().filter(about).max_by_key(when)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{} {}: {}", text(&event.involved_object.name), text(&event.reason), text(&event.message)))
}

/// Draws until the other end of the channel is gone.
fn show(shared: &Shared, said: &Receiver<String>) {
    let mut screen = Screen::new();
    let mut rates = Rates::default();
    let clock = Deadline::after(Duration::MAX);
    let mut last_line = Duration::ZERO;
    loop {
        match said.recv_timeout(DRAW) {
            Ok(line) => screen.say(&line),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        let facts = shared.facts().clone();
        let now = clock.elapsed();
        let rates = rates.add(now, &facts);
        if screen.is_live() {
            screen.draw(&panel(&facts, rates));
        } else if now.saturating_sub(last_line) >= LINE {
            last_line = now;
            screen.say(&one_line(&facts, rates));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Event;
    use serde_json::json;

    use super::newest;

    #[test]
    fn an_event_that_repeats_is_as_new_as_its_last_time() {
        let event = |reason: &str, first: &str, last: Option<&str>| -> Event {
            let event = json!({
                "metadata": {},
                "involvedObject": {"kind": "StreamJob", "name": "orders"},
                "reason": reason,
                "message": "said",
                "eventTime": first,
                "series": last.map(|last| json!({"count": 2, "lastObservedTime": last})),
            });
            serde_json::from_value(event).unwrap()
        };
        let again = event("Again", "2026-01-01T00:00:01.000000Z", Some("2026-01-01T00:00:09.000000Z"));
        let once = event("Once", "2026-01-01T00:00:05.000000Z", None);
        assert_eq!(newest(&[again, once]).as_deref(), Some("orders Again: said"));
    }
}
