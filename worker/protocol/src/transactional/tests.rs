//! What shows that the protocol keeps its rules.
//!
//! `rules` tells each rule in the smallest story. `sequences` and `exhaustive` drive the same machine through the same
//! [`model`](super::model) of its surroundings; everything they look for is a [`Violation`](super::model::Violation).
//!
//! | rule | shown by |
//! |---|---|
//! | no output is committed twice or lost; positions and outputs go together | `sequences`, `exhaustive` |
//! | offsets are sent after the deliveries, and always | `rules`: `a_transaction_begins_…`, `at_least_once_commits_…` |
//! | a producer whose call is in doubt is replaced: no late end meets a later transaction | `exhaustive`; `rules`: `a_commit_that_may_…` |
//! | positions in doubt are read again after the next initialisation, and nothing before | `exhaustive`; `rules`: `nothing_is_read_while_…` |
//! | nothing of a lost partition is committed, and what was written for it is aborted | `exhaustive`; `rules`: `lost_…`, `a_loss_…`, `positions_of_lost_…` |
//! | partitions are given up after the commit | `rules`: `partitions_are_given_up_…` |
//! | an addition leaves what is owned as it is | `sequences`, `exhaustive` (incremental); `rules`: `an_addition_…`, `giving_up_one_…` |
//! | offsets travel with the metadata of the assignment they were polled under | `exhaustive`; `rules`: `a_batch_of_another_…` |
//! | what was rolled back or dropped is read again | `sequences`, `exhaustive` (they do not end otherwise) |
//! | every transaction ends, and without faults everything comes to its end | `sequences`, `exhaustive` |
//! | who is fenced stops | `rules`: `being_fenced_…` |
//! | an exit means what it says | `sequences`, `exhaustive`; `rules`: `a_drain_…`, `a_bad_record_…` |
//! | a retry is bounded, and outputs are not handed over twice | `rules`: `a_retry_…`, `outputs_are_not_…` |

mod exhaustive;
mod rules;
mod sequences;
