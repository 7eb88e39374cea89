//! Runs without a disturbance.

use fencepost_crds::StreamJob;
use fencepost_oracle::reader::{self, Surveyor};
use serde_json::json;

use super::bench::Limits;
use super::failure::ensure;
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::load::{Order, Plan};
use crate::wait::{self, Deadline};

/// One job, one input, one output.
pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob::new(bench);
    let input = bench.make_topic("orders", 4)?;
    let load = bench.load(Plan::new(&input, 4, 4000).records(60_000))?;
    bench.apply(&job.manifest(bench)?)?;
    let ready = bench.until_ready(&job.name)?;
    let guarantees = ready.status.map(|status| status.guarantees).unwrap_or_default();
    ensure!(
        guarantees.iter().any(|g| g.sink == "purchases" && g.guarantee == "ExactlyOnce"),
        "the status does not say what readers of the sink get: {guarantees:?}"
    );
    load.finish().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    Ok(vec![bench.judge(trial)?])
}

/// Two inputs, one of them written in transactions of which each third is aborted; a view, a union and two outputs.
pub(super) fn aborted_input(bench: &Bench<'_>) -> Outcome {
    let shop = bench.make_topic("shop", 3)?;
    let web = bench.make_topic("web", 2)?;
    let large = bench.make_topic("large", 4)?;
    let all = bench.make_topic("all", 4)?;
    let first = bench.load(Plan::new(&shop, 3, 2000).records(20_000))?;
    let second = bench.load(Plan::new(&web, 2, 2000).records(20_000).stream(1).transactions(300, 3))?;
    bench.apply(&union_job(bench, [&shop, &web], [&large, &all])?)?;
    bench.until_ready("union")?;
    first.finish().map_err(Failure::means("write the input"))?;
    let written = second.finish().map_err(Failure::means("write the input"))?;
    ensure!(written.aborted > 0, "no input transaction was aborted");
    let trial = bench.trial("union", union_meaning(&large, &all)).input(&shop).input(&web).output(&large).output(&all);
    let verdict = bench.judge(trial)?;
    // Markers at the end are not records: whoever scales by the lag must see 0.
    let surveyor = Surveyor::new(&bench.connection()).map_err(Failure::means("look at the input"))?;
    let ends = surveyor.ends(&web).map_err(Failure::means("look at the input"))?;
    let mut lags = Vec::new();
    let settled = wait::until(Deadline::after(Limits::CAUGHT_UP), || {
        let group = format!("{}.union", bench.namespace());
        let positions =
            reader::committed(&bench.connection(), &group, &web).map_err(Failure::means("read positions"))?;
        lags.clear();
        for worker in bench.workers("union")?.keys() {
            let slots = bench.worker_status(worker)?.slots;
            lags.extend(slots.iter().flat_map(|slot| &slot.partitions).map(|partition| partition.lag));
        }
        let at_the_end = ends.iter().all(|(partition, bounds)| positions.get(partition) == Some(&bounds.end));
        Ok::<_, Failure>((at_the_end && lags.iter().all(|lag| *lag == 0)).then_some(()))
    })?;
    ensure!(settled.is_some(), "the positions are not at the ends {ends:?}, or there is lag: {lags:?}");
    Ok(vec![verdict])
}

fn union_job(bench: &Bench<'_>, inputs: [&str; 2], outputs: [&str; 2]) -> Result<StreamJob, Failure> {
    let source = |name: &str, topic: &str| json!({"name": name, "kafka": {"topic": topic, "format": {"json": {}}}, "columns": OrdersJob::columns()});
    let sink = |name: &str, topic: &str| json!({"name": name, "kafka": {"topic": topic, "format": {"json": {}}, "keyColumns": ["customer"]}});
    let ([shop, web], [large, all]) = (inputs, outputs);
    let sql = "CREATE VIEW everything AS \
               SELECT src, part, seq, customer, type, amount FROM shop \
               UNION ALL SELECT src, part, seq, customer, type, amount FROM web;\n\
               INSERT INTO large SELECT src, part, seq, customer, amount FROM everything WHERE amount >= 50000;\n\
               INSERT INTO \"all\" SELECT src, part, seq, customer, \
               CASE WHEN type = 'refund' THEN -amount ELSE amount END AS amount FROM everything WHERE type <> 'view';";
    let job = json!({
        "apiVersion": "fencepost.dev/v1alpha1",
        "kind": "StreamJob",
        "metadata": {"name": "union", "namespace": bench.namespace()},
        "spec": {
            "replicas": 2,
            "kafka": bench.kafka(),
            "worker": {"slots": 2},
            "pipeline": {"sources": [source("shop", shop), source("web", web)], "sql": sql, "sinks": [sink("large", large), sink("all", all)]},
        },
    });
    serde_json::from_value(job).map_err(Failure::means("write the StreamJob"))
}

fn union_meaning(large: &str, all: &str) -> Meaning {
    Meaning::new().branch(large, |order| (order.amount >= 50_000).then(|| union_row(order, order.amount))).branch(
        all,
        |order| match order.kind.as_str() {
            "view" => None,
            "refund" => Some(union_row(order, -order.amount)),
            _ => Some(union_row(order, order.amount)),
        },
    )
}

fn union_row(order: &Order, amount: i64) -> (String, serde_json::Value) {
    let Order { src, part, seq, customer, .. } = order;
    (customer.clone(), json!({"src": src, "part": part, "seq": seq, "customer": customer, "amount": amount}))
}
