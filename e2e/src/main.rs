//! The command line of the cluster harness.

use std::process::ExitCode;

// Not async: a process that goes into a namespace must do so before its first thread is made.
fn main() -> ExitCode {
    fencepost_e2e::cli::main()
}
