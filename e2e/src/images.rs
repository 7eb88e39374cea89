//! The project's container images: the Dockerfiles that users build, here on a base made on this machine.
//!
//! The base holds the same files as the default base of the Dockerfiles (Debian 12: the C and C++ libraries, OpenSSL, the
//! certificates, time zones), so what starts here starts there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::cache::{self, Key};
use crate::command::{self, run, words};
use crate::wait::{self, Deadline};
use crate::{paths, report};

mod base;
mod store;

/// An image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command failed.
    #[error("a step of the image failed")]
    Command(#[from] command::Error),
    /// A file.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cache, or what was to be put into it.
    #[error("cannot make the image")]
    Cache(#[source] Box<cache::Error<Error>>),
    /// The machine runs something else than what the base of the images is.
    #[error("images are made on Debian 12 only, as their base is; this machine runs {0}")]
    Distribution(String),
    /// The programs do not compile.
    #[error("cargo cannot build the programs of the images ({0})")]
    Cargo(ExitStatus),
}

impl From<cache::Error<Error>> for Error {
    fn from(error: cache::Error<Error>) -> Self {
        Self::Cache(Box::new(error))
    }
}

impl Error {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// One of the two programs that are shipped as images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Component {
    /// The operator.
    Operator,
    /// The worker.
    Worker,
}

impl Component {
    /// Its package and program.
    #[must_use]
    pub fn program(self) -> String {
        format!("fencepost-{self}")
    }

    fn dockerfile(self) -> PathBuf {
        paths::repository().join(self.to_string()).join("Dockerfile")
    }
}

/// An image that is there as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its name, with a tag that is made from its content: `localhost/fencepost-worker:0f3a…`.
    pub name: String,
    /// The archive, for `Cluster::import_image`.
    pub archive: PathBuf,
}

impl Image {
    /// The name without the tag, as chart values want it.
    #[must_use]
    pub fn repository(&self) -> &str {
        self.name.rsplit_once(':').map_or(&self.name, |(repository, _)| repository)
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag)
    }
}

/// Both images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// The operator's.
    pub operator: Image,
    /// The worker's.
    pub worker: Image,
}

/// Compiles both programs and makes their images. What did not change is not made again.
///
/// # Errors
/// When they do not compile, or a step of an image fails.
pub fn build() -> Result<Images, Error> {
    report::step("compiling the programs of the images (the first time 10 to 30 minutes on 2 cores)");
    let folder = compile(&[Component::Operator, Component::Worker])?;
    let image = |component: Component| of_program(component, &folder.join(component.program()));
    Ok(Images { operator: image(Component::Operator)?, worker: image(Component::Worker)? })
}

/// Compiles a program as it goes into its image, and says where it is.
///
/// # Errors
/// When it does not compile.
pub fn program(component: Component) -> Result<PathBuf, Error> {
    report::step(format!("compiling {} (the first time about 10 minutes on 2 cores)", component.program()));
    // Both, as for the images: alone, a program's libraries would have other features and be compiled once more.
    Ok(compile(&[Component::Operator, Component::Worker])?.join(component.program()))
}

/// Compiles the worker with its fault points, and makes an image of it. For tests only.
///
/// # Errors
/// As [`build`].
pub fn build_with_faults() -> Result<Image, Error> {
    report::step("compiling the worker with fault points");
    // With the operator, so that the libraries that both use have the features that they have in the images for users: otherwise
    // they would be compiled twice.
    let both = [Component::Operator, Component::Worker];
    let folder = cargo(&both, &["--features", "fencepost-worker/fault-points"])?;
    // A folder of its own for the program: the other one of this name must not be taken for it.
    let program = Component::Worker.program();
    let kept = folder.with_file_name("image-with-faults").join(&program);
    kept.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::copy(folder.join(&program), &kept))
        .map_err(Error::file(&kept))?;
    of_program_as(Component::Worker, "fencepost-worker-with-faults", &kept)
}

