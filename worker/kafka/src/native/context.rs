use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kafka_protocol::messages::ApiKey;
use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::{debug, info, warn};

use super::list::PartitionList;
use super::text_of;

/// Name of what listens in on requests.
pub(super) const INTERCEPTOR: &CStr = c"fencepost";

/// What librdkafka calls a protocol that moves single partitions.
const INCREMENTAL: &str = "COOPERATIVE";

/// What the group did to the consumer. The consumer has not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange<P> {
    /// New partitions.
    Assigned(Vec<P>),
    /// The group wants them back and waits.
    Revoked(Vec<P>),
    /// They may belong to someone else already.
    Lost(Vec<P>),
}

/// Something librdkafka complains about outside of any call, such as a refused password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its code.
    pub code: Code,
    /// Its text.
    pub message: String,
}

/// The first output since the last look that the brokers did not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryFailure {
    pub(crate) code: Code,
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

/// What the callbacks of an instance have heard.
#[derive(Debug, Default)]
pub(crate) struct Context {
    changes: Mutex<VecDeque<GroupChange<(String, i32)>>>,
    notice: Mutex<Option<Notice>>,
    failure: Mutex<Option<DeliveryFailure>>,
    /// Requests that were written to a broker and not answered by it, of those that change a transaction.
    unanswered: AtomicI64,
    /// How often the producer was initialised.
    initialisations: AtomicU64,
    /// Both are counted.
    is_listening: AtomicBool,
    is_closing: AtomicBool,
}

impl Context {
    pub(crate) fn next_change(&self) -> Option<GroupChange<(String, i32)>> {
        lock(&self.changes).pop_front()
    }

    /// From now on rebalances are answered at once: nobody else will.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    pub(crate) fn has_change(&self) -> bool {
        !lock(&self.changes).is_empty()
    }

    pub(crate) fn take_notice(&self) -> Option<Notice> {
        lock(&self.notice).take()
    }

    pub(crate) fn notice(&self) -> Option<Notice> {
        lock(&self.notice).clone()
    }

    /// Requests that change a transaction and were sent and not answered: they are under way, or there was a time-out, or their connection
    /// has ended.
    pub(crate) fn unanswered(&self) -> i64 {
        self.unanswered.load(Ordering::Acquire)
    }

    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Acquire)
    }

    /// How often the brokers were asked to initialise the producer.
    pub(crate) fn initialisations(&self) -> u64 {
        self.initialisations.load(Ordering::Acquire)
    }

    /// The first record that was not delivered.
    pub(crate) fn failure(&self) -> Option<DeliveryFailure> {
        lock(&self.failure).clone()
    }

    /// What it was part of does not count any more.
    pub(crate) fn forget_failure(&self) {
        *lock(&self.failure) = None;
    }
}

/// Nothing here can panic while it holds a lock, so a poisoned one is as good as new.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `opaque` is the `Context` of a living instance.
unsafe fn context<'a>(opaque: *mut c_void) -> &'a Context {
    // SAFETY: see above.
    unsafe { &*opaque.cast_const().cast::<Context>() }
}

pub(super) unsafe extern "C" fn on_log(
    _: *const sys::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    text: *const c_char,
) {
    let (facility, text) = (text_of(facility), text_of(text));
    match level {
        // Connections come and go, many times a second while a broker is away; what it means for the job is reported where the job
        // notices it.
        _ if facility == "FAIL" || facility == "ERROR" => debug!(target: "librdkafka", facility, "{text}"),
        0..=3 => warn!(target: "librdkafka", facility, "{text}"),
        4 | 5 => info!(target: "librdkafka", facility, "{text}"),
        _ => debug!(target: "librdkafka", facility, "{text}"),
    }
}

pub(super) unsafe extern "C" fn on_error(
    _: *mut sys::rd_kafka_t,
    code: c_int,
    text: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: the opaque pointer was set together with this callback.
    let context = unsafe { context(opaque) };
    let new = Notice { code: code_of(code), message: text_of(text) };
    let mut notice = lock(&context.notice);
    // "All brokers down" only repeats, without a reason, what was said about each of them.
    if new.code != Code::AllBrokersDown || notice.is_none() {
        *notice = Some(new);
    }
}

/// Has librdkafka tell of each request and each answer: what it repeats by itself, it tells nobody else.
pub(super) unsafe extern "C" fn on_new(
    rk: *mut sys::rd_kafka_t,
    _: *const sys::rd_kafka_conf_t,
    opaque: *mut c_void,
    _: *mut c_char,
    _: usize,
) -> sys::rd_kafka_resp_err_t {
    let name = INTERCEPTOR.as_ptr();
    // SAFETY: `rk` is the instance that calls, `opaque` the context that outlives it.
    let results = unsafe {
        [
            sys::rd_kafka_interceptor_add_on_request_sent(rk, name, Some(on_request_sent), opaque),
            sys::rd_kafka_interceptor_add_on_response_received(rk, name, Some(on_response_received), opaque),
        ]
    };
    let done = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    let is_listening = results.into_iter().all(|result| result == done);
    // SAFETY: as above.
    unsafe { context(opaque) }.is_listening.store(is_listening, Ordering::Release);
    done
}

