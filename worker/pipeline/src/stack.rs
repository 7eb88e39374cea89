//! A stack that is large enough for a planner that is recursive.

use std::io;
use std::thread::{self, Builder};

/// Bytes of the stack, of which only what is used takes memory. Without optimisation, some steps of the planner take 80 KiB for
/// each level of an expression.
const LARGE: usize = 64 << 20;

/// Runs the work on a thread of its own and waits for it. The outer error: there is no thread; the inner one: it panicked.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<thread::Result<T>> {
    thread::scope(|scope| {
        let planner = Builder::new().name("planner".to_owned()).stack_size(LARGE).spawn_scoped(scope, work)?;
        Ok(planner.join())
    })
}
