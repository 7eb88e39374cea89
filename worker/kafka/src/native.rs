//! The handle of librdkafka that producer and consumer share.
//!
//! The safe binding (crate `rdkafka`) delivers one message and one event per call, and its `flush` and `commit_transaction`
//! wait in slices of 100 ms. Batches, prompt delivery reports and rebalances that the caller answers in its own time need the
//! C functions themselves. All of them are called in this module, [`producer`](crate::producer) and
//! [`consumer`](crate::consumer); nothing raw leaves these.

mod context;
mod error;
mod list;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use rdkafka::bindings as sys;

pub(crate) use context::{Context, answer_at_the_end};
pub use context::{GroupChange, Notice};
pub use error::ClientError;
pub(crate) use error::{check, check_error};
pub(crate) use list::PartitionList;

/// Producer or consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Producer,
    Consumer,
}

/// A librdkafka instance with the callbacks of [`Context`].
#[derive(Debug)]
pub(crate) struct Native {
    rk: NonNull<sys::rd_kafka_t>,
    /// Where the callbacks put what they hear. Boxed: librdkafka keeps its address.
    context: Box<Context>,
}

// SAFETY: librdkafka instances are thread safe (INTRODUCTION.md, "Threads and callbacks"); `Context` is `Sync`.
unsafe impl Send for Native {}
// SAFETY: as above.
unsafe impl Sync for Native {}

impl Native {
    pub(crate) fn new(kind: Kind, properties: &[(&str, String)]) -> Result<Self, ClientError> {
        let context = Box::new(Context::default());
        let conf = Conf::new(properties)?;
        let mut text = [0 as c_char; 512];
        let opaque = std::ptr::from_ref::<Context>(&context).cast_mut().cast::<c_void>();
        // SAFETY: the configuration is valid; callbacks have the signatures that librdkafka documents; the opaque pointer is
        // the boxed context, which outlives the instance because `Drop` destroys the instance first.
        let rk = unsafe {
            sys::rd_kafka_conf_set_opaque(conf.0.as_ptr(), opaque);
            sys::rd_kafka_conf_set_log_cb(conf.0.as_ptr(), Some(context::on_log));
            sys::rd_kafka_conf_set_error_cb(conf.0.as_ptr(), Some(context::on_error));
            let rk_type = match kind {
                Kind::Producer => {
                    sys::rd_kafka_conf_set_dr_msg_cb(conf.0.as_ptr(), Some(context::on_delivery));
                    let name = context::INTERCEPTOR.as_ptr();
                    sys::rd_kafka_conf_interceptor_add_on_new(conf.0.as_ptr(), name, Some(context::on_new), opaque);
                    sys::rd_kafka_type_t::RD_KAFKA_PRODUCER
                }
                Kind::Consumer => {
                    sys::rd_kafka_conf_set_rebalance_cb(conf.0.as_ptr(), Some(context::on_rebalance));
                    sys::rd_kafka_type_t::RD_KAFKA_CONSUMER
                }
            };
            sys::rd_kafka_new(rk_type, conf.0.as_ptr(), text.as_mut_ptr(), text.len())
        };
        let Some(rk) = NonNull::new(rk) else {
            return Err(ClientError::Create { message: text_of(text.as_ptr()) });
        };
        let _owned_by_the_instance = std::mem::ManuallyDrop::new(conf);
        let native = Self { rk, context };
        if kind == Kind::Producer && !native.context.is_listening() {
            return Err(ClientError::Create { message: "its requests cannot be counted".to_owned() });
        }
        Ok(native)
    }

    pub(crate) fn ptr(&self) -> *mut sys::rd_kafka_t {
        self.rk.as_ptr()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The reason why the instance cannot be used any more, if that is so.
    pub(crate) fn fatal(&self) -> Option<ClientError> {
        let mut text = [0 as c_char; 512];
        // SAFETY: the buffer and its length belong together.
        let code = unsafe { sys::rd_kafka_fatal_error(self.ptr(), text.as_mut_ptr(), text.len()) };
        check("use the client", code).err().map(|error| error.fatal(text_of(text.as_ptr())))
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: nobody else has the pointer any more. Without the flag a consumer would block here until the group has
        // answered; who wants an orderly end has called `close` before.
        unsafe { sys::rd_kafka_destroy_flags(self.ptr(), sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE) }
    }
}

/// A configuration that no instance owns yet.
struct Conf(NonNull<sys::rd_kafka_conf_t>);

impl Conf {
    fn new(properties: &[(&str, String)]) -> Result<Self, ClientError> {
        // SAFETY: no preconditions.
        let conf = NonNull::new(unsafe { sys::rd_kafka_conf_new() })
            .ok_or_else(|| ClientError::Create { message: "out of memory".to_owned() })?;
        let conf = Self(conf);
        for (name, value) in properties {
            conf.set(name, value)?;
        }
        Ok(conf)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), ClientError> {
        let mut text = [0 as c_char; 512];
        let (c_name, c_value) = (c_string(name)?, c_string(value)?);
        // SAFETY: all strings are terminated, the buffer and its length belong together.
        let result = unsafe {
            sys::rd_kafka_conf_set(self.0.as_ptr(), c_name.as_ptr(), c_value.as_ptr(), text.as_mut_ptr(), text.len())
        };
        match result {
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            // The text may repeat the value, which may be a password or a key.
            _ if name.contains("password") || name.contains("pem") => {
                Err(ClientError::Property { name: name.to_owned(), message: "not accepted".to_owned() })
            }
            _ => Err(ClientError::Property { name: name.to_owned(), message: text_of(text.as_ptr()) }),
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: it is only dropped while no instance owns it.
        unsafe { sys::rd_kafka_conf_destroy(self.0.as_ptr()) }
    }
}

pub(crate) fn c_string(text: &str) -> Result<CString, ClientError> {
    CString::new(text).map_err(|_| ClientError::Name { text: text.replace('\0', "\\0") })
}

/// A text that librdkafka owns.
pub(crate) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: librdkafka's texts are terminated and live as long as the call that handed them out.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

/// Milliseconds for librdkafka. At least 1: 0 means "do not wait" and -1 "for ever".
pub(crate) fn millis(wait: Duration) -> c_int {
    c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX).max(1)
}
