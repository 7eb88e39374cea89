//! Metrics for Prometheus. Series of a job go with the job.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fencepost_crds::v1alpha1::StreamJobStatus;
use fencepost_plan::{
    BrokerObserved,
    decide::{Cause, PlanOutcome},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use strum::{EnumIter, IntoStaticStr};

use crate::memory::JobKey;

/// Every metric of the operator. Counters get the suffix `_total` when they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// 1 while this replica leads, or leader election is off.
    FencepostOperatorLeader,
    /// Reconciliations by result.
    FencepostOperatorReconciles,
    /// Time of a reconciliation in seconds.
    FencepostOperatorReconcileDurationSeconds,
    /// Checks of brokers by result: `ok`, or the reason of the condition.
    FencepostOperatorBrokerChecks,
    /// Plan pods by outcome.
    FencepostOperatorPlans,
    /// Workers that were replaced, by cause.
    FencepostOperatorPodsReplaced,
    /// StreamJobs that cannot be read.
    FencepostOperatorInvalidObjects,
    /// Conditions of StreamJobs: 1 True, 0 False, -1 Unknown.
    FencepostJobCondition,
    /// Workers wanted.
    FencepostJobWorkersWanted,
    /// Workers that process.
    FencepostJobWorkersReady,
    /// Epoch of the workers; a change is a restart of all workers.
    FencepostJobEpoch,
}

impl Metric {
    /// Counters are written with a suffix.
    #[must_use]
    pub const fn is_counter(self) -> bool {
        matches!(
            self,
            Self::FencepostOperatorReconciles
                | Self::FencepostOperatorBrokerChecks
                | Self::FencepostOperatorPlans
                | Self::FencepostOperatorPodsReplaced
        )
    }

    /// What it says.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::FencepostOperatorLeader => "1 while this process works, 0 while it is a standby",
            Self::FencepostOperatorReconciles => "Reconciliations, by result (ok, error, changed, timeout)",
            Self::FencepostOperatorReconcileDurationSeconds => "Seconds per reconciliation",
            Self::FencepostOperatorBrokerChecks => "Checks of brokers, by result (ok, or the reason of the condition)",
            Self::FencepostOperatorPlans => "Plan pods, by result (answered, failed, superseded)",
            Self::FencepostOperatorPodsReplaced => {
                "Workers that were replaced, by cause (crash: again and again; credentials: they have changed)"
            }
            Self::FencepostOperatorInvalidObjects => "StreamJobs that cannot be read",
            Self::FencepostJobCondition => "Conditions of StreamJobs: 1 True, 0 False, -1 Unknown",
            Self::FencepostJobWorkersWanted => "Workers wanted",
            Self::FencepostJobWorkersReady => "Workers that process",
            Self::FencepostJobEpoch => "Epoch of the workers; a change is a restart of all workers",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    namespace: String,
    name: String,
    r#type: String,
}

