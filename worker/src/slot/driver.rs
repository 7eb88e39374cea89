use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use fencepost_crds::v1alpha1::GroupProtocol;
use fencepost_kafka::consumer::{Consumer, GroupMetadata, StaticMember};
use fencepost_kafka::error::chain;
use fencepost_kafka::producer::Producer;
use fencepost_kafka::{ClientError, GroupChange};
use fencepost_pipeline::{OutputBatch, Pipeline, SourceId};
use fencepost_protocol::transactional::{Effect, Event, Exit, Machine, State};
use fencepost_protocol::{Offset, Partition, Token};
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::brokers::Brokers;
use super::fault;
use super::fencing::Fencing;
use super::limits::Limits;
use super::observe::{Observation, Outcome, RebalanceKind};
use super::pacing::Pacing;
use super::stats::ErrorKey;
use super::{Clock, Observer, Shutdown, SlotConfig, SlotExit, SlotStats};

mod calls;
mod report;
#[cfg(test)]
mod tests;

/// Longest time in a poll while a failure is waited out.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// Pause before a consumer is made that could not be made before.
const REOPEN: Duration = Duration::from_secs(1);

/// How long the consumer gets to end in order. The grace period of a pod has room for it, and for leaving the group after it.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A member that is fenced again within this time has a rival.
const RIVALRY: Duration = Duration::from_secs(60);

/// What the open transaction holds, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenTransaction {
    pub(super) since: Option<Duration>,
    /// The same by the date.
    pub(super) since_ms: i64,
    pub(super) ending_since: Option<Duration>,
    pub(super) records_out: u64,
    pub(super) bytes_out: u64,
}

/// Does what the machine says.
pub(super) struct Driver<'s> {
    pub(super) config: &'s SlotConfig,
    pub(super) pipeline: Pipeline,
    shutdown: &'s Shutdown,
    pub(super) stats: &'s SlotStats,
    observer: &'s dyn Observer,
    pub(super) clock: &'s dyn Clock,
    pub(super) machine: Machine,
    pub(super) producer: Option<Producer>,
    pub(super) consumer: Option<Consumer>,
    /// `None` when the raw client could not be set up. Then being fenced is taken to be by somebody newer.
    brokers: Option<Rc<Brokers>>,
    fencing: Option<Fencing>,
    limits: Option<Limits>,
    /// When the limits of the outputs are asked for again.
    limits_due: Duration,
    /// Metadata by the assignment it was captured with.
    metadata: BTreeMap<Token, GroupMetadata>,
    pub(super) token: Option<Token>,
    /// Partitions that the group gave us and that are not given up, whether or not the machine has come to them yet.
    told: BTreeSet<Partition>,
    topics: Vec<String>,
    /// Sources of each topic.
    pub(super) sources: Vec<Vec<SourceId>>,
    /// Outputs of the batch just processed.
    pub(super) held: Vec<OutputBatch>,
    pub(super) open: OpenTransaction,
    /// Last stable offsets that were reached.
    pub(super) ends: BTreeMap<Partition, Offset>,
    /// Partitions whose position is not in the log, and when to look again.
    pub(super) out_of_range: BTreeMap<Partition, Duration>,
    /// The record that the machine stops at, and why.
    pub(super) bad: Option<String>,
    /// Things to tell the machine once all effects are done.
    inbox: VecDeque<Event>,
    backoff: Backoff,
    waiting_until: Option<Duration>,
    pub(super) pacing: Pacing,
    next_status: Duration,
    draining_since: Option<Duration>,
    exit: Option<SlotExit>,
    fenced_by: Option<String>,
    member_fenced_at: Option<Duration>,
    /// When the consumer was replaced last.
    replaced_at: Option<Duration>,
    pub(super) last_notice: Option<(Code, Duration)>,
    /// When the client complained last, repeated complaints included.
    pub(super) last_trouble: Option<Duration>,
}

