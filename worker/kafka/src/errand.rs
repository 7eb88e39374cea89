//! Calls that may not come back.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that makes calls for another one, which waits only so long for each.
#[derive(Debug)]
pub(crate) struct Errand {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    is_lost: bool,
}

impl Errand {
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let (jobs, queue): (Sender<Job>, Receiver<Job>) = channel();
        let thread = Builder::new().name(name.to_owned()).spawn(move || queue.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), is_lost: false })
    }

    /// The answer of the call, if it comes within the time. Once it did not, nothing is called any more.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        within: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = channel();
        let job = Box::new(move || {
            // Nobody waits for an answer that is late.
            answer.send(call()).ok();
        });
        if self.is_lost || self.jobs.as_ref()?.send(job).is_err() {
            return None;
        }
        match answered.recv_timeout(within) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.is_lost = true;
                None
            }
        }
    }
}

impl Drop for Errand {
    /// What the calls use lives until they have come back, so a thread that has none is waited for, and one that is lost is left behind.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.is_lost) {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn answers_come_from_another_thread_one_after_the_other() {
        let mut errand = Errand::new("errand").unwrap();
        let here = std::thread::current().id();
        let there = errand.run(LONG, || std::thread::current().id()).unwrap();
        assert_ne!(here, there);
        assert_eq!(errand.run(LONG, || std::thread::current().id()), Some(there));
    }

    #[test]
    fn a_call_that_does_not_come_back_is_left_behind_with_what_it_holds() {
        let mut errand = Errand::new("errand").unwrap();
        let held = Arc::new(());
        let (let_go, wait) = channel::<()>();
        let holds = Arc::clone(&held);
        let call = move || {
            wait.recv().ok();
            drop(holds);
        };
        assert_eq!(errand.run(Duration::from_millis(10), call), None);
        assert_eq!(errand.run(LONG, || 1), None, "nothing is queued behind it");
        // Does not wait for it either.
        drop(errand);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(let_go);
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn whoever_drops_an_idle_one_waits_until_its_thread_holds_nothing() {
        let mut errand = Errand::new("errand").unwrap();
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        errand.run(LONG, move || drop(holds));
        drop(errand);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
