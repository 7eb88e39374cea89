//! Kafka for Fencepost.
//!
//! - [`producer`], [`consumer`]: librdkafka, for the data and its transactions.
//! - [`source`]: batches of byte slices, whoever fetches them.
//! - [`settings`]: how to reach a cluster, once, for both clients below.
//! - [`error`]: what an error means for the worker ([`error::ErrorClass`]) and for its user ([`error::Cause`]).
//! - [`rpc`]: the raw protocol client, for what librdkafka does not offer: fencing, finding and ending transactions,
//!   limits of every broker.

pub mod consumer;
mod errand;
pub mod error;
mod native;
pub mod producer;
pub mod rpc;
pub mod settings;
pub mod source;

pub use native::{ClientError, GroupChange, Notice};
