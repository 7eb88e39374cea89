//! What others see of a slot: errors, status, lag, metrics.

use std::time::Duration;

use fencepost_crds::contract::{PartitionStatus, WorkerError};
use fencepost_kafka::ClientError;
use fencepost_kafka::consumer::Consumer;
use fencepost_kafka::error::{Operation, Resource, Subject, chain};
use fencepost_kafka::rpc::RpcError;
use fencepost_protocol::{Offset, Partition};
use tracing::warn;

use super::super::observe::{Observation, Outcome};
use super::super::stats::ErrorKey;
use super::Driver;

const UNKNOWN_POSITION_ADVICE: &str = "Nothing is skipped on its own. To go on without those records, delete the StreamJob \
     (its positions stay), set the position of its consumer group with kafka-consumer-groups.sh --reset-offsets, and apply it again";

const UNDECIDED_POSITIONS_ADVICE: &str = "The brokers end a transaction after its timeout, and this goes on by itself. If it does \
                                          not: kafka-transactions.sh find-hanging on __consumer_offsets";

/// How often the status is brought up to date while nothing is committed.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// librdkafka tries a broker that is away at least every two seconds, and repeats the same complaint every 30 seconds. When it has
/// been quiet for this long, the brokers are back.
const TROUBLE_IS_OVER: Duration = Duration::from_secs(60);

impl Driver<'_> {
    pub(in crate::slot) fn observe(&self, observation: Observation) {
        self.observer.observe(self.config.slot, observation);
    }

    pub(in crate::slot) fn transaction_ended(&mut self, outcome: Outcome) {
        let now = self.clock.now();
        let open = std::mem::take(&mut self.open);
        self.stats.set_open_since(None);
        let took = open.ending_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.pacing.ended(now, took, open.records_out);
        self.observe(Observation::Transaction {
            outcome,
            open_for: open.since.map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            took,
            records_out: open.records_out,
            bytes_out: open.bytes_out,
        });
        if outcome == Outcome::Committed {
            self.stats.update(|status| {
                status.commits += 1;
                status.records_out += open.records_out;
            });
        }
    }

    /// Shows an error to whoever watches.
    pub(in crate::slot) fn report(&self, key: ErrorKey, error: &ClientError, subject: Option<&Subject>) {
        let class = error.class();
        let group = Subject::new(Operation::Read, Resource::Group(self.config.consumer_group.clone()));
        let cause = error.cause(subject.unwrap_or(&group));
        warn!(slot = self.config.slot, class = class.label(), error = chain(error), "cannot go on");
        self.observe(Observation::Error(class));
        let (reason, advice) = match error {
            // Nobody but a person can say that the records may be done without.
            ClientError::UnknownPosition { .. } => ("WorkerErrors", UNKNOWN_POSITION_ADVICE.to_owned()),
            ClientError::UndecidedPositions { .. } => ("WorkerErrors", UNDECIDED_POSITIONS_ADVICE.to_owned()),
            _ => (cause.reason().into(), cause.advice()),
        };
        let message = format!("{}. {advice}", chain(error));
        self.stats.set_error(key, WorkerError { reason: reason.to_owned(), message, at_ms: self.clock.unix_ms() });
    }

    /// Shows what is wrong, but does not keep the slot from going on.
    pub(in crate::slot) fn concern(&self, key: ErrorKey, what: &str, error: &RpcError) {
        let (reason, message): (&str, _) = (error.cause().reason().into(), format!("{what}: {}", error.report()));
        self.stats.set_error(key, WorkerError { reason: reason.to_owned(), message, at_ms: self.clock.unix_ms() });
    }

    /// Brings the status up to date.
    pub(in crate::slot) fn publish(&mut self) {
        self.next_status = self.clock.now() + STATUS_INTERVAL;
        self.notice_membership();
        self.forget_old_trouble();
        let state = self.machine.state().to_string();
        let partitions = self.machine.positions().map(|(partition, committed, next)| PartitionStatus {
            topic: self.topic_name(partition).to_owned(),
            partition: partition.number,
            committed: committed.map_or(-1, |offset| offset.0),
            lag: self.lag(partition, committed, next),
        });
        let partitions: Vec<_> = partitions.collect();
        self.stats.update(|status| {
            status.state = state;
            status.partitions = partitions;
        });
    }

    /// Under the consumer protocol a member that gets no partitions is told of no change: it has to be asked whether it is in the group.
    fn notice_membership(&self) {
        let has_joined = |consumer: &Consumer| consumer.is_incremental() && consumer.has_joined();
        if !self.stats.is_joined() && self.consumer.as_ref().is_some_and(has_joined) {
            self.stats.joined();
            self.stats.clear_errors(|key| *key == ErrorKey::Group);
        }
    }

    /// Records between the committed position and the last stable offset. Exact once the end was reached; before that up to the
    /// high watermark, which counts open transactions of others too.
    fn lag(&self, partition: Partition, committed: Option<Offset>, next: Option<Offset>) -> i64 {
        let Some(next) = next else { return -1 };
        let from = committed.unwrap_or(next);
        let high = match self.ends.get(&partition) {
            Some(end) if *end == next => end.0,
            _ => match self.consumer.as_ref().and_then(|consumer| consumer.cached_high_watermark(partition)) {
                Some(high) => high,
                None => return -1,
            },
        };
        (high - from.0).max(0)
    }

    /// A worker without partitions would never see that its brokers are back: silence tells it.
    fn forget_old_trouble(&mut self) {
        let now = self.clock.now();
        if self.last_trouble.is_some_and(|at| now.saturating_sub(at) > TROUBLE_IS_OVER) {
            self.last_trouble = None;
            self.last_notice = None;
            self.stats.clear_errors(|key| *key == ErrorKey::Connection);
        }
    }

    pub(in crate::slot) fn forget_errors_about(&self, partition: Partition) {
        self.stats.clear_errors(|key| match key {
            ErrorKey::Topic(topic) => *topic == partition.topic,
            ErrorKey::Partition(topic, number) => (*topic, *number) == (partition.topic, partition.number),
            ErrorKey::Connection => true,
            ErrorKey::Group | ErrorKey::Producer | ErrorKey::Output(_) => false,
        });
    }
}
