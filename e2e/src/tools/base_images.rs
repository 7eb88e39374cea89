//! The three images every node starts with: no registry can be reached from inside.

use std::path::{Path, PathBuf};

use super::{Entry, Error, image_archive};
use crate::cache::{self, Key};

/// What holds the namespaces of a pod.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10";
/// The cluster's name server.
pub const COREDNS: &str = "registry.k8s.io/coredns/coredns:v1.12.4";
/// A shell and the usual small programs, for tests.
pub const BUSYBOX: &str = "docker.io/library/busybox:1";

/// Changes when the content of the archives does without its inputs changing.
const RECIPE: &str = "1";

/// The folder with the archives. `kubernetes` and `coredns` are the folders of the programs that go into them.
pub(super) fn archives(kubernetes: &Path, coredns: &Path) -> Result<PathBuf, Error> {
    let made_from = format!("{} {}", kubernetes.display(), coredns.display());
    let busybox = busybox()?;
    let busybox_id = std::fs::metadata(&busybox).map_err(Error::file(&busybox))?.len().to_string();
    let inputs = [made_from.as_str(), &busybox_id, PAUSE, COREDNS, BUSYBOX, RECIPE].map(str::as_bytes);
    let folder = cache::get(&Key::new("images", "base", &inputs), |folder| {
        let image = |file: &str, name: &str, source: PathBuf, target: &'static str| {
            let path = folder.join(file);
            image_archive(&path, name, target, &[Entry { source, target }]).map_err(Error::file(path))
        };
        image("pause.tar", PAUSE, kubernetes.join("bin/pause"), "/pause")?;
        image("coredns.tar", COREDNS, coredns.join("bin/coredns"), "/coredns")?;
        image("busybox.tar", BUSYBOX, busybox, "/bin/busybox")
    })?;
    Ok(folder)
}

fn busybox() -> Result<PathBuf, Error> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| Error::Lost { what: "busybox".to_owned() })
}
