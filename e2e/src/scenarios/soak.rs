//! A long run: faults of every kind one after the other, and two processes that are left alone, in which nothing may grow.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_crds::names::LABEL_JOB;
use fencepost_oracle::reader::Tail;
use k8s_openapi::api::core::v1::Pod;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::bench::{Limits, is_pod_ready, renew, restarts};
use super::growth::Growth;
use super::lab::SYSTEM;
use super::scale::{Flow, flow, moves_within};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::cluster::topology::{Broker, Member};
use crate::faults::{self, PodProcess, Traffic};
use crate::wait::Deadline;
use crate::{interrupt, report};

/// The worker that is left alone.
const WITNESS: &str = "orders-0";
/// How long a fault lasts that is undone again.
const FAULT: Duration = Duration::from_secs(12);
/// How soon there must be output again.
const GOES_ON: Duration = Duration::from_secs(180);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// Everything that happens, each as often as the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
enum Fault {
    KillWorker,
    DeleteWorker,
    PauseWorker,
    ScaleUp,
    ScaleDown,
    KillBroker,
    StopBroker,
    SilenceBroker,
    DelayBroker,
    LosePackets,
}

/// Runs for as long as asked, or until somebody interrupts it; what was done until then is judged.
pub(super) fn run(bench: &Bench<'_>, duration: Duration) -> Outcome {
    let job = OrdersJob { replicas: 3, ..OrdersJob::new(bench) };
    let Flow { input, load, tail } = flow(bench, &job, 6, 2000)?;
    let seed = u64::from(std::process::id());
    report::detail(format!("the seed of the faults is {seed}"));
    let mut soak =
        Soak { bench, job: &job, tail, growth: Growth::new(processes(bench)?), random: StdRng::seed_from_u64(seed) };
    let whole = Deadline::after(duration);
    let done = soak.until(whole)?;
    let Soak { growth, .. } = soak;
    let written = load.stop().map_err(Failure::means("write the input"))?;
    bench.until_ready(&job.name)?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    let verdict = bench.judge(trial.patience(Duration::from_secs(240)))?;
    let faults: Vec<String> = done.iter().map(|(fault, times)| format!("{times} x {fault}")).collect();
    let mut told = vec![
        format!("{} records in {} s; {}", written.committed, whole.elapsed().as_secs(), faults.join(", ")),
        verdict,
    ];
    told.extend(growth.verdict()?);
    Ok(told)
}

/// The processes in which nothing may grow.
fn processes(bench: &Bench<'_>) -> Result<Vec<(String, PodProcess)>, Failure> {
    let operator = bench.pods(SYSTEM, "app.kubernetes.io/name=fencepost")?;
    let operator = operator.iter().find_map(|pod| pod.metadata.name.clone()).unwrap_or_default();
    [(bench.namespace(), WITNESS), (SYSTEM, operator.as_str())]
        .into_iter()
        .map(|(namespace, pod)| {
            let process = PodProcess::of_pod(bench.cluster(), namespace, pod, None);
            Ok((pod.to_owned(), process.map_err(Failure::means("find a process"))?))
        })
        .collect()
}

struct Soak<'s> {
    bench: &'s Bench<'s>,
    job: &'s OrdersJob,
    tail: Tail,
    growth: Growth,
    random: StdRng,
}

