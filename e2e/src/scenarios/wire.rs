//! The raw protocol client of the project against real brokers: its own check program, run inside the cluster's network.

use std::process::Command;

use super::{Bench, Failure, Outcome};
use crate::cluster::kafka::User;
use crate::{command, paths};

pub(super) fn plaintext(bench: &Bench<'_>) -> Outcome {
    check(bench, &[])
}

pub(super) fn secured(bench: &Bench<'_>) -> Outcome {
    let authority = bench.cluster().kafka_authority().display().to_string();
    let (admin, weak) = (User::Admin, User::Outsider);
    let words = [
        "--ca".to_owned(),
        authority,
        "--mechanism".to_owned(),
        "SCRAM-SHA-512".to_owned(),
        "--username".to_owned(),
        admin.to_string(),
        "--password".to_owned(),
        admin.password(),
        "--weak-username".to_owned(),
        weak.to_string(),
        "--weak-password".to_owned(),
        weak.password(),
    ];
    check(bench, &words)
}

fn check(bench: &Bench<'_>, more: &[String]) -> Outcome {
    let target = paths::cargo_target().unwrap_or_else(|| paths::repository().join("target"));
    let mut cargo = command::cargo();
    cargo.current_dir(paths::repository()).env("CARGO_TARGET_DIR", &target);
    cargo.args(["build", "--quiet", "--package", "fencepost-kafka", "--example", "rpc_check"]);
    command::run(&mut cargo).map_err(Failure::means("compile the check"))?;
    let mut program = Command::new(target.join("debug/examples/rpc_check"));
    program.args(["--bootstrap", &bench.cluster().bootstrap()]).args(more);
    let namespace = bench.cluster().namespace();
    let program = namespace.wrap(&mut program).map_err(Failure::means("run the check in the cluster"))?;
    let printed = command::run(program).map_err(Failure::means("speak to Kafka"))?;
    Ok(vec![format!("{} checks", printed.lines().count())])
}
