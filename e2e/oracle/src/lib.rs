//! The judge of every end-to-end test: what a Kafka reader with `isolation.level=read_committed` finds in the output of a
//! job, compared with what the job's committed input says must be there.
//!
//! Every input record carries an identity ([`RecordId`]): stream, source partition, and a sequence that rises within the
//! partition. A [`Model`] says what each input record must lead to. The [`Judge`] is pure: it is fed records and compares
//! multisets. [`Trial`] feeds it from real topics, to their last stable offsets.
//!
//! What counts is the input *topic*, not what a producer believes it has written. An input record of an aborted
//! transaction must lead to nothing.

pub mod content;
pub mod judge;
pub mod model;
pub mod reader;
pub mod record;
pub mod trial;
pub mod verdict;

pub use self::{
    content::{Body, Content},
    judge::{End, Judge, Promise},
    model::{Expected, Model, Recognised},
    reader::Connection,
    record::{Record, RecordId},
    trial::Trial,
    verdict::{Fault, Finding, Verdict},
};
