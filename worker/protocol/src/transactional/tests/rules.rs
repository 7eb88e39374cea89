//! Each rule of the protocol, in the smallest story that shows it.

use rstest::rstest;
use strum::IntoEnumIterator;

use crate::transactional::position::{Positions, Stale};
use crate::transactional::{
    Batch, Call, Class, Effect, Event, Exit, MAX_RETRIES, Machine, Mode, Outputs, Start, State,
};
use crate::{Offset, Partition, Token};

const TOKEN: Token = Token(1);
const P0: Partition = Partition::new(0, 0);
const P1: Partition = Partition::new(0, 1);

/// A machine that owns two partitions, committed at 10.
fn running(mode: Mode) -> Machine {
    let mut machine = Machine::new(mode);
    assert_eq!(machine.on(Event::Start), [Effect::OpenProducer]);
    assert_eq!(machine.on(Event::Done(Call::OpenProducer)), []);
    let effects = machine.on(Event::Assigned { token: TOKEN, partitions: vec![P0, P1] });
    assert_eq!(effects, [Effect::Resolve(vec![P0, P1])]);
    let found = vec![(P0, Start::Committed(Offset(10))), (P1, Start::Committed(Offset(10)))];
    assert_eq!(machine.on(Event::Resolved(found)), [Effect::Read(vec![(P0, Offset(10)), (P1, Offset(10))])]);
    machine
}

fn batch(partition: Partition, first: i64, after: i64, outputs: Outputs) -> Event {
    Event::Batch(Batch {
        token: TOKEN,
        consumed: vec![(partition, Offset(first), Offset(after))],
        outputs,
        stop_before: None,
    })
}

/// Answers every call with success until nothing is left to do; returns all effects.
fn settle(machine: &mut Machine, first: Vec<Effect>) -> Vec<Effect> {
    let mut all = first.clone();
    let mut last = first;
    while let Some(call) = last.last().and_then(Effect::call) {
        last = machine.on(Event::Done(call));
        all.extend(last.clone());
    }
    all
}

/// The same, but positions that are asked for are left to be answered.
fn settle_until_resolve(machine: &mut Machine, first: Vec<Effect>) -> Vec<Effect> {
    let mut all = first.clone();
    let mut last = first;
    while let Some(call) = last.last().and_then(Effect::call).filter(|call| *call != Call::Resolve) {
        last = machine.on(Event::Done(call));
        all.extend(last.clone());
    }
    all
}

fn tell(machine: &mut Machine, event: Event) -> Vec<Effect> {
    let effects = machine.on(event);
    settle(machine, effects)
}

/// A machine with outputs of `P0` up to 15 in an open transaction.
fn open(mode: Mode) -> Machine {
    let mut machine = running(mode);
    drop(tell(&mut machine, batch(P0, 10, 15, Outputs::Some)));
    assert_eq!(machine.state(), State::Open);
    machine
}

/// The group takes nothing back from a member that does not read yet.
#[rstest]
#[case(Mode::ExactlyOnce)]
#[case(Mode::AtLeastOnce)]
fn an_assignment_on_top_of_another_is_read_as_a_whole(#[case] mode: Mode) {
    let mut machine = running(mode);
    let partitions = vec![P0, Partition::new(0, 2)];
    let effects = machine.on(Event::Assigned { token: Token(2), partitions: partitions.clone() });
    assert_eq!(effects, [Effect::Resolve(partitions.clone())]);
    assert!(!machine.owns(P1));
    // Of what was known before, the start is not asked a second time.
    let found = partitions.iter().map(|partition| (*partition, Start::Chosen(Offset(90)))).collect();
    let read = Effect::Read(vec![(P0, Offset(10)), (Partition::new(0, 2), Offset(90))]);
    assert_eq!(machine.on(Event::Resolved(found)), [read]);
}

