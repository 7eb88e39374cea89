//! Entry point of the operator.

use std::process::ExitCode;

use clap::Parser;
use fencepost_operator::{cli::Args, error::chain, run};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    args.init_log();
    match run::run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&error), "the operator ends");
            ExitCode::FAILURE
        }
    }
}
