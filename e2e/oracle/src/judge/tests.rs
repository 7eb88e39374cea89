use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use strum::IntoEnumIterator;

use super::{End, Judge, Promise};
use crate::{
    content::{Body, Content},
    model::{Expected, Model, Recognised},
    record::{Record, RecordId},
    verdict::{Fault, SHOWN_PER_FAULT, Verdict},
};

/// `SELECT part, seq, amount * 2 AS amount FROM input WHERE amount >= 0`, keyed by `part`.
struct Doubling;

impl Doubling {
    fn id(value: &Value) -> Option<RecordId> {
        let partition = i32::try_from(value.get("part")?.as_i64()?).ok()?;
        Some(RecordId { stream: 0, partition, sequence: value.get("seq")?.as_u64()? })
    }
}

impl Model for Doubling {
    fn identify(&self, input: &Record<'_>) -> Option<RecordId> {
        Self::id(&serde_json::from_slice(input.value?).ok()?)
    }

    fn expect(&self, input: &Record<'_>) -> Vec<Expected> {
        let value: Value = serde_json::from_slice(input.value.unwrap()).unwrap();
        let amount = value["amount"].as_i64().unwrap();
        if amount < 0 {
            return Vec::new();
        }
        let output = json!({"part": value["part"], "seq": value["seq"], "amount": amount * 2});
        let key = value["part"].to_string();
        vec![Expected { topic: Arc::from("out"), content: Content::new(Some(key.as_bytes()), &Body::Json(&output)) }]
    }

    fn recognise(&self, output: &Record<'_>) -> Option<Recognised> {
        let value = serde_json::from_slice(output.value?).ok()?;
        let content = Content::new(output.key, &Body::Json(&value));
        Some(Recognised { id: Self::id(&value)?, content, lane: 0 })
    }
}

/// An output record to be fed: source partition, sequence, amount, and the key where it is not the source partition.
#[derive(Clone, Debug, PartialEq)]
struct Out {
    partition: i32,
    sequence: u64,
    amount: i64,
    key: Option<&'static str>,
    home: i32,
}

fn out(partition: i32, sequence: u64, amount: i64) -> Out {
    Out { partition, sequence, amount, key: None, home: partition }
}

/// Input: two partitions of ten records, where each third has a negative amount.
fn amount(sequence: u64) -> i64 {
    let amount = i64::try_from(sequence).unwrap() * 10;
    if sequence % 3 == 2 { -amount } else { amount }
}

fn sequences() -> impl Iterator<Item = (i32, u64)> {
    (0..2).flat_map(|partition| (0..10).map(move |sequence| (partition, sequence)))
}

/// What a job without a fault writes.
fn right() -> Vec<Out> {
    sequences().filter(|(_, s)| amount(*s) >= 0).map(|(p, s)| out(p, s, amount(s) * 2)).collect()
}

fn feed_input(judge: &mut Judge<Doubling>, partition: i32, sequence: u64) {
    let value = json!({"part": partition, "seq": sequence, "amount": amount(sequence)}).to_string();
    let offset = i64::try_from(sequence).unwrap();
    judge.input(&Record { topic: "in", partition, offset, value: Some(value.as_bytes()), ..Record::default() });
}

fn feed_output(judge: &mut Judge<Doubling>, outputs: &[Out]) {
    for (offset, one) in outputs.iter().enumerate() {
        let value = json!({"part": one.partition, "seq": one.sequence, "amount": one.amount}).to_string();
        let key = one.key.map_or_else(|| one.partition.to_string(), ToOwned::to_owned);
        judge.output(&Record {
            topic: "out",
            partition: one.home,
            offset: i64::try_from(offset).unwrap(),
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: Vec::new(),
        });
    }
}

fn judge_with_input(promise: Promise) -> Judge<Doubling> {
    let mut judge = Judge::new(Doubling, promise);
    for (partition, sequence) in sequences() {
        feed_input(&mut judge, partition, sequence);
    }
    judge
}

fn verdict_on(promise: Promise, outputs: &[Out]) -> Verdict {
    let mut judge = judge_with_input(promise);
    feed_output(&mut judge, outputs);
    judge.verdict()
}

/// The verdict has this fault, so often, and no other.
#[track_caller]
fn assert_only(verdict: &Verdict, fault: Fault, count: u64) {
    assert!(!verdict.holds(), "{verdict}");
    for other in Fault::iter() {
        assert_eq!(verdict.count(other), if other == fault { count } else { 0 }, "{other}: {verdict}");
    }
}

