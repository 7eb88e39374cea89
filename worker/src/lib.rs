//! The Fencepost worker: reads Kafka topics in columnar batches, runs the SQL of a StreamJob over them, and commits output and
//! positions together.
//!
//! The binary is a thin shell over [`cli::main`].

pub mod cli;
mod describe;
mod http;
mod job;
mod metrics;
mod run;
pub mod slot;