#[rstest]
#[case(Mode::ExactlyOnce)]
#[case(Mode::AtLeastOnce)]
fn an_addition_waits_for_the_commit_and_leaves_the_rest_as_it_is(#[case] mode: Mode) {
    let mut machine = open(mode);
    let (added, token) = (Partition::new(0, 2), Token(2));
    let effects = machine.on(Event::Added { token, partitions: vec![added] });
    let mut effects = settle_until_resolve(&mut machine, effects);
    assert_eq!(effects.pop(), Some(Effect::Resolve(vec![added])));
    assert!(matches!(effects.last(), Some(Effect::Commit | Effect::CommitOffsets(TOKEN, _))), "{effects:?}");
    let read = Effect::Read(vec![(added, Offset(3))]);
    let kept = Effect::Rewind(vec![(P0, Offset(15)), (P1, Offset(10))]);
    assert_eq!(machine.on(Event::Resolved(vec![(added, Start::Committed(Offset(3)))])), [read, kept]);
    assert_eq!(machine.positions().count(), 3);
    // What was polled under the metadata before is read again, under the new one.
    assert_eq!(
        tell(&mut machine, batch(P0, 15, 17, Outputs::Some)),
        [Effect::Discard, Effect::Rewind(vec![(P0, Offset(15)), (P1, Offset(10)), (added, Offset(3))])]
    );
}

#[test]
fn giving_up_one_partition_leaves_the_others_with_their_metadata() {
    let mut machine = open(Mode::ExactlyOnce);
    let effects = tell(&mut machine, Event::Revoked(vec![P0]));
    let offsets = Effect::SendOffsets(TOKEN, vec![(P0, Offset(15))]);
    let kept = Effect::Rewind(vec![(P1, Offset(10))]);
    assert_eq!(effects, [Effect::Flush, offsets, Effect::Commit, Effect::GiveUp(vec![P0]), kept]);
    drop(tell(&mut machine, batch(P1, 10, 12, Outputs::Some)));
    let offsets = Effect::SendOffsets(TOKEN, vec![(P1, Offset(12))]);
    assert_eq!(tell(&mut machine, Event::Tick), [Effect::Flush, offsets, Effect::Commit]);
}

#[test]
fn a_transaction_begins_with_the_first_output_and_ends_with_the_positions_of_what_was_read() {
    let mut machine = running(Mode::ExactlyOnce);
    assert_eq!(tell(&mut machine, batch(P0, 10, 15, Outputs::Some)), [Effect::Begin, Effect::Produce]);
    assert_eq!(tell(&mut machine, batch(P1, 12, 13, Outputs::Some)), [Effect::Produce]);
    let offsets = vec![(P0, Offset(15)), (P1, Offset(13))];
    assert_eq!(tell(&mut machine, Event::Tick), [Effect::Flush, Effect::SendOffsets(TOKEN, offsets), Effect::Commit]);
    assert_eq!(machine.state(), State::Idle);
}

#[test]
fn at_least_once_commits_positions_after_the_deliveries_and_without_a_transaction() {
    let mut machine = running(Mode::AtLeastOnce);
    assert_eq!(tell(&mut machine, batch(P0, 10, 15, Outputs::Some)), [Effect::Produce]);
    assert_eq!(tell(&mut machine, Event::Tick), [Effect::Flush, Effect::CommitOffsets(TOKEN, vec![(P0, Offset(15))])]);
}

#[rstest]
#[case(Mode::ExactlyOnce)]
#[case(Mode::AtLeastOnce)]
fn an_interval_without_records_sends_nothing(#[case] mode: Mode) {
    let mut machine = running(mode);
    assert_eq!(tell(&mut machine, Event::Tick), []);
    drop(tell(&mut machine, batch(P0, 10, 15, Outputs::Some)));
    drop(tell(&mut machine, Event::Tick));
    assert_eq!(tell(&mut machine, Event::Tick), []);
}

#[test]
fn records_that_are_filtered_out_still_move_the_position() {
    let mut machine = running(Mode::ExactlyOnce);
    assert_eq!(tell(&mut machine, batch(P0, 10, 15, Outputs::None)), []);
    let commit = [Effect::Begin, Effect::SendOffsets(TOKEN, vec![(P0, Offset(15))]), Effect::Commit];
    assert_eq!(tell(&mut machine, Event::Tick), commit);
}

