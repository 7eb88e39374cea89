//! Things that are made once: each in a folder whose name carries what it is made from, put in place by a rename, under a
//! lock. So an interrupted build leaves nothing that looks finished, and two runs at once build a thing once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::wait::Deadline;
use crate::{paths, report};

/// A cached thing could not be looked up or put in place.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// The cache folder is not usable.
    #[error("cannot use the cache at {path}")]
    Folder {
        /// The path in question.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Making it failed.
    #[error("cannot make {what}")]
    Make {
        /// Name and version.
        what: String,
        /// Why.
        source: E,
    },
}

/// Identity of something made from fixed inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    name: String,
    version: String,
    digest: String,
}

impl Key {
    /// The key of `name` at `version`, made from `inputs`: any change of them makes it another thing.
    #[must_use]
    pub fn new(name: &str, version: &str, inputs: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for input in inputs {
            // The length keeps ["ab", "c"] apart from ["a", "bc"].
            hash.update(input.len().to_le_bytes());
            hash.update(input);
        }
        let digest = hex::encode(hash.finalize()).chars().take(12).collect();
        Self { name: name.to_owned(), version: version.to_owned(), digest }
    }

    /// The part of it that is made from the inputs.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// `name-version-digest`.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}-{}-{}", self.name, self.version, self.digest)
    }
}

/// The folder of `key`, made by `make` when it is not there yet. `make` gets an empty folder to fill.
///
/// # Errors
/// When the cache is not usable or `make` fails; then nothing is kept.
pub fn get<E: std::error::Error + 'static>(
    key: &Key,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, Error<E>> {
    get_below(&paths::cache().join("tools"), key, make)
}

fn get_below<E: std::error::Error + 'static>(
    base: &Path,
    key: &Key,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, Error<E>> {
    let folder = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Folder { path, source }
    };
    let done = base.join(key.folder());
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(base).map_err(folder(base))?;
    let lock_path = base.join(format!(".{}.lock", key.name));
    let lock = File::create(&lock_path).map_err(folder(&lock_path))?;
    lock.lock().map_err(folder(&lock_path))?;
    // Another run may have made it while this one waited.
    if done.is_dir() {
        return Ok(done);
    }
    let partial = base.join(format!(".{}.partial", key.name));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(folder(&partial))?;
    }
    fs::create_dir_all(&partial).map_err(folder(&partial))?;
    let what = format!("{} {}", key.name, key.version);
    report::step(format!("making {what} (once; kept in {})", done.display()));
    let clock = Deadline::after(Duration::MAX);
    make(&partial).map_err(|source| Error::Make { what: what.clone(), source })?;
    fs::rename(&partial, &done).map_err(folder(&done))?;
    report::step(format!("made {what} in {:.0} s", clock.elapsed().as_secs_f64()));
    Ok(done)
}

/// What is there of the same name and version as `key`, made from other inputs: all but the `kept` that were made last, of
/// which `key` itself is one.
#[must_use]
pub fn older(key: &Key, kept: usize) -> Vec<PathBuf> {
    older_below(&paths::cache().join("tools"), key, kept)
}

fn older_below(base: &Path, key: &Key, kept: usize) -> Vec<PathBuf> {
    let current = key.folder();
    let prefix = format!("{}-{}-", key.name, key.version);
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&prefix) && name != current
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    found.truncate((found.len() + 1).saturating_sub(kept));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::{Error, Key, get_below, older_below};
    use std::convert::Infallible;
    use std::path::Path;

    fn fill(folder: &Path) -> Result<(), Infallible> {
        std::fs::write(folder.join("file"), "content").unwrap();
        Ok(())
    }

    #[test]
    fn a_thing_is_made_once() {
        let base = tempfile::tempdir().unwrap();
        let key = Key::new("tool", "1.0", &[b"input"]);
        let first = get_below(base.path(), &key, fill).unwrap();
        let again = get_below(base.path(), &key, |_| -> Result<(), Infallible> { panic!("made twice") }).unwrap();
        assert_eq!(first, again);
        assert_eq!(std::fs::read_to_string(first.join("file")).unwrap(), "content");
    }

    #[test]
    fn a_failed_attempt_leaves_nothing_that_looks_finished() {
        let base = tempfile::tempdir().unwrap();
        let key = Key::new("tool", "1.0", &[]);
        let failed = get_below(base.path(), &key, |folder| {
            std::fs::write(folder.join("half"), "").unwrap();
            Err(std::io::Error::other("interrupted"))
        });
        assert!(matches!(failed, Err(Error::Make { .. })));
        let folder = get_below(base.path(), &key, fill).unwrap();
        assert!(!folder.join("half").exists(), "the rest of the failed attempt was taken over");
    }

    #[test]
    fn other_inputs_are_another_thing() {
        let key = |inputs: &[&[u8]]| Key::new("tool", "1.0", inputs).folder();
        assert_ne!(key(&[b"a"]), key(&[b"b"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"a"]), key(&[b"a"]));
    }

    #[test]
    fn what_was_made_last_is_kept() {
        let base = tempfile::tempdir().unwrap();
        let key = |input: &str| Key::new("tool", "1.0", &[input.as_bytes()]);
        let made: Vec<_> = ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(age, input)| {
                let folder = get_below(base.path(), &key(input), fill).unwrap();
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 + age as u64);
                std::fs::File::open(&folder).unwrap().set_modified(time).unwrap();
                folder
            })
            .collect();
        assert_eq!(older_below(base.path(), &key("c"), 2), [made[0].clone()]);
        assert_eq!(older_below(base.path(), &key("a"), 1), [made[1].clone(), made[2].clone()]);
        assert!(older_below(base.path(), &key("c"), 3).is_empty());
    }

    #[test]
    fn two_at_once_make_it_once() {
        let base = tempfile::tempdir().unwrap();
        let key = Key::new("tool", "1.0", &[]);
        let made = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    get_below(base.path(), &key, |folder| {
                        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        fill(folder)
                    })
                    .unwrap()
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }
}
