use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a slot takes the time from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Time since some moment before the start; never goes back.
    fn now(&self) -> Duration;
    /// Wall-clock time in Unix milliseconds, for people and for `now()` in SQL.
    fn unix_ms(&self) -> i64;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where slots get their time from")]
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place where slots get their time from")]
    fn unix_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