#[test]
fn a_chosen_start_is_committed_before_any_record_comes() {
    let mut machine = Machine::new(Mode::ExactlyOnce);
    drop(tell(&mut machine, Event::Start));
    drop(machine.on(Event::Assigned { token: TOKEN, partitions: vec![P0] }));
    drop(machine.on(Event::Resolved(vec![(P0, Start::Chosen(Offset(40)))])));
    let commit = [Effect::Begin, Effect::SendOffsets(TOKEN, vec![(P0, Offset(40))]), Effect::Commit];
    assert_eq!(tell(&mut machine, Event::Tick), commit);
}

#[test]
fn partitions_are_given_up_only_after_the_transaction_is_finished() {
    let mut machine = open(Mode::ExactlyOnce);
    let effects = tell(&mut machine, Event::Revoked(vec![P0, P1]));
    let offsets = vec![(P0, Offset(15))];
    assert_eq!(
        effects,
        [Effect::Flush, Effect::SendOffsets(TOKEN, offsets), Effect::Commit, Effect::GiveUp(vec![P0, P1])]
    );
    assert!(!machine.owns(P0));
}

#[test]
fn lost_partitions_abort_the_transaction_and_are_never_committed() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(tell(&mut machine, batch(P1, 10, 11, Outputs::Some)));
    let effects = tell(&mut machine, Event::Lost(vec![P0]));
    assert_eq!(effects, [Effect::Abort, Effect::GiveUp(vec![P0]), Effect::Rewind(vec![(P1, Offset(10))])]);
    assert_eq!(tell(&mut machine, Event::Tick), []);
}

#[test]
fn a_loss_while_the_commit_is_under_way_does_not_let_it_reach_the_offsets() {
    let mut machine = open(Mode::ExactlyOnce);
    assert_eq!(machine.on(Event::Tick), [Effect::Flush]);
    assert_eq!(machine.on(Event::Lost(vec![P0, P1])), []);
    assert_eq!(machine.on(Event::Done(Call::Flush)), [Effect::Abort]);
}

#[test]
fn a_loss_of_some_partitions_aborts_what_was_written_for_all() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(tell(&mut machine, batch(P1, 10, 11, Outputs::Some)));
    assert_eq!(machine.on(Event::Tick), [Effect::Flush]);
    assert_eq!(machine.on(Event::Lost(vec![P0])), []);
    assert_eq!(machine.on(Event::Done(Call::Flush)), [Effect::Abort]);
}

#[rstest]
#[case::committed(Event::Done(Call::SendOffsets))]
#[case::aborted(Event::Failed(Call::SendOffsets, Class::Abort))]
fn a_loss_while_a_transaction_is_being_ended_does_not_abort_the_next(#[case] before_its_end: Event) {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    let end = machine.on(before_its_end).last().and_then(Effect::call).unwrap();
    drop(machine.on(Event::Lost(vec![P0])));
    drop(machine.on(Event::Done(end)));
    drop(machine.on(Event::BackoffOver));
    assert_eq!(machine.on(batch(P1, 10, 11, Outputs::Some)), [Effect::Begin]);
    assert_eq!(machine.on(Event::Done(Call::Begin)), [Effect::Produce]);
}

#[test]
fn what_is_to_be_aborted_is_not_tried_again() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    assert_eq!(machine.on(Event::Done(Call::SendOffsets)), [Effect::Commit]);
    drop(machine.on(Event::Lost(vec![P0])));
    assert_eq!(machine.on(Event::Failed(Call::Commit, Class::Retry)).first(), Some(&Effect::DropProducer));
}

#[test]
fn outputs_without_a_position_are_not_committed() {
    let mut machine = running(Mode::ExactlyOnce);
    drop(tell(&mut machine, batch(P0, 10, 10, Outputs::Some)));
    assert_eq!(machine.on(Event::Tick), [Effect::Flush]);
    assert_eq!(machine.on(Event::Done(Call::Flush)), [Effect::Abort]);
}

