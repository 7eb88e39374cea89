//! What is measured, and in which order.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that runs the jobs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum, strum::Display,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Engine {
    /// Kafka Streams: what the others are compared with.
    Streams,
    /// The worker of this project.
    Fencepost,
    /// Apache Flink.
    Flink,
    /// Spark Structured Streaming.
    Spark,
}

impl Engine {
    /// What `run.sh` calls it.
    fn word(self) -> String {
        match self {
            Self::Fencepost => "custom".to_owned(),
            peer => peer.to_string(),
        }
    }

    /// Its name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Streams => "Kafka Streams",
            Self::Fencepost => "Fencepost",
            Self::Flink => "Flink",
            Self::Spark => "Spark",
        }
    }

    /// Whether its output is exact when asked for. Spark's Kafka sink repeats after a crash, whatever one asks for.
    #[must_use]
    pub fn promises_exactly_once(self) -> bool {
        self != Self::Spark
    }
}

/// What is done to the engines. In the order of the page.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    strum::Display,
    strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Case {
    /// As fast as it goes, exactly once.
    Backlog,
    /// At a steady rate, exactly once: latency.
    Paced,
    /// As fast as it goes, at least once: what the guarantee costs.
    AtLeastOnce,
    /// A backlog, and `kill -9` in the middle.
    Recovery,
    /// Fencepost alone at several rates.
    Rates,
}

/// How much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Timed records of a backlog.
    pub records: u64,
    /// Records of a backlog before those.
    pub warmup: u64,
    /// Timed records of the backlog in which the engine is killed.
    pub recovery_records: u64,
    /// When it is killed, in seconds of the timed part.
    pub kill_after: u32,
    /// Timed seconds at a steady rate.
    pub seconds: u32,
    /// Seconds of load before those.
    pub warmup_seconds: u32,
    /// Runs of each engine, where it is more than one.
    pub repeats: u32,
}

impl Sizes {
    /// What counts.
    pub const FULL: Self = Self {
        records: 12_000_000,
        warmup: 1_500_000,
        recovery_records: 12_000_000,
        kill_after: 2,
        seconds: 60,
        warmup_seconds: 20,
        repeats: 2,
    };

    /// For trying.
    pub const QUICK: Self = Self {
        records: 2_000_000,
        warmup: 500_000,
        // The kill must come before the end, also of the fastest.
        recovery_records: 6_000_000,
        kill_after: 1,
        seconds: 10,
        warmup_seconds: 5,
        repeats: 1,
    };
}

/// The time between commits, where the engine has such a thing.
const INTERVAL_MS: u32 = 100;
/// Records a second when all engines are measured.
const RATE: u32 = 20_000;
/// Records a second when Fencepost is measured alone.
const RATES: [u32; 3] = [1_000, 20_000, 200_000];
/// Seconds without output after which a run is over. After a kill there is silence until the dead member's session ends.
const LINGER_AFTER_KILL: u32 = 12;

/// One run to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What is done.
    pub case: Case,
    /// To which engine.
    pub engine: Engine,
    /// The arguments of `run.sh`.
    pub words: Vec<String>,
    /// When the engine is killed, in seconds.
    pub kill_after: Option<u32>,
    /// About how long it takes on two processors, with everything around it.
    pub expected_seconds: u64,
}

impl Planned {
    fn new(case: Case, engine: Engine, sizes: &Sizes, rate: u32) -> Self {
        let mode = if matches!(case, Case::Paced | Case::Rates) { "paced" } else { "backlog" };
        let mut words = vec![engine.word(), "filter".to_owned(), mode.to_owned()];
        let mut flag = |name: &str, value: &dyn fmt::Display| words.extend([format!("--{name}"), value.to_string()]);
        flag("interval", &INTERVAL_MS);
        let expected_seconds = expected_seconds(case, sizes);
        // An engine that is gone, or hangs, is not waited for much longer than one that works.
        flag("timeout-s", &(60 + 4 * expected_seconds));
        // Whoever starts it removes what a good run leaves, and keeps what a bad one does.
        flag("keep", &true);
        match case {
            Case::Paced | Case::Rates => {
                flag("rate", &rate);
                flag("seconds", &sizes.seconds);
                flag("warmup-s", &sizes.warmup_seconds);
            }
            Case::Backlog | Case::AtLeastOnce => flag("records", &sizes.records),
            Case::Recovery => {
                flag("records", &sizes.recovery_records);
                flag("kill-after", &sizes.kill_after);
                flag("linger-s", &LINGER_AFTER_KILL);
            }
        }
        if mode == "backlog" {
            flag("warmup", &sizes.warmup);
            if engine == Engine::Spark {
                // Without a limit the backlog is one batch, and nothing is final until its end.
                flag("max-per-trigger", &400_000);
            }
        }
        if case == Case::AtLeastOnce {
            flag("guarantee", &"at_least_once");
        }
        let kill_after = (case == Case::Recovery).then_some(sizes.kill_after);
        Self { case, engine, words, kill_after, expected_seconds }
    }

