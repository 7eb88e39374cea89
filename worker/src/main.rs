//! The worker's command line. See [`fencepost_worker::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    bound_arenas();
    fencepost_worker::cli::main()
}

/// glibc gives threads arenas of their own, up to eight for each processor, and keeps in them what was freed. With a client that is
/// replaced its threads go and others come: in half an hour of dying brokers a worker of 52 MiB has grown to 74.
fn bound_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const ARENAS: libc::c_int = 4;
        // SAFETY: this is the only thread yet, and the call changes nothing but a setting of the allocator.
        let accepted = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
        debug_assert_eq!(accepted, 1, "glibc knows this setting since 2.10");
    }
}