unsafe extern "C" fn on_request_sent(
    _: *mut sys::rd_kafka_t,
    _: c_int,
    _: *const c_char,
    _: i32,
    api_key: i16,
    _: i16,
    _: i32,
    _: usize,
    opaque: *mut c_void,
) -> sys::rd_kafka_resp_err_t {
    // SAFETY: the opaque pointer was set together with this callback.
    let context = unsafe { context(opaque) };
    SENDS.set(true);
    if changes_a_transaction(api_key) {
        context.unanswered.fetch_add(1, Ordering::AcqRel);
    }
    if api_key == ApiKey::InitProducerId as i16 {
        context.initialisations.fetch_add(1, Ordering::AcqRel);
    }
    sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Also called, with an error, for a request that was given up; and for most answers a second time, by the thread that handles them, which
/// never sends anything.
unsafe extern "C" fn on_response_received(
    _: *mut sys::rd_kafka_t,
    _: c_int,
    _: *const c_char,
    _: i32,
    api_key: i16,
    _: i16,
    _: i32,
    _: usize,
    _: i64,
    error: sys::rd_kafka_resp_err_t,
    opaque: *mut c_void,
) -> sys::rd_kafka_resp_err_t {
    // SAFETY: the opaque pointer was set together with this callback.
    let context = unsafe { context(opaque) };
    let is_answered = error == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    if SENDS.get() && is_answered && changes_a_transaction(api_key) {
        context.unanswered.fetch_sub(1, Ordering::AcqRel);
    }
    sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
}

fn changes_a_transaction(api_key: i16) -> bool {
    [ApiKey::AddPartitionsToTxn, ApiKey::AddOffsetsToTxn, ApiKey::TxnOffsetCommit, ApiKey::EndTxn]
        .into_iter()
        .any(|key| key as i16 == api_key)
}

thread_local! {
    /// This thread sends requests: it is that of a connection.
    static SENDS: Cell<bool> = const { Cell::new(false) };
}

pub(super) unsafe extern "C" fn on_delivery(
    _: *mut sys::rd_kafka_t,
    message: *const sys::rd_kafka_message_t,
    opaque: *mut c_void,
) {
    // SAFETY: librdkafka hands over a valid message for the time of the call.
    let message = unsafe { &*message };
    if message.err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return;
    }
    // SAFETY: the opaque pointer was set together with this callback; the topic handle lives as long as the message.
    let (context, topic) = unsafe { (context(opaque), text_of(sys::rd_kafka_topic_name(message.rkt))) };
    let failure = DeliveryFailure { code: message.err.into(), topic, partition: message.partition };
    lock(&context.failure).get_or_insert(failure);
}

/// Takes a note only. librdkafka waits for `rd_kafka_assign`, which the consumer calls when the transaction is finished.
pub(super) unsafe extern "C" fn on_rebalance(
    rk: *mut sys::rd_kafka_t,
    code: sys::rd_kafka_resp_err_t,
    partitions: *mut sys::rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    // SAFETY: the opaque pointer was set together with this callback.
    let context = unsafe { context(opaque) };
    if context.is_closing.load(Ordering::Acquire) {
        // SAFETY: `rk` is the instance that calls, and the list is valid for the time of the call.
        unsafe { answer_at_the_end(rk, code, partitions) };
        return;
    }
    // SAFETY: the list is valid for the time of the call.
    let list = unsafe { PartitionList::read(partitions) };
    let partitions = list.into_iter().map(|(topic, partition, ..)| (topic, partition)).collect();
    let change = match code {
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => GroupChange::Assigned(partitions),
        // SAFETY: `rk` is the instance that calls.
        _ if unsafe { sys::rd_kafka_assignment_lost(rk) } == 1 => GroupChange::Lost(partitions),
        _ => GroupChange::Revoked(partitions),
    };
    lock(&context.changes).push_back(change);
}

/// Answers for a consumer that is being closed, and does not read any more.
///
/// # Safety
/// The instance and the list are valid.
pub(crate) unsafe fn answer_at_the_end(
    rk: *mut sys::rd_kafka_t,
    code: sys::rd_kafka_resp_err_t,
    partitions: *const sys::rd_kafka_topic_partition_list_t,
) {
    // SAFETY: see above; null means "nothing", and the errors are owned and destroyed.
    unsafe {
        let protocol = text_of(sys::rd_kafka_rebalance_protocol(rk));
        let error = match code {
            _ if protocol != INCREMENTAL => {
                sys::rd_kafka_assign(rk, std::ptr::null());
                return;
            }
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                sys::rd_kafka_incremental_assign(rk, partitions)
            }
            _ => sys::rd_kafka_incremental_unassign(rk, partitions),
        };
        if !error.is_null() {
            sys::rd_kafka_error_destroy(error);
        }
    }
}

/// The code of a number that librdkafka handed over as `int`.
fn code_of(number: c_int) -> Code {
    use sys::rd_kafka_resp_err_t as raw;
    // Those that the error callback is documented to get; a number outside of the enum must not become one.
    [
        raw::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
        raw::RD_KAFKA_RESP_ERR__TRANSPORT,
        raw::RD_KAFKA_RESP_ERR__RESOLVE,
        raw::RD_KAFKA_RESP_ERR__AUTHENTICATION,
        raw::RD_KAFKA_RESP_ERR__SSL,
        raw::RD_KAFKA_RESP_ERR__FATAL,
        raw::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE,
        raw::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        raw::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
        raw::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
        raw::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        raw::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
    ]
    .into_iter()
    .find(|code| *code as c_int == number)
    .map_or(Code::Unknown, Code::from)
}
