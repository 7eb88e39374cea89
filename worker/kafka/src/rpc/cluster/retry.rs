use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use crate::error::BrokerCode;
use crate::rpc::error::RpcError;

use super::ClientOptions;

/// The attempts of one call: bounded in number and in time, with growing, jittered pauses.
pub(in crate::rpc) struct Retry {
    deadline: Instant,
    request_timeout: Duration,
    pauses: ExponentialBackoff,
    unknown_topic: u32,
}

/// How often a topic that does not exist is looked for again. A new one is known everywhere after some milliseconds; one
/// that is still unknown half a second later is missing, and its user wants to hear so.
const UNKNOWN_TOPIC_ATTEMPTS: u32 = 5;

impl Retry {
    pub(super) fn new(options: &ClientOptions) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(20))
            .with_factor(2.0)
            .with_max_delay(Duration::from_secs(1))
            .with_max_times(14)
            .with_jitter()
            .build();
        Self {
            deadline: Instant::now() + options.call_timeout,
            request_timeout: options.request_timeout,
            pauses,
            unknown_topic: 0,
        }
    }

    /// When the attempt that begins now has to be over.
    pub(in crate::rpc) fn attempt(&self) -> Instant {
        self.deadline.min(Instant::now() + self.request_timeout)
    }

    /// The time of the call is used up.
    pub(in crate::rpc) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Waits for the next attempt, or gives the error back: it does not pass, or attempts or time are used up.
    pub(in crate::rpc) async fn pause(&mut self, error: RpcError) -> Result<(), RpcError> {
        if !error.passes() {
            return Err(error);
        }
        if error.code() == Some(BrokerCode::UNKNOWN_TOPIC_OR_PARTITION) {
            self.unknown_topic += 1;
            if self.unknown_topic > UNKNOWN_TOPIC_ATTEMPTS {
                return Err(error);
            }
        }
        match self.pauses.next() {
            Some(pause) if Instant::now() + pause < self.deadline => {
                tracing::debug!(error = %crate::error::chain(&error), pause_ms = pause.as_millis(), "trying again");
                tokio::time::sleep(pause).await;
                Ok(())
            }
            _ => Err(error),
        }
    }
}
