//! Ctrl-C and SIGTERM, noted instead of obeyed at once: who owns a cluster removes it first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// Lets this process outlive Ctrl-C and SIGTERM. From now on it must look at [`requested`] itself.
///
/// # Errors
/// When the kernel refuses.
pub fn listen() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }.map_err(io::Error::from)?;
    }
    Ok(())
}

/// Whether somebody asked this process to end.
#[must_use]
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}
