use std::time::Duration;

use fencepost_protocol::transactional::Mode;

/// Longest time in a poll: how late a drain, or a rebalance with nothing to do, may be noticed.
const IDLE: Duration = Duration::from_millis(100);
/// Shortest time from one commit to the next.
const SHORTEST: Duration = Duration::from_millis(5);
/// A commit is followed by a pause of so many times of what a commit takes: so commits before the interval is over take at most a third
/// of the time, however slow the brokers are.
const REST: u32 = 2;
/// Under little load the brokers need less rest: a transaction of fewer records is followed by a pause that is shorter in proportion, at
/// least a quarter, so that commits take at most two thirds of the time.
const SMALL: u32 = 60;
/// What a commit takes is told by about so many of them. One that takes long, for a hiccup of a broker, must not be followed by a long
/// pause as well: the records that came meanwhile have waited already.
const MEMORY: u32 = 8;

/// When to commit: every commit interval while there is more to read than can be read, and at once when there is nothing more.
///
/// ```text
/// commit ──── pause ────┬───────────── commit interval ─────────────┐
///                       └ from here on: as soon as the input is dry └ now in any case
/// ```
///
/// In the pause after an early commit little is read: see [`Pacing::rest`].
///
/// Under full load the input is never dry, so transactions are as long, and as few, as the interval says. With less load a record
/// waits for little more than the commit itself.
#[derive(Debug)]
pub(super) struct Pacing {
    interval: Duration,
    /// What a commit takes, on average.
    usual: Duration,
    /// From here on a commit may come early.
    early: Duration,
    /// A commit comes at the latest.
    due: Duration,
    /// Commits leave markers, which the brokers write after they have answered.
    has_markers: bool,
    /// The last commit came early, and since then there was never more to read than could be read.
    rests: bool,
}

impl Pacing {
    pub(super) fn new(interval: Duration, mode: Mode) -> Self {
        Self {
            // Without Kubernetes nothing else has looked at the number.
            interval: interval.max(SHORTEST),
            usual: Duration::ZERO,
            early: Duration::ZERO,
            due: Duration::ZERO,
            has_markers: mode == Mode::ExactlyOnce,
            rests: false,
        }
    }

    /// A commit of `records`, or an attempt, has ended after `took`.
    pub(super) fn ended(&mut self, now: Duration, took: Duration, records: u64) {
        // One that takes as long as an interval says no more than that.
        let counts = took.min(self.interval);
        self.usual = if self.usual.is_zero() { counts } else { (self.usual * (MEMORY - 1) + counts) / MEMORY };
        let share = u32::try_from(records).unwrap_or(u32::MAX).clamp(SMALL / 4, SMALL);
        let rest = took.min(self.usual) * REST * share / SMALL;
        self.early = now + rest.max(SHORTEST).min(self.interval);
        self.due = now + self.interval;
    }