#[test]
fn positions_of_lost_partitions_are_forgotten_at_once() {
    let mut machine = running(Mode::ExactlyOnce);
    drop(tell(&mut machine, batch(P0, 10, 15, Outputs::None)));
    assert_eq!(tell(&mut machine, Event::Lost(vec![P0, P1])), [Effect::GiveUp(vec![P0, P1])]);
}

#[test]
fn at_least_once_looks_again_when_a_commit_is_in_doubt() {
    let mut machine = open(Mode::AtLeastOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    assert_eq!(machine.on(Event::Failed(Call::CommitOffsets, Class::Unknown)), [Effect::Backoff { attempt: 1 }]);
    assert_eq!(machine.on(Event::BackoffOver), [Effect::Resolve(vec![P0, P1])]);
}

#[rstest]
#[case(Class::Abort)]
#[case(Class::Refresh)]
fn at_least_once_goes_back_when_a_commit_is_refused(#[case] class: Class) {
    let mut machine = open(Mode::AtLeastOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    assert_eq!(machine.on(Event::Failed(Call::CommitOffsets, class)), [Effect::Backoff { attempt: 1 }]);
    assert_eq!(machine.on(Event::BackoffOver), [Effect::Rewind(vec![(P0, Offset(10)), (P1, Offset(10))])]);
}

#[test]
fn at_least_once_does_not_try_again_what_is_lost() {
    let mut machine = open(Mode::AtLeastOnce);
    drop(tell(&mut machine, batch(P1, 10, 11, Outputs::Some)));
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    drop(machine.on(Event::Lost(vec![P0])));
    let again = Effect::CommitOffsets(TOKEN, vec![(P1, Offset(11))]);
    assert_eq!(machine.on(Event::Failed(Call::CommitOffsets, Class::Retry)), [again]);
    drop(machine.on(Event::Lost(vec![P1])));
    let effects = machine.on(Event::Failed(Call::CommitOffsets, Class::Retry));
    assert!(effects.iter().all(|effect| effect.call().is_none()), "{effects:?}");
}

#[test]
fn the_metadata_of_a_new_assignment_does_not_vouch_for_what_was_read_before() {
    let mut machine = open(Mode::ExactlyOnce);
    let added = Partition::new(1, 0);
    let effects = machine.on(Event::Assigned { token: Token(2), partitions: vec![added] });
    assert_eq!(effects, [Effect::Flush]);
    let sent = Effect::SendOffsets(TOKEN, vec![(P0, Offset(15))]);
    assert_eq!(machine.on(Event::Done(Call::Flush)), [sent]);
    assert_eq!(machine.on(Event::Done(Call::SendOffsets)), [Effect::Commit]);
    assert_eq!(machine.on(Event::Done(Call::Commit)), [Effect::Resolve(vec![added])]);
}

#[test]
fn an_assignment_of_nothing_is_answered_too() {
    let mut machine = Machine::new(Mode::ExactlyOnce);
    drop(tell(&mut machine, Event::Start));
    let effects = machine.on(Event::Assigned { token: TOKEN, partitions: Vec::new() });
    assert_eq!(effects, [Effect::Read(Vec::new())]);
}

#[test]
fn a_batch_of_another_assignment_is_dropped_and_read_again() {
    let mut machine = running(Mode::ExactlyOnce);
    let stale = Batch {
        token: Token(0),
        consumed: vec![(P0, Offset(10), Offset(15))],
        outputs: Outputs::Some,
        stop_before: None,
    };
    let effects = machine.on(Event::Batch(stale));
    assert_eq!(effects, [Effect::Discard, Effect::Rewind(vec![(P0, Offset(10)), (P1, Offset(10))])]);
}

#[rstest]
#[case::below_the_position(batch(P0, 9, 15, Outputs::Some))]
#[case::not_owned(batch(Partition::new(3, 0), 0, 1, Outputs::Some))]
fn a_batch_that_does_not_fit_the_positions_is_dropped(#[case] event: Event) {
    let mut machine = running(Mode::ExactlyOnce);
    assert_eq!(machine.on(event).first(), Some(&Effect::Discard));
}

#[test]
fn a_batch_dropped_inside_a_transaction_is_read_again_from_where_the_transaction_stands() {
    let mut machine = open(Mode::ExactlyOnce);
    let effects = machine.on(batch(P0, 11, 20, Outputs::Some));
    assert_eq!(effects, [Effect::Discard, Effect::Rewind(vec![(P0, Offset(15)), (P1, Offset(10))])]);
    let effects = tell(&mut machine, Event::Tick);
    assert!(effects.contains(&Effect::SendOffsets(TOKEN, vec![(P0, Offset(15))])), "{effects:?}");
}

#[rstest]
#[case(Class::Abort)]
#[case(Class::Refresh)]
fn an_abortable_failure_goes_back_to_the_committed_positions(#[case] class: Class) {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    assert_eq!(machine.on(Event::Failed(Call::Flush, class)), [Effect::Abort]);
    assert_eq!(machine.on(Event::Done(Call::Abort)), [Effect::Backoff { attempt: 1 }]);
    let again = vec![(P0, Offset(10)), (P1, Offset(10))];
    assert_eq!(machine.on(Event::BackoffOver), [Effect::Rewind(again)]);
}

#[rstest]
#[case::after_a_timeout(Class::Unknown)]
#[case(Class::Recreate)]
#[case(Class::Fatal)]
fn a_commit_that_may_have_happened_is_resolved_after_the_next_initialisation(#[case] class: Class) {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Done(Call::Flush)));
    drop(machine.on(Event::Done(Call::SendOffsets)));
    let effects = machine.on(Event::Failed(Call::Commit, class));
    assert_eq!(effects, [Effect::DropProducer, Effect::Backoff { attempt: 1 }]);
    assert_eq!(machine.on(Event::BackoffOver), [Effect::OpenProducer]);
    assert_eq!(machine.on(Event::Done(Call::OpenProducer)), [Effect::Resolve(vec![P0, P1])]);
    // It had happened for the one partition that was in it.
    let found = vec![(P0, Start::Committed(Offset(15))), (P1, Start::Committed(Offset(10)))];
    let effects = machine.on(Event::Resolved(found));
    assert_eq!(effects, [Effect::Rewind(vec![(P0, Offset(15)), (P1, Offset(10))])]);
}

#[test]
fn nothing_is_read_while_the_positions_are_in_doubt() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    drop(machine.on(Event::Failed(Call::Flush, Class::Unknown)));
    assert!(!machine.wants_records());
    assert_eq!(machine.on(batch(P0, 15, 16, Outputs::Some)), [Effect::Discard]);
}

#[test]
fn a_retry_is_bounded() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Tick));
    for _ in 0..MAX_RETRIES {
        assert_eq!(machine.on(Event::Failed(Call::Flush, Class::Retry)), [Effect::Flush]);
    }
    let effects = machine.on(Event::Failed(Call::Flush, Class::Retry));
    assert_eq!(effects.first(), Some(&Effect::DropProducer));
}