/// All metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    leader: Gauge,
    reconciles: Family<ResultLabel, Counter>,
    duration: Histogram,
    broker_checks: Family<ResultLabel, Counter>,
    plans: Family<ResultLabel, Counter>,
    replaced: Family<CauseLabel, Counter>,
    invalid: Gauge,
    condition: Family<ConditionLabels, Gauge>,
    wanted: Family<JobLabels, Gauge>,
    ready: Family<JobLabels, Gauge>,
    epoch: Family<JobLabels, Gauge>,
    invalid_jobs: Arc<Mutex<HashSet<JobKey>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            leader: Gauge::default(),
            reconciles: Family::default(),
            duration: Histogram::new([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]),
            broker_checks: Family::default(),
            plans: Family::default(),
            replaced: Family::default(),
            invalid: Gauge::default(),
            condition: Family::default(),
            wanted: Family::default(),
            ready: Family::default(),
            epoch: Family::default(),
            invalid_jobs: Arc::default(),
        };
        metrics.registry = Arc::new(metrics.register());
        metrics
    }
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut registry = Registry::default();
        add(&mut registry, Metric::FencepostOperatorLeader, self.leader.clone());
        add(&mut registry, Metric::FencepostOperatorReconciles, self.reconciles.clone());
        add(&mut registry, Metric::FencepostOperatorReconcileDurationSeconds, self.duration.clone());
        add(&mut registry, Metric::FencepostOperatorBrokerChecks, self.broker_checks.clone());
        add(&mut registry, Metric::FencepostOperatorPlans, self.plans.clone());
        add(&mut registry, Metric::FencepostOperatorPodsReplaced, self.replaced.clone());
        add(&mut registry, Metric::FencepostOperatorInvalidObjects, self.invalid.clone());
        add(&mut registry, Metric::FencepostJobCondition, self.condition.clone());
        add(&mut registry, Metric::FencepostJobWorkersWanted, self.wanted.clone());
        add(&mut registry, Metric::FencepostJobWorkersReady, self.ready.clone());
        add(&mut registry, Metric::FencepostJobEpoch, self.epoch.clone());
        registry
    }

    /// Everything in the text format of Prometheus.
    ///
    /// # Errors
    /// The text cannot be written: out of memory.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// This replica leads.
    pub fn leads(&self) {
        self.leader.set(1);
    }

    /// A reconciliation ended.
    pub fn reconciled(&self, result: &str, took: Duration) {
        self.reconciles.get_or_create(&label(result)).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Brokers were asked.
    pub fn broker_checked(&self, answer: &BrokerObserved) {
        let result = match answer {
            BrokerObserved::NotAsked => return,
            BrokerObserved::Facts(_) => "ok".to_owned(),
            BrokerObserved::Failed(failure) => failure.reason.to_string(),
        };
        self.broker_checks.get_or_create(&label(&result)).inc();
    }

    /// A plan pod ended.
    pub fn planned(&self, outcome: PlanOutcome) {
        let result = match outcome {
            PlanOutcome::Answered => "answered",
            PlanOutcome::Failed => "failed",
            PlanOutcome::Superseded => "superseded",
        };
        self.plans.get_or_create(&label(result)).inc();
    }

    /// A worker was replaced.
    pub fn replaced(&self, cause: Cause) {
        let cause = match cause {
            Cause::Crash => "crash",
            Cause::Credentials => "credentials",
        };
        self.replaced.get_or_create(&CauseLabel { cause: cause.to_owned() }).inc();
    }

    /// An object cannot be read.
    pub fn invalid_object(&self, key: &JobKey) {
        self.change_invalid(|jobs| jobs.insert(key.clone()));
    }

    /// An object can be read.
    pub fn valid_object(&self, key: &JobKey) {
        self.change_invalid(|jobs| jobs.remove(key));
    }

    fn change_invalid(&self, change: impl FnOnce(&mut HashSet<JobKey>) -> bool) {
        let mut jobs = self.invalid_jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut jobs) {
            self.invalid.set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
        }
    }

    /// What is known about a job.
    pub fn job(&self, key: &JobKey, replicas: i32, status: &StreamJobStatus) {
        let labels = job_labels(key);
        self.wanted.get_or_create(&labels).set(i64::from(replicas));
        self.ready.get_or_create(&labels).set(i64::from(status.ready_replicas.unwrap_or(0)));
        self.epoch.get_or_create(&labels).set(status.epoch.unwrap_or(0));
        for condition in &status.conditions {
            let value = match condition.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => -1,
            };
            self.condition.get_or_create(&condition_labels(key, &condition.type_)).set(value);
        }
    }

    /// A job is gone.
    pub fn forget(&self, key: &JobKey) {
        use strum::IntoEnumIterator;
        let labels = job_labels(key);
        for family in [&self.wanted, &self.ready, &self.epoch] {
            family.remove(&labels);
        }
        for condition in fencepost_crds::conditions::ConditionType::iter() {
            self.condition.remove(&condition_labels(key, &condition.to_string()));
        }
        self.valid_object(key);
    }
}

