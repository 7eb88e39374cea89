//! Records in librdkafka's own shape.

use std::ffi::c_void;
use std::ptr::NonNull;

use rdkafka::bindings as sys;

use super::Records;
use crate::native::{ClientError, check};

/// A message that points into the records.
pub(super) fn message(records: &impl Records, row: usize, partition: i32) -> sys::rd_kafka_message_t {
    let bytes = |part: Option<&[u8]>| {
        part.map_or((std::ptr::null_mut(), 0), |part| (part.as_ptr().cast_mut().cast::<c_void>(), part.len()))
    };
    let (payload, len) = bytes(records.value(row));
    let (key, key_len) = bytes(records.key(row));
    sys::rd_kafka_message_t {
        err: sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: std::ptr::null_mut(),
        partition,
        payload,
        len,
        key,
        key_len,
        offset: 0,
        _private: std::ptr::null_mut(),
    }
}

/// Headers that no message owns yet.
pub(super) struct Headers(NonNull<sys::rd_kafka_headers_t>);

impl Headers {
    pub(super) fn new<'h>(headers: impl Iterator<Item = (&'h str, Option<&'h [u8]>)>) -> Result<Self, ClientError> {
        // SAFETY: no preconditions.
        let list = NonNull::new(unsafe { sys::rd_kafka_headers_new(4) })
            .ok_or_else(|| ClientError::Create { message: "out of memory".to_owned() })?;
        let list = Self(list);
        for (name, value) in headers {
            let bytes = value.map_or(std::ptr::null(), |value| value.as_ptr().cast::<c_void>());
            let len = |len: usize| isize::try_from(len).unwrap_or(isize::MAX);
            // SAFETY: pointers and lengths belong together; librdkafka copies both.
            let code = unsafe {
                sys::rd_kafka_header_add(
                    list.0.as_ptr(),
                    name.as_ptr().cast(),
                    len(name.len()),
                    bytes,
                    len(value.map_or(0, <[u8]>::len)),
                )
            };
            check("add a header", code)?;
        }
        Ok(list)
    }
}

impl Headers {
    pub(super) fn as_ptr(&self) -> *mut sys::rd_kafka_headers_t {
        self.0.as_ptr()
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: it is only dropped while no message owns it.
        unsafe { sys::rd_kafka_headers_destroy(self.0.as_ptr()) }
    }
}
