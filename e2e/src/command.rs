//! Running other programs to their end, with errors that say what was run and what it answered.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::paths;

/// A program could not be run, or did not like what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It never ran.
    #[error("cannot run `{command}`")]
    Start {
        /// Program and arguments.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It ran and failed.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// Program and arguments.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The end of what it wrote to standard error, or to standard output when that is empty.
        said: String,
    },
}

impl Error {
    /// What the program said when it failed.
    #[must_use]
    pub fn said(&self) -> &str {
        match self {
            Self::Start { .. } => "",
            Self::Failed { said, .. } => said,
        }
    }
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs `command` and gives its standard output.
///
/// # Errors
/// When it cannot be started or exits with another status than 0.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let output = command_output(command, None);
    finish(command, output)
}

/// As [`run`], with `input` on its standard input.
///
/// # Errors
/// When it cannot be started or exits with another status than 0.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Result<String, Error> {
    let output = command_output(command, Some(input));
    finish(command, output)
}

/// A command made of words.
pub fn words<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// `cargo`, as a shell would start it. `cargo run` tells the harness about the harness's own package, and build scripts (that of `ring`,
/// which nearly everything depends on) look at this: passed on, it would make cargo compile all of that anew, and again for the shell.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(paths::cargo());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_cargo_run(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    cargo
}

fn is_of_cargo_run(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| variable.starts_with(prefix))
}

/// Lets `command` end with the thread that waits for it. A harness that is killed must not leave one running that goes on to
/// make what `down` has just removed.
fn bind(command: &mut Command) {
    // SAFETY: between fork and exec only prctl(2) is called; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
}

fn command_output(command: &mut Command, input: Option<&[u8]>) -> io::Result<Output> {
    bind(command);
    let Some(input) = input else {
        return command.stdin(Stdio::null()).output();
    };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input)?;
    }
    child.wait_with_output()
}

fn finish(command: &Command, output: io::Result<Output>) -> Result<String, Error> {
    let output = output.map_err(|source| Error::Start { command: shown(command), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    Err(Error::Failed {
        command: shown(command),
        status: output.status,
        said: last_lines(&String::from_utf8_lossy(said), 20),
    })
}

/// The last `count` lines of `text`, without trailing blank ones.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Error, cargo, last_lines, run, run_with_input, words};

    #[test]
    fn output_is_what_the_program_printed() {
        assert_eq!(run(&mut words("printf", ["%s", "a b"])).unwrap(), "a b");
        assert_eq!(run_with_input(&mut words("cat", [""; 0]), b"fed").unwrap(), "fed");
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = run(&mut words("sh", ["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(matches!(error, Error::Failed { .. }));
        assert_eq!(error.to_string(), "`sh -c echo why >&2; exit 3` failed (exit status: 3): why");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut words("/does/not/exist", ["now"])).unwrap_err();
        assert_eq!(error.to_string(), "cannot run `/does/not/exist now`");
    }

    /// The test itself runs below cargo, with all of these set.
    #[test]
    fn cargo_is_not_told_about_the_package_of_the_harness() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo();
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(cargo.get_envs().any(|(variable, value)| variable == name && value.is_none()), "{name}");
        }
        assert!(cargo.get_envs().all(|(variable, _)| variable != "CARGO_TARGET_DIR"));
    }

    #[test]
    fn only_the_end_of_a_long_output_is_kept() {
        assert_eq!(last_lines("1\n2\n3\n\n", 2), "2\n3");
        assert_eq!(last_lines("", 2), "");
    }
}