impl<'s> Driver<'s> {
    pub(super) fn new(
        config: &'s SlotConfig,
        pipeline: Pipeline,
        shutdown: &'s Shutdown,
        stats: &'s SlotStats,
        observer: &'s dyn Observer,
        clock: &'s dyn Clock,
    ) -> Self {
        let brokers = Brokers::new(config.connection.clone());
        let fencing = brokers
            .clone()
            .zip(config.producer_id())
            .map(|(brokers, id)| Fencing::new(brokers, id, config.transaction_timeout));
        let limits = brokers.clone().map(|brokers| Limits::new(brokers, config.outputs.clone()));
        let (topics, sources) = config.topics().into_iter().map(|(topic, sources)| (topic.name, sources)).unzip();
        Self {
            config,
            pipeline,
            shutdown,
            stats,
            observer,
            clock,
            machine: Machine::new(config.mode()),
            producer: None,
            consumer: None,
            fencing,
            limits,
            limits_due: Duration::ZERO,
            brokers,
            metadata: BTreeMap::new(),
            token: None,
            told: BTreeSet::new(),
            topics,
            sources,
            held: Vec::new(),
            open: OpenTransaction::default(),
            ends: BTreeMap::new(),
            out_of_range: BTreeMap::new(),
            bad: None,
            inbox: VecDeque::new(),
            backoff: Backoff::new(),
            waiting_until: None,
            pacing: Pacing::new(config.commit_interval, config.mode()),
            next_status: Duration::ZERO,
            draining_since: None,
            exit: None,
            fenced_by: None,
            member_fenced_at: None,
            replaced_at: None,
            last_notice: None,
            last_trouble: None,
        }
    }

    pub(super) fn run(mut self) -> SlotExit {
        let id = config_id(self.config);
        self.stats.update(|status| status.transactional_id = id);
        self.tell(Event::Start);
        let exit = loop {
            if let Some(exit) = self.exit.take() {
                break exit;
            }
            self.stats.turn(self.clock.now());
            self.turn();
        };
        self.stats.left();
        self.publish();
        info!(slot = self.config.slot, %exit, "slot ended");
        exit
    }

    /// One round: serve drain, time and group; read and process what is there.
    fn turn(&mut self) {
        let now = self.clock.now();
        if self.drain_is_overdue(now) {
            self.finish(SlotExit::DrainTimeout);
            return;
        }
        if self.machine.state() == State::Waiting {
            self.wait_out(now);
            return;
        }
        if self.consumer.is_none() {
            self.reopen_consumer(now);
            return;
        }
        let rest = self.pacing.rest(now);
        if !rest.is_zero() {
            self.shutdown.wait(rest);
        }
        let now = self.clock.now();
        let wait = self.pacing.wait(now, self.machine.has_uncommitted());
        let is_dry = self.read(wait, self.pacing.until_early(now));
        self.serve_group();
        let now = self.clock.now();
        if self.pacing.is_due(now, is_dry) {
            self.tell(Event::Tick);
        }
        self.look_again(now);
        self.renew_limits(now);
        if now >= self.next_status {
            self.publish();
        }
    }

    fn drain_is_overdue(&mut self, now: Duration) -> bool {
        if !self.shutdown.is_draining() {
            return false;
        }
        if self.draining_since.is_none() {
            info!(slot = self.config.slot, "finishing: asked to stop");
            self.draining_since = Some(now);
            self.tell(Event::Drain);
        }
        self.exit.is_none()
            && self.draining_since.is_some_and(|since| now.saturating_sub(since) > self.config.drain_timeout)
    }

    /// A failure is waited out. The group is served, so that it does not take us for dead.
    fn wait_out(&mut self, now: Duration) {
        let until = *self.waiting_until.get_or_insert(now);
        let left = until.saturating_sub(now).min(IDLE_WAIT);
        if self.consumer.is_some() {
            self.read(left, Duration::ZERO);
            self.serve_group();
        } else {
            self.shutdown.wait(left);
        }
        self.publish();
        if self.machine.state() == State::Waiting && self.clock.now() >= until {
            self.waiting_until = None;
            if let Some(consumer) = &self.consumer
                && let Err(error) = consumer.resume()
            {
                debug!(slot = self.config.slot, error = chain(&error), "cannot resume");
            }
            self.tell(Event::BackoffOver);
        }
    }

