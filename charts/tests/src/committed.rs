//! Files that are made by tests and committed.

use std::{env, fs, path::Path};

/// Compares a committed file with what it should be; with `UPDATE` set, writes it.
pub(crate) fn check(path: &Path, want: &str) {
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, want).unwrap();
    }
    let have = fs::read_to_string(path).unwrap_or_default();
    if have == want {
        return;
    }
    let line = have.lines().zip(want.lines()).take_while(|(have, want)| have == want).count();
    panic!(
        "{} is out of date from line {}\n  committed: {:?}\n  now:       {:?}\nrun `UPDATE=1 cargo test -p fencepost-charts-tests` and look at the difference",
        path.display(),
        line + 1,
        have.lines().nth(line),
        want.lines().nth(line),
    );
}
