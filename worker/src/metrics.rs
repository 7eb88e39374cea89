//! Metrics of a worker. Counters and histograms are fed by the slots; gauges are read from their state when somebody asks.

use std::sync::{Arc, atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use strum::{EnumIter, EnumMessage, IntoEnumIterator, IntoStaticStr};

use crate::slot::{Observation, Observer};

/// Every metric of the worker. The text is its help, and its line in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Metric {
    /// Records read, by slot.
    RecordsIn,
    /// Bytes of keys and values read, by slot.
    BytesIn,
    /// Records written and committed, by slot.
    RecordsOut,
    /// Bytes of keys and values written and committed, by slot.
    BytesOut,
    /// Records that could not be read or processed, by slot.
    BadRecords,
    /// Seconds in the pipeline per batch, by slot.
    BatchDuration,
    /// Seconds from the decision to commit to the answer, by slot.
    CommitDuration,
    /// Transactions that ended, by slot and kind (`committed`, `aborted`, `abandoned`). With `AtLeastOnce`: commits of positions.
    Transactions,
    /// Changes of the assignment, by slot and kind (`assigned`, `revoked`, `lost`).
    Rebalances,
    /// Errors, by slot and kind: what they ask for (`retry`, `recreate`, `fatal`, …). There is no series before the first.
    Errors,
    /// Records between the committed position and the last stable offset, by slot, topic and partition. Until that end was reached once, up
    /// to the high watermark, which counts open transactions of others too.
    Lag,
    /// Seconds that the open transaction has been open, by slot; 0: none is.
    OpenTransactionAge,
    /// 1 while the slot is in the group and can commit, by slot.
    SlotReady,
}

impl Metric {
    fn name(self) -> &'static str {
        self.into()
    }

    /// One line: a line end in it would end the line of the exposition.
    fn help(self) -> String {
        let words: Vec<&str> = self.get_documentation().unwrap_or_default().split_whitespace().collect();
        // The text format ends the help with a full stop of its own.
        words.join(" ").trim_end_matches('.').to_owned()
    }
}

const PREFIX: &str = "fencepost_worker";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Slot {
    slot: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotAnd {
    slot: u32,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotPartition {
    slot: u32,
    topic: String,
    partition: i32,
}

/// 1 ms to 16 s.
#[derive(Clone, Debug)]
struct Durations;

impl MetricConstructor<Histogram> for Durations {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 15))
    }
}

/// What is read from a slot when metrics are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotGauges {
    pub(crate) slot: u32,
    pub(crate) ready: bool,
    pub(crate) open_seconds: f64,
    /// Topic, partition, lag.
    pub(crate) lags: Vec<(String, i32, i64)>,
}