    fn serve_group(&mut self) {
        while let Some(change) = self.consumer.as_mut().and_then(Consumer::next_change) {
            let slot = self.config.slot;
            match change {
                GroupChange::Assigned(partitions) => {
                    info!(slot, partitions = partitions.len(), "partitions assigned");
                    self.observe(Observation::Rebalance(RebalanceKind::Assigned));
                    self.assigned(partitions);
                }
                GroupChange::Revoked(partitions) => {
                    fault::reach(fault::REVOKED);
                    info!(slot, partitions = partitions.len(), "partitions revoked");
                    self.observe(Observation::Rebalance(RebalanceKind::Revoked));
                    self.tell(Event::Revoked(partitions));
                }
                GroupChange::Lost(partitions) => {
                    fault::reach(fault::LOST);
                    warn!(slot, partitions = partitions.len(), "partitions lost");
                    self.observe(Observation::Rebalance(RebalanceKind::Lost));
                    self.tell(Event::Lost(partitions));
                }
            }
        }
    }

    fn assigned(&mut self, partitions: Vec<Partition>) {
        let Some(metadata) = self.consumer.as_ref().and_then(|consumer| consumer.group_metadata().ok()) else {
            self.replace_consumer();
            return;
        };
        let is_incremental = self.consumer.as_ref().is_some_and(Consumer::is_incremental);
        let token = Token(self.token.map_or(0, |token| token.0) + 1);
        self.metadata.insert(token, metadata);
        self.token = Some(token);
        self.stats.joined();
        self.stats.clear_errors(|key| match key {
            ErrorKey::Topic(topic) => partitions.iter().any(|partition| partition.topic == *topic),
            ErrorKey::Group => true,
            _ => false,
        });
        if !is_incremental {
            self.told.clear();
        }
        self.told.extend(&partitions);
        self.tell(if is_incremental {
            Event::Added { token, partitions }
        } else {
            Event::Assigned { token, partitions }
        });
        // Metadata of assignments that nothing refers to any more.
        self.metadata.retain(|old, _| old.0 + 1 >= token.0);
    }

