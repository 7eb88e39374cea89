//! Named places where a test can make a worker die, stand still, or come late. Nothing of it is in the program that users run: it needs
//! the feature `fault-points`.
//!
//! The places are before every effect and after every call of the protocol (`fault_point` of both), and where the group asks for
//! partitions back.

/// Before a revocation is told to the protocol: librdkafka waits in its rebalance callback.
pub(super) const REVOKED: &str = "revoked";
/// Before a loss is told to the protocol.
pub(super) const LOST: &str = "lost";

#[cfg(not(feature = "fault-points"))]
pub(super) const fn reach(_point: &'static str) {}

/// Passes a place: does what it was armed with.
#[cfg(feature = "fault-points")]
pub(super) fn reach(point: &'static str) {
    // `return` stands for death. The kernel ignores a SIGKILL that the first process of a container sends to itself; this ends in a
    // fault that it cannot ignore. No destructor runs, nothing is flushed, sockets are closed by the kernel.
    fail::fail_point!(point, |_| -> () {
        // For whoever asks whether it was this that ended the process.
        tracing::error!(point, "dies at a fault point");
        std::process::abort()
    });
}

/// Arms a place: `return` (die), `pause`, `sleep(ms)`, `off`; `10*off->return`: the eleventh time.
///
/// # Errors
/// When the actions are not understood.
#[cfg(feature = "fault-points")]
pub(crate) fn arm(point: &str, actions: &str) -> Result<(), String> {
    fail::cfg(point, actions)
}
