//! A slot: one thread that reads, processes, writes and commits.
//!
//! ```text
//!             ┌────────────── poll ──────────────┐
//!  consumer ──┤ records        group changes     │
//!             ▼                      │           │
//!         pipeline                   │       tick, drain
//!             │ outputs held         ▼           ▼
//!             └──────────▶  transactional::Machine  ──▶ effects ──▶ producer, consumer
//!                                    ▲                      │
//!                                    └────── what came of it ┘
//! ```
//!
//! What to do is decided by the protocol machine alone. This module does it, one effect after the other, and tells what came of it.
//! The thread blocks in the clients' calls, each of which has a deadline; whoever watches the slot sees in [`SlotStats`] when it
//! last turned.
//!
//! No error of the world ends a slot: it is reported, and tried again with growing pauses until its cause is gone. What ends a slot
//! is in [`SlotExit`].

mod backoff;
mod brokers;
mod clock;
mod config;
mod driver;
pub(crate) mod fault;
mod fencing;
mod input;
mod limits;
mod observe;
mod pacing;
mod shutdown;
mod stats;

use std::sync::Arc;

use fencepost_crds::contract::ExitCode;
use fencepost_pipeline::Pipeline;

pub use clock::{Clock, SystemClock};
pub use config::{SlotConfig, SlotSource};
pub use observe::{Observation, Observer, Outcome, RebalanceKind, Unobserved};
pub use shutdown::Shutdown;
pub use stats::SlotStats;

/// Why a slot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotExit {
    /// It was asked to, and everything processed is committed.
    Drained,
    /// It was asked to, and could not commit in time. What was not committed will be read again.
    DrainTimeout,
    /// A newer producer or group member has its name.
    Fenced(String),
    /// A record cannot be processed and its source says `onBadRecord: Fail`. Everything before it is committed.
    BadRecord {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// Offset.
        offset: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// A bug.
    Failed(String),
}

impl SlotExit {
    /// The exit code of a worker that ends for this reason.
    #[must_use]
    pub const fn code(&self) -> ExitCode {
        match self {
            Self::Drained => ExitCode::Ok,
            Self::DrainTimeout => ExitCode::DrainTimeout,
            Self::Fenced(_) => ExitCode::Fenced,
            Self::BadRecord { .. } => ExitCode::BadRecord,
            Self::Failed(_) => ExitCode::Failure,
        }
    }
}

impl std::fmt::Display for SlotExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drained => f.write_str("finished; everything processed is committed"),
            Self::DrainTimeout => {
                f.write_str("asked to finish, but could not commit in time; what was not committed will be read again")
            }
            Self::Fenced(message) | Self::Failed(message) => f.write_str(message),
            Self::BadRecord { topic, partition, offset, reason } => {
                write!(
                    f,
                    "the record at offset {offset} of {topic}/{partition} cannot be processed: {reason}. To go on, correct the SQL, or \
                     set onBadRecord of its source to Skip or DeadLetter"
                )
            }
        }
    }
}

/// Runs a slot until it ends. Blocks: give it a thread of its own.
#[must_use]
pub fn run_slot(
    config: &SlotConfig,
    pipeline: Pipeline,
    shutdown: &Shutdown,
    stats: &SlotStats,
    observer: &dyn Observer,
    clock: &Arc<dyn Clock>,
) -> SlotExit {
    driver::Driver::new(config, pipeline, shutdown, stats, observer, clock.as_ref()).run()
}
