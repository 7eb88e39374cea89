//! The programs and images a cluster is made of, built from public registries and kept by version.

use std::path::{Path, PathBuf};

use crate::{cache, command, packages};

mod archive;
mod base_images;
mod go;
mod helm;
mod kafka;
pub mod peers;

pub use archive::{Entry, image_archive};
pub use base_images::{BUSYBOX, COREDNS, PAUSE};

/// Something a cluster needs could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Debian package or a toolchain is missing.
    #[error("the machine is not ready")]
    Packages(#[from] packages::Error),
    /// A build failed.
    #[error("a build step failed")]
    Command(#[from] command::Error),
    /// A file could not be read or written.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The cache, or what was to be put into it.
    #[error("cannot prepare a tool")]
    Cache(#[source] Box<cache::Error<Error>>),
    /// A pinned version is not where it should be.
    #[error("{what} is not where it is expected")]
    Lost {
        /// What was looked for.
        what: String,
    },
    /// A builder thread died.
    #[error("a builder thread ended without an answer")]
    Thread,
}

impl From<cache::Error<Error>> for Error {
    fn from(error: cache::Error<Error>) -> Self {
        Self::Cache(Box::new(error))
    }
}

impl Error {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Where everything is, once it is there.
#[derive(Debug, Clone)]
pub struct Tools {
    kubernetes: PathBuf,
    kafka: PathBuf,
    helm: PathBuf,
    images: PathBuf,
}

impl Tools {
    /// Builds what is missing. The first time on a machine this takes minutes.
    ///
    /// # Errors
    /// When a package is missing and cannot be installed, or a build fails.
    pub fn prepare() -> Result<Self, Error> {
        packages::ensure()?;
        std::thread::scope(|scope| {
            // Kafka and Helm mostly wait for the network, Go for the processors: side by side they cost what the longest costs.
            let kafka = scope.spawn(kafka::jars);
            let helm = scope.spawn(helm::program);
            let kubernetes = go::kubernetes()?;
            let images = base_images::archives(&kubernetes, &go::coredns()?)?;
            Ok(Self {
                kafka: kafka.join().map_err(|_| Error::Thread)??,
                helm: helm.join().map_err(|_| Error::Thread)??,
                kubernetes,
                images,
            })
        })
    }

    /// A program of Kubernetes, or etcd.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.kubernetes.join("bin").join(name)
    }

    /// The Helm program.
    #[must_use]
    pub fn helm(&self) -> PathBuf {
        self.helm.join("bin/helm")
    }

    /// The class path with all of Kafka: server, tools, clients.
    #[must_use]
    pub fn kafka_class_path(&self) -> String {
        format!("{}/*", self.kafka.join("jars").display())
    }

    /// The image archives every node starts with.
    ///
    /// # Errors
    /// When their folder cannot be read.
    pub fn images(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = std::fs::read_dir(&self.images).map_err(Error::file(&self.images))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_tar(path)).collect();
        paths.sort();
        Ok(paths)
    }
}

fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar")
}

/// Writes one of the files that are compiled into the harness.
fn unpack(folder: &Path, name: &str, content: &str) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let path = folder.join(name);
    std::fs::write(&path, content).map_err(Error::file(path))
}
