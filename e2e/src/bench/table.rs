//! From runs to tables for people.

use std::fmt::Write;

use strum::IntoEnumIterator;

use super::plan::{Case, Engine};
use super::result::Run;
use crate::report::grouped;

/// A figure of the meter as a row.
#[derive(Debug, Clone, Copy)]
struct Figure {
    /// Its name in the meter's line.
    name: &'static str,
    /// What it is.
    title: &'static str,
    /// Digits after the point.
    decimals: usize,
}

const fn figure(name: &'static str, title: &'static str, decimals: usize) -> Figure {
    Figure { name, title, decimals }
}

const PEAK: Figure = figure("peak_rss_mib", "peak memory of the process, MiB", 0);

const THROUGHPUT: [Figure; 7] = [
    figure("rec_per_s", "input records a second", 0),
    figure("rec_per_cpu_s", "input records per CPU second of the process", 0),
    figure("timed_s", "timed part, s", 2),
    PEAK,
    figure("outputs_per_marker", "output records per transaction and partition", 0),
    figure("first_output_s", "start to first output, s", 2),
    figure("cpu_s_before", "CPU seconds of start and warm-up", 1),
];

const LATENCY: [Figure; 7] = [
    figure("p50_ms", "latency p50, ms", 0),
    figure("p95_ms", "latency p95, ms", 0),
    figure("p99_ms", "latency p99, ms", 0),
    figure("max_ms", "latency max, ms", 0),
    figure("markers_per_s", "transactions a second, per output partition", 0),
    figure("cores", "processors used", 2),
    PEAK,
];

const RECOVERY: [Figure; 4] = [
    figure("timed_s_with_recovery", "timed part with kill and restart, s", 2),
    figure("missing", "missing results", 0),
    figure("repeats", "repeated results", 0),
    figure("wrong", "wrong results", 0),
];

fn figures(case: Case) -> &'static [Figure] {
    match case {
        Case::Backlog | Case::AtLeastOnce => &THROUGHPUT,
        Case::Paced | Case::Rates => &LATENCY,
        Case::Recovery => &RECOVERY,
    }
}

/// The values of a figure over the repeats of one engine.
#[derive(Debug, Clone, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), least, most })
    }

    fn shown(&self, decimals: usize) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(|value| number(value, decimals));
        if least == most { median } else { format!("{median} ({least} to {most})") }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures are small and not negative")]
fn number(value: f64, decimals: usize) -> String {
    if decimals == 0 { grouped(value.round().max(0.0) as u64) } else { format!("{value:.decimals$}") }
}

/// Runs that stand in one column: the same engine, or the same rate.
struct Column<'r> {
    title: String,
    engine: Engine,
    runs: Vec<&'r Run>,
}

impl Column<'_> {
    fn spread(&self, figure: &Figure) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| run.figure(figure.name)))
    }
}

/// Everything that was measured, as Markdown.
#[must_use]
pub fn markdown(runs: &[Run]) -> String {
    if runs.is_empty() {
        return "Nothing was measured yet.\n".to_owned();
    }
    let mut text = origins(runs);
    for case in Case::iter() {
        let of_case: Vec<&Run> = runs.iter().filter(|run| run.case == case).collect();
        if let Some(first) = of_case.first() {
            write!(text, "\n### {}\n\n{}", heading(case, first), table(case, &of_case)).ok();
        }
    }
    text
}

/// Where, when and of what.
fn origins(runs: &[Run]) -> String {
    let mut seen = Vec::new();
    for origin in runs.iter().map(|run| &run.origin) {
        if !seen.contains(&origin) {
            seen.push(origin);
        }
    }
    let mut text = String::new();
    for origin in seen {
        let machine = &origin.machine;
        let (date, revision) = (&origin.date, &origin.revision);
        writeln!(text, "Measured {date} UTC on {} cores ({}), revision {revision}.", machine.cores, machine.cpu).ok();
        if origin.quick {
            text.push_str("**A quick run, for trying: too short and too few runs to compare anything.**\n");
        }
    }
    let busiest = runs.iter().map(|run| run.load_before).fold(0.0, f64::max);
    writeln!(text, "Load average before a run: at most {busiest:.1}.").ok();
    text
}

fn heading(case: Case, run: &Run) -> String {
    let commit = format!("commit every {} ms", run.interval_ms);
    let timed = grouped(run.measured.get("timed_records").and_then(serde_json::Value::as_u64).unwrap_or_default());
    let rate = grouped(run.measured.get("rate").and_then(serde_json::Value::as_u64).unwrap_or_default());
    match case {
        Case::Backlog => format!("Backlog of {timed} records, exactly once, {commit}"),
        Case::Paced => format!("{rate} records a second, exactly once, {commit}"),
        Case::AtLeastOnce => format!("Backlog of {timed} records, at least once, {commit}"),
        Case::Recovery => format!("Backlog of {timed} records with `kill -9` in it, exactly once, {commit}"),
        Case::Rates => format!("Fencepost alone at several rates, exactly once, {commit}"),
    }
}

