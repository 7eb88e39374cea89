//! SQL that is long or deep is refused with its place, or it runs: it never ends the process. Everything here runs on a thread with
//! the stack that Rust gives to threads, without optimisation: that is less than any worker has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use fencepost_crds::v1alpha1::{Guarantee, PipelineSpec, Violation};
use fencepost_pipeline::{Processed, RawRecord, SourceId, plan};
use rstest::rstest;
use serde_json::json;

/// What became of a text: the first row for a record, or what is wrong.
fn run(sql: String) -> Result<String, Vec<Violation>> {
    // The default of Rust for threads, whatever the environment says.
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(move || on_a_slot(&sql)).unwrap().join().unwrap()
}

fn on_a_slot(sql: &str) -> Result<String, Vec<Violation>> {
    let spec: PipelineSpec = serde_json::from_value(json!({
        "sources": [{"name": "s", "kafka": {"topic": "s", "format": {"json": {}}}, "columns": [
            {"name": "a", "type": "BIGINT"}, {"name": "t", "type": "STRING"}, {"name": "l", "type": "ARRAY<INT>"}]}],
        "sql": sql,
        "sinks": [{"name": "k", "kafka": {"topic": "k", "format": {"json": {}}}}],
    }))
    .unwrap();
    let plan = plan(&spec)?;
    assert!(!plan.report(Guarantee::ExactlyOnce, "v").stages.is_empty());
    let mut pipeline = plan.clone().instantiate().unwrap();
    let value = Some(br#"{"a":1,"t":"x","l":[1]}"#.as_slice());
    let record = RawRecord { partition: 0, offset: 0, timestamp_ms: 0, key: None, value, headers: Vec::new() };
    let processed: Processed = pipeline.process(SourceId(0), &[record], 0).unwrap();
    assert_eq!(processed.fail, None);
    Ok(processed.outputs.first().map(|o| String::from_utf8(o.value(0).unwrap().to_vec()).unwrap()).unwrap_or_default())
}

/// Texts that grow with a number.
fn chain(kind: &str, n: usize) -> String {
    let terms = |term: &str, operator: &str| vec![term; n].join(operator);
    match kind {
        "plus" => format!("INSERT INTO k SELECT {} AS o FROM s", terms("a", "+")),
        "minus mixed" => format!("INSERT INTO k SELECT a {} AS o FROM s", "+ 1 - a * 2 ".repeat(n / 3)),
        "concat" => format!("INSERT INTO k SELECT {} AS o FROM s", terms("t", "||")),
        "or" => format!("INSERT INTO k SELECT a FROM s WHERE {}", terms("a = 1", " OR ")),
        "or of different" => {
            let parts: Vec<String> = (1..=n).map(|i| format!("a = {i} AND t <> '{i}'")).collect();
            format!("INSERT INTO k SELECT a FROM s WHERE {}", parts[..(n / 2).max(1)].join(" OR "))
        }
        "and" => format!("INSERT INTO k SELECT a FROM s WHERE {}", terms("10 / a = 10", " AND ")),
        "in case" => format!("INSERT INTO k SELECT CASE WHEN {} THEN 1 END AS o FROM s", terms("a = 1", " OR ")),
        "union" => terms("SELECT a FROM s", " UNION ALL ").replacen("SELECT", "INSERT INTO k SELECT", 1),
        "union of different" => {
            let parts: Vec<String> = (0..n).map(|i| format!("SELECT a + {i} AS a FROM s WHERE a <> {i}")).collect();
            format!("INSERT INTO k {}", parts.join(" UNION ALL "))
        }
        "cast" => format!("INSERT INTO k SELECT a{} AS o FROM s", "::BIGINT".repeat(n)),
        "is" => format!("INSERT INTO k SELECT a{} AS o FROM s", " IS NULL".repeat(n)),
        "distinct" => format!("INSERT INTO k SELECT true{} AS o FROM s", " IS DISTINCT FROM true".repeat(n)),
        "like" => format!("INSERT INTO k SELECT {} AS o FROM s", terms("t", " LIKE ")),
        "index" => format!("INSERT INTO k SELECT l{} AS o FROM s", "[1]".repeat(n)),
        "not" => format!("INSERT INTO k SELECT {} true AS o FROM s", "NOT ".repeat(n)),
        "sign" => format!("INSERT INTO k SELECT {} a AS o FROM s", "- ".repeat(n)),
        "parentheses" => format!("INSERT INTO k SELECT {}a{} AS o FROM s", "(".repeat(n), ")".repeat(n)),
        "calls" => format!("INSERT INTO k SELECT {}a{} AS o FROM s", "abs(".repeat(n), ")".repeat(n)),
        "cases" => {
            format!("INSERT INTO k SELECT {} a {} AS o FROM s", "CASE WHEN true THEN ".repeat(n), "END ".repeat(n))
        }
        "subqueries" => format!("INSERT INTO k {} s {}", "SELECT a FROM (".repeat(n), ")".repeat(n)),
        "dots" => format!("INSERT INTO k SELECT {} AS o FROM s", terms("a", ".")),
        "views" => {
            let views: String =
                (1..n).map(|i| format!("CREATE VIEW v{i} AS SELECT a + 1 AS a FROM v{};", i - 1)).collect();
            format!("CREATE VIEW v0 AS SELECT a FROM s;{views}INSERT INTO k SELECT a FROM v{}", n - 1)
        }
        "views of chains" => {
            let chain = vec!["a"; 100].join("+");
            let view =
                |i: usize| format!("CREATE VIEW v{i} AS SELECT CASE WHEN {chain} > 0 THEN 1 END AS a FROM v{};", i - 1);
            let views: String = (1..n).map(view).collect();
            format!("CREATE VIEW v0 AS SELECT a FROM s;{views}INSERT INTO k SELECT a FROM v{}", n - 1)
        }
        // The view becomes a part of the expression that uses it.
        "concat through a view" => {
            let chain = |first: &str| format!("{first}{}", " || 'x'".repeat(n));
            format!(
                "CREATE VIEW v AS SELECT {} AS t FROM s; INSERT INTO k SELECT {} AS o FROM v",
                chain("t"),
                chain("t")
            )
        }
        "cases through views" | "calls through views" => {
            let case = match kind {
                "cases through views" => {
                    format!("{}t{}", "CASE WHEN a > 1 THEN upper(t) ELSE ".repeat(n), " END".repeat(n))
                }
                _ => format!("{}t{}", "upper(".repeat(n), ")".repeat(n)),
            };
            let view = |i: usize| format!("CREATE VIEW v{i} AS SELECT {case} AS t, a FROM v{};", i - 1);
            let views: String = (1..8).map(view).collect();
            format!("CREATE VIEW v0 AS SELECT t, a FROM s;{views}INSERT INTO k SELECT {case} AS o FROM v7")
        }
        "views of unions" => {
            let view =
                |i: usize| format!("CREATE VIEW v{i} AS SELECT a FROM v{0} UNION ALL SELECT a FROM v{0};", i - 1);
            let views: String = (1..n).map(view).collect();
            format!("CREATE VIEW v0 AS SELECT a FROM s;{views}INSERT INTO k SELECT a FROM v{}", n - 1)
        }
        other => panic!("{other}"),
    }
}

#[rstest]
fn a_chain_of_any_length_runs_or_is_refused_with_its_place(
    #[values(
        "plus",
        "minus mixed",
        "concat",
        "or",
        "or of different",
        "and",
        "in case",
        "union",
        "union of different",
        "cast",
        "is",
        "distinct",
        "like",
        "index",
        "not",
        "sign",
        "parentheses",
        "calls",
        "cases",
        "subqueries",
        "dots",
        "views",
        "views of chains",
        "views of unions",
        "concat through a view",
        "cases through views",
        "calls through views"
    )]
    kind: &str,
) {
    // A chain of 10,000 is longer than a text may be in a StreamJob.
    for n in [2, 40, 190, 1000, 10_000] {
        if n > 1000 && kind.starts_with("views") {
            continue;
        }
        let outcome = run(chain(kind, n));
        let runs = match kind {
            "like" | "index" | "dots" => n < 2,
            "views of chains" => n <= 2,
            "not"
            | "sign"
            | "parentheses"
            | "calls"
            | "cases"
            | "distinct"
            | "views of unions"
            | "concat through a view" => n <= 40,
            "cast" | "is" => n <= 40,
            "subqueries" | "views" | "cases through views" | "calls through views" => n <= 2,
            _ => n <= 190,
        };
        // What a text multiplies has no one place.
        let is_wide = kind == "views of unions" || kind == "like" && n == 2;
        match outcome {
            Ok(row) => assert!(runs || is_wide, "{kind} of {n} runs: {row}"),
            Err(violations) => {
                assert!(!runs || is_wide, "{kind} of {n}: {violations:?}");
                assert!(is_wide || violations[0].message.starts_with("line "), "{kind} of {n}: {violations:?}");
            }
        }
    }
}

