//! The pure half of the operator: observe → **validate → decide → build → report** ← apply.
//!
//! No client, no runtime, no clock: everything that can influence a decision is in [`Observed`], everything that a decision
//! wants done is in [`Decision`]. So each rule is a table in a test, and a decision can be replayed from a log.
//!
//! | module | question it answers |
//! |---|---|
//! | [`observed`] | what was seen, in types that hold no more than the rules need |
//! | [`revision`] | which revision is this spec, and what does a revision run |
//! | [`secrets`] | which credentials did a worker start with |
//! | [`pods`] | what do the pods say about the workers |
//! | [`ownership`] | do two jobs use the same names on the same Kafka cluster |
//! | [`diff`] | what changes from one spec to another, and what that asks for |
//! | [`validate`] | what is wrong with a spec, all at once |
//! | [`decide`] | what is the next step |
//! | [`build`] | what do the children look like |
//! | [`report`] | what do status and conditions say |
//! | [`events`] | which transitions are worth an event |

pub mod backoff;
pub mod build;
pub mod decide;
pub mod diff;
pub mod events;
pub mod observed;
pub mod ownership;
pub mod pods;
pub mod report;
pub mod revision;
pub mod secrets;
pub mod validate;

#[cfg(test)]
mod testing;

pub use self::{
    decide::{Act, Decision, decide},
    observed::{
        BrokerFacts, BrokerFailure, BrokerLimits, BrokerObserved, FenceObserved, Observed, PlanObserved, PlanPod,
        Positions, PositionsObserved, Replacement, Settings, TopicFacts, WorkerObserved,
    },
    revision::{AcceptedRevision, Identity, Revision, RunSpec},
    secrets::Fingerprints,
};