#[test]
fn outputs_are_not_handed_over_twice() {
    let mut machine = running(Mode::ExactlyOnce);
    drop(machine.on(batch(P0, 10, 15, Outputs::Some)));
    drop(machine.on(Event::Done(Call::Begin)));
    let effects = machine.on(Event::Failed(Call::Produce, Class::Retry));
    assert_eq!(effects.first(), Some(&Effect::DropProducer));
}

#[test]
fn waits_grow_until_something_is_committed() {
    let mut machine = Machine::new(Mode::ExactlyOnce);
    drop(machine.on(Event::Start));
    for attempt in 1..5 {
        let effects = machine.on(Event::Failed(Call::OpenProducer, Class::Fatal));
        assert_eq!(effects, [Effect::DropProducer, Effect::Backoff { attempt }]);
        assert_eq!(machine.on(Event::BackoffOver), [Effect::OpenProducer]);
    }
}

#[test]
fn a_failure_after_a_commit_is_the_first_again() {
    let mut machine = open(Mode::ExactlyOnce);
    for _ in 0..2 {
        drop(machine.on(Event::Tick));
        drop(machine.on(Event::Failed(Call::Flush, Class::Abort)));
        assert_eq!(machine.on(Event::Done(Call::Abort)), [Effect::Backoff { attempt: 1 }]);
        drop(machine.on(Event::BackoffOver));
        drop(tell(&mut machine, batch(P0, 10, 15, Outputs::Some)));
        drop(tell(&mut machine, Event::Tick));
        drop(tell(&mut machine, batch(P1, 20, 21, Outputs::Some)));
    }
}