/// The metrics of a worker.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    records_in: Family<Slot, Counter>,
    bytes_in: Family<Slot, Counter>,
    records_out: Family<Slot, Counter>,
    bytes_out: Family<Slot, Counter>,
    bad_records: Family<Slot, Counter>,
    batch: Family<Slot, Histogram, Durations>,
    commit: Family<Slot, Histogram, Durations>,
    transactions: Family<SlotAnd, Counter>,
    rebalances: Family<SlotAnd, Counter>,
    errors: Family<SlotAnd, Counter>,
    lag: Family<SlotPartition, Gauge>,
    open: Family<Slot, Gauge<f64, AtomicU64>>,
    ready: Family<Slot, Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let durations = || Family::new_with_constructor(Durations);
        let mut metrics = Self {
            registry: Registry::with_prefix(PREFIX),
            records_in: Family::default(),
            bytes_in: Family::default(),
            records_out: Family::default(),
            bytes_out: Family::default(),
            bad_records: Family::default(),
            batch: durations(),
            commit: durations(),
            transactions: Family::default(),
            rebalances: Family::default(),
            errors: Family::default(),
            lag: Family::default(),
            open: Family::default(),
            ready: Family::default(),
        };
        for metric in Metric::iter() {
            metrics.register(metric);
        }
        Arc::new(metrics)
    }

    fn register(&mut self, metric: Metric) {
        let (name, help) = (metric.name(), metric.help());
        let registry = &mut self.registry;
        match metric {
            Metric::RecordsIn => registry.register(name, help, self.records_in.clone()),
            Metric::BytesIn => registry.register(name, help, self.bytes_in.clone()),
            Metric::RecordsOut => registry.register(name, help, self.records_out.clone()),
            Metric::BytesOut => registry.register(name, help, self.bytes_out.clone()),
            Metric::BadRecords => registry.register(name, help, self.bad_records.clone()),
            Metric::BatchDuration => registry.register_with_unit(name, help, Unit::Seconds, self.batch.clone()),
            Metric::CommitDuration => registry.register_with_unit(name, help, Unit::Seconds, self.commit.clone()),
            Metric::Transactions => registry.register(name, help, self.transactions.clone()),
            Metric::Rebalances => registry.register(name, help, self.rebalances.clone()),
            Metric::Errors => registry.register(name, help, self.errors.clone()),
            Metric::Lag => registry.register("lag_records", help, self.lag.clone()),
            Metric::OpenTransactionAge => registry.register_with_unit(name, help, Unit::Seconds, self.open.clone()),
            Metric::SlotReady => registry.register(name, help, self.ready.clone()),
        }
    }

    /// All metrics as text, with the gauges as they are now.
    ///
    /// # Errors
    /// When they cannot be written as text.
    pub(crate) fn text(&self, slots: &[SlotGauges]) -> Result<String, std::fmt::Error> {
        // Partitions move between workers: those that are not ours any more must not be reported.
        self.lag.clear();
        for gauges in slots {
            let slot = gauges.slot;
            self.ready.get_or_create(&Slot { slot }).set(i64::from(gauges.ready));
            self.open.get_or_create(&Slot { slot }).set(gauges.open_seconds);
            for (topic, partition, lag) in gauges.lags.iter().filter(|(_, _, lag)| *lag >= 0) {
                let labels = SlotPartition { slot, topic: topic.clone(), partition: *partition };
                self.lag.get_or_create(&labels).set(*lag);
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Observer for Metrics {
    fn observe(&self, slot: u32, observation: Observation) {
        let labels = Slot { slot };
        let and = |kind: &'static str| SlotAnd { slot, kind };
        match observation {
            Observation::Batch { records_in, bytes_in, bad, took, .. } => {
                self.records_in.get_or_create(&labels).inc_by(records_in);
                self.bytes_in.get_or_create(&labels).inc_by(bytes_in);
                self.bad_records.get_or_create(&labels).inc_by(bad);
                self.batch.get_or_create(&labels).observe(took.as_secs_f64());
            }
            Observation::Transaction { outcome, took, records_out, bytes_out, .. } => {
                self.transactions.get_or_create(&and(outcome.into())).inc();
                if outcome == crate::slot::Outcome::Committed {
                    self.records_out.get_or_create(&labels).inc_by(records_out);
                    self.bytes_out.get_or_create(&labels).inc_by(bytes_out);
                    self.commit.get_or_create(&labels).observe(took.as_secs_f64());
                }
            }
            Observation::Rebalance(kind) => {
                self.rebalances.get_or_create(&and(kind.into())).inc();
            }
            Observation::Error(class) => {
                self.errors.get_or_create(&and(class.label())).inc();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write, fs, path::PathBuf, time::Duration};

    use super::*;
    use crate::slot::Outcome;

    /// Name as it is scraped.
    fn full_name(metric: Metric) -> String {
        let suffix = match metric {
            Metric::Lag => "_records",
            Metric::SlotReady => "",
            Metric::OpenTransactionAge | Metric::BatchDuration | Metric::CommitDuration => "_seconds",
            _ => "_total",
        };
        format!("{PREFIX}_{}{suffix}", metric.name())
    }

    fn some_of_everything(metrics: &Metrics) -> String {
        let took = Duration::from_millis(3);
        let batch = Observation::Batch { records_in: 5, bytes_in: 50, records_out: 4, bytes_out: 40, bad: 1, took };
        metrics.observe(0, batch);
        for outcome in [Outcome::Committed, Outcome::Aborted] {
            metrics
                .observe(0, Observation::Transaction { outcome, open_for: took, took, records_out: 4, bytes_out: 40 });
        }
        metrics.observe(0, Observation::Rebalance(crate::slot::RebalanceKind::Assigned));
        metrics.observe(0, Observation::Error(fencepost_kafka::error::ErrorClass::Retry));
        let gauges = SlotGauges { slot: 0, ready: true, open_seconds: 0.5, lags: vec![("in".to_owned(), 3, 17)] };
        metrics.text(&[gauges]).unwrap()
    }

    #[test]
    fn only_what_was_committed_counts_as_output() {
        let text = some_of_everything(&Metrics::new());
        assert!(text.contains("fencepost_worker_records_out_total{slot=\"0\"} 4"), "{text}");
        assert!(text.contains("fencepost_worker_transactions_total{slot=\"0\",kind=\"aborted\"} 1"), "{text}");
    }

    #[test]
    fn every_line_is_one_that_a_scraper_reads() {
        let text = some_of_everything(&Metrics::new());
        assert_eq!(text.lines().last(), Some("# EOF"));
        for line in text.lines().filter(|line| *line != "# EOF") {
            let is_about = ["# HELP ", "# TYPE ", "# UNIT "].iter().any(|word| line.starts_with(word));
            let sample = line.rsplit_once(' ').filter(|(name, _)| name.starts_with(PREFIX));
            assert!(is_about || sample.is_some_and(|(_, value)| value.parse::<f64>().is_ok()), "{line}");
        }
    }

    #[test]
    fn a_partition_that_left_is_not_reported_any_more() {
        let metrics = Metrics::new();
        assert!(some_of_everything(&metrics).contains("partition=\"3\""));
        assert!(!metrics.text(&[]).unwrap().contains("partition=\"3\""));
    }

    #[test]
    fn the_reference_lists_every_metric_under_the_name_it_is_scraped_by() {
        let text = some_of_everything(&Metrics::new());
        let mut page = String::from(
            "# Metrics of the worker\n\n<!-- Generated by `UPDATE=1 cargo test -p fencepost-worker`. Do not edit. -->\n\n\
             `GET /metrics` on port 8080 of each worker.\n\n| metric | meaning |\n|---|---|\n",
        );
        for metric in Metric::iter() {
            assert!(text.contains(&full_name(metric)), "{} is not in\n{text}", full_name(metric));
            writeln!(page, "| `{}` | {}. |", full_name(metric), metric.help()).unwrap();
        }
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/worker-metrics.md");
        if std::env::vars().any(|(name, _)| name == "UPDATE") {
            fs::write(&path, &page).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap_or_default() == page, "run `UPDATE=1 cargo test -p fencepost-worker`");
    }
}