    /// How long to leave the brokers alone before the next poll. After a commit they write the markers of the transaction, and until that
    /// is done they refuse partitions for the next one, which librdkafka then asks for again after 20 ms. What comes meanwhile is read in
    /// one go; when that is more than a poll takes, the rest is over.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        if self.rests { self.until_early(now).min(IDLE) } else { Duration::ZERO }
    }

    /// How long a poll may wait for a first record.
    pub(super) fn wait(&self, now: Duration, has_uncommitted: bool) -> Duration {
        if has_uncommitted { self.until_early(now).min(IDLE) } else { IDLE }
    }

    /// How long a poll may gather more after a first record.
    pub(super) fn until_early(&self, now: Duration) -> Duration {
        self.early.min(self.due).saturating_sub(now)
    }

    /// Is it time to commit? Dry: the last poll left nothing behind.
    pub(super) fn is_due(&mut self, now: Duration, is_dry: bool) -> bool {
        let is_due = now >= self.due || (is_dry && now >= self.early);
        self.rests = self.has_markers && is_dry && (is_due || self.rests);
        if is_due {
            // When there was nothing to commit, nothing will say that it ended.
            self.due = now + self.interval;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = 1_000;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Commit times within a second, when every commit takes `took` and the input is dry as `is_dry` says.
    fn commits(took: u64, is_dry: bool) -> Vec<u64> {
        let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
        let (mut now, mut commits) = (0, Vec::new());
        while now < 1_000 {
            if pacing.is_due(ms(now), is_dry) {
                commits.push(now);
                now += took;
                pacing.ended(ms(now), ms(took), MANY);
            }
            now += 1;
        }
        commits
    }

    #[test]
    fn with_more_to_read_the_interval_holds() {
        assert_eq!(commits(1, false).len(), 10);
    }

    #[test]
    fn with_nothing_more_to_read_commits_come_early_but_not_without_a_pause() {
        assert!(commits(1, true).windows(2).all(|pair| (6..=7).contains(&(pair[1] - pair[0]))));
        assert!(commits(10, true).windows(2).all(|pair| (30..=31).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn there_is_a_rest_after_a_commit_that_came_early_and_never_under_load() {
        let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
        for (second, is_dry) in [(1, true), (2, false), (3, true)] {
            let now = ms(1_000 * second);
            assert!(pacing.is_due(now, is_dry));
            pacing.ended(now, ms(4), MANY);
            let rest = if is_dry { ms(8) } else { ms(0) };
            assert_eq!((pacing.rest(now), pacing.rest(now + ms(8))), (rest, ms(0)));
        }
        // The group waits for nobody.
        let mut slow = Pacing::new(ms(10_000), Mode::ExactlyOnce);
        assert!(slow.is_due(ms(20_000), true));
        slow.ended(ms(20_000), ms(3_000), MANY);
        assert_eq!(slow.rest(ms(20_000)), IDLE);
        // Little to read changes nothing.
        assert!(!slow.is_due(ms(20_100), true));
        assert_eq!(slow.rest(ms(20_100)), IDLE);
    }

    #[test]
    fn a_burst_ends_the_rest() {
        let mut pacing = Pacing::new(ms(10_000), Mode::ExactlyOnce);
        assert!(pacing.is_due(ms(20_000), true));
        pacing.ended(ms(22_000), ms(2_000), MANY);
        assert!(!pacing.is_due(ms(22_100), false));
        assert_eq!(pacing.rest(ms(22_100)), Duration::ZERO);
        // A last poll that is not full, before the pause is over, does not bring it back.
        assert!(!pacing.is_due(ms(22_200), true));
        assert_eq!(pacing.rest(ms(22_200)), Duration::ZERO);
    }

    #[test]
    fn without_transactions_there_are_no_markers_to_rest_for() {
        let mut pacing = Pacing::new(ms(100), Mode::AtLeastOnce);
        assert!(pacing.is_due(ms(1_000), true));
        pacing.ended(ms(1_000), ms(4), MANY);
        assert_eq!(pacing.rest(ms(1_000)), Duration::ZERO);
    }

    #[test]
    fn a_slow_commit_now_and_then_is_not_followed_by_a_long_pause() {
        let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
        let mut now = Duration::ZERO;
        for took in [2, 2, 2, 2, 2, 2, 2, 60] {
            now += ms(took);
            pacing.ended(now, ms(took), MANY);
        }
        assert!(pacing.until_early(now) < ms(20), "{:?}", pacing.until_early(now));
        // A fast one is followed by its own short pause.
        pacing.ended(now, ms(2), MANY);
        assert_eq!(pacing.until_early(now), SHORTEST);
    }

    #[test]
    fn brokers_that_stay_slow_get_their_rest() {
        let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
        pacing.ended(ms(0), ms(2), MANY);
        for _ in 0..40 {
            pacing.ended(ms(0), ms(30), MANY);
        }
        assert!((ms(58)..=ms(60)).contains(&pacing.until_early(ms(0))), "{:?}", pacing.until_early(ms(0)));
    }

    #[test]
    fn a_few_records_are_followed_by_a_short_pause() {
        let pause = |records| {
            let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
            pacing.ended(ms(0), ms(20), records);
            pacing.until_early(ms(0))
        };
        assert_eq!([0, 1, 15, 30, 60, MANY, u64::MAX].map(pause), [10, 10, 10, 20, 40, 40, 40].map(ms));
    }

    #[test]
    fn slow_commits_do_not_stretch_the_interval() {
        assert!(commits(200, true).windows(2).all(|pair| (300..=301).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn a_poll_does_not_outlast_the_moment_of_an_early_commit() {
        let mut pacing = Pacing::new(ms(100), Mode::ExactlyOnce);
        pacing.ended(ms(50), ms(4), MANY);
        assert_eq!((pacing.wait(ms(50), true), pacing.until_early(ms(50))), (ms(8), ms(8)));
        assert_eq!((pacing.wait(ms(60), true), pacing.until_early(ms(60))), (ms(0), ms(0)));
        assert_eq!(pacing.wait(ms(60), false), IDLE);
    }
}
