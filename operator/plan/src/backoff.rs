//! Exponential backoff as a function of the number of attempts, so that it can be computed from what was observed.

use std::time::Duration;

/// First and longest pause of a series that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first attempt.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
}

/// Between checks of brokers that failed.
pub const BROKER: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };
/// Between plan pods of a revision whose plan pod failed.
pub const PLAN: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };
/// Between replacements of a crashing worker. The kubelet alone would reach five minutes.
pub const REPLACE: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// Between reconciliations that failed.
pub const RECONCILE: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_mins(2) };

impl Backoff {
    /// The pause after `attempts` attempts; none before the first.
    #[must_use]
    pub fn after(self, attempts: u32) -> Duration {
        let Some(doublings) = attempts.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds: Vec<u64> = (0..9).map(|n| REPLACE.after(n).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(REPLACE.after(u32::MAX), REPLACE.longest);
    }
}
