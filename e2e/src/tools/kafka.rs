//! Kafka: its jars as Maven resolves them.

use std::path::PathBuf;

use super::{Error, unpack};
use crate::cache::{self, Key};
use crate::command::{run, words};

pub(super) const POM: &str = include_str!("../../cluster/kafka/pom.xml");

/// The folder with `jars/*.jar`.
pub(super) fn jars() -> Result<PathBuf, Error> {
    let key = Key::new("kafka", version(POM)?, &[POM.as_bytes()]);
    let folder = cache::get(&key, |folder| {
        unpack(folder, "pom.xml", POM)?;
        let mut maven = words("mvn", ["-q", "-B", "-f"]);
        maven.arg(folder.join("pom.xml")).arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
        run(&mut maven)?;
        Ok::<_, Error>(())
    })?;
    Ok(folder)
}

pub(super) fn version(pom: &str) -> Result<&str, Error> {
    let after = |text: &'static str| move |pom: &str| pom.find(text).map(|at| at + text.len());
    let start = after("<artifactId>kafka-tools</artifactId><version>")(pom);
    start
        .and_then(|start| pom.get(start..)?.split('<').next())
        .ok_or_else(|| Error::Lost { what: "the version of kafka-tools in pom.xml".to_owned() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_comes_from_the_pins() {
        assert!(super::version(super::POM).unwrap().starts_with("4."));
        assert!(super::version("<project/>").is_err());
    }
}
