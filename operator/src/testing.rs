//! A cluster in memory, in virtual time, for the real controller: API server, StatefulSet controller, kubelet, garbage collector, workers, and
//! brokers that know who has which transactional id.

mod brokers;
mod cluster;
mod life;

use std::cell::OnceCell;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

pub(crate) use self::{
    brokers::Brokers,
    cluster::{BROKEN, Cluster, JOB, Kept, Measured, NAMESPACE},
    life::Life,
};

/// The moment at which virtual time begins.
const EPOCH_SECOND: i64 = 1_800_000_000;

/// The clock of a test with paused time.
pub(crate) fn now() -> Timestamp {
    thread_local! {
        static ORIGIN: OnceCell<Instant> = const { OnceCell::new() };
    }
    let elapsed = ORIGIN.with(|origin| Instant::now().saturating_duration_since(*origin.get_or_init(Instant::now)));
    Timestamp::from_second(EPOCH_SECOND).unwrap() + elapsed
}
