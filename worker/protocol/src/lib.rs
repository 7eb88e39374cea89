//! The protocols that give a job its guarantee, as pure state machines.
//!
//! A machine is told what happened ([`transactional::Event`]) and answers with what to do next ([`transactional::Effect`]).
//! It has no clock, does no I/O and knows no Kafka client: the crate's dependency list says so. The same machine is driven by
//! the worker against real brokers and by the tests against a model of brokers, groups, crashes and zombies.

mod ids;
pub mod transactional;

pub use ids::{Offset, Partition, Token};
