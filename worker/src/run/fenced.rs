use std::{
    fs,
    path::{Path, PathBuf},
};

use fencepost_crds::{conditions::Reason, contract::WorkerError};
use tracing::warn;

/// A note in a folder that outlives the container but not the pod: "a worker of this pod was fenced in this epoch".
///
/// The kubelet restarts the container of a StatefulSet's pod whatever its exit code. Without the note the restarted worker would
/// initialise its transactional id again and fence its successor, which would do the same.
#[derive(Debug)]
pub(super) struct Marker(Option<PathBuf>);

impl Marker {
    pub(super) fn new(run_dir: Option<&Path>, epoch: i64) -> Self {
        Self(run_dir.map(|dir| dir.join(format!("fenced-{epoch}"))))
    }

    pub(super) fn read(&self) -> Option<WorkerError> {
        let message = fs::read_to_string(self.0.as_ref()?).ok()?;
        Some(WorkerError { reason: Reason::Fenced.to_string(), message, at_ms: 0 })
    }

    pub(super) fn write(&self, message: &str) {
        let Some(path) = &self.0 else { return };
        if let Err(error) = fs::write(path, message) {
            warn!(path = %path.display(), error = %error, "cannot leave the note that this worker was fenced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_holds_for_its_epoch_only() {
        let dir = tempfile::tempdir().unwrap();
        Marker::new(Some(dir.path()), 3).write("newer producer");
        assert_eq!(Marker::new(Some(dir.path()), 3).read().unwrap().message, "newer producer");
        assert!(Marker::new(Some(dir.path()), 4).read().is_none());
        assert!(Marker::new(None, 3).read().is_none());
    }
}