impl Soak<'_> {
    fn until(&mut self, whole: Deadline) -> Result<BTreeMap<Fault, u32>, Failure> {
        let mut done = BTreeMap::new();
        let mut round: Vec<Fault> = Vec::new();
        self.calm(Duration::from_secs(30))?;
        while !whole.passed() && !interrupt::requested() {
            let Some(fault) = round.pop() else {
                round = <Fault as strum::IntoEnumIterator>::iter().collect();
                round.shuffle(&mut self.random);
                continue;
            };
            let clock = Deadline::after(Duration::MAX);
            self.happen(fault)?;
            moves_within(GOES_ON, &mut self.tail, &format!("after {fault}"))?;
            *done.entry(fault).or_default() += 1;
            report::detail(format!(
                "{:>5} s: {fault}, {} s; {}",
                whole.elapsed().as_secs(),
                clock.elapsed().as_secs(),
                self.growth.now()
            ));
            self.calm(Duration::from_secs(8))?;
        }
        Ok(done)
    }

    /// Follows the output and the processes for a while.
    fn calm(&mut self, span: Duration) -> Result<(), Failure> {
        let end = Deadline::after(span);
        while !end.passed() {
            self.growth.sample(SAMPLE_EVERY)?;
            self.tail.poll(Duration::from_millis(200)).map_err(Failure::means("follow the output"))?;
        }
        Ok(())
    }

    fn happen(&mut self, fault: Fault) -> Result<(), Failure> {
        let bench = self.bench;
        let cluster = bench.cluster();
        match fault {
            Fault::KillWorker => {
                let victim = self.victim()?;
                let before = self.life(&victim)?;
                // Between two lives there is nothing to kill.
                if bench.kill(bench.namespace(), &victim)? { self.until_back(&victim, before.as_ref()) } else { Ok(()) }
            }
            Fault::DeleteWorker => {
                let victim = self.victim()?;
                renew(bench, &self.job.name, &victim)
            }
            Fault::PauseWorker => {
                let victim = self.victim()?;
                let process = PodProcess::of_pod(cluster, bench.namespace(), &victim, None);
                let paused = process.and_then(|process| process.pause()).map_err(Failure::means("pause a worker"))?;
                self.calm(FAULT)?;
                // It may have been killed by its liveness probe meanwhile.
                paused.now().or_else(|error| {
                    report::detail(report::chain(&error));
                    Ok::<_, Failure>(())
                })?;
                self.until_back(&victim, None)
            }
            Fault::ScaleUp => self.scale(4),
            Fault::ScaleDown => self.scale(3),
            Fault::KillBroker => {
                let broker = self.broker()?;
                cluster.kill_broker(broker).map_err(Failure::means("kill a broker"))?;
                self.calm(FAULT)?;
                cluster.start_broker(broker).map_err(Failure::means("start a broker"))
            }
            Fault::StopBroker => {
                let broker = self.broker()?;
                cluster.stop_broker(broker).map_err(Failure::means("stop a broker"))?;
                self.calm(FAULT)?;
                cluster.start_broker(broker).map_err(Failure::means("start a broker"))
            }
            Fault::SilenceBroker => {
                let hole = faults::cut_off(cluster, Member::Broker(self.broker()?));
                let hole = hole.map_err(Failure::means("cut a broker off"))?;
                self.calm(FAULT)?;
                hole.now().map_err(Failure::means("bring a broker back"))
            }
            Fault::DelayBroker => self.disturb(Traffic::Delay(Duration::from_millis(150))),
            Fault::LosePackets => self.disturb(Traffic::Lose { percent: 5.0 }),
        }
    }

    fn disturb(&mut self, traffic: Traffic) -> Result<(), Failure> {
        let bad = faults::disturb(self.bench.cluster(), Member::Broker(self.broker()?), traffic);
        let bad = bad.map_err(Failure::means("disturb the network"))?;
        self.calm(FAULT)?;
        bad.now().map_err(Failure::means("mend the network"))
    }

    fn scale(&self, replicas: i32) -> Result<(), Failure> {
        self.bench.scale(&self.job.name, replicas)?;
        self.bench.until_ready(&self.job.name).map(drop)
    }

    /// Some worker, but not the witness.
    fn victim(&mut self) -> Result<String, Failure> {
        let workers: Vec<String> =
            self.bench.workers(&self.job.name)?.into_keys().filter(|pod| pod != WITNESS).collect();
        let number = self.random.random_range(0..workers.len().max(1));
        workers.into_iter().nth(number).ok_or_else(|| Failure::Expectation("there is no worker but one".to_owned()))
    }

    fn broker(&mut self) -> Result<Broker, Failure> {
        let brokers = self.bench.cluster().spec().brokers();
        let number = self.random.random_range(0..brokers.len().max(1));
        brokers.into_iter().nth(number).ok_or_else(|| Failure::Expectation("there is no broker".to_owned()))
    }

    fn life(&self, worker: &str) -> Result<Option<Life>, Failure> {
        let pods = self.bench.pods(self.bench.namespace(), &format!("{LABEL_JOB}={}", self.job.name))?;
        Ok(pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(worker)).map(life))
    }

    /// Ready, in another life: the container has started again, or, where the kubelet would let it wait, the operator has replaced the pod.
    fn until_back(&self, worker: &str, before: Option<&Life>) -> Result<(), Failure> {
        let is_back = |pod: Option<&Pod>| pod.is_some_and(|pod| is_pod_ready(pod) && Some(&life(pod)) != before);
        self.bench.until(worker, &format!("{worker} to be ready again"), Limits::READY, is_back).map(drop)
    }
}

/// Uid of the pod, and how often its container was started again.
type Life = (Option<String>, i32);

fn life(pod: &Pod) -> Life {
    (pod.metadata.uid.clone(), restarts(pod))
}
