//! Waiting for a condition, with a deadline. The only place of the harness that reads the clock or sleeps.

use std::time::{Duration, Instant};

/// A moment after which waiting is a failure.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    started: Instant,
    limit: Duration,
}

impl Deadline {
    /// The moment `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self { started: now(), limit }
    }

    /// How long this deadline has been running.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.started)
    }

    /// The time it gave in total.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether the time is over.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.elapsed() >= self.limit
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the harness: real processes start in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the harness sleeps here and nowhere else: between two looks")]
pub(crate) fn pause(step: Duration) {
    std::thread::sleep(step);
}

/// Asks `probe` again and again until it has an answer. Gives `None` when the deadline passed first.
///
/// # Errors
/// What `probe` answers: an error is final, `Ok(None)` means "not yet".
pub fn until<T, E>(deadline: Deadline, mut probe: impl FnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
    let mut step = Duration::from_millis(20);
    loop {
        if let Some(answer) = probe()? {
            return Ok(Some(answer));
        }
        if deadline.passed() {
            return Ok(None);
        }
        pause(step);
        step = (step * 3 / 2).min(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadline, until};
    use std::convert::Infallible;
    use std::time::Duration;

    #[test]
    fn an_answer_ends_the_wait() {
        let mut asked = 0;
        let answer: Result<_, Infallible> = until(Deadline::after(Duration::from_secs(5)), || {
            asked += 1;
            Ok((asked == 3).then_some("here"))
        });
        assert_eq!((answer, asked), (Ok(Some("here")), 3));
    }

    #[test]
    fn a_passed_deadline_still_asks_once() {
        let mut asked = 0;
        let answer: Result<Option<()>, Infallible> = until(Deadline::after(Duration::ZERO), || {
            asked += 1;
            Ok(None)
        });
        assert_eq!((answer, asked), (Ok(None), 1));
    }

    #[test]
    fn an_error_is_final() {
        let answer: Result<Option<()>, _> = until(Deadline::after(Duration::from_secs(5)), || Err("broken"));
        assert_eq!(answer, Err("broken"));
    }
}
