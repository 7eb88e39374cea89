//! A worker that Kubernetes believes to be gone lives on and reaches Kafka, while another one has its ordinal.

use std::time::Duration;

use fencepost_crds::names::LABEL_JOB;
use k8s_openapi::api::core::v1::Pod;

use super::bench::{Limits, is_pod_ready, renew, restarts};
use super::failure::ensure;
use super::lab::SYSTEM;
use super::recovery::has_partitions;
use super::scale::{Flow, flow, moves};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome, fault_points};
use crate::cluster::topology::Node;
use crate::faults::{self, PodProcess};
use crate::report;
use crate::wait::{self, Deadline};

/// Longer than the transaction timeout and the brokers' look at it, every 10 s.
const ASLEEP: Duration = Duration::from_secs(22);
const VICTIM: &str = "orders-0";

/// It goes on working all the time: two pods with one ordinal.
pub(super) fn awake(bench: &Bench<'_>) -> Outcome {
    run(bench, OrdersJob::new(bench), false)
}

/// The same where the group refuses whoever comes under a name that is taken: the newer one releases the name first.
pub(super) fn awake_under_the_consumer_protocol(bench: &Bench<'_>) -> Outcome {
    run(bench, OrdersJob { group_protocol: Some("Consumer"), ..OrdersJob::new(bench) }, false)
}

/// It is paused for longer than the transaction timeout, and wakes up when its work is done by another.
pub(super) fn asleep(bench: &Bench<'_>) -> Outcome {
    run(bench, OrdersJob::new(bench), true)
}

/// It stands still for longer than the transaction timeout, and nobody takes its place: the brokers end its transaction, and it goes
/// on with a new one, in the same life.
pub(super) fn overslept(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob {
        replicas: 1,
        transaction_timeout: Some("6s"),
        image: Some(bench.worker_with_faults()?),
        ..OrdersJob::new(bench)
    };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    let steps = ["before-commit", "before-send-offsets"];
    for step in steps {
        moves(&mut tail, "before it falls asleep")?;
        // Longer than the timeout and the brokers' look at it, every 10 s.
        bench.arm(VICTIM, step, "1*sleep(18000)")?;
        // More than can come before it does.
        moves(&mut tail, &format!("after it slept {step}"))?;
    }
    let log = bench.kubectl(&["logs", VICTIM, "--namespace", bench.namespace()])?;
    let expired = log.matches("the brokers ended the transaction").count();
    ensure!(expired == steps.len(), "{expired} transactions have expired, {} were to", steps.len());
    let pods = bench.pods(bench.namespace(), &format!("{LABEL_JOB}={}", job.name))?;
    ensure!(pods.iter().map(restarts).sum::<i32>() == 0, "the worker has died of it");

    // Nor does it matter when it dies while it takes the id anew.
    for step in ["before-open-producer", "after-open-producer"] {
        bench.arm(VICTIM, step, "return")?;
        bench.arm(VICTIM, "before-commit", "1*sleep(18000)")?;
        fault_points::dies(bench, VICTIM, step)?;
        moves(&mut tail, &format!("after a death {step}"))?;
        renew(bench, &job.name, VICTIM)?;
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

fn run(bench: &Bench<'_>, job: OrdersJob, sleeps: bool) -> Outcome {
    let job = OrdersJob { transaction_timeout: Some("10s"), ..job };
    let Flow { input, load, mut tail } = flow(bench, &job, 4, 1500)?;
    moves(&mut tail, "before the node is lost")?;
    // Who has nothing to commit shows nothing.
    has_partitions(bench, VICTIM)?;

    let cluster = bench.cluster();
    let node = faults::node_of_pod(cluster, bench.namespace(), VICTIM).map_err(Failure::means("find the node"))?;
    let uid = bench.workers(&job.name)?.remove(VICTIM).unwrap_or_default();
    let zombie = PodProcess::of_pod(cluster, bench.namespace(), VICTIM, None).map_err(Failure::means("find it"))?;
    let lonely = lose(bench, node)?;
    let paused = if sleeps { Some(zombie.pause().map_err(Failure::means("pause the worker"))?) } else { None };
    bench.kubectl(&["delete", "pod", VICTIM, "--namespace", bench.namespace(), "--force", "--grace-period=0"])?;
    let is_successor =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.uid.as_deref() != Some(&uid) && is_pod_ready(pod));
    bench.until(VICTIM, "a second worker of the same ordinal", Limits::READY, is_successor)?;
    if sleeps {
        let until = Deadline::after(ASLEEP);
        while !until.passed() {
            tail.poll(Duration::from_millis(200)).map_err(Failure::means("follow the output"))?;
        }
    }
    if let Some(paused) = paused {
        paused.now().map_err(Failure::means("wake the worker"))?;
    }
    let said = last_words(bench, node, &uid)?;
    moves(&mut tail, "from the successor")?;
    lonely.back()?;
    bench.until_ready(&job.name)?;
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![said, bench.judge(trial)?])
}

/// A node that is cut off, until this is dropped: others need it, whatever comes of this scenario.
struct Lonely<'b> {
    bench: &'b Bench<'b>,
    node: Node,
    cut: Option<faults::Undo>,
}

impl Lonely<'_> {
    fn back(mut self) -> Result<(), Failure> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), Failure> {
        if let Some(cut) = self.cut.take() {
            cut.now().map_err(Failure::means("bring the node back"))?;
        }
        self.bench.kubectl(&["uncordon", &self.node.to_string()]).map(drop)
    }
}

impl Drop for Lonely<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            report::detail(format!("the node {} stays away: {}", self.node, report::chain(&error)));
        }
    }
}

/// The API server cannot reach the node, nor the node it: nobody can tell its pods to stop.
fn lose<'b>(bench: &'b Bench<'b>, node: Node) -> Result<Lonely<'b>, Failure> {
    let mut lonely = Lonely { bench, node, cut: None };
    bench.kubectl(&["cordon", &node.to_string()])?;
    // The operator is not what this is about.
    for pod in bench.pods(SYSTEM, "app.kubernetes.io/name=fencepost")? {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if faults::node_of_pod(bench.cluster(), SYSTEM, name).is_ok_and(|there| there == node) {
            bench.kubectl(&["delete", "pod", name, "--namespace", SYSTEM])?;
        }
    }
    bench.kubectl(&["rollout", "status", "deployment/fencepost", "--namespace", SYSTEM, "--timeout=90s"])?;
    lonely.cut = Some(faults::cut_off_from_api(bench.cluster(), node).map_err(Failure::means("cut the node off"))?);
    Ok(lonely)
}

/// Waits until the zombie has ended as *fenced*; its log on the lost node says so.
fn last_words(bench: &Bench<'_>, node: Node, uid: &str) -> Result<String, Failure> {
    let limit = Duration::from_secs(60);
    let log = || bench.cluster().pod_log(node, bench.namespace(), VICTIM, uid);
    let end = wait::until(Deadline::after(limit), || {
        let log = log();
        let line = log.lines().find(|line| line.contains("worker ends")).map(str::to_owned);
        Ok::<_, Failure>(line)
    })?;
    let end = end.ok_or_else(|| Failure::Late {
        what: "the end of the zombie".to_owned(),
        seconds: limit.as_secs(),
        last: log().lines().last().unwrap_or_default().to_owned(),
    })?;
    ensure!(end.contains("\"code\":64") && end.contains("\"reason\":\"Fenced\""), "the zombie ended otherwise: {end}");
    Ok("the zombie has ended with exit code 64".to_owned())
}
