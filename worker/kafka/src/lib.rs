//! Kafka for Fencepost.
//!
//! - [`producer`], [`consumer`]: librdkafka, for the data and its transactions.
//! - [`settings`]: how to reach a cluster, once, for both clients below.
//! - [`error`]: what an error means for the worker ([`error::ErrorClass`]) and for its user ([`error::Cause`]).
//! - [`rpc`]: the raw protocol client, for what librdkafka does not offer: fencing, finding and ending transactions,
//!   limits of every broker.

pub mod consumer;
pub mod error;
mod native;
pub mod producer;
pub mod rpc;
pub mod settings;

pub use native::{ClientError, GroupChange, Notice};
