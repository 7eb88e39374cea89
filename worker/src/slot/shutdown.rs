use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The request to finish, shared by all slots of a worker.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<(Mutex<bool>, Condvar)>);

impl Shutdown {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks all slots to finish: commit what is processed, leave the group, end.
    pub fn drain(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, but not after somebody has asked.
    pub fn wait(&self, longest: Duration) {
        let asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(asked, longest, |asked| !*asked));
    }
}
