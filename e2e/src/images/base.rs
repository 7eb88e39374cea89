//! The base of the images, from the packages of the distribution this machine runs.

use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use crate::cache::{self, Key};
use crate::command::{run, words};

const CUSTOMIZE: &str = include_str!("../../cluster/image/customize.sh");
const PACKAGES: &str = "base-files,ca-certificates,libc6,libgcc-s1,libssl3,libstdc++6,netbase,tzdata";
const CODENAME: &str = "bookworm";

/// Changes when the way of making it does.
const RECIPE: &str = "2";

/// The file system of the base.
pub(super) struct Base {
    /// A tar file.
    pub(super) archive: PathBuf,
    /// What it is made from.
    pub(super) id: String,
}

/// The base, made when it is not there yet.
pub(super) fn archive() -> Result<Base, Error> {
    let release = fs::read_to_string("/etc/os-release").map_err(Error::file("/etc/os-release"))?;
    if field(&release, "VERSION_CODENAME") != Some(CODENAME) {
        let name = field(&release, "PRETTY_NAME").unwrap_or("something unknown");
        return Err(Error::Distribution(name.to_owned()));
    }
    let key = Key::new("image-base", CODENAME, &[PACKAGES.as_bytes(), CUSTOMIZE.as_bytes(), RECIPE.as_bytes()]);
    let folder = cache::get(&key, make)?;
    Ok(Base { archive: folder.join("base.tar"), id: key.folder() })
}

fn make(folder: &Path) -> Result<(), Error> {
    let (script, root) = (folder.join("customize.sh"), folder.join("root"));
    fs::write(&script, CUSTOMIZE).map_err(Error::file(&script))?;
    // `extract`: the packages' files without their scripts, which would want a shell.
    let mut mmdebstrap = words("mmdebstrap", ["--quiet", "--variant=extract", "--format=directory"]);
    mmdebstrap.arg(format!("--include={PACKAGES}")).arg(CODENAME).arg(&root).args(sources());
    run(&mut mmdebstrap)?;
    run(&mut words("sh", [&script, &root]))?;
    let mut tar = words("tar", ["--create", "--numeric-owner", "--sort=name", "--mtime=@0", "--file"]);
    run(tar.arg(folder.join("base.tar")).arg("--directory").arg(&root).arg("."))?;
    fs::remove_dir_all(&root).map_err(Error::file(&root))
}

/// Where this machine gets its packages from: there the base's come from too.
fn sources() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.chain([PathBuf::from("/etc/apt/sources.list")]).filter(|path| is_debian(path)).collect();
    found.sort();
    found
}

/// Whether a source list is about this distribution, not about something added to it.
fn is_debian(path: &Path) -> bool {
    let known = path.extension().is_some_and(|extension| extension == "list" || extension == "sources");
    known
        && fs::read_to_string(path).is_ok_and(|text| {
            text.lines().any(|line| !line.starts_with('#') && line.split_whitespace().any(|word| word == CODENAME))
        })
}

/// A field of `/etc/os-release`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_come_with_and_without_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(super::field(text, "NAME"), Some("Debian GNU/Linux"));
        assert_eq!(super::field(text, "VERSION_CODENAME"), Some("bookworm"));
        assert_eq!(super::field(text, "VERSION"), None);
    }
}
