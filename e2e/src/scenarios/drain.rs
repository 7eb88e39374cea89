//! `kubectl drain` under load: every node in turn, as before its upgrade.

use fencepost_oracle::reader::Tail;

use super::failure::ensure;
use super::scale::{Flow, flow, moves, silence_during};
use super::{Bench, Failure, Meaning, OrdersJob, Outcome};
use crate::cluster::topology::Node;
use crate::faults;

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let job = OrdersJob { replicas: 3, ..OrdersJob::new(bench) };
    let Flow { input, load, mut tail } = flow(bench, &job, 6, 1500)?;
    moves(&mut tail, "before the drain")?;
    let mut told = Vec::new();
    for node in bench.cluster().spec().nodes() {
        let there = workers_on(bench, &job, node)?;
        ensure!(!there.is_empty(), "no worker was on {node}: nothing to drain");
        let silence = drain(bench, node, &mut tail)?;
        let left = workers_on(bench, &job, node)?;
        bench.kubectl(&["uncordon", &node.to_string()])?;
        ensure!(left.is_empty(), "{left:?} are still on {node}");
        bench.until_ready(&job.name)?;
        moves(&mut tail, &format!("after {node} was drained"))?;
        told.push(format!("{node}: {} workers moved, at most {silence} ms without output", there.len()));
    }
    load.stop().map_err(Failure::means("write the input"))?;
    let trial = bench.trial(&job.name, Meaning::purchases(&job.output)).input(&input).output(&job.output);
    told.push(bench.judge(trial)?);
    Ok(told)
}

/// Empties a node, and gives the longest time without output meanwhile, in milliseconds.
fn drain(bench: &Bench<'_>, node: Node, tail: &mut Tail) -> Result<u128, Failure> {
    let node = node.to_string();
    let words = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"];
    let (silence, _) = silence_during(tail, || bench.kubectl(&words))?;
    Ok(silence.as_millis())
}

fn workers_on(bench: &Bench<'_>, job: &OrdersJob, node: Node) -> Result<Vec<String>, Failure> {
    let mut there = Vec::new();
    for name in bench.workers(&job.name)?.into_keys() {
        // Between two nodes: on none.
        if faults::node_of_pod(bench.cluster(), bench.namespace(), &name).is_ok_and(|of| of == node) {
            there.push(name);
        }
    }
    Ok(there)
}
