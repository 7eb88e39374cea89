//! Entry point of the plugin of kubectl.

use std::process::ExitCode;

use clap::Parser;
use fencepost_operator::{
    error::chain,
    plugin::{self, Args},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    match plugin::run(args).await {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("error: {}", plugin::harmless(&chain(&error)));
            ExitCode::FAILURE
        }
    }
}
