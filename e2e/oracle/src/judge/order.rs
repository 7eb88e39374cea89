//! Order: what one source partition led to stands in an output partition in the order of the source, and one key stays in
//! one partition.

use std::collections::HashMap;

use super::{Seen, Standing, Topics};
use crate::{
    content::KeyHash,
    verdict::{Fault, Finding, Verdict},
};

/// Checks the records that fill a place. A repeat is a fault of its own, or none, and never one of order.
pub(super) fn check(seen: &mut [Seen], topics: &Topics, verdict: &mut Verdict) {
    seen.sort_unstable_by_key(|one| (one.topic, one.partition, one.offset));
    for topic in seen.chunk_by(|a, b| a.topic == b.topic) {
        let mut homes: HashMap<KeyHash, i32> = HashMap::new();
        for partition in topic.chunk_by(|a, b| a.partition == b.partition) {
            let in_place = || partition.iter().filter(|one| one.standing == Standing::First);
            let mut newest: HashMap<(u16, i32, u8), u64> = HashMap::new();
            for one in in_place() {
                let newest = newest.entry((one.id.stream, one.id.partition, one.lane)).or_insert(one.id.sequence);
                if one.id.sequence < *newest {
                    let detail = format!("it stands behind sequence {newest} of its source partition");
                    verdict.add(Finding { detail, ..one.finding(Fault::Reordered, topics) });
                }
                *newest = (*newest).max(one.id.sequence);
            }
            for one in in_place() {
                let Some(key) = one.key else { continue };
                let home = *homes.entry(key).or_insert(one.partition);
                if home != one.partition {
                    let detail = format!("its key is in partition {home} too");
                    verdict.add(Finding { detail, ..one.finding(Fault::Scattered, topics) });
                }
            }
        }
    }
}
