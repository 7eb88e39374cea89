//! Reading from Kafka: batches of records, and the membership in the consumer group.
//!
//! The group's protocol is one of two:
//!
//! - *Classic, eager*: at each rebalance every member first finishes its transaction and gives up all it has. (Under the classic
//!   *cooperative* protocol a member keeps partitions through a rebalance, but the group's generation moves on behind its back and
//!   the transaction that is open at that moment can only be aborted: measured, and not offered.)
//! - *Consumer* (KIP-848): the brokers move single partitions, and members keep the others. What was captured with an assignment
//!   stays good for what is kept (KIP-1251). Members hear of a change with their heartbeats, which the brokers pace (5 s by default).
//!
//! One assignment, one [`GroupMetadata`].
//!
//! Membership is *static*: a process that comes back under its old name within the session timeout gets its partitions
//! back without a rebalance, and the old process, should it still live, is fenced. The classic protocol (KIP-345) lets whoever has the
//! name take over. Under the other one the predecessor must have released it, and where it could not,
//! [`Cluster::release_member`](crate::rpc::Cluster::release_member) does so in its place.
//!
//! librdkafka loses its place when it pauses partitions, as it does with those that are kept while others come or go, and as
//! [`Consumer::pause`] does: the end of a partition, where that came in a batch, counts for it as a record
//! (librdkafka#4844, in 2.12.1), and the first record behind it would be passed over. So whoever has paused, or has answered a change of single
//! partitions, seeks before it reads on.
//!
//! Positions are always set by the caller: `auto.offset.reset` is `error`, so that records which were deleted before they were
//! read are an error and never a silent jump.

mod batch;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use fencepost_crds::v1alpha1::{GroupProtocol, StartPosition};
use fencepost_protocol::transactional::Start;
use fencepost_protocol::{Offset, Partition};
use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::warn;

use crate::errand::Errand;
use crate::error::{Operation, Resource, Subject};
use crate::native::{
    ClientError, GroupChange, Kind, Native, Notice, PartitionList, answer_at_the_end, c_string, check, check_error,
    millis,
};
use crate::producer::offset_list;
use crate::source::Source;

pub use batch::{Batch, Message, Trouble};
pub use settings::{ConsumerSettings, SourceTopic};

/// Generation and member, as of the moment an assignment was received.
#[derive(Clone, Debug)]
pub struct GroupMetadata(Arc<MetadataHandle>);

#[derive(Debug)]
struct MetadataHandle(NonNull<sys::rd_kafka_consumer_group_metadata_t>);

// SAFETY: the object is never changed after it was made.
unsafe impl Send for MetadataHandle {}
// SAFETY: as above.
unsafe impl Sync for MetadataHandle {}

impl GroupMetadata {
    pub(crate) fn ptr(&self) -> *const sys::rd_kafka_consumer_group_metadata_t {
        self.0.0.as_ptr()
    }
}

impl Drop for MetadataHandle {
    fn drop(&mut self) {
        // SAFETY: it is owned.
        unsafe { sys::rd_kafka_consumer_group_metadata_destroy(self.0.as_ptr()) }
    }
}

/// A member of a group that keeps its name over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticMember {
    /// `group.instance.id`.
    pub instance: String,
    /// The id that the group gave to this process; `None`: whoever has the name.
    pub id: Option<String>,
}

/// An offset of each partition, or why there is none.
type Found = Vec<(Partition, Result<Offset, ClientError>)>;

/// A member of a consumer group.
#[derive(Debug)]
pub struct Consumer {
    // Dropped before `native`, which it belongs to.
    queue: Queue,
    native: Native,
    topics: Vec<String>,
    starts: Vec<StartPosition>,
    group: String,
    instance: String,
    protocol: GroupProtocol,
    /// What the group did last, while it waits for the answer.
    unanswered: Option<GroupChange<Partition>>,
    /// Number of a topic by its handle in messages, valid for one assignment.
    handles: HashMap<usize, u16>,
    assigned: Vec<Partition>,
    is_closed: bool,
}

/// The queue of records and group events.
#[derive(Debug)]
struct Queue(NonNull<sys::rd_kafka_queue_t>);

