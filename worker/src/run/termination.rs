use std::{fs, path::Path};

use fencepost_crds::contract::WorkerError;
use tracing::warn;

/// Leaves the reason of an exit where the kubelet puts it into the pod's status. The kubelet takes at most 4096 bytes.
pub(super) fn write(path: Option<&Path>, error: &WorkerError) {
    let Some(path) = path else { return };
    if let Err(cause) = fs::write(path, line(error)) {
        warn!(path = %path.display(), error = %cause, "cannot write the termination message");
    }
}

const LIMIT: usize = 4096;

fn line(error: &WorkerError) -> String {
    let mut error = error.clone();
    loop {
        let line = serde_json::to_string(&error).unwrap_or_default();
        if line.len() <= LIMIT {
            return line;
        }
        // Escapes can make the JSON longer than the message, so halve until it fits.
        let half = error.message.len() / 2;
        error.message = fencepost_crds::conditions::clamp(&error.message, half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_so_that_the_json_stays_whole() {
        let error = WorkerError { reason: "BadRecord".to_owned(), message: "\u{1}ä".repeat(5000), at_ms: 1 };
        let line = line(&error);
        assert!(line.len() <= LIMIT);
        let back: WorkerError = serde_json::from_str(&line).unwrap();
        assert_eq!(back.reason, "BadRecord");
        assert!(back.message.len() > 100);
    }
}
