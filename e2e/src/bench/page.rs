//! Where results are kept: `docs/benchmarks.json` for machines, and tables made of it in `docs/benchmarks.md` for people.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::result::Run;
use super::table;
use crate::paths;

const BEGIN: &str = "<!-- The tables are made from benchmarks.json by e2e/bench. -->\n";
const END: &str = "<!-- End of the tables. -->\n";

/// The results could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Results that are none.
    #[error("cannot read or write results")]
    Json(#[from] serde_json::Error),
    /// The page has no place for tables.
    #[error("docs/benchmarks.md has no two lines between which the tables stand")]
    Markers,
}

/// The results.
#[must_use]
pub fn json_path() -> PathBuf {
    paths::repository().join("docs/benchmarks.json")
}

/// The page.
#[must_use]
pub fn page_path() -> PathBuf {
    paths::repository().join("docs/benchmarks.md")
}

fn read(path: PathBuf) -> Result<String, Error> {
    fs::read_to_string(&path).map_err(|source| Error::File { path, source })
}

fn write(path: PathBuf, text: &str) -> Result<(), Error> {
    fs::write(&path, text).map_err(|source| Error::File { path, source })
}

/// Replaces what is kept.
///
/// # Errors
/// When a file cannot be written, or the page has no place for the tables.
pub fn keep(runs: &[Run]) -> Result<(), Error> {
    let page = splice(&read(page_path())?, &table::markdown(runs))?;
    write(json_path(), &(serde_json::to_string_pretty(runs)? + "\n"))?;
    write(page_path(), &page)
}

/// The page with other tables.
fn splice(page: &str, tables: &str) -> Result<String, Error> {
    let (before, rest) = page.split_once(BEGIN).ok_or(Error::Markers)?;
    let (_, after) = rest.split_once(END).ok_or(Error::Markers)?;
    Ok(format!("{before}{BEGIN}\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, Run, json_path, page_path, read, splice, write};
    use crate::bench::table;

    #[test]
    fn the_tables_of_the_page_are_those_of_the_results() {
        let runs: Vec<Run> = serde_json::from_str(&read(json_path()).unwrap()).unwrap();
        let page = read(page_path()).unwrap();
        let wanted = splice(&page, &table::markdown(&runs)).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            write(page_path(), &wanted).unwrap();
            return;
        }
        assert!(page == wanted, "run `UPDATE=1 cargo test -p fencepost-e2e` and look at the difference:\n{wanted}");
    }

    #[test]
    fn what_is_kept_holds_what_was_promised() {
        let runs: Vec<Run> = serde_json::from_str(&read(json_path()).unwrap()).unwrap();
        for run in runs {
            assert_eq!(run.fault(None), None, "{run:?}");
        }
    }

    #[test]
    fn only_the_tables_are_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let new = splice(&page, "new\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(splice(&new, "new\n").unwrap(), new);
        assert!(splice("before\nafter\n", "new").is_err());
    }
}
