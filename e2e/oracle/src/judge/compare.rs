//! Multisets with counts: what must be against what is.

use std::{cmp::Ordering, collections::HashSet};

use super::{Seen, Standing, TopicIndex, Topics, Wanted};
use crate::{
    content::Content,
    judge::Promise,
    record::RecordId,
    verdict::{Fault, Finding, Verdict},
};

type Home = (TopicIndex, RecordId);

/// Both lists sorted by topic, id, content. Gives every seen record its standing.
pub(super) fn compare(
    wanted: &[Wanted],
    seen: &mut [Seen],
    withdrawn: &HashSet<RecordId>,
    topics: &Topics,
    verdict: &mut Verdict,
) {
    let mut bench = Bench { withdrawn, topics, verdict };
    let mut wanted = wanted.chunk_by(|a, b| home_of(a) == home_of(b)).peekable();
    let mut seen = seen.chunk_by_mut(|a, b| (a.topic, a.id) == (b.topic, b.id)).peekable();
    loop {
        let next_wanted = wanted.peek().and_then(|group| group.first()).map(home_of);
        let next_seen = seen.peek().and_then(|group| group.first()).map(|one| (one.topic, one.id));
        let order = match (next_wanted, next_seen) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(wanted), Some(seen)) => wanted.cmp(&seen),
        };
        let must = if order == Ordering::Greater { &[][..] } else { wanted.next().unwrap_or_default() };
        let is = if order == Ordering::Less { &mut [][..] } else { seen.next().unwrap_or_default() };
        bench.group(must, is);
    }
}

fn home_of(wanted: &Wanted) -> Home {
    (wanted.topic, wanted.id)
}

struct Bench<'a> {
    withdrawn: &'a HashSet<RecordId>,
    topics: &'a Topics,
    verdict: &'a mut Verdict,
}

impl Bench<'_> {
    /// Everything of one topic that came, or must come, from one input record.
    fn group(&mut self, wanted: &[Wanted], seen: &mut [Seen]) {
        let mut missing: Vec<&Wanted> = Vec::new();
        for same in wanted.chunk_by(|a, b| a.content == b.content) {
            let Some(first) = same.first() else { continue };
            let places = self.fill(first.content, same.len(), seen);
            missing.extend(same.iter().skip(places));
        }
        let mut missing = missing.into_iter();
        for stray in seen.iter_mut().filter(|one| one.standing == Standing::Open) {
            stray.standing = Standing::Stray;
            let fault = if missing.next().is_some() {
                Fault::Changed
            } else if self.withdrawn.contains(&stray.id) {
                Fault::Uncommitted
            } else {
                Fault::Unexpected
            };
            self.verdict.add(stray.finding(fault, self.topics));
        }
        for lost in missing {
            self.verdict.add(Finding {
                fault: Fault::Lost,
                id: Some(lost.id),
                topic: self.topics.name(lost.topic),
                at: None,
                detail: String::new(),
                count: 1,
            });
        }
    }

    /// Puts seen records with this content into `places` places. Gives the number of places filled.
    fn fill(&mut self, content: Content, places: usize, seen: &mut [Seen]) -> usize {
        let mut filled = 0;
        let mut repeats = 0;
        let mut first_repeat = None;
        for one in seen.iter_mut().filter(|one| one.content == content) {
            if filled < places {
                filled += 1;
                one.standing = Standing::First;
            } else {
                repeats += 1;
                one.standing = Standing::Repeat;
                first_repeat.get_or_insert(*one);
            }
        }
        if let Some(repeat) = first_repeat {
            if self.verdict.promise == Promise::AtLeastOnce {
                self.verdict.repeats += repeats;
            } else {
                self.verdict.add(Finding { count: repeats, ..repeat.finding(Fault::Duplicated, self.topics) });
            }
        }
        filled
    }
}