#[test]
fn a_run_without_fault_holds() {
    let verdict = verdict_on(Promise::ExactlyOnce, &right());
    assert!(verdict.holds(), "{verdict}");
    assert_eq!((verdict.inputs, verdict.expected, verdict.found), (20, 14, 14));
}

#[test]
fn a_lost_record_is_found() {
    let mut outputs = right();
    let gone = outputs.remove(3);
    let verdict = verdict_on(Promise::ExactlyOnce, &outputs);
    assert_only(&verdict, Fault::Lost, 1);
    let id = verdict.findings[0].id.unwrap();
    assert_eq!((id.partition, id.sequence), (gone.partition, gone.sequence));
    assert_only(&verdict_on(Promise::AtLeastOnce, &outputs), Fault::Lost, 1);
}

#[test]
fn a_duplicated_record_is_found_with_its_count() {
    let mut outputs = right();
    outputs.push(outputs[4].clone());
    outputs.push(outputs[4].clone());
    let verdict = verdict_on(Promise::ExactlyOnce, &outputs);
    assert_only(&verdict, Fault::Duplicated, 2);
    assert_eq!((verdict.findings.len(), verdict.findings[0].count), (1, 2));
    assert_eq!(verdict.findings[0].at.as_ref().unwrap().offset, 14);
}

#[test]
fn a_duplicated_record_is_a_repeat_where_the_promise_allows_it() {
    let mut outputs = right();
    outputs.push(outputs[4].clone());
    let verdict = verdict_on(Promise::AtLeastOnce, &outputs);
    assert!(verdict.holds(), "{verdict}");
    assert_eq!(verdict.repeats, 1);
}

#[test]
fn a_changed_record_is_found_and_is_not_called_lost() {
    let mut outputs = right();
    outputs[2].amount += 1;
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Changed, 1);
}

#[test]
fn a_record_with_a_changed_key_is_found() {
    let mut outputs = right();
    outputs[2].key = Some("other");
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Changed, 1);
}

#[test]
fn a_record_beside_the_right_one_is_unexpected() {
    let mut outputs = right();
    outputs.push(out(0, 9, 12345));
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Unexpected, 1);
    assert_only(&verdict_on(Promise::AtLeastOnce, &outputs), Fault::Unexpected, 1);
}

#[test]
fn a_record_that_the_filter_drops_is_unexpected() {
    let mut outputs = right();
    outputs.push(out(0, 2, -40));
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Unexpected, 1);
}

#[test]
fn a_record_without_identity_is_unexpected() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    feed_output(&mut judge, &right());
    judge.output(&Record { topic: "out", offset: 99, value: Some(b"{"), ..Record::default() });
    assert_only(&judge.verdict(), Fault::Unexpected, 1);
}

#[test]
fn a_record_made_from_an_aborted_or_open_transaction_is_found() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    let value = json!({"part": 1, "seq": 10, "amount": 5}).to_string();
    judge.withdrawn_input(&Record {
        topic: "in",
        partition: 1,
        offset: 10,
        value: Some(value.as_bytes()),
        ..Record::default()
    });
    let mut outputs = right();
    outputs.push(out(1, 10, 10));
    feed_output(&mut judge, &outputs);
    assert_only(&judge.verdict(), Fault::Uncommitted, 1);
}

#[test]
fn an_aborted_input_that_leads_to_nothing_is_right() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    let value = json!({"part": 1, "seq": 10, "amount": 5}).to_string();
    judge.withdrawn_input(&Record {
        topic: "in",
        partition: 1,
        offset: 10,
        value: Some(value.as_bytes()),
        ..Record::default()
    });
    feed_output(&mut judge, &right());
    let verdict = judge.verdict();
    assert!(verdict.holds(), "{verdict}");
    assert_eq!(verdict.withdrawn, 1);
}

#[test]
fn a_reordered_record_is_found() {
    let mut outputs = right();
    outputs.swap(2, 3);
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Reordered, 1);
    assert_only(&verdict_on(Promise::AtLeastOnce, &outputs), Fault::Reordered, 1);
}

