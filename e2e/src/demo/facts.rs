//! What is known about the job right now, and how it is shown.

use std::collections::VecDeque;
use std::time::Duration;

use crate::report::grouped;

/// A worker pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Worker {
    /// Name of the pod.
    pub name: String,
    /// Whether it processes.
    pub ready: bool,
    /// `running`, `starting`, `ended`, ...
    pub state: String,
    /// How often its container was started again.
    pub restarts: i32,
}

/// What the operator and Kubernetes say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// One word.
    pub phase: String,
    /// Number of this start of the workers.
    pub epoch: Option<i64>,
    /// `ready/wanted`.
    pub workers: String,
    /// Its pods.
    pub pods: Vec<Worker>,
    /// The newest event.
    pub event: String,
}

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Records in the input topic.
    pub input: u64,
    /// Input records that the job has not committed yet; unknown before it has a position.
    pub lag: Option<u64>,
    /// Committed results.
    pub purchases: u64,
    /// Committed dead letters.
    pub letters: u64,
    /// The job.
    pub job: Job,
}

impl Facts {
    /// Committed output records.
    pub fn output(&self) -> u64 {
        self.purchases + self.letters
    }
}

/// How fast counters rise.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: VecDeque<(Duration, u64, u64)>,
}

/// Over how long a rate is taken.
const WINDOW: Duration = Duration::from_secs(4);

impl Rates {
    /// Adds a sample; gives records a second of input and output.
    pub fn add(&mut self, at: Duration, facts: &Facts) -> (u64, u64) {
        self.samples.push_back((at, facts.input, facts.output()));
        while self.samples.len() > 2
            && self.samples.front().is_some_and(|(first, ..)| at.saturating_sub(*first) > WINDOW)
        {
            self.samples.pop_front();
        }
        let Some((first, input, output)) = self.samples.front() else { return (0, 0) };
        let millis = u64::try_from(at.saturating_sub(*first).as_millis()).unwrap_or(u64::MAX);
        let rate = |now: u64, then: u64| (now.saturating_sub(then) * 1000).checked_div(millis).unwrap_or_default();
        (rate(facts.input, *input), rate(facts.output(), *output))
    }
}

/// The lines of the live view.
pub(super) fn panel(facts: &Facts, rates: (u64, u64)) -> Vec<String> {
    let job = &facts.job;
    let line = |name: &str, text: String| format!("  {name:<11}{text}");
    let lag = facts.lag.map_or_else(|| "-".to_owned(), grouped);
    let output = format!(
        "{:>10}  {:>7}/s   purchases {}, bad records {}",
        grouped(facts.output()),
        grouped(rates.1),
        grouped(facts.purchases),
        grouped(facts.letters),
    );
    let pods: Vec<String> = job.pods.iter().map(shown).collect();
    vec![
        line("input", format!("{:>10}  {:>7}/s", grouped(facts.input), grouped(rates.0))),
        line("results", output),
        line("lag", format!("{lag:>10}")),
        line("workers", format!("{:>10}  {}", job.workers, pods.join("  "))),
        line("job", format!("{:>10}  epoch {}", job.phase, epoch(job))),
        line("last event", format!("{:>3}{}", "", job.event)),
    ]
}

/// The same in one line, where a view cannot be redrawn.
pub(super) fn one_line(facts: &Facts, rates: (u64, u64)) -> String {
    let job = &facts.job;
    format!(
        "input {} ({}/s)  results {} ({}/s)  lag {}  workers {}  {} epoch {}",
        grouped(facts.input),
        grouped(rates.0),
        grouped(facts.output()),
        grouped(rates.1),
        facts.lag.map_or_else(|| "-".to_owned(), grouped),
        if job.workers.is_empty() { "-" } else { &job.workers },
        if job.phase.is_empty() { "-" } else { &job.phase },
        epoch(job),
    )
}

fn epoch(job: &Job) -> String {
    job.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string())
}

fn shown(worker: &Worker) -> String {
    let Worker { name, ready, state, restarts } = worker;
    let state = if *ready { "ready" } else { state };
    match restarts {
        0 => format!("{name} {state}"),
        1 => format!("{name} {state} (restarted)"),
        more => format!("{name} {state} (restarted {more} times)"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Facts, Rates};

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut rates = Rates::default();
        let facts = |input| Facts { input, ..Facts::default() };
        assert_eq!(rates.add(Duration::ZERO, &facts(0)), (0, 0));
        assert_eq!(rates.add(Duration::from_secs(2), &facts(200)), (100, 0));
        for second in 3..20 {
            rates.add(Duration::from_secs(second), &facts(200 + (second - 2) * 1000));
        }
        assert_eq!(rates.add(Duration::from_secs(20), &facts(18_200)).0, 1000);
    }
}
