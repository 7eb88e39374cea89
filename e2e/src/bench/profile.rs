//! Where the worker's processor time goes: samples taken by `perf` during a backlog, added up by part of the worker.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use strum::IntoEnumIterator;

use super::Error;
use crate::command::{self, words};

/// A part of the work. In the order of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
enum Part {
    /// From the socket to records: librdkafka's consumer and ours.
    Fetch,
    /// From JSON to columns.
    Decode,
    /// Filter and project.
    Evaluate,
    /// From columns to JSON.
    Encode,
    /// From records to the socket: librdkafka's producer and ours.
    Produce,
    /// Transactions and positions.
    Commit,
    /// What none of the names says.
    Other,
}

/// Names in a call chain that say whose work it is. The innermost call that has a name in it decides, and the first of its names:
/// a `malloc` belongs to whoever called it.
const NAMES: [(&str, Part); 28] = [
    ("rd_kafka_txn", Part::Commit),
    ("rd_kafka_commit_transaction", Part::Commit),
    ("rd_kafka_send_offsets_to_transaction", Part::Commit),
    ("Producer::commit", Part::Commit),
    ("Producer::send_offsets", Part::Commit),
    ("rd_kafka_msgset_reader", Part::Fetch),
    ("rd_kafka_fetch", Part::Fetch),
    ("rd_kafka_broker_fetch", Part::Fetch),
    ("rd_kafka_consume", Part::Fetch),
    ("rd_kafka_q_serve_rkmessages", Part::Fetch),
    ("rd_kafka_message_destroy", Part::Fetch),
    ("rd_kafka_transport_recv", Part::Fetch),
    ("rd_kafka_transport_socket_recv", Part::Fetch),
    ("rd_kafka_recv", Part::Fetch),
    ("fencepost_kafka::consumer", Part::Fetch),
    ("fencepost_pipeline::decode", Part::Decode),
    ("fencepost_pipeline::evaluate", Part::Evaluate),
    ("datafusion_", Part::Evaluate),
    ("fencepost_pipeline::encode", Part::Encode),
    ("rd_kafka_msgset_writer", Part::Produce),
    ("rd_kafka_produce", Part::Produce),
    ("rd_kafka_toppar_producer", Part::Produce),
    ("rd_kafka_broker_produce", Part::Produce),
    ("rd_kafka_handle_Produce", Part::Produce),
    ("rd_kafka_dr_", Part::Produce),
    ("rd_kafka_transport_send", Part::Produce),
    ("rd_kafka_send", Part::Produce),
    ("fencepost_kafka::producer", Part::Produce),
];

fn part_of(chain: &[&str]) -> Part {
    let named = |call: &&str| NAMES.iter().find(|(name, _)| call.contains(name)).map(|(_, part)| *part);
    chain.iter().find_map(named).unwrap_or(Part::Other)
}

/// Samples by part, and by thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shares {
    parts: BTreeMap<Part, u64>,
    threads: BTreeMap<String, u64>,
    /// The innermost calls of samples that belong to no part.
    unknown: BTreeMap<String, u64>,
}

impl Shares {
    /// Reads what `perf script -F comm,ip,sym` prints: for each sample a line with the thread, then a line a call from the innermost
    /// on, then a blank line.
    fn read(text: &str) -> Self {
        let mut shares = Self::default();
        for sample in text.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
            let Some(thread) = lines.next() else { continue };
            let calls: Vec<&str> = lines.map(|line| line.trim().split_once(' ').map_or("", |(_, call)| call)).collect();
            *shares.threads.entry(thread.trim().to_owned()).or_default() += 1;
            let part = part_of(&calls);
            *shares.parts.entry(part).or_default() += 1;
            if part == Part::Other {
                *shares.unknown.entry(calls.first().unwrap_or(&"").to_string()).or_default() += 1;
            }
        }
        shares
    }

    fn shown(&self) -> String {
        let all: u64 = self.parts.values().sum();
        let mut text = format!("Processor time of the worker, {all} samples\n");
        let mut line = |name: &str, count: u64| writeln!(text, "  {name:<40} {:5.1} %", percent(count, all)).ok();
        for part in Part::iter() {
            line(&part.to_string(), self.parts.get(&part).copied().unwrap_or_default());
        }
        line("", all);
        for (thread, count) in most(&self.threads, 8) {
            line(&format!("thread {thread}"), count);
        }
        for (call, count) in most(&self.unknown, 8) {
            line(&format!("other: {call}"), count);
        }
        text
    }
}

fn most(counts: &BTreeMap<String, u64>, limit: usize) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(limit);
    all
}

#[expect(clippy::cast_precision_loss, reason = "thousands of samples")]
fn percent(count: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * count as f64 / all as f64 }
}

/// Makes sure that there is a `perf`.
pub(super) fn ensure() -> Result<(), Error> {
    match command::run(&mut words("perf", ["--version"])) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NoPerf),
    }
}

/// What the samples in a file say.
pub(super) fn read(data: &Path) -> Result<String, Error> {
    // Inlined calls would be looked up one by one, which takes minutes.
    let mut perf = words("perf", ["script", "--no-inline", "-F", "comm,ip,sym", "-i"]);
    Ok(Shares::read(&command::run(perf.arg(data))?).shown())
}

#[cfg(test)]
mod tests {
    use super::{Part, Shares, part_of};

    const SCRIPT: &str = "slot-0 \n\
        \t    7f1 malloc\n\
        \t    7f2 rd_kafka_op_new0\n\
        \t    7f3 rd_kafka_msgset_reader_msg_v2\n\
        \t    7f4 rd_kafka_broker_thread_main\n\n\
        rdk:broker1 \n\
        \t    7f5 fencepost_pipeline::decode::json::scan\n\
        \t    7f6 fencepost_worker::slot::driver::Driver::process\n\n\
        rdk:broker1 \n\
        \t    7f7 poll\n\n";

    #[test]
    fn the_innermost_call_with_a_name_decides() {
        let chain = ["memcpy", "rd_kafka_transport_send", "rd_kafka_txn_send_AddOffsets"];
        assert_eq!(part_of(&chain), Part::Produce);
        assert_eq!(part_of(&["memcpy", "<fencepost_kafka::producer::Producer::commit>"]), Part::Commit);
        assert_eq!(part_of(&["memcpy", "main"]), Part::Other);
    }

    #[test]
    fn samples_are_counted_by_part_and_by_thread() {
        let shares = Shares::read(SCRIPT);
        assert_eq!(
            shares.parts.into_iter().collect::<Vec<_>>(),
            [(Part::Fetch, 1), (Part::Decode, 1), (Part::Other, 1)]
        );
        assert_eq!(shares.threads["rdk:broker1"], 2);
        assert_eq!(shares.unknown["poll"], 1);
    }

    #[test]
    fn shares_are_of_all_samples() {
        let shown = Shares::read(SCRIPT).shown();
        assert!(shown.contains("decode                                    33.3 %"), "{shown}");
        assert!(shown.contains("commit                                     0.0 %"), "{shown}");
    }
}