fn add(registry: &mut Registry, metric: Metric, what: impl prometheus_client::registry::Metric) {
    registry.register(<&'static str>::from(metric), metric.help(), what);
}

fn label(result: &str) -> ResultLabel {
    ResultLabel { result: result.to_owned() }
}

fn job_labels(key: &JobKey) -> JobLabels {
    JobLabels { namespace: key.0.clone(), name: key.1.clone() }
}

fn condition_labels(key: &JobKey, type_: &str) -> ConditionLabels {
    ConditionLabels { namespace: key.0.clone(), name: key.1.clone(), r#type: type_.to_owned() }
}

#[cfg(test)]
mod tests {
    use fencepost_crds::conditions::{self, ConditionStatus, ConditionType, Reason};
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn every_metric_of_the_list_is_written_and_has_the_prefix() {
        let metrics = Metrics::default();
        // A family without series is not written.
        metrics.reconciled("ok", Duration::ZERO);
        metrics.broker_checked(&BrokerObserved::Facts(fencepost_plan::BrokerFacts::default()));
        metrics.planned(PlanOutcome::Answered);
        metrics.replaced(Cause::Crash);
        metrics.job(&("shop".to_owned(), "spend".to_owned()), 3, &ready_status());
        let text = metrics.text().unwrap();
        for metric in Metric::iter() {
            let name: &str = metric.into();
            assert!(name.starts_with("fencepost_"), "{name}");
            assert!(text.contains(&format!("# HELP {name} {}", metric.help())), "{name} is missing in\n{text}");
        }
    }

    fn ready_status() -> StreamJobStatus {
        let mut status = StreamJobStatus::default();
        let now = Time(Timestamp::UNIX_EPOCH);
        let (kind, yes) = (ConditionType::Ready, ConditionStatus::True);
        conditions::set(&mut status.conditions, kind, yes, Reason::AllWorkersReady, "", None, &now);
        status
    }

    #[test]
    fn the_reference_lists_every_metric() {
        let mut page = "# Metrics of the operator\n\n<!-- Generated by `UPDATE=1 cargo test -p fencepost-operator`. Do not edit. -->\n\n\
                        `GET /metrics` on port 8080 of the operator.\n\n| metric | meaning |\n|---|---|\n"
            .to_owned();
        for metric in Metric::iter() {
            let name: &str = metric.into();
            let suffix = if metric.is_counter() { "_total" } else { "" };
            page.push_str(&format!("| `{name}{suffix}` | {}. |\n", metric.help()));
        }
        page.push_str("\nSeries of a StreamJob carry `namespace` and `name`, and disappear with it.\n");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/operator-metrics.md");
        if std::env::vars().any(|(name, _)| name == "UPDATE") {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == page, "out of date: run `UPDATE=1 cargo test -p fencepost-operator`");
    }

    #[test]
    fn every_line_is_one_that_a_scraper_reads() {
        let metrics = Metrics::default();
        metrics.replaced(Cause::Crash);
        metrics.job(&("shop".to_owned(), "spend".to_owned()), 3, &ready_status());
        let text = metrics.text().unwrap();
        assert_eq!(text.lines().last(), Some("# EOF"));
        for line in text.lines().filter(|line| *line != "# EOF") {
            let is_about = ["# HELP ", "# TYPE ", "# UNIT "].iter().any(|word| line.starts_with(word));
            let sample = line.rsplit_once(' ').filter(|(name, _)| name.starts_with("fencepost_"));
            assert!(is_about || sample.is_some_and(|(_, value)| value.parse::<f64>().is_ok()), "{line}");
        }
    }

    #[test]
    fn series_of_a_deleted_job_are_removed() {
        let metrics = Metrics::default();
        let key = ("shop".to_owned(), "spend".to_owned());
        metrics.job(&key, 3, &ready_status());
        metrics.invalid_object(&key);
        assert!(metrics.text().unwrap().contains(r#"type="Ready"} 1"#));
        metrics.forget(&key);
        assert!(!metrics.text().unwrap().contains("spend"));
        assert!(metrics.text().unwrap().contains("fencepost_operator_invalid_objects 0"));
    }
}
