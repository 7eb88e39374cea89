//! What came of a run, as it is kept in `docs/benchmarks.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plan::{Case, Engine, Planned};

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// What they call themselves.
    pub cpu: String,
}

/// Where and of what something was measured: the same for all runs of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Day and time, UTC.
    pub date: String,
    /// The commit the worker was compiled from; with `-dirty` when the checkout differed from it.
    pub revision: String,
    /// Where.
    pub machine: Machine,
    /// Whether it was done for trying only: few records, one run.
    pub quick: bool,
}

/// A run that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was done.
    pub case: Case,
    /// To what.
    pub engine: Engine,
    /// Its version.
    pub version: String,
    /// The job: `filter`.
    pub job: String,
    /// `backlog` or `paced`.
    pub mode: String,
    /// `exactly_once` or `at_least_once`.
    pub guarantee: String,
    /// Milliseconds between commits.
    pub interval_ms: u32,
    /// All records of the input, also those before the timed ones.
    pub records: u64,
    /// How many processes wanted a processor before the run began (the load average of one minute): what disturbed it.
    pub load_before: f64,
    /// Where and of what.
    #[serde(flatten)]
    pub origin: Origin,
    /// What the transactions left in the output topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markers: Option<Markers>,
    /// The meter's line as it was.
    pub measured: Map<String, Value>,
}

/// Each transaction leaves a marker in each partition that it has written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Markers {
    /// Offsets of the output topic that hold no record.
    pub count: u64,
    /// Partitions of the output topic.
    pub partitions: u32,
}

/// A line of the meter that is not one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No JSON object.
    #[error("the meter answered {line:?}")]
    Line {
        /// What it answered.
        line: String,
        /// Why it is none.
        source: serde_json::Error,
    },
    /// Something is not in it.
    #[error("the meter's line has no {name}: {line}")]
    Missing {
        /// What.
        name: &'static str,
        /// The line.
        line: String,
    },
}

impl Run {
    /// Reads the line of the meter. Before it may be what its virtual machine has to say.
    ///
    /// # Errors
    /// When it is no JSON object, or does not say what was measured.
    pub fn read(planned: &Planned, printed: &str, load_before: f64, origin: &Origin) -> Result<Self, Error> {
        let line = printed.trim().lines().next_back().unwrap_or_default();
        let measured: Map<String, Value> =
            serde_json::from_str(line).map_err(|source| Error::Line { line: line.to_owned(), source })?;
        let missing = |name| move || Error::Missing { name, line: line.to_owned() };
        let word = |name| measured.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(missing(name));
        Ok(Self {
            case: planned.case,
            engine: planned.engine,
            version: word("version")?,
            job: word("job")?,
            mode: word("mode")?,
            guarantee: word("guarantee")?,
            interval_ms: word("interval_ms")?.parse().map_err(|_| missing("interval_ms")())?,
            records: measured.get("records").and_then(Value::as_u64).ok_or_else(missing("records"))?,
            load_before,
            origin: origin.clone(),
            markers: None,
            measured,
        })
    }

