use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// Pauses that grow with each failure in a row, and differ between slots so that they do not all come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    random: RandomState,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { random: RandomState::new() }
    }

    /// The pause before attempt `attempt + 1`: 75 % to 125 % of 50 ms, 100 ms, 200 ms, … 10 s.
    pub(super) fn pause(&self, attempt: u32, salt: u64) -> Duration {
        let exponent = attempt.saturating_sub(1).min(16);
        let base = FIRST.saturating_mul(1 << exponent).min(LONGEST);
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(salt);
        let percent = 75 + u32::try_from(hasher.finish() % 51).unwrap_or(0);
        base.saturating_mul(percent) / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_differ() {
        let backoff = Backoff::new();
        assert!((37..=63).contains(&backoff.pause(1, 0).as_millis()));
        assert!((75..=125).contains(&backoff.pause(2, 0).as_millis()));
        assert!(backoff.pause(u32::MAX, 1) <= LONGEST * 5 / 4);
        let distinct: std::collections::HashSet<_> = (0..64).map(|salt| backoff.pause(8, salt)).collect();
        assert!(distinct.len() > 8);
    }
}
