//! What a job must do, told record by record.

use std::sync::Arc;

use crate::{
    content::Content,
    record::{Record, RecordId},
};

/// The meaning of a stateless job. It knows the job only by its specification, never by asking the worker.
pub trait Model {
    /// The identity that the input record carries.
    fn identify(&self, input: &Record<'_>) -> Option<RecordId>;

    /// Everything that the job must write, once, because of this committed input record. Dead letters are outputs too.
    fn expect(&self, input: &Record<'_>) -> Vec<Expected>;

    /// The identity that the output record carries, and its content as [`Model::expect`] would say it. `None`: no job with
    /// this meaning writes such a record.
    fn recognise(&self, output: &Record<'_>) -> Option<Recognised>;
}

/// A record that must be in an output topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Output topic.
    pub topic: Arc<str>,
    /// Its content.
    pub content: Content,
}

/// What an output record turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The input record that it came from.
    pub id: RecordId,
    /// Its content.
    pub content: Content,
    /// Branch of the query. Order is promised within a branch: `UNION ALL` promises none between its inputs.
    pub lane: u8,
}