    /// A figure of the meter, or of the markers.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        let measured = |name| self.measured.get(name).and_then(Value::as_f64);
        let markers = || self.markers.filter(|markers| markers.count > 0);
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        match name {
            "markers_per_s" => {
                let markers = markers()?;
                let seconds = self.records as f64 / measured("rate").filter(|rate| *rate > 0.0)?;
                Some(markers.count as f64 / f64::from(markers.partitions) / seconds)
            }
            "outputs_per_marker" => Some(measured("outputs")? / markers()?.count as f64),
            name => measured(name),
        }
    }

    /// Why this must not stand in a table: the output is not what the guarantee promises, or the run was not what was asked for.
    #[must_use]
    pub fn fault(&self, kill_after: Option<u32>) -> Option<String> {
        if self.measured.get("complete") != Some(&Value::Bool(true)) {
            return Some("the output is not complete".to_owned());
        }
        let exact = self.guarantee == "exactly_once" && self.engine.promises_exactly_once();
        let forbidden: &[&str] = if exact { &["missing", "wrong", "repeats"] } else { &["missing", "wrong"] };
        for name in forbidden {
            match self.figure(name) {
                Some(0.0) => {}
                Some(count) => return Some(format!("{name}: {count}")),
                None => return Some(format!("the meter does not say {name}")),
            }
        }
        let kill_after = kill_after?;
        match self.figure("timed_s_with_recovery") {
            Some(seconds) if seconds > f64::from(kill_after) => None,
            _ => Some("the engine was done before it was killed: give it more records".to_owned()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Machine, Markers, Origin, Run};
    use crate::bench::plan::{Case, Engine, Sizes, runs};

    pub(in crate::bench) fn origin() -> Origin {
        let machine = Machine { cores: 2, cpu: "A processor".to_owned() };
        Origin { date: "2026-01-02 03:04".to_owned(), revision: "0123456789ab".to_owned(), machine, quick: false }
    }

    /// A run with these figures in the meter's line.
    pub(in crate::bench) fn run(case: Case, engine: Engine, figures: &str) -> Run {
        let planned = runs(&[case], &[engine], &Sizes::FULL).remove(0);
        let (guarantee, mode) = match case {
            Case::AtLeastOnce => ("at_least_once", "backlog"),
            Case::Backlog | Case::Recovery => ("exactly_once", "backlog"),
            Case::Paced | Case::Rates => ("exactly_once", "paced"),
        };
        let comma = if figures.is_empty() { "" } else { "," };
        let line = format!(
            "{{\"engine\":\"x\",\"version\":\"1.2\",\"guarantee\":\"{guarantee}\",\"interval_ms\":\"100\",\"job\":\"filter\",\
             \"mode\":\"{mode}\",\"records\":5000{comma}{figures}}}\n"
        );
        Run::read(&planned, &line, 0.5, &origin()).unwrap()
    }

    const GOOD: &str = r#""complete":true,"missing":0,"repeats":0,"wrong":0"#;

    #[test]
    fn exactly_once_allows_nothing_missing_doubled_or_wrong() {
        assert_eq!(run(Case::Backlog, Engine::Streams, GOOD).fault(None), None);
        for bad in [
            r#""complete":false,"missing":0,"repeats":0,"wrong":0"#,
            r#""complete":true,"missing":1,"repeats":0,"wrong":0"#,
            r#""complete":true,"missing":0,"repeats":1,"wrong":0"#,
            r#""complete":true,"missing":0,"repeats":0,"wrong":1"#,
            r#""complete":true,"missing":0,"wrong":0"#,
            "",
        ] {
            assert!(run(Case::Backlog, Engine::Fencepost, bad).fault(None).is_some(), "{bad}");
        }
    }

    #[test]
    fn at_least_once_allows_repeats_and_nothing_else() {
        let repeats = r#""complete":true,"missing":0,"repeats":7,"wrong":0"#;
        assert_eq!(run(Case::AtLeastOnce, Engine::Fencepost, repeats).fault(None), None);
        assert_eq!(run(Case::Backlog, Engine::Spark, repeats).fault(None), None);
        let wrong = r#""complete":true,"missing":0,"repeats":7,"wrong":1"#;
        assert_eq!(run(Case::AtLeastOnce, Engine::Fencepost, wrong).fault(None).as_deref(), Some("wrong: 1"));
    }

    #[test]
    fn a_kill_after_the_end_measures_no_recovery() {
        let of = |seconds: &str| {
            let run = run(Case::Recovery, Engine::Fencepost, &format!("{GOOD},\"timed_s_with_recovery\":{seconds}"));
            run.fault(Some(2))
        };
        assert_eq!(of("9.25"), None);
        assert!(of("1.99").is_some());
        assert!(run(Case::Recovery, Engine::Fencepost, GOOD).fault(Some(2)).is_some());
    }

    #[test]
    fn transactions_are_counted_by_their_markers() {
        let figures = "\"rate\":500,\"outputs\":1200";
        let of = |count| Run {
            markers: Some(Markers { count, partitions: 4 }),
            ..run(Case::Paced, Engine::Fencepost, figures)
        };
        // 5,000 records at 500 a second.
        assert_eq!(of(400).figure("markers_per_s"), Some(10.0));
        assert_eq!(of(400).figure("outputs_per_marker"), Some(3.0));
        // At least once there are none.
        assert_eq!(of(0).figure("markers_per_s").or(of(0).figure("outputs_per_marker")), None);
        assert_eq!(run(Case::Paced, Engine::Fencepost, figures).figure("markers_per_s"), None);
    }

    #[test]
    fn a_line_is_kept_as_it_was_and_read_back() {
        let run = run(Case::Paced, Engine::Streams, "\"p50_ms\":56");
        let text = serde_json::to_string(&run).unwrap();
        assert!(text.contains(r#""interval_ms":"100","#), "{text}");
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
    }

    #[test]
    fn what_the_virtual_machine_says_first_is_passed_over() {
        let planned = runs(&[Case::Backlog], &[Engine::Streams], &Sizes::FULL).remove(0);
        let quiet = run(Case::Backlog, Engine::Streams, "\"p50_ms\":56");
        let line = serde_json::to_string(&quiet.measured).unwrap();
        let loud = format!("[0.01s][warning][perf] no file {{}}\n\n{line}\n");
        assert_eq!(Run::read(&planned, &loud, 0.5, &origin()).unwrap(), quiet);
    }

    #[test]
    fn what_is_no_line_of_the_meter_is_shown() {
        let planned = runs(&[Case::Backlog], &[Engine::Streams], &Sizes::FULL).remove(0);
        for line in ["", "{}", "no {\n", r#"{"version":"1","job":"filter"}"#] {
            assert!(Run::read(&planned, line, 0.0, &origin()).is_err(), "{line}");
        }
    }
}
