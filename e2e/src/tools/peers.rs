//! The programs that measure workers, `e2e/peers`: Kafka Streams and the others, the loader and the meter.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, packages};
use crate::cache::{self, Key};
use crate::command::{run, words};
use crate::paths;

/// The folder with the sources, and with `run.sh`.
#[must_use]
pub fn source() -> PathBuf {
    paths::repository().join("e2e/peers")
}

/// The folder with what Maven made of it: what `run.sh` wants as `BUILD_DIR`. The first time on a machine this takes minutes.
///
/// # Errors
/// When a toolchain is missing, or Maven fails.
pub fn build() -> Result<PathBuf, Error> {
    packages::ensure()?;
    let source = source();
    let (pom, files) = (source.join("pom.xml"), contents(&source)?);
    let inputs: Vec<&[u8]> = files.iter().flat_map(|(name, content)| [name.as_bytes(), content]).collect();
    let text = fs::read_to_string(&pom).map_err(Error::file(&pom))?;
    let key = Key::new("peers", kafka_version(&text)?, &inputs);
    let folder = cache::get(&key, |folder| {
        let mut maven = words("mvn", ["-q", "-B", "-f"]);
        maven.arg(&pom).arg(format!("-Dout={}", folder.display())).arg("package");
        run(&mut maven)?;
        Ok::<_, Error>(())
    })?;
    Ok(folder)
}

/// Every file with its path below `root`, in one order on every machine.
fn contents(root: &Path) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            let path = entry.map_err(Error::file(&folder))?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            if path.is_dir() {
                // Where Maven puts things when somebody builds there by hand.
                if name != "target" {
                    folders.push(path);
                }
            } else {
                found.push((name, fs::read(&path).map_err(Error::file(&path))?));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn kafka_version(pom: &str) -> Result<&str, Error> {
    let lost = || Error::Lost { what: "kafka.version in e2e/peers/pom.xml".to_owned() };
    let (_, after) = pom.split_once("<kafka.version>").ok_or_else(lost)?;
    Ok(after.split_once('<').ok_or_else(lost)?.0)
}

#[cfg(test)]
mod tests {
    use super::{contents, kafka_version, source};
    use std::fs;

    #[test]
    fn the_content_is_the_same_in_any_order_and_without_what_maven_makes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        for name in ["b/deep/file", "a", "target/classes"] {
            write(name);
        }
        let names: Vec<_> = contents(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b/deep/file"]);
    }

    /// Otherwise a difference between client and broker would be measured too.
    #[test]
    fn the_clients_are_of_the_version_of_the_broker() {
        let pom = fs::read_to_string(source().join("pom.xml")).unwrap();
        assert_eq!(kafka_version(&pom).unwrap(), crate::tools::kafka::version(crate::tools::kafka::POM).unwrap());
        assert!(kafka_version("<project/>").is_err());
    }
}