    /// Tells the machine, does what it says, tells what came of it, until there is nothing more to do.
    pub(super) fn tell(&mut self, event: Event) {
        self.inbox.push_back(event);
        while let Some(event) = self.inbox.pop_front() {
            if self.exit.is_some() {
                return;
            }
            debug!(slot = self.config.slot, ?event, "event");
            let mut effects = VecDeque::from(self.machine.on(event));
            while let Some(effect) = effects.pop_front() {
                debug!(slot = self.config.slot, ?effect, point = effect.fault_point(), "effect");
                fault::reach(effect.fault_point());
                if let Some(call) = effect.call() {
                    // A call is the last effect, and its answer comes before anything else.
                    let answer = self.call(&effect);
                    fault::reach(call.fault_point());
                    self.inbox.push_front(answer);
                } else {
                    self.perform(effect);
                }
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read(positions) => self.start_reading(&positions),
            Effect::Rewind(positions) => self.rewind(&positions),
            Effect::GiveUp(partitions) => self.give_up(&partitions),
            Effect::Discard => self.held.clear(),
            Effect::DropProducer => {
                if self.open.since.is_some() {
                    self.transaction_ended(Outcome::Abandoned);
                }
                self.producer = None;
            }
            Effect::Backoff { attempt } => self.back_off(attempt),
            Effect::Stop(exit) => self.stop(exit),
            _ => {}
        }
    }

    fn give_up(&mut self, partitions: &[Partition]) {
        // Under the classic protocol what is given up is everything.
        let is_incremental = self.config.group_protocol == GroupProtocol::Consumer;
        let is_kept = |partition: &Partition| is_incremental && !partitions.contains(partition);
        self.told.retain(is_kept);
        self.ends.retain(|partition, _| is_kept(partition));
        self.out_of_range.retain(|partition, _| is_kept(partition));
        if let Some(consumer) = &mut self.consumer
            && let Err(error) = consumer.unassign(partitions)
        {
            debug!(slot = self.config.slot, error = chain(&error), "cannot give partitions up");
        }
    }

    fn start_reading(&mut self, positions: &[(Partition, Offset)]) {
        let Some(consumer) = &mut self.consumer else { return };
        for (partition, offset) in positions {
            debug!(slot = self.config.slot, %partition, %offset, "start");
        }
        if let Err(error) = consumer.assign(positions) {
            self.report(ErrorKey::Group, &error, None);
            self.replace_consumer();
        }
    }

    pub(super) fn rewind(&mut self, positions: &[(Partition, Offset)]) {
        let within = self.config.call_timeout();
        let Some(consumer) = &mut self.consumer else { return };
        // Until this succeeds the consumer would deliver what comes after the gap, so there is no going on without it. It fails when
        // fetching has not begun yet, or has just ended with the assignment.
        if let Err(error) = consumer.seek(positions, within) {
            info!(
                slot = self.config.slot,
                error = chain(&error),
                "joining the group again, to read from a known position"
            );
            self.replace_consumer();
        }
    }

    fn back_off(&mut self, attempt: u32) {
        let now = self.clock.now();
        let pause = self.backoff.pause(attempt, u64::from(attempt) << 32 | u64::from(self.config.slot));
        self.waiting_until = Some(now + pause);
        self.stats.failing(now);
        if let Some(consumer) = &self.consumer
            && let Err(error) = consumer.pause()
        {
            debug!(slot = self.config.slot, error = chain(&error), "cannot pause");
        }
    }

    /// Starts again as a new process of the same member would.
    pub(super) fn replace_consumer(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            consumer.close(CLOSE_WITHIN);
        }
        self.stats.left();
        // Of what waits in the machine to be added, too: the group has not given that to the new member.
        let mut lost = std::mem::take(&mut self.told);
        lost.extend(self.machine.positions().map(|(partition, ..)| partition));
        self.inbox.push_back(Event::Lost(lost.into_iter().collect()));
        let now = self.clock.now();
        let is_again = self.replaced_at.replace(now).is_some_and(|before| now.saturating_sub(before) < REOPEN);
        // Under the consumer protocol a name that cannot be released is refused at once, again and again. The next turn waits, and tries.
        if is_again && self.config.group_protocol == GroupProtocol::Consumer {
            return;
        }
        if let Err(error) = self.open_consumer() {
            self.report(ErrorKey::Group, &error, None);
        }
    }

    /// The consumer that was to take the place of another could not be made.
    fn reopen_consumer(&mut self, now: Duration) {
        self.stats.failing(now);
        self.shutdown.wait(REOPEN);
        if let Err(error) = self.open_consumer() {
            self.report(ErrorKey::Group, &error, None);
        }
        self.publish();
    }

    pub(super) fn open_consumer(&mut self) -> Result<(), ClientError> {
        if self.consumer.is_none() {
            self.release_name();
            self.consumer = Some(Consumer::new(&self.config.consumer())?);
        }
        Ok(())
    }

    /// Under the new protocol a process that was killed still has our name in the group, and whoever comes under a name that is taken is
    /// refused. The classic one lets us take over.
    fn release_name(&self) {
        let Some(brokers) = self.brokers.as_ref().filter(|_| self.config.group_protocol == GroupProtocol::Consumer)
        else {
            return;
        };
        let (group, name) = (&self.config.consumer_group, &self.config.transactional_id);
        if let Err(error) = brokers.ask(async |cluster| cluster.release_member(group, name).await) {
            // The group will refuse us if somebody has the name; then we try again.
            let error = error.report();
            info!(slot = self.config.slot, error, "cannot release the name of the worker before this one");
        }
    }