    /// A name for folders.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}-{}", self.case, self.engine)
    }
}

/// By the loader's half a million records a second, the engines' whole million, and what starts and ends take.
fn expected_seconds(case: Case, sizes: &Sizes) -> u64 {
    let backlog = |records: u64| 15 + (records + sizes.warmup) / 500_000 + (records + sizes.warmup) / 1_000_000;
    match case {
        Case::Backlog | Case::AtLeastOnce => backlog(sizes.records),
        Case::Recovery => 40 + backlog(sizes.recovery_records),
        Case::Paced | Case::Rates => 30 + u64::from(sizes.seconds + sizes.warmup_seconds),
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.case, self.engine.title())?;
        let rate = self.words.iter().skip_while(|word| *word != "--rate").nth(1);
        rate.map_or(Ok(()), |rate| write!(f, ", {rate} records/s"))
    }
}

/// The runs in their order. The engines take turns, so that a machine that gets slower does so for all of them.
#[must_use]
pub fn runs(cases: &[Case], engines: &[Engine], sizes: &Sizes) -> Vec<Planned> {
    let mut planned = Vec::new();
    for case in cases {
        match case {
            Case::Backlog | Case::Paced => {
                for _ in 0..sizes.repeats {
                    planned.extend(engines.iter().map(|engine| Planned::new(*case, *engine, sizes, RATE)));
                }
            }
            Case::AtLeastOnce | Case::Recovery => {
                planned.extend(engines.iter().map(|engine| Planned::new(*case, *engine, sizes, RATE)));
            }
            Case::Rates if engines.contains(&Engine::Fencepost) => {
                planned.extend(RATES.map(|rate| Planned::new(*case, Engine::Fencepost, sizes, rate)));
            }
            Case::Rates => {}
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::{Case, Engine, Sizes, runs};

    const BOTH: [Engine; 2] = [Engine::Streams, Engine::Fencepost];

    #[test]
    fn engines_take_turns_so_that_a_slowing_machine_hits_all_of_them() {
        let planned = runs(&[Case::Backlog], &BOTH, &Sizes::FULL);
        let engines: Vec<Engine> = planned.iter().map(|run| run.engine).collect();
        assert_eq!(engines, [BOTH, BOTH].concat());
    }

    #[test]
    fn engines_of_one_case_are_asked_for_the_same_work() {
        for case in [Case::Backlog, Case::Paced, Case::AtLeastOnce, Case::Recovery] {
            let planned = runs(&[case], &BOTH, &Sizes::FULL);
            for run in &planned {
                assert_eq!(run.words[1..], planned[0].words[1..], "{case}");
            }
            assert_eq!((planned[0].words[0].as_str(), planned[1].words[0].as_str()), ("streams", "custom"));
        }
    }

    #[test]
    fn only_the_price_list_gives_up_exactly_once() {
        for run in
            runs(&[Case::Backlog, Case::Paced, Case::AtLeastOnce, Case::Recovery, Case::Rates], &BOTH, &Sizes::QUICK)
        {
            assert_eq!(run.words.contains(&"at_least_once".to_owned()), run.case == Case::AtLeastOnce, "{run}");
        }
    }

    #[test]
    fn rates_are_measured_of_fencepost_only() {
        assert!(runs(&[Case::Rates], &[Engine::Streams], &Sizes::FULL).is_empty());
        let shown: Vec<String> = runs(&[Case::Rates], &BOTH, &Sizes::FULL).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["1000", "20000", "200000"].map(|rate| format!("rates, Fencepost, {rate} records/s")));
    }
}
