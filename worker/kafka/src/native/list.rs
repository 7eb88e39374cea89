use std::ffi::c_int;
use std::ptr::NonNull;

use rdkafka::bindings as sys;

use super::{ClientError, c_string, text_of};

/// A list of partitions with offsets, owned.
#[derive(Debug)]
pub(crate) struct PartitionList(NonNull<sys::rd_kafka_topic_partition_list_t>);

// SAFETY: the list is owned, and nothing in it belongs to a thread.
unsafe impl Send for PartitionList {}

impl PartitionList {
    pub(crate) fn new<'t>(partitions: impl ExactSizeIterator<Item = (&'t str, i32, i64)>) -> Result<Self, ClientError> {
        let size = c_int::try_from(partitions.len()).unwrap_or(c_int::MAX);
        // SAFETY: no preconditions.
        let list = NonNull::new(unsafe { sys::rd_kafka_topic_partition_list_new(size) })
            .ok_or_else(|| ClientError::Create { message: "out of memory".to_owned() })?;
        let list = Self(list);
        for (topic, partition, offset) in partitions {
            let topic = c_string(topic)?;
            // SAFETY: the list is valid and the name terminated; librdkafka copies it and returns the new element.
            unsafe {
                let element = sys::rd_kafka_topic_partition_list_add(list.ptr(), topic.as_ptr(), partition);
                (*element).offset = offset;
            }
        }
        Ok(list)
    }

    pub(crate) fn ptr(&self) -> *mut sys::rd_kafka_topic_partition_list_t {
        self.0.as_ptr()
    }

    /// Topic, partition, offset and error of each element.
    pub(crate) fn elements(&self) -> Vec<(String, i32, i64, sys::rd_kafka_resp_err_t)> {
        // SAFETY: the list is valid.
        unsafe { Self::read(self.ptr()) }
    }

    /// # Safety
    /// The list is null or valid.
    pub(super) unsafe fn read(
        list: *const sys::rd_kafka_topic_partition_list_t,
    ) -> Vec<(String, i32, i64, sys::rd_kafka_resp_err_t)> {
        // SAFETY: see above; `elems` points to `cnt` elements.
        let elements = unsafe {
            let Some(list) = list.as_ref() else { return Vec::new() };
            let count = usize::try_from(list.cnt).unwrap_or(0);
            if count == 0 { &[] } else { std::slice::from_raw_parts(list.elems, count) }
        };
        elements.iter().map(|e| (text_of(e.topic), e.partition, e.offset, e.err)).collect()
    }
}

impl Drop for PartitionList {
    fn drop(&mut self) {
        // SAFETY: the list is owned.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.ptr()) }
    }
}
