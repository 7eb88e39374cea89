//! The raw protocol client: what librdkafka does not offer.
//!
//! ```text
//!   calls/         one method of Cluster per request, typed results          what it means
//!   cluster/       brokers, coordinators, leaders; attempts and pauses       where it goes, how often
//!   connection/    one socket: pipelined requests, greeting, TLS and SASL    how it gets there
//!   frame, api     bytes and versions                                        how it is written
//! ```
//!
//! Nothing of the protocol library shows outside this module.

mod api;
mod calls;
mod cluster;
mod connection;
mod error;
mod frame;
mod sasl;
mod tls;
mod types;

pub use calls::{Pending, PerId};
pub use cluster::{ClientOptions, Cluster};
pub use error::{CloseReason, LooksLike, RpcError, Sent};
pub use types::{
    ActiveProducer, BrokerId, BrokerLimit, BrokerLimits, CommitAnswer, Isolation, Metadata, NewTopic,
    NoCoordinatorKnowsThisProducer, OffsetSpec, PartitionMetadata, ProducerIdentity, TopicCreation, TopicMetadata,
    TopicPartition, TopicRefused, TransactionDescription, TransactionFilter, TransactionListing, TransactionState,
};
