//! The operator: everything that talks to something. What to do is decided by [`fencepost_plan`].
//!
//! A reconciliation is one pass of observe → decide → journal → act: [`observe`] reads the API server, the brokers
//! and the workers, [`fencepost_plan::decide()`] decides, the status is written, [`act`] does what was decided.

pub mod act;
pub mod broker;
pub mod cli;
pub mod controller;
pub mod error;
pub mod events;
pub mod http;
pub mod jobs;
pub mod leader;
pub mod memory;
pub mod metrics;
pub mod observe;
pub mod plan_pod;
pub mod plugin;
pub mod rbac;
pub mod run;
pub mod served;
pub mod status;
#[cfg(test)]
mod testing;
pub mod worker;