fn columns<'r>(case: Case, runs: &[&'r Run]) -> Vec<Column<'r>> {
    let mut columns: Vec<Column<'r>> = Vec::new();
    for run in runs {
        let title = if case == Case::Rates {
            format!("{}/s", number(run.figure("rate").unwrap_or_default(), 0))
        } else {
            format!("{} {}", run.engine.title(), run.version)
        };
        match columns.iter_mut().find(|column| column.title == title) {
            Some(column) => column.runs.push(run),
            None => columns.push(Column { title, engine: run.engine, runs: vec![run] }),
        }
    }
    if case != Case::Rates {
        columns.sort_by_key(|column| column.engine);
    }
    columns
}

fn table(case: Case, runs: &[&Run]) -> String {
    let columns = columns(case, runs);
    let of = |engine| columns.iter().find(|column| case != Case::Rates && column.engine == engine);
    let compared = of(Engine::Fencepost).zip(of(Engine::Streams));
    let mut header: Vec<String> = vec![String::new()];
    header.extend(columns.iter().map(|column| match column.runs.len() {
        1 => format!("{}, 1 run", column.title),
        runs => format!("{}, {runs} runs", column.title),
    }));
    header.extend(compared.map(|_| "Fencepost / Kafka Streams".to_owned()));
    let mut text = row(&header);
    text.push_str(&row(&vec!["---".to_owned(); header.len()]));
    for figure in figures(case) {
        let shown = |column: &Column<'_>| column.spread(figure).map(|spread| spread.shown(figure.decimals));
        let mut cells = vec![figure.title.to_owned()];
        cells.extend(columns.iter().map(|column| shown(column).unwrap_or_else(|| "-".to_owned())));
        cells.extend(compared.map(|(ours, theirs)| ratio(ours.spread(figure), theirs.spread(figure))));
        text.push_str(&row(&cells));
    }
    text
}

fn ratio(ours: Option<Spread>, theirs: Option<Spread>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs.median > 0.0 => format!("{:.2}", ours.median / theirs.median),
        _ => "-".to_owned(),
    }
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// What a run came to, on one line.
#[must_use]
pub fn line(run: &Run) -> String {
    let shown =
        |figure: &Figure| Some(format!("{} {}", number(run.figure(figure.name)?, figure.decimals), figure.title));
    figures(run.case).iter().filter_map(shown).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::{Spread, line, markdown};
    use crate::bench::plan::{Case, Engine};
    use crate::bench::result::{Run, tests::run};

    fn backlog(engine: Engine, rate: u32) -> Run {
        run(Case::Backlog, engine, &format!("\"timed_records\":4000,\"rec_per_s\":{rate},\"timed_s\":2.5"))
    }

    #[test]
    fn the_median_of_an_even_number_is_the_middle_of_the_two() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.shown(1));
        assert_eq!(spread(&[3.0, 1.0, 2.0]).as_deref(), Some("2.0 (1.0 to 3.0)"));
        assert_eq!(spread(&[1.0, 2.0]).as_deref(), Some("1.5 (1.0 to 2.0)"));
        assert_eq!(spread(&[4.0]).as_deref(), Some("4.0"));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn a_row_has_median_range_and_ratio_of_the_medians() {
        let runs = [
            backlog(Engine::Fencepost, 2_000_000),
            backlog(Engine::Streams, 900_000),
            backlog(Engine::Streams, 1_100_000),
        ];
        let text = markdown(&runs);
        assert!(text.contains("### Backlog of 4,000 records, exactly once, commit every 100 ms"), "{text}");
        assert!(
            text.contains("| Kafka Streams 1.2, 2 runs | Fencepost 1.2, 1 run | Fencepost / Kafka Streams |"),
            "{text}"
        );
        let row = "| input records a second | 1,000,000 (900,000 to 1,100,000) | 2,000,000 | 2.00 |";
        assert!(text.contains(row), "{text}");
        // A figure that the meter did not give is not made up.
        assert!(text.contains("| peak memory of the process, MiB | - | - | - |"), "{text}");
    }

    #[test]
    fn each_rate_has_a_column_and_is_compared_with_nothing() {
        let at =
            |rate: u32| run(Case::Rates, Engine::Fencepost, &format!("\"rate\":{rate},\"p50_ms\":{}", rate / 1000));
        let text = markdown(&[at(1000), at(20_000)]);
        assert!(text.contains("|  | 1,000/s, 1 run | 20,000/s, 1 run |\n"), "{text}");
        assert!(text.contains("| latency p50, ms | 1 | 20 |\n"), "{text}");
    }

    #[test]
    fn a_quick_run_says_that_it_is_one() {
        let mut quick = backlog(Engine::Streams, 1);
        assert!(!markdown(std::slice::from_ref(&quick)).contains("quick"));
        quick.origin.quick = true;
        assert!(markdown(&[quick]).contains("**A quick run, for trying"));
    }

    #[test]
    fn the_line_of_a_run_has_the_figures_it_gave() {
        assert_eq!(line(&backlog(Engine::Streams, 1500)), "1,500 input records a second; 2.50 timed part, s");
    }
}