#[test]
fn being_fenced_is_the_end_in_every_call() {
    for call in [Call::Flush, Call::SendOffsets, Call::Commit] {
        let mut machine = open(Mode::ExactlyOnce);
        let mut last = machine.on(Event::Tick);
        while last.last().and_then(Effect::call) != Some(call) {
            last = machine.on(Event::Done(last.last().and_then(Effect::call).unwrap()));
        }
        assert_eq!(machine.on(Event::Failed(call, Class::Fenced)), [Effect::Stop(Exit::Fenced)]);
        assert_eq!(machine.on(Event::Start), []);
    }
}

#[test]
fn a_drain_commits_and_then_stops() {
    let mut machine = open(Mode::ExactlyOnce);
    let effects = tell(&mut machine, Event::Drain);
    assert_eq!(effects.last(), Some(&Effect::Stop(Exit::Drained)));
    assert!(effects.contains(&Effect::Commit));
}

#[test]
fn a_drain_that_can_neither_commit_nor_abort_says_so() {
    let mut machine = open(Mode::ExactlyOnce);
    drop(machine.on(Event::Drain));
    let effects = machine.on(Event::Failed(Call::Flush, Class::Unknown));
    assert_eq!(effects.last(), Some(&Effect::Stop(Exit::Abandoned)));
}

#[test]
fn a_bad_record_stops_the_slot_after_everything_before_it_is_committed() {
    let mut machine = running(Mode::ExactlyOnce);
    let bad = Batch {
        token: TOKEN,
        consumed: vec![(P0, Offset(10), Offset(12))],
        outputs: Outputs::Some,
        stop_before: Some((P0, Offset(12))),
    };
    let effects = tell(&mut machine, Event::Batch(bad));
    assert!(effects.contains(&Effect::SendOffsets(TOKEN, vec![(P0, Offset(12))])), "{effects:?}");
    assert_eq!(effects.last(), Some(&Effect::Stop(Exit::BadRecord(P0, Offset(12)))));
}

#[test]
fn a_bad_record_whose_transaction_fails_is_met_again() {
    let mut machine = running(Mode::ExactlyOnce);
    let bad = Batch {
        token: TOKEN,
        consumed: vec![(P0, Offset(10), Offset(12))],
        outputs: Outputs::Some,
        stop_before: Some((P0, Offset(12))),
    };
    drop(machine.on(Event::Batch(bad)));
    drop(machine.on(Event::Done(Call::Begin)));
    drop(machine.on(Event::Done(Call::Produce)));
    drop(machine.on(Event::Failed(Call::Flush, Class::Abort)));
    drop(machine.on(Event::Done(Call::Abort)));
    drop(machine.on(Event::BackoffOver));
    assert!(machine.wants_records());
}

#[rstest]
#[case(Mode::ExactlyOnce)]
#[case(Mode::AtLeastOnce)]
fn a_bad_record_of_a_lost_partition_is_left_to_its_new_owner(#[case] mode: Mode) {
    let mut machine = running(mode);
    let bad = Batch {
        token: TOKEN,
        consumed: vec![(P0, Offset(10), Offset(12))],
        outputs: Outputs::Some,
        stop_before: Some((P0, Offset(12))),
    };
    let effects = machine.on(Event::Batch(bad));
    drop(machine.on(Event::Lost(vec![P0])));
    let effects = settle(&mut machine, effects);
    assert!(effects.contains(&Effect::GiveUp(vec![P0])), "{effects:?}");
    assert!(machine.wants_records(), "{effects:?}");
}

