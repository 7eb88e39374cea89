//! Memory, threads and file descriptors of processes over time.

use std::fs;
use std::time::Duration;

use super::Failure;
use super::failure::ensure;
use crate::faults::PodProcess;
use crate::wait::Deadline;

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Resident memory.
    mib: u64,
    pub(super) threads: u64,
    files: u64,
}

/// How much more the last fifth of the samples may show than the second, by median: what has come in three fifths of the run. The first
/// fifth is the start.
struct Allowance {
    percent: u64,
    more: u64,
}

/// Caches and arenas of the allocator fill for a while. Of 60 MiB this is 7 MiB, in 36 minutes of an hour's run: a page (4 KiB) a second
/// more is seen.
const MEMORY: Allowance = Allowance { percent: 5, more: 4 };
/// Connections come and go.
const FILES: Allowance = Allowance { percent: 0, more: 6 };
/// librdkafka has one for each broker it has heard of, and they do not end.
const THREADS: Allowance = Allowance { percent: 0, more: 3 };

/// The processes, and what was seen of them.
#[derive(Debug)]
pub(super) struct Growth {
    processes: Vec<(String, PodProcess, Vec<Sample>)>,
    next: Deadline,
}

impl Growth {
    pub(super) fn new(processes: Vec<(String, PodProcess)>) -> Self {
        let processes = processes.into_iter().map(|(name, process)| (name, process, Vec::new())).collect();
        Self { processes, next: Deadline::after(Duration::ZERO) }
    }

    /// Takes a sample when it is time for one.
    ///
    /// # Errors
    /// When one of the processes is gone: it was to be left alone.
    pub(super) fn sample(&mut self, every: Duration) -> Result<(), Failure> {
        if !self.next.passed() {
            return Ok(());
        }
        self.next = Deadline::after(every);
        for (name, process, samples) in &mut self.processes {
            let sample = read(process.pid);
            ensure!(sample.is_some(), "{name}, which nobody has touched, has ended");
            samples.extend(sample);
        }
        Ok(())
    }

    /// The newest samples, for people.
    pub(super) fn now(&self) -> String {
        let one = |(name, _, samples): &(String, PodProcess, Vec<Sample>)| {
            let Sample { mib, threads, files } = samples.last()?;
            Some(format!("{name} {mib} MiB, {threads} threads, {files} files"))
        };
        self.processes.iter().filter_map(one).collect::<Vec<_>>().join("; ")
    }

    /// What was seen, in a line a process.
    ///
    /// # Errors
    /// When something grew, or there are too few samples to say.
    pub(super) fn verdict(&self) -> Result<Vec<String>, Failure> {
        self.processes.iter().map(|(name, _, samples)| judge(name, samples)).collect()
    }
}

fn judge(name: &str, samples: &[Sample]) -> Result<String, Failure> {
    ensure!(samples.len() >= 20, "{name}: {} samples are too few to say whether something grows", samples.len());
    let mut told = Vec::new();
    for (what, of, allowance) in [
        ("MiB", (|sample| sample.mib) as fn(&Sample) -> u64, MEMORY),
        ("threads", |sample| sample.threads, THREADS),
        ("files", |sample| sample.files, FILES),
    ] {
        let fifth = samples.len() / 5;
        let median = |from: usize| {
            let mut values: Vec<u64> = samples.iter().skip(from).take(fifth).map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let (before, after) = (median(fifth), median(samples.len() - fifth));
        let limit = before + before * allowance.percent / 100 + allowance.more;
        ensure!(after <= limit, "{name}: {what} grew from {before} to {after}, more than {limit}");
        let most = samples.iter().map(of).max().unwrap_or_default();
        told.push(format!("{before} to {after} {what} (at most {most})"));
    }
    Ok(format!("{name}: {}", told.join(", ")))
}

/// What the process holds now; `None`: there is no such process.
pub(super) fn read(pid: i32) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(Sample { mib: number("VmRSS:")? / 1024, threads: number("Threads:")?, files: u64::try_from(files).ok()? })
}

#[cfg(test)]
mod tests {
    use super::{Sample, judge, read};

    fn run(of: impl Fn(u64) -> Sample) -> Result<String, String> {
        let samples: Vec<Sample> = (0..100).map(of).collect();
        judge("w", &samples).map_err(|failure| failure.to_string())
    }

    const FLAT: Sample = Sample { mib: 60, threads: 20, files: 30 };

    #[test]
    fn what_goes_up_and_down_does_not_grow() {
        assert!(run(|n| Sample { mib: 60 + n % 7, threads: 20 + n % 2, files: 30 + n % 9 }).is_ok());
        assert!(run(|n| Sample { mib: 60.min(10 + n * 4), ..FLAT }).is_ok(), "a start is no growth");
    }

    #[test]
    fn a_slow_leak_of_anything_is_seen() {
        assert!(run(|n| Sample { mib: 60 + n / 3, ..FLAT }).unwrap_err().contains("MiB grew from"));
        assert!(run(|n| Sample { files: 30 + n / 8, ..FLAT }).unwrap_err().contains("files grew from"));
        assert!(run(|n| Sample { threads: 20 + n / 15, ..FLAT }).unwrap_err().contains("threads grew from"));
    }

    #[test]
    fn a_short_run_says_nothing() {
        assert!(judge("w", &[FLAT; 19]).is_err());
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sample = read(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(sample.mib > 0 && sample.threads > 0 && sample.files > 0, "{sample:?}");
        assert_eq!(read(i32::MAX), None);
    }
}
