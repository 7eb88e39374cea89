use fencepost_crds::contract::{CONTRACT_VERSION, PlanReport, StageReport, TopicRole, TopicUse};
use fencepost_crds::v1alpha1::{Guarantee, PipelineSpec, SinkGuarantee};

use super::{Plan, PlannedSink, PlannedSource, plan};
use crate::compile::{Graph, StreamOperator};
use crate::sql;

/// The answer to "can this worker run this pipeline, and how": a plan, or what is wrong.
#[must_use]
pub fn plan_report(spec: &PipelineSpec, guarantee: Guarantee, worker_version: &str) -> PlanReport {
    match plan(spec) {
        Ok(plan) => plan.report(guarantee, worker_version),
        Err(violations) => PlanReport {
            contract_version: CONTRACT_VERSION,
            worker_version: worker_version.to_owned(),
            violations,
            ..PlanReport::default()
        },
    }
}

impl Plan {
    /// The plan, for people and for the operator.
    #[must_use]
    pub fn report(&self, guarantee: Guarantee, worker_version: &str) -> PlanReport {
        PlanReport {
            contract_version: CONTRACT_VERSION,
            worker_version: worker_version.to_owned(),
            signature: self.signature.clone(),
            stages: vec![self.stage()],
            topics: self.topics(),
            guarantees: self.sinks.iter().map(|s| sink_guarantee(&s.name, guarantee)).collect(),
            violations: Vec::new(),
        }
    }

    /// Nothing is exchanged between tasks, so all operators are one stage.
    fn stage(&self) -> StageReport {
        StageReport {
            id: 0,
            operators: self.operators.clone(),
            sources: self.sources.iter().map(|s| s.name.clone()).collect(),
            sinks: self.sinks.iter().map(|s| s.name.clone()).collect(),
        }
    }

    fn topics(&self) -> Vec<TopicUse> {
        let topic =
            |topic: &str, role, table: &str| TopicUse { topic: topic.to_owned(), role, table: table.to_owned() };
        let sources = self.sources.iter().map(|s| topic(&s.topic, TopicRole::Source, &s.name));
        let dead_letters = self
            .sources
            .iter()
            .filter_map(|s| s.dead_letter_topic.as_ref().map(|t| topic(t, TopicRole::DeadLetter, &s.name)));
        let sinks = self.sinks.iter().map(|s| topic(&s.topic, TopicRole::Sink, &s.name));
        sources.chain(dead_letters).chain(sinks).collect()
    }
}

/// The operators and what is written, a line each.
pub(super) fn operators(graph: &Graph, sources: &[PlannedSource], sinks: &[PlannedSink]) -> Vec<String> {
    let mut operators: Vec<String> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let inputs: Vec<String> = node.inputs.iter().map(|n| format!("#{n}")).collect();
        let from = if inputs.is_empty() { String::new() } else { format!(" of {}", inputs.join(", ")) };
        operators.push(format!("#{i} {}{from}", describe(&node.operator, sources)));
    }
    for (sink, node) in &graph.outputs {
        let topic = sinks.iter().find(|s| s.name == *sink).map(|s| s.topic.as_ref()).unwrap_or_default();
        operators.push(format!("sink {sink} (topic {topic}, json) of #{node}"));
    }
    operators
}

fn describe(operator: &StreamOperator, sources: &[PlannedSource]) -> String {
    match operator {
        StreamOperator::Source { source, .. } => match sources.get(*source) {
            Some(source) => describe_source(source),
            None => "source".to_owned(),
        },
        StreamOperator::Select { columns } => format!("view, {} columns", columns.len()),
        StreamOperator::Filter { predicate, .. } => format!("filter {}", sql::text(predicate)),
        StreamOperator::Project { exprs, .. } => {
            format!("project {}", exprs.iter().map(sql::text).collect::<Vec<_>>().join(", "))
        }
        StreamOperator::Union => "union".to_owned(),
        StreamOperator::Empty => "nothing (the condition is never true)".to_owned(),
    }
}

fn describe_source(source: &PlannedSource) -> String {
    let columns: Vec<String> = source.columns.iter().map(|c| format!("{} {}", c.name, c.column_type)).collect();
    let columns = if columns.is_empty() { "no columns".to_owned() } else { columns.join(", ") };
    format!("source {} (topic {}, json): {columns}", source.name, source.topic)
}

fn sink_guarantee(sink: &str, guarantee: Guarantee) -> SinkGuarantee {
    let condition = match guarantee {
        Guarantee::ExactlyOnce => "readers of the topic use isolation.level=read_committed",
        Guarantee::AtLeastOnce => "records can be written again after a failure",
    };
    SinkGuarantee { sink: sink.to_owned(), guarantee: guarantee.to_string(), condition: Some(condition.to_owned()) }
}