/// Where the programs of the images are, with the plugin of kubectl beside them.
#[must_use]
pub fn folder() -> PathBuf {
    paths::cargo_target().unwrap_or_else(|| paths::cache().join("target")).join("image")
}

fn compile(components: &[Component]) -> Result<PathBuf, Error> {
    cargo(components, &[])
}

/// Gives the folder with the programs.
fn cargo(components: &[Component], more: &[&str]) -> Result<PathBuf, Error> {
    let target = paths::cargo_target().unwrap_or_else(|| paths::cache().join("target"));
    let mut cargo = command::cargo();
    cargo.current_dir(paths::repository()).args(["build", "--quiet", "--profile", "image", "--bins"]).args(more);
    for component in components {
        cargo.args(["--package", &component.program()]);
    }
    // The base of the images has no zlib.
    cargo.env("CARGO_TARGET_DIR", &target).env("LIBZ_SYS_STATIC", "1");
    let status = wait_for(&mut cargo).map_err(Error::file("cargo"))?;
    if status.success() { Ok(target.join("image")) } else { Err(Error::Cargo(status)) }
}

/// Cargo is quiet, and for the first time works for minutes: a line now and then says that it does.
fn wait_for(cargo: &mut Command) -> io::Result<ExitStatus> {
    const TELL_EVERY: Duration = Duration::from_secs(60);
    let mut child = cargo.spawn()?;
    let clock = Deadline::after(Duration::MAX);
    loop {
        if let Some(status) = wait::until(Deadline::after(TELL_EVERY), || child.try_wait())? {
            return Ok(status);
        }
        report::detail(format!("cargo has been compiling for {} min", clock.elapsed().as_secs() / 60));
    }
}

/// Makes the image of a program that is compiled already.
///
/// # Errors
/// When a step fails.
pub fn of_program(component: Component, program: &Path) -> Result<Image, Error> {
    of_program_as(component, &component.program(), program)
}

fn of_program_as(component: Component, short_name: &str, program: &Path) -> Result<Image, Error> {
    let base = base::archive()?;
    let dockerfile = fs::read(component.dockerfile()).map_err(Error::file(component.dockerfile()))?;
    let program_digest = digest(program)?;
    let inputs = [dockerfile.as_slice(), program_digest.as_bytes(), base.id.as_bytes()];
    let key = Key::new(&format!("image-{short_name}"), "local", &inputs);
    let repository = format!("localhost/{short_name}");
    let name = format!("{repository}:{}", key.digest());
    let folder = cache::get(&key, |folder| store::build(&base, component, program, &name, &folder.join("image.tar")))?;
    prune(&key);
    Ok(Image { name, archive: folder.join("image.tar") })
}

/// The digest of a file. By a program: what is compiled for tests is slow at this.
fn digest(path: &Path) -> Result<String, Error> {
    let printed = run(words("sha256sum", ["--binary"]).arg(path))?;
    Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
}

/// How many images of a component are kept: the last ones, for going back and forth between two states of the source.
const KEPT: usize = 3;

/// Removes old images: each is as large as the program in it.
fn prune(current: &Key) {
    for folder in cache::older(current, KEPT) {
        // Somebody else may be removing it too.
        fs::remove_dir_all(folder).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, Image};

    #[test]
    fn an_image_name_splits_into_what_a_chart_wants() {
        let image = Image { name: "localhost/fencepost-worker:abc".to_owned(), archive: "/x".into() };
        assert_eq!((image.repository(), image.tag()), ("localhost/fencepost-worker", "abc"));
    }

    #[test]
    fn every_component_has_a_dockerfile_that_runs_as_nobody_in_particular() {
        for component in [Component::Operator, Component::Worker] {
            let text = std::fs::read_to_string(component.dockerfile()).unwrap();
            assert!(text.contains("\nUSER 65532:65532\n"), "{component}");
            assert!(text.contains(&format!("ENTRYPOINT [\"/usr/local/bin/{}\"]", component.program())), "{component}");
        }
    }
}
