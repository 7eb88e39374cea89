//! Buildah, with a store of its own that lives as long as one build: nothing of the machine's images is seen or changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::base::Base;
use super::{Component, Error};
use crate::command::{run, words};

/// Every image may be used: the only ones there are were made here.
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

const BASE: &str = "localhost/fencepost-base:local";

/// Builds the image of a component and writes it to `archive`.
pub(super) fn build(
    base: &Base,
    component: Component,
    program: &Path,
    name: &str,
    archive: &Path,
) -> Result<(), Error> {
    let work = tempfile::tempdir().map_err(Error::file("a temporary folder"))?;
    let work = work.path();
    let policy = work.join("policy.json");
    fs::write(&policy, POLICY).map_err(Error::file(&policy))?;
    let context = |folder: &str, file: &Path, name: &str| {
        let folder = work.join(folder);
        let target = folder.join(name);
        // A link where possible: the file is large and only read.
        let placed = fs::create_dir_all(&folder)
            .and_then(|()| fs::hard_link(file, &target).or_else(|_| fs::copy(file, &target).map(drop)));
        placed.map_err(Error::file(file))?;
        Ok::<_, Error>(folder)
    };

    let base_context = context("base", &base.archive, "base.tar")?;
    let base_file = work.join("Dockerfile.base");
    fs::write(&base_file, "FROM scratch\nADD base.tar /\n").map_err(Error::file(&base_file))?;
    run(building(work, &policy).args(["--tag", BASE, "--file"]).arg(&base_file).arg(base_context))?;

    let program_context = context("program", program, &component.program())?;
    let mut command = building(work, &policy);
    command.args(["--build-arg", &format!("BASE={BASE}"), "--tag", name, "--file"]).arg(component.dockerfile());
    run(command.arg(program_context))?;

    let destination = format!("docker-archive:{}:{name}", archive.display());
    run(buildah(work).args(["push", "--quiet", "--signature-policy"]).arg(&policy).args([name, &destination]))?;
    Ok(())
}

fn buildah(work: &Path) -> Command {
    let mut command = words("buildah", ["--storage-driver", "vfs"]);
    command.arg("--root").arg(work.join("root")).arg("--runroot").arg(work.join("runroot"));
    command
}

fn building(work: &Path, policy: &Path) -> Command {
    let mut command = buildah(work);
    command.args(["build", "--quiet", "--isolation", "chroot", "--pull-never", "--signature-policy"]).arg(policy);
    command
}
