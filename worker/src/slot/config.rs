use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fencepost_crds::contract::ResolvedJob;
use fencepost_crds::names::transactional_id;
use fencepost_crds::v1alpha1::{GroupProtocol, Guarantee, StartPosition};
use fencepost_kafka::consumer::{ConsumerSettings, SourceTopic};
use fencepost_kafka::producer::ProducerSettings;
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_pipeline::{Plan, SourceId};
use fencepost_protocol::transactional::Mode;

/// How long the group waits for a member that fell silent. A worker that comes back within this time, which is the normal case,
/// takes up its partitions without a rebalance; when it does not, others wait this long for them. Only of the classic protocol.
const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// A source, as far as reading it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSource {
    /// Topic.
    pub topic: Arc<str>,
    /// Where a partition without a committed position begins.
    pub start: StartPosition,
    /// Whether the pipeline looks at headers.
    pub needs_headers: bool,
}

/// Everything a slot needs to know.
#[derive(Clone, Debug)]
pub struct SlotConfig {
    /// Number of the slot.
    pub slot: u32,
    /// The slot's name: its transactional id, and its name in the group.
    pub transactional_id: String,
    /// The guarantee.
    pub guarantee: Guarantee,
    /// How to reach the brokers.
    pub connection: ConnectionSettings,
    /// The group.
    pub consumer_group: String,
    /// How the group shares its partitions out.
    pub group_protocol: GroupProtocol,
    /// Time between commits.
    pub commit_interval: Duration,
    /// When the brokers abort a transaction by themselves.
    pub transaction_timeout: Duration,
    /// How long finishing may take.
    pub drain_timeout: Duration,
    /// Sources, by [`SourceId`].
    pub sources: Vec<SlotSource>,
    /// Topics that are written, those for dead letters too.
    pub outputs: Vec<String>,
}

impl SlotConfig {
    /// The configuration of slot `slot` of worker `ordinal`.
    #[must_use]
    pub fn new(job: &ResolvedJob, plan: &Plan, connection: ConnectionSettings, ordinal: u32, slot: u32) -> Self {
        let source = |source: &fencepost_pipeline::PlannedSource| SlotSource {
            topic: Arc::clone(&source.topic),
            start: source.start,
            needs_headers: source.needs_headers,
        };
        Self {
            slot,
            transactional_id: transactional_id(&job.transactional_id_prefix, ordinal, slot),
            guarantee: job.guarantee,
            connection,
            consumer_group: job.consumer_group.clone(),
            group_protocol: job.group_protocol,
            commit_interval: Duration::from_millis(job.commit_interval_ms),
            transaction_timeout: Duration::from_millis(job.transaction_timeout_ms),
            drain_timeout: Duration::from_millis(job.drain_timeout_ms),
            sources: plan.sources().iter().map(source).collect(),
            outputs: outputs(plan),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        match self.guarantee {
            Guarantee::ExactlyOnce => Mode::ExactlyOnce,
            Guarantee::AtLeastOnce => Mode::AtLeastOnce,
        }
    }

    /// Topics to read, each once, with the sources made of them.
    pub(super) fn topics(&self) -> Vec<(SourceTopic, Vec<SourceId>)> {
        let mut topics: Vec<(SourceTopic, Vec<SourceId>)> = Vec::new();
        for (id, source) in self.sources.iter().enumerate() {
            match topics.iter_mut().find(|(topic, _)| topic.name == *source.topic) {
                Some((topic, sources)) => {
                    sources.push(SourceId(id));
                    // One position serves all of them: the one that skips nothing.
                    if source.start == StartPosition::Earliest {
                        topic.start = StartPosition::Earliest;
                    }
                }
                None => {
                    let topic = SourceTopic { name: source.topic.to_string(), start: source.start };
                    topics.push((topic, vec![SourceId(id)]));
                }
            }
        }
        topics
    }

    pub(super) fn needs_headers(&self, sources: &[SourceId]) -> bool {
        sources.iter().any(|id| self.sources.get(id.0).is_some_and(|source| source.needs_headers))
    }

    /// Present: with transactions.
    pub(super) fn producer_id(&self) -> Option<String> {
        (self.guarantee == Guarantee::ExactlyOnce).then(|| self.transactional_id.clone())
    }

    pub(super) fn producer(&self, max_batch_bytes: usize) -> ProducerSettings {
        ProducerSettings {
            connection: self.connection.clone(),
            transactional_id: self.producer_id(),
            transaction_timeout: self.transaction_timeout,
            max_batch_bytes,
        }
    }

    pub(super) fn consumer(&self) -> ConsumerSettings {
        ConsumerSettings {
            connection: self.connection.clone(),
            group: self.consumer_group.clone(),
            instance_id: self.transactional_id.clone(),
            topics: self.topics().into_iter().map(|(topic, _)| topic).collect(),
            protocol: self.group_protocol,
            session_timeout: SESSION_TIMEOUT,
        }
    }

    /// Deadline of a call inside a transaction: no use in waiting longer than the brokers do.
    pub(super) fn call_timeout(&self) -> Duration {
        self.transaction_timeout.min(Duration::from_secs(15))
    }
}

fn outputs(plan: &Plan) -> Vec<String> {
    let sinks = plan.sinks().iter().map(|sink| &sink.topic);
    let dead_letters = plan.sources().iter().filter_map(|source| source.dead_letter_topic.as_ref());
    let topics: BTreeSet<&Arc<str>> = sinks.chain(dead_letters).collect();
    topics.into_iter().map(ToString::to_string).collect()
}