    /// The metadata of now, for brokers that do not take that of the assignment any more, although what it vouches for is still ours:
    /// before KIP-1251 they want the epoch that the group has reached.
    ///
    /// That does no harm under the consumer protocol. The client goes on to another epoch while it loses something, or comes back after it
    /// was thrown out, only when we have answered that; until then its metadata is refused, or what it vouches for is ours.
    pub(super) fn capture_again(&mut self, token: Token) {
        if let Some(consumer) =
            self.consumer.as_ref().filter(|consumer| consumer.is_incremental() && !consumer.has_change())
            && let Ok(metadata) = consumer.group_metadata()
        {
            self.metadata.insert(token, metadata);
        }
    }

    /// Tries partitions again whose position was not in the log: an operator may have set the group's position meanwhile.
    fn look_again(&mut self, now: Duration) {
        let due: BTreeSet<Partition> = self.out_of_range.extract_if(.., |_, at| *at <= now).map(|(p, _)| p).collect();
        self.read_again(&due);
    }

    fn stop(&mut self, exit: Exit) {
        let exit = match exit {
            Exit::Drained => SlotExit::Drained,
            Exit::Abandoned => SlotExit::DrainTimeout,
            Exit::Fenced => SlotExit::Fenced(self.fenced_by.take().unwrap_or_else(|| self.fenced_message(""))),
            Exit::BadRecord(partition, offset) => SlotExit::BadRecord {
                topic: self.topic_name(partition).to_owned(),
                partition: partition.number,
                offset: offset.0,
                reason: self.bad.take().unwrap_or_default(),
            },
            Exit::Broken => SlotExit::Failed(match self.machine.broken() {
                Some(transition) => format!("the protocol machine is broken: {transition}"),
                None => "the protocol machine is broken".to_owned(),
            }),
        };
        self.finish(exit);
    }

    pub(super) fn finish(&mut self, exit: SlotExit) {
        self.producer = None;
        if let Some(consumer) = self.consumer.take() {
            let member = consumer.member();
            consumer.close(CLOSE_WITHIN);
            // A fenced member has no say in the group. One that never joined has nothing to leave.
            if !matches!(exit, SlotExit::Fenced(_)) && member.id.is_some() {
                self.leave(&member);
            }
        }
        self.exit = Some(exit);
    }

    /// Takes our member, which has ended, out of the group, so that nobody waits for its partitions until the session timeout.
    fn leave(&self, member: &StaticMember) {
        let Some(brokers) = &self.brokers else { return };
        let (group, members) = (&self.config.consumer_group, std::slice::from_ref(member));
        if let Err(error) = brokers.ask(async |cluster| cluster.remove_members(group, members).await) {
            let error = error.report();
            warn!(
                slot = self.config.slot,
                error, "cannot leave the group: its partitions wait for the session timeout"
            );
        }
    }

    /// The group has given our name to another member. That may have been ourselves, in a request whose answer was lost, so the owner of
    /// the transactional id decides: a newer process takes it before it joins the group.
    pub(super) fn member_fenced(&mut self) {
        let now = self.clock.now();
        let is_rival = match self.fencing.as_ref().and_then(|fencing| fencing.is_still_mine(self.open_for())) {
            Some(is_mine) => !is_mine,
            None => self.member_fenced_at.is_some_and(|before| now.saturating_sub(before) < RIVALRY),
        };
        self.member_fenced_at = Some(now);
        if is_rival {
            self.finish(SlotExit::Fenced(self.fenced_message(" in the consumer group")));
        } else {
            info!(slot = self.config.slot, "joining the group again: the membership was lost, and nobody newer has it");
            self.replace_consumer();
        }
    }

    pub(super) fn fenced_message(&self, by: &str) -> String {
        format!(
            "fenced: another process has the name {}{by}; this one must not go on. If no newer worker of this job runs, another \
             job uses the same transactionalIdPrefix or consumer group. When that has ended, delete the pod of this worker: it starts \
             again",
            self.config.transactional_id
        )
    }

    /// The topics that are read, by number.
    pub(super) fn topics(&self) -> &[String] {
        &self.topics
    }

    pub(super) fn topic_name(&self, partition: Partition) -> &str {
        self.topics.get(usize::from(partition.topic)).map_or("", String::as_str)
    }
}

fn config_id(config: &SlotConfig) -> String {
    config.producer_id().unwrap_or_default()
}