#[test]
fn the_place_is_the_operator_that_is_too_much() {
    let sql = format!("INSERT INTO k\nSELECT {}a AS o FROM s", "a + ".repeat(1000));
    let violations = run(sql).unwrap_err();
    assert_eq!(violations[0].reason, "UnsupportedSql");
    // `SELECT ` and 200 times `a + `, and then `a `.
    let place = format!("line 2, column {}: ", 7 + 200 * 4 + 2 + 1);
    assert!(violations[0].message.starts_with(&place), "{violations:?}");
}

#[test]
fn what_is_wide_is_not_deep() {
    let columns: Vec<String> =
        (0..300).map(|i| format!("CASE WHEN a = {i} THEN a + {i} ELSE -a END AS c{i}")).collect();
    run(format!("INSERT INTO k SELECT {} FROM s", columns.join(", "))).unwrap();
    let numbers: Vec<String> = (0..1000).map(|i| format!("{i} + a")).collect();
    run(format!("INSERT INTO k SELECT a FROM s WHERE a IN ({})", numbers.join(", "))).unwrap();
    let branches: Vec<String> = (0..300).map(|i| format!("WHEN a = {i} AND t <> 'x' THEN {i}")).collect();
    run(format!("INSERT INTO k SELECT CASE {} END AS o FROM s", branches.join(" "))).unwrap();
}

/// Expressions of views that are used once become a part of what uses them, so they are deeper than any text.
#[rstest]
fn the_deepest_plan_that_is_not_refused_runs(
    #[values("concat through a view", "cases through views", "calls through views", "views")] kind: &str,
) {
    let deepest = (1..40).rev().map(|n| n * 5).find_map(|n| run(chain(kind, n)).ok().map(|row| (n, row)));
    let (n, row) = deepest.unwrap();
    assert!(n >= 25, "{kind} of {n}: {row}");
}
