use std::time::Duration;

use fencepost_kafka::consumer::StaticMember;
use fencepost_kafka::rpc::{ClientOptions, Cluster};
use tokio::runtime::Builder;
use tracing::warn;

use super::SlotConfig;

/// The brokers may be the reason why we stop.
const WITHIN: Duration = Duration::from_secs(3);

/// Takes a member that has ended out of its group, so that nobody waits for its partitions until the session timeout.
pub(super) fn leave(config: &SlotConfig, member: StaticMember) {
    let slot = config.slot;
    let options = ClientOptions { call_timeout: WITHIN, ..ClientOptions::default() };
    let runtime = Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Ok(cluster)) = (runtime, Cluster::with_options(config.connection.clone(), options)) else {
        warn!(slot, "cannot leave the group: its partitions wait for the session timeout");
        return;
    };
    if let Err(error) = runtime.block_on(cluster.remove_members(&config.consumer_group, &[member])) {
        warn!(slot, error = error.report(), "cannot leave the group: its partitions wait for the session timeout");
    }
}
