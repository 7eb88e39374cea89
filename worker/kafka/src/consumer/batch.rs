use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

use fencepost_protocol::{Offset, Partition};
use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::native::text_of;
use crate::source::{Record, RecordBatch};

/// Something that came in the place of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Number of the topic, where it is about one.
    pub topic: Option<u16>,
    /// Partition, where it is about one.
    pub partition: Option<Partition>,
    /// librdkafka's code.
    pub code: Code,
    /// librdkafka's text.
    pub message: String,
}

/// Records as librdkafka fetched them. Owns them; they are freed with it, which must be before their consumer ends: its destruction
/// waits for them.
#[derive(Debug)]
pub struct Batch<'c> {
    /// Topic numbers and messages, in the order of arrival. Never null.
    records: Vec<(u16, NonNull<sys::rd_kafka_message_t>)>,
    ends: Vec<(Partition, Offset)>,
    troubles: Vec<Trouble>,
    consumer: PhantomData<&'c ()>,
}

// SAFETY: messages may be read and freed on any thread.
unsafe impl Send for Batch<'_> {}

impl Batch<'_> {
    pub(super) fn new(
        messages: Vec<*mut sys::rd_kafka_message_t>,
        topics: &[String],
        handles: &mut HashMap<usize, u16>,
    ) -> Self {
        let mut batch = Self {
            records: Vec::with_capacity(messages.len()),
            ends: Vec::new(),
            troubles: Vec::new(),
            consumer: PhantomData,
        };
        // Records come in runs of one topic.
        let mut last = None;
        for message in messages.into_iter().filter_map(NonNull::new) {
            // SAFETY: the message is owned and has not been freed.
            let raw = unsafe { message.as_ref() };
            let same = last.and_then(|(handle, topic)| (handle == raw.rkt).then_some(topic));
            let known = same.or_else(|| handles.get(&raw.rkt.addr()).copied());
            let topic = known.or_else(|| topic_number(raw.rkt, topics));
            match (raw.err, topic) {
                (sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR, Some(topic)) => {
                    // Only of records: the handle that an error comes with may be gone with it, and its address another topic's.
                    if known.is_none() {
                        handles.insert(raw.rkt.addr(), topic);
                    }
                    last = Some((raw.rkt, topic));
                    batch.records.push((topic, message));
                }
                (err, topic) => {
                    let partition =
                        topic.filter(|_| raw.partition >= 0).map(|topic| Partition::new(topic, raw.partition));
                    match (err, partition) {
                        (sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF, Some(partition)) => {
                            batch.ends.push((partition, Offset(raw.offset)));
                        }
                        _ => batch.troubles.push(Trouble {
                            topic,
                            partition,
                            code: err.into(),
                            // SAFETY: the message is valid, the text lives as long.
                            message: text_of(unsafe { sys::rd_kafka_message_errstr(message.as_ptr()) }),
                        }),
                    }
                    // SAFETY: owned, and not used after this.
                    unsafe { sys::rd_kafka_message_destroy(message.as_ptr()) };
                }
            }
        }
        batch
    }
}

impl RecordBatch for Batch<'_> {
    type Record<'b>
        = Message<'b>
    where
        Self: 'b;

    fn len(&self) -> usize {
        self.records.len()
    }

    fn records(&self) -> impl Iterator<Item = Message<'_>> {
        // SAFETY: the messages live as long as the batch.
        self.records.iter().map(|(topic, message)| Message { topic: *topic, raw: unsafe { message.as_ref() } })
    }

    fn ends(&self) -> &[(Partition, Offset)] {
        &self.ends
    }

    fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for (_, message) in &self.records {
            // SAFETY: owned; nothing borrowed from the batch is left.
            unsafe { sys::rd_kafka_message_destroy(message.as_ptr()) };
        }
    }
}

fn topic_number(topic: *mut sys::rd_kafka_topic_t, topics: &[String]) -> Option<u16> {
    if topic.is_null() {
        return None;
    }
    // SAFETY: the handle lives as long as the message it came with.
    let name = text_of(unsafe { sys::rd_kafka_topic_name(topic) });
    u16::try_from(topics.iter().position(|topic| *topic == name)?).ok()
}

/// A record in a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Message<'b> {
    topic: u16,
    raw: &'b sys::rd_kafka_message_t,
}

impl<'b> Record<'b> for Message<'b> {
    fn partition(self) -> Partition {
        Partition::new(self.topic, self.raw.partition)
    }

    fn offset(self) -> Offset {
        Offset(self.raw.offset)
    }

    fn key(self) -> Option<&'b [u8]> {
        bytes(self.raw.key, self.raw.key_len)
    }

    fn value(self) -> Option<&'b [u8]> {
        bytes(self.raw.payload, self.raw.len)
    }

    fn timestamp_ms(self) -> i64 {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is valid.
        unsafe { sys::rd_kafka_message_timestamp(self.raw, &raw mut kind) }
    }

    fn headers(self) -> Vec<(&'b str, Option<&'b [u8]>)> {
        let mut list = std::ptr::null_mut();
        let mut headers = Vec::new();
        // SAFETY: the message is valid, and the list belongs to it.
        if unsafe { sys::rd_kafka_message_headers(self.raw, &raw mut list) }
            != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return headers;
        }
        let (mut name, mut value, mut len): (*const c_char, *const c_void, usize) =
            (std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: as above; the call fills all three as long as it says "no error".
        while unsafe { sys::rd_kafka_header_get_all(list, headers.len(), &raw mut name, &raw mut value, &raw mut len) }
            == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            // SAFETY: names are terminated and live as long as the message.
            let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("\u{fffd}");
            headers.push((name, bytes(value, len)));
        }
        headers
    }
}

fn bytes<'b>(start: *const c_void, len: usize) -> Option<&'b [u8]> {
    // SAFETY: librdkafka's pointers and lengths belong together, and live as long as the message.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) })
}
