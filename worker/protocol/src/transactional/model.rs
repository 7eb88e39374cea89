//! A model of what surrounds the machine: brokers with transactions, a consumer group with static members and the eager
//! protocol, workers that crash, are kicked out, or live on as zombies, and a network that loses and delays answers.
//!
//! The machine under test is the real one. The model knows the truth, and checks after every step that no record's output is
//! committed twice, that nobody commits positions of partitions they do not own, and that nobody gives up without a reason. After
//! the faults stop, everything must have been processed exactly once and no transaction may be left open.

mod broker;
mod worker;
mod world;

pub(super) use world::{Action, FAULTS, World};
