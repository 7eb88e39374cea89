//! One operator and many jobs. What comes of it stands in docs/benchmarks.md.

use std::{fs, time::Duration};

use fencepost_crds::v1alpha1::Phase;

use super::status_of;
use crate::testing::{Cluster, Measured};

const STEADY: Duration = Duration::from_mins(10);

/// Resident memory of this process, in MiB: the operator's caches, and the API server in memory with them.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Processor time of this thread, which all of it runs on, in seconds.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds: u64 = stat.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

async fn measure(jobs: usize) -> Measured {
    let mut cluster = Cluster::new();
    cluster.submit();
    for number in 1..jobs {
        cluster.submit_like(&format!("job-{number:03}"));
    }
    let (memory, processor) = (resident(), processor_seconds());
    let measured = cluster.measure(STEADY).await;
    let Measured { until_quiet, requests, steady } = measured;
    println!(
        "{jobs} jobs: {} s until all run, {requests} requests ({} a job), then {} a minute; {} MiB and {:.1} s of processor time for all there is",
        until_quiet.as_secs(),
        requests / u64::try_from(jobs).unwrap(),
        steady / (STEADY.as_secs() / 60),
        resident().saturating_sub(memory),
        processor_seconds() - processor,
    );
    for number in 1..jobs {
        assert_eq!(status_of(&cluster, &format!("job-{number:03}")).phase, Some(Phase::Running));
    }
    assert_eq!(cluster.violations(), [] as [&str; 0]);
    measured
}

/// Requests a minute of a job that runs: its Secrets are looked at every minute, its brokers every five, and all else every ten.
const A_MINUTE: u64 = 4;

/// Many jobs cost no more each than few do, and next to nothing once they run.
#[tokio::test(start_paused = true)]
async fn a_job_that_runs_asks_for_next_to_nothing() {
    let (few, many) = (measure(2).await, measure(20).await);
    assert!(many.requests <= few.requests * 11, "{few:?}, {many:?}");
    assert!(many.steady <= 20 * A_MINUTE * STEADY.as_secs() / 60, "{many:?}");
}

#[tokio::test(start_paused = true)]
#[ignore = "a measurement: cargo test --release -p fencepost-operator five_hundred -- --ignored --nocapture"]
async fn five_hundred_jobs() {
    measure(500).await;
}