// SAFETY: queues may be used from any thread.
unsafe impl Send for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it is owned.
        unsafe { sys::rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// Also serves the group: all records of a batch are from before the next change of the assignment, which
/// [`Consumer::next_change`] then tells.
impl Source for Consumer {
    type Batch<'s> = Batch<'s>;

    fn poll(&mut self, limit: usize, wait: Duration, gather: Duration) -> Batch<'_> {
        let mut messages = Vec::with_capacity(limit);
        self.consume(&mut messages, limit, 0);
        if messages.is_empty() && !self.native.context().has_change() {
            self.consume(&mut messages, 1, millis(wait));
            if !messages.is_empty() {
                self.consume(&mut messages, limit, millis(gather));
            }
        }
        Batch::new(messages, &self.topics, &mut self.handles)
    }
}

impl Consumer {
    /// Creates the member and subscribes. The group is joined in the background.
    ///
    /// # Errors
    /// When librdkafka does not accept a setting.
    pub fn new(settings: &ConsumerSettings) -> Result<Self, ClientError> {
        let native = Native::new(Kind::Consumer, &settings.properties())?;
        // SAFETY: the instance is valid.
        let queue = unsafe {
            check("serve one queue", sys::rd_kafka_poll_set_consumer(native.ptr()))?;
            NonNull::new(sys::rd_kafka_queue_get_consumer(native.ptr()))
        };
        let queue = Queue(queue.ok_or_else(|| ClientError::Create { message: "it has no queue".to_owned() })?);
        let topics: Vec<String> = settings.topics.iter().map(|topic| topic.name.clone()).collect();
        let list = PartitionList::new(topics.iter().map(|topic| (topic.as_str(), -1, 0)))?;
        // SAFETY: instance and list are valid.
        check("subscribe", unsafe { sys::rd_kafka_subscribe(native.ptr(), list.ptr()) })?;
        Ok(Self {
            queue,
            native,
            starts: settings.topics.iter().map(|topic| topic.start).collect(),
            topics,
            group: settings.group.clone(),
            instance: settings.instance_id.clone(),
            protocol: settings.protocol,
            unanswered: None,
            handles: HashMap::new(),
            assigned: Vec::new(),
            is_closed: false,
        })
    }

    /// Names of the topics, by number.
    #[must_use]
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// What the partitions' positions are about, for errors.
    #[must_use]
    pub fn group_subject(&self) -> Subject {
        Subject::new(Operation::Read, Resource::Group(self.group.clone()))
    }

    /// What librdkafka complained about since the last look.
    #[must_use]
    pub fn take_notice(&self) -> Option<Notice> {
        self.native.context().take_notice()
    }

    /// Why the member cannot go on, if so.
    #[must_use]
    pub fn fatal(&self) -> Option<ClientError> {
        self.native.fatal()
    }

    fn consume(&self, messages: &mut Vec<*mut sys::rd_kafka_message_t>, limit: usize, timeout: c_int) {
        let room = limit.saturating_sub(messages.len());
        messages.reserve(room);
        let spare = messages.spare_capacity_mut();
        // SAFETY: there is room for `room` pointers; librdkafka says how many it wrote, and hands over their ownership.
        unsafe {
            let count =
                sys::rd_kafka_consume_batch_queue(self.queue.0.as_ptr(), timeout, spare.as_mut_ptr().cast(), room);
            messages.set_len(messages.len() + usize::try_from(count).unwrap_or(0));
        }
    }

    /// Whether the group moves single partitions: then [`GroupChange::Assigned`] comes on top of what is there, and partitions are given
    /// up one by one.
    #[must_use]
    pub fn is_incremental(&self) -> bool {
        self.protocol == GroupProtocol::Consumer
    }

