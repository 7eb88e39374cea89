//! Somebody else takes a transactional id of a running job, as a second copy of the job by mistake would.

use std::time::Duration;

use fencepost_crds::conditions::{ConditionType, Reason};
use fencepost_crds::names;
use fencepost_oracle::reader::Tail;
use k8s_openapi::api::core::v1::Pod;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::bench::{Limits, has, message, restarts};
use super::failure::ensure;
use super::scale::moves;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::Plan;

const PATIENCE: Duration = Duration::from_secs(30);

/// The worker that was fenced says so and stays out, also when its container starts again; the others do its work. A person
/// brings it back.
pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    bench.make_topic("purchases", 4)?;
    let rivals = bench.make_topic("rivals", 1)?;
    let load = bench.load(Plan::new(&input, 4, 1500))?;
    bench.apply(&job.manifest(bench)?)?;
    bench.until_ready(&job.name)?;
    let mut tail = Tail::new(&bench.connection(), &[&job.output]).map_err(Failure::means("follow the output"))?;
    moves(&mut tail, "before the rival")?;

    let rival = rival(bench, &job)?;
    let fenced = bench.until_job(&job.name, "Stalled because of the rival", Limits::JUDGED, |job| {
        has(job, ConditionType::Stalled, "True", Some(Reason::Fenced))
    })?;
    let told = message(&fenced, ConditionType::Stalled);
    ensure!(told.contains("orders-0"), "the condition does not name the worker: {told}");
    let restarted = |pod: Option<&Pod>| pod.is_some_and(|pod| restarts(pod) > 0 && is_running(pod));
    bench.until("orders-0", "a restart of the fenced worker's container", Limits::JUDGED, restarted)?;
    moves(&mut tail, "from the other worker")?;
    moves(&mut tail, "from the other worker, some time later")?;
    // Had the restarted worker taken its id back, this would be refused.
    write(&rival, &rivals).map_err(Failure::means("commit as the rival: the fenced worker fenced it in return"))?;

    bench.kubectl(&["delete", "pod", "orders-0", "--namespace", bench.namespace()])?;
    bench.until_ready(&job.name)?;
    ensure!(write(&rival, &rivals).is_err(), "the worker works again, and its rival can still commit");
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![told, bench.judge(trial)?])
}

/// A producer with the transactional id of the first slot of the first worker.
fn rival(bench: &Bench<'_>, job: &OrdersJob) -> Result<BaseProducer, Failure> {
    let id = names::transactional_id(&format!("{}.{}", bench.namespace(), job.name), 0, 0);
    let rival: BaseProducer =
        bench.connection().config().set("transactional.id", &id).create().map_err(Failure::means("make the rival"))?;
    rival.init_transactions(PATIENCE).map_err(Failure::means("take a transactional id"))?;
    Ok(rival)
}

/// One transaction of the rival, into a topic of its own.
fn write(rival: &BaseProducer, topic: &str) -> Result<(), rdkafka::error::KafkaError> {
    rival.begin_transaction()?;
    rival.send(BaseRecord::<(), str>::to(topic).payload("here")).map_err(|(error, _)| error)?;
    rival.commit_transaction(PATIENCE)
}

fn is_running(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let running = |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some();
    containers.into_iter().flatten().any(|container| container.state.as_ref().is_some_and(running))
}