#[test]
fn records_of_two_source_partitions_may_stand_in_any_order() {
    let mut outputs = right();
    for one in &mut outputs {
        one.home = 0;
    }
    let mut halves = outputs.split_off(7);
    halves.extend(outputs);
    let verdict = verdict_on(Promise::ExactlyOnce, &halves);
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn one_key_in_two_partitions_is_found() {
    let mut outputs = right();
    outputs.last_mut().unwrap().home = 5;
    assert_only(&verdict_on(Promise::ExactlyOnce, &outputs), Fault::Scattered, 1);
}

#[test]
fn an_open_transaction_at_the_end_is_found() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    feed_output(&mut judge, &right());
    judge.end("out", 0, End { reached: 7, stable: 7, end: 7 });
    judge.end("out", 1, End { reached: 7, stable: 7, end: 9 });
    assert_only(&judge.verdict(), Fault::OpenTransaction, 2);
}

#[test]
fn a_partition_that_was_not_read_to_its_stable_end_is_found() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    feed_output(&mut judge, &right());
    judge.end("out", 0, End { reached: 6, stable: 7, end: 7 });
    assert_only(&judge.verdict(), Fault::Unread, 1);
}

#[test]
fn input_that_the_job_has_not_reached_is_found() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    feed_output(&mut judge, &right());
    judge.unprocessed("in", 0, 8, 10);
    assert_only(&judge.verdict(), Fault::Unprocessed, 2);
}

#[test]
fn nothing_at_all_is_not_a_success() {
    assert_only(&Judge::new(Doubling, Promise::ExactlyOnce).verdict(), Fault::NothingJudged, 1);
}

#[test]
fn input_whose_sequences_do_not_rise_cannot_be_judged() {
    let mut judge = judge_with_input(Promise::ExactlyOnce);
    feed_output(&mut judge, &right());
    feed_input(&mut judge, 0, 2);
    assert_only(&judge.verdict(), Fault::BadInput, 1);
}

#[test]
fn all_faults_are_counted_and_the_first_are_shown() {
    let verdict = verdict_on(Promise::ExactlyOnce, &[]);
    assert_only(&verdict, Fault::Lost, 14);
    assert_eq!(verdict.findings.len() as u64, SHOWN_PER_FAULT);
    assert!(verdict.to_string().ends_with("and 4 more"), "{verdict}");
}

#[test]
fn a_verdict_can_be_read_by_people_and_by_programs() {
    let mut outputs = right();
    outputs.remove(0);
    outputs.push(outputs[4].clone());
    let verdict = verdict_on(Promise::ExactlyOnce, &outputs);
    assert_eq!(
        verdict.to_string(),
        "ExactlyOnce BROKEN (1 lost, 1 duplicated): 20 committed inputs, 14 outputs expected, 14 found\n  \
         lost: input 0/0/0 in out\n  \
         duplicated: input 0/0/7 at out[0]@13"
    );
    let json: Value = serde_json::from_str(&verdict.to_json()).unwrap();
    assert_eq!(json["faults"], json!({"lost": 1, "duplicated": 1}));
    assert_eq!(json["findings"][0]["id"], json!({"stream": 0, "partition": 0, "sequence": 0}));
}

/// A wrong output made from the right one.
#[derive(Clone, Debug)]
enum Spoil {
    Remove(prop::sample::Index),
    Repeat(prop::sample::Index),
    Change(prop::sample::Index),
    Swap(prop::sample::Index),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Spoil::Remove),
        any::<prop::sample::Index>().prop_map(Spoil::Repeat),
        any::<prop::sample::Index>().prop_map(Spoil::Change),
        any::<prop::sample::Index>().prop_map(Spoil::Swap),
    ]
}

proptest! {
    /// Whatever is done to the right output: the verdict holds only if what is left is the right output.
    #[test]
    fn the_judge_is_not_fooled_by_any_mixture_of_faults(spoils in prop::collection::vec(spoil(), 0..6)) {
        let mut outputs = right();
        for spoil in spoils {
            let len = outputs.len();
            match spoil {
                Spoil::Remove(at) => { outputs.remove(at.index(len)); }
                Spoil::Repeat(at) => { let again = outputs[at.index(len)].clone(); outputs.push(again); }
                Spoil::Change(at) => outputs[at.index(len)].amount += 1,
                Spoil::Swap(at) => { let at = at.index(len - 1); outputs.swap(at, at + 1); }
            }
        }
        let per_partition = |list: &[Out]| {
            let mut list = list.to_vec();
            list.sort_by_key(|one| one.home);
            list
        };
        let same = per_partition(&outputs) == per_partition(&right());
        prop_assert_eq!(verdict_on(Promise::ExactlyOnce, &outputs).holds(), same);
    }
}