    /// Whether the member is in the group by its own word. Under the consumer protocol one that gets no partitions is told of no change.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        let Ok(metadata) = self.group_metadata() else { return false };
        // SAFETY: the object is valid.
        unsafe { sys::rd_kafka_consumer_group_metadata_generation_id(metadata.ptr()) > 0 }
    }

    /// Whether the group did something that [`Consumer::next_change`] has not told yet.
    #[must_use]
    pub fn has_change(&self) -> bool {
        self.native.context().has_change()
    }

    /// The next change of the assignment. librdkafka waits until it is answered: by [`Consumer::assign`] or
    /// [`Consumer::unassign`].
    pub fn next_change(&mut self) -> Option<GroupChange<Partition>> {
        let number = |partitions: Vec<(String, i32)>| -> Vec<Partition> {
            partitions
                .into_iter()
                .filter_map(|(topic, partition)| Some(Partition::new(self.topic_number(&topic)?, partition)))
                .collect()
        };
        let change = match self.native.context().next_change()? {
            GroupChange::Assigned(partitions) => GroupChange::Assigned(number(partitions)),
            GroupChange::Revoked(partitions) => GroupChange::Revoked(number(partitions)),
            GroupChange::Lost(partitions) => GroupChange::Lost(number(partitions)),
        };
        self.unanswered = Some(change.clone());
        Some(change)
    }

    fn topic_number(&self, name: &str) -> Option<u16> {
        self.topics.iter().position(|topic| topic == name).and_then(|number| u16::try_from(number).ok())
    }

    fn name(&self, partition: Partition) -> &str {
        self.topics.get(usize::from(partition.topic)).map_or("", String::as_str)
    }

    /// The metadata of the assignment just received. To be called at that moment, and kept with it.
    ///
    /// # Errors
    /// Never in a group; the member is in one.
    pub fn group_metadata(&self) -> Result<GroupMetadata, ClientError> {
        // SAFETY: the instance is valid; ownership of the result is taken over.
        NonNull::new(unsafe { sys::rd_kafka_consumer_group_metadata(self.native.ptr()) })
            .map(|handle| GroupMetadata(Arc::new(MetadataHandle(handle))))
            .ok_or_else(|| ClientError::Create { message: "it is not in a group".to_owned() })
    }

    /// Where to begin: at the committed position, which is stable (no transaction that could change it is open), or where the
    /// source's start policy says.
    ///
    /// # Errors
    /// Of class `Retry` while a transaction holds a position undecided.
    pub fn resolve(&self, partitions: &[Partition], within: Duration) -> Result<Vec<(Partition, Start)>, ClientError> {
        let list = PartitionList::new(partitions.iter().map(|p| (self.name(*p), p.number, 0)))?;
        // SAFETY: instance and list are valid.
        let code = unsafe { sys::rd_kafka_committed(self.native.ptr(), list.ptr(), millis(within)) };
        if let Err(error) = check("read the committed positions", code) {
            return Err(self.why_not_resolved(error, partitions, within));
        }
        let mut found = Vec::with_capacity(partitions.len());
        let mut new = Vec::new();
        for (topic, number, offset, code) in list.elements() {
            check("read the committed positions", code).map_err(|error| error.about(self.group_subject()))?;
            let Some(topic_number) = self.topic_number(&topic) else { continue };
            let partition = Partition::new(topic_number, number);
            if offset >= 0 {
                found.push((partition, Start::Committed(Offset(offset))));
            } else {
                new.push(partition);
            }
        }
        found.extend(self.chosen(&new, within)?.into_iter().map(|(partition, at)| (partition, Start::Chosen(at))));
        Ok(found)
    }

    /// Where partitions without a position begin. All are asked about at once: there may be a thousand, on brokers far away.
    fn chosen(&self, partitions: &[Partition], within: Duration) -> Result<Vec<(Partition, Offset)>, ClientError> {
        let end = |partition: Partition| match self.starts.get(usize::from(partition.topic)) {
            Some(StartPosition::Latest) => sys::RD_KAFKA_OFFSET_END,
            _ => sys::RD_KAFKA_OFFSET_BEGINNING,
        };
        let found = self.look_up("look up where a partition begins", partitions, within, end)?;
        found.into_iter().map(|(partition, offset)| Ok((partition, offset?))).collect()
    }

    /// First offset of the log of each partition, and the last stable offset (behind it are only records that are not decided yet); asks
    /// the brokers about all at once. A partition that they do not tell about is left out.
    ///
    /// # Errors
    /// When one of the brokers does not answer in time: librdkafka then says nothing of the others' answers.
    pub fn ends(
        &self,
        partitions: &[Partition],
        within: Duration,
    ) -> Result<BTreeMap<Partition, Range<Offset>>, ClientError> {
        let ask = |end: i32| -> Result<BTreeMap<Partition, Offset>, ClientError> {
            let found = self.look_up("look up the ends of a partition", partitions, within / 2, |_| end)?;
            Ok(found.into_iter().filter_map(|(partition, offset)| Some((partition, offset.ok()?))).collect())
        };
        let (first, last) = (ask(sys::RD_KAFKA_OFFSET_BEGINNING)?, ask(sys::RD_KAFKA_OFFSET_END)?);
        Ok(first.into_iter().filter_map(|(partition, from)| Some((partition, from..*last.get(&partition)?))).collect())
    }

    /// The first or the last offset of each partition.
    fn look_up(
        &self,
        step: &'static str,
        partitions: &[Partition],
        within: Duration,
        end: impl Fn(Partition) -> i32,
    ) -> Result<Found, ClientError> {
        let Some(first) = partitions.first() else { return Ok(Vec::new()) };
        let wanted = partitions.iter().map(|p| (self.name(*p), p.number, i64::from(end(*p))));
        let list = PartitionList::new(wanted)?;
        let describe = |topic: &str| Subject::new(Operation::Describe, Resource::Topic(topic.to_owned()));
        // Takes these two in the place of a time, as the protocol does.
        // SAFETY: instance and list are valid.
        let code = unsafe { sys::rd_kafka_offsets_for_times(self.native.ptr(), list.ptr(), millis(within)) };
        check(step, code).map_err(|error| error.about(describe(self.name(*first))))?;
        let offset = |topic: &str, number: i32, offset: i64, code| {
            check(step, code).map_err(|error| error.about(describe(topic)))?;
            if offset < 0 {
                let message = format!("{topic} [{number}]: no answer");
                return Err(ClientError::call(step, Code::OperationTimedOut, message).about(describe(topic)));
            }
            Ok(Offset(offset))
        };
        let found = list.elements().into_iter().filter_map(|(topic, number, at, code)| {
            Some((Partition::new(self.topic_number(&topic)?, number), offset(&topic, number, at, code)))
        });
        Ok(found.collect())
    }

    /// librdkafka asks again while positions are undecided, and then says only that time is up. Brokers that answer another question
    /// tell the two apart.
    fn why_not_resolved(&self, error: ClientError, partitions: &[Partition], within: Duration) -> ClientError {
        let answers = || partitions.first().is_some_and(|partition| self.watermarks(*partition, within / 4).is_ok());
        if error.code() == Some(Code::OperationTimedOut) && answers() {
            return ClientError::UndecidedPositions { group: self.group.clone() };
        }
        error.about(self.group_subject())
    }

    /// First offset of the log, and the one after the last stable record; asks the brokers.
    ///
    /// # Errors
    /// When they do not answer in time.
    pub fn watermarks(&self, partition: Partition, within: Duration) -> Result<(i64, i64), ClientError> {
        let name = self.name(partition);
        let topic = c_string(name)?;
        let (mut low, mut high) = (0, 0);
        // SAFETY: the instance is valid, the name terminated, the results are plain numbers.
        let code = unsafe {
            sys::rd_kafka_query_watermark_offsets(
                self.native.ptr(),
                topic.as_ptr(),
                partition.number,
                &raw mut low,
                &raw mut high,
                millis(within),
            )
        };
        let subject = Subject::new(Operation::Describe, Resource::Topic(name.to_owned()));
        check("look up the ends of a partition", code).map_err(|error| error.about(subject))?;
        Ok((low, high))
    }

    /// The high watermark as of the last fetch; `None` before the first one. Asks nobody.
    #[must_use]
    pub fn cached_high_watermark(&self, partition: Partition) -> Option<i64> {
        let topic = c_string(self.name(partition)).ok()?;
        let (mut low, mut high) = (-1, -1);
        // SAFETY: the instance is valid, the name terminated, the results are plain numbers.
        let code = unsafe {
            sys::rd_kafka_get_watermark_offsets(
                self.native.ptr(),
                topic.as_ptr(),
                partition.number,
                &raw mut low,
                &raw mut high,
            )
        };
        (code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(high)
    }

    /// Answers an assignment: read these partitions from here.
    ///
    /// # Errors
    /// When librdkafka does not take the list.
    pub fn assign(&mut self, positions: &[(Partition, Offset)]) -> Result<(), ClientError> {
        const STEP: &str = "take the assigned partitions";
        let list = offset_list(positions, &self.topics)?;
        match self.protocol {
            GroupProtocol::Classic => {
                // SAFETY: instance and list are valid.
                check(STEP, unsafe { sys::rd_kafka_assign(self.native.ptr(), list.ptr()) })?;
                self.assigned.clear();
            }
            GroupProtocol::Consumer => {
                // SAFETY: as above.
                check_error(STEP, unsafe { sys::rd_kafka_incremental_assign(self.native.ptr(), list.ptr()) })?;
            }
        }
        self.unanswered = None;
        self.handles.clear();
        self.assigned.extend(positions.iter().map(|(partition, _)| *partition));
        Ok(())
    }

    /// Answers a revocation, or a loss: these are not read any more. Under the classic protocol nothing is.
    ///
    /// # Errors
    /// When the member is not able to go on.
    pub fn unassign(&mut self, partitions: &[Partition]) -> Result<(), ClientError> {
        const STEP: &str = "give partitions up";
        let mut given_up = self.assigned.clone();
        if self.is_incremental() {
            given_up.retain(|partition| partitions.contains(partition));
            // A consumer that came in the place of another has nothing of what the other had.
            if given_up.is_empty() && self.unanswered.is_none() {
                return Ok(());
            }
        }
        let list = PartitionList::new(given_up.iter().map(|p| (self.name(*p), p.number, 0)))?;
        // librdkafka keeps a pause over the end of an assignment: a partition that was lost while it was paused would come back
        // paused, and never be read again.
        // SAFETY: instance and list are valid.
        check("resume", unsafe { sys::rd_kafka_resume_partitions(self.native.ptr(), list.ptr()) })?;
        self.assigned.retain(|partition| !given_up.contains(partition));
        self.handles.clear();
        self.unanswered = None;
        match self.protocol {
            GroupProtocol::Classic => {
                // SAFETY: the instance is valid; null means "nothing".
                check(STEP, unsafe { sys::rd_kafka_assign(self.native.ptr(), std::ptr::null()) })
            }
            GroupProtocol::Consumer => {
                // SAFETY: instance and list are valid.
                check_error(STEP, unsafe { sys::rd_kafka_incremental_unassign(self.native.ptr(), list.ptr()) })
            }
        }
    }

    /// Reads these partitions again from these positions. No record fetched before is delivered after this.
    ///
    /// # Errors
    /// When a partition is not assigned any more.
    pub fn seek(&mut self, positions: &[(Partition, Offset)], within: Duration) -> Result<(), ClientError> {
        // librdkafka takes an empty list for a mistake.
        if positions.is_empty() {
            return Ok(());
        }
        let list = offset_list(positions, &self.topics)?;
        // SAFETY: instance and list are valid.
        let error = unsafe { sys::rd_kafka_seek_partitions(self.native.ptr(), list.ptr(), millis(within)) };
        check_error("read again", error)?;
        list.elements().into_iter().try_for_each(|(_, _, _, code)| check("read again", code))
    }

    /// Stops fetching; the group is still served by [`Consumer::poll`]. The place where to go on is lost with this.
    ///
    /// # Errors
    /// When librdkafka does not take the list.
    pub fn pause(&self) -> Result<(), ClientError> {
        let list = PartitionList::new(self.assigned.iter().map(|p| (self.name(*p), p.number, 0)))?;
        // SAFETY: instance and list are valid.
        check("pause", unsafe { sys::rd_kafka_pause_partitions(self.native.ptr(), list.ptr()) })
    }

    /// Goes on fetching. Where, is for [`Consumer::seek`] to say.
    ///
    /// # Errors
    /// When librdkafka does not take the list.
    pub fn resume(&self) -> Result<(), ClientError> {
        let list = PartitionList::new(self.assigned.iter().map(|p| (self.name(*p), p.number, 0)))?;
        // SAFETY: instance and list are valid.
        check("resume", unsafe { sys::rd_kafka_resume_partitions(self.native.ptr(), list.ptr()) })
    }

    /// Commits positions to the group, without a transaction, and waits for the answer.
    ///
    /// # Errors
    /// Among others when the group has gone on to another generation, and of class `Unknown` when there is no answer within `within`.
    pub fn commit(&self, offsets: &[(Partition, Offset)], within: Duration) -> Result<(), ClientError> {
        let list = offset_list(offsets, &self.topics)?;
        let checked =
            |code| check("commit the positions", code).map_err(|error: ClientError| error.about(self.group_subject()));
        // The call that waits by itself does so without a limit.
        // SAFETY: instance and list are valid, the queue is new and owned by `queue`. An answer that comes too late finds no queue and is
        // dropped.
        let event = unsafe {
            let queue = NonNull::new(sys::rd_kafka_queue_new(self.native.ptr())).map(Queue);
            let queue = queue.ok_or_else(|| ClientError::Create { message: "it has no queue".to_owned() })?;
            let none = std::ptr::null_mut();
            checked(sys::rd_kafka_commit_queue(self.native.ptr(), list.ptr(), queue.0.as_ptr(), None, none))?;
            sys::rd_kafka_queue_poll(queue.0.as_ptr(), millis(within))
        };
        if event.is_null() {
            return checked(sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT);
        }
        // SAFETY: the event is valid until it is destroyed, and not used after that.
        let code = unsafe {
            let code = sys::rd_kafka_event_error(event);
            sys::rd_kafka_event_destroy(event);
            code
        };
        checked(code)
    }

    /// The change that may still wait for an answer gets one here, the next one from the callback. Without one the client would never end, nor
    /// the thread that waits for that.
    fn answer_at_the_end(&mut self) {
        self.native.context().close();
        self.unanswered = self.unanswered.take().or_else(|| self.next_change());
        use sys::rd_kafka_resp_err_t as code;
        let (code, partitions) = match self.unanswered.take() {
            Some(GroupChange::Assigned(partitions)) => (code::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, partitions),
            Some(GroupChange::Revoked(partitions) | GroupChange::Lost(partitions)) => {
                (code::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS, partitions)
            }
            None => (code::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS, Vec::new()),
        };
        let list = PartitionList::new(partitions.iter().map(|p| (self.name(*p), p.number, -1)));
        if let Ok(list) = list {
            // SAFETY: instance and list are valid.
            unsafe { answer_at_the_end(self.native.ptr(), code, list.ptr()) };
        }
    }

    /// Who we are in the group.
    #[must_use]
    pub fn member(&self) -> StaticMember {
        // SAFETY: the instance is valid; the text is ours to free.
        let id = unsafe {
            let text = sys::rd_kafka_memberid(self.native.ptr());
            let id = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            sys::rd_kafka_mem_free(self.native.ptr(), text.cast());
            id
        };
        StaticMember { instance: self.instance.clone(), id: id.filter(|id| !id.is_empty()) }
    }

    /// Ends the client. The group keeps the partitions for our name until the session timeout.
    ///
    /// There is no way to let librdkafka leave: as a static member it does not when it is closed, and after unsubscribing it does
    /// only if it comes to it before it is closed. [`Cluster::remove_members`](crate::rpc::Cluster::remove_members) does, and says so.
    ///
    /// The client does not always come back from its end; after `within` it is left behind with it.
    pub fn close(self, within: Duration) {
        let Ok(mut errand) = Errand::new("close") else { return };
        let end = move || {
            let mut consumer = self;
            consumer.answer_at_the_end();
            // SAFETY: the instance is valid, and is not used for anything but its destruction after this.
            unsafe { sys::rd_kafka_consumer_close(consumer.native.ptr()) };
            consumer.is_closed = true;
        };
        if errand.run(within, end).is_none() {
            warn!("the client of the consumer group does not end: it is left behind");
        }
    }
}

/// For whoever has no time for [`Consumer::close`].
impl Drop for Consumer {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        // A change that librdkafka has not told yet is answered by the callback.
        let mut messages = Vec::new();
        self.native.context().close();
        self.consume(&mut messages, 1_000, 0);
        drop(Batch::new(messages, &self.topics, &mut self.handles));
        self.answer_at_the_end();
    }
}
