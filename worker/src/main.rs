//! The worker's command line. See [`fencepost_worker::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost_worker::cli::main()
}