#[test]
fn an_answer_that_nobody_waits_for_is_a_bug_and_not_ignored() {
    let mut machine = running(Mode::ExactlyOnce);
    assert_eq!(machine.on(Event::Done(Call::Commit)), [Effect::Stop(Exit::Broken)]);
    assert!(machine.broken().is_some());
}

/// Positions of `P0`, looked up at 10 and read up to 15.
fn read_to_15() -> Positions {
    let mut positions = Positions::default();
    positions.own([P0]);
    assert_eq!(positions.resolve(&[(P0, Start::Committed(Offset(10)))]), [(P0, Offset(10))]);
    assert_eq!(positions.advance(&[(P0, Offset(10), Offset(15))]), Ok(()));
    positions
}

#[test]
fn an_answer_about_a_known_position_changes_nothing() {
    let mut positions = read_to_15();
    assert_eq!(positions.resolve(&[(P0, Start::Committed(Offset(10)))]), []);
    assert_eq!(positions.uncommitted(), [(P0, Offset(15))]);
}

#[test]
fn nothing_read_before_a_rewind_counts() {
    let mut positions = read_to_15();
    positions.roll_back();
    assert_eq!(positions.advance(&[(P0, Offset(15), Offset(20))]), Err(Stale));
    assert_eq!(positions.take_rewinds(), [(P0, Offset(10))]);
    assert_eq!(positions.advance(&[(P0, Offset(10), Offset(20))]), Ok(()));
}

#[test]
fn every_state_but_the_last_can_be_left_and_every_state_can_be_reached() {
    for state in State::iter() {
        assert_eq!(state.next().is_empty(), state == State::Stopped, "{state}");
        let is_reachable = State::iter().any(|from| from.may_become(state)) || state == State::Closed;
        assert!(is_reachable, "{state}");
    }
}

#[rstest]
#[case(Mode::ExactlyOnce, Call::Commit, Class::Unknown)]
#[case(Mode::ExactlyOnce, Call::Flush, Class::Recreate)]
#[case(Mode::AtLeastOnce, Call::CommitOffsets, Class::Unknown)]
#[case(Mode::AtLeastOnce, Call::Flush, Class::Recreate)]
fn a_start_is_chosen_once_and_kept_until_the_group_has_a_position(
    #[case] mode: Mode,
    #[case] fails: Call,
    #[case] class: Class,
) {
    let mut machine = Machine::new(mode);
    drop(tell(&mut machine, Event::Start));
    let effects = machine.on(Event::Assigned { token: TOKEN, partitions: vec![P0] });
    assert_eq!(effects, [Effect::Resolve(vec![P0])]);
    let effects = machine.on(Event::Resolved(vec![(P0, Start::Chosen(Offset(100)))]));
    assert_eq!(effects, [Effect::Read(vec![(P0, Offset(100))])]);
    drop(tell(&mut machine, batch(P0, 100, 110, Outputs::Some)));
    let mut effects = machine.on(Event::Tick);
    while effects.last().and_then(Effect::call) != Some(fails) {
        effects = machine.on(Event::Done(effects.last().and_then(Effect::call).unwrap()));
    }
    drop(machine.on(Event::Failed(fails, class)));
    let mut effects = machine.on(Event::BackoffOver);
    if effects == [Effect::OpenProducer] {
        effects = machine.on(Event::Done(Call::OpenProducer));
    }
    assert_eq!(effects, [Effect::Resolve(vec![P0])]);
    // Meanwhile 50 more records came: "the latest" is another place now.
    let effects = machine.on(Event::Resolved(vec![(P0, Start::Chosen(Offset(150)))]));
    assert_eq!(effects, [Effect::Rewind(vec![(P0, Offset(100))])]);
}
