//! The end-to-end tests: real jobs on a real cluster, applied with kubectl, disturbed, and judged by what a reader of Kafka
//! finds.
//!
//! A [`Scenario`] states a rule and tries to break it. Each has a namespace of its own, topics of its own, and leaves nothing
//! behind. Those that disturb what all share (a broker, the operator) run alone.

mod at_least_once;
mod bad_records;
mod bench;
mod brokers;
mod change;
mod crashes;
mod deletion;
mod diagnostics;
mod drain;
mod failure;
mod fault_points;
mod fenced;
mod group_protocol;
mod growth;
mod idle;
mod jobs;
mod journal;
mod lab;
mod meaning;
mod oracle_self;
mod outage;
mod recovery;
mod rollback;
mod rotation;
mod runner;
mod scale;
mod schema;
mod secured;
mod soak;
mod steady;
mod suspend;
mod topics;
mod validation;
mod wire;
mod zombie;

pub(crate) use self::jobs::OrdersJob;
pub use self::{
    bench::Bench,
    failure::{Failure, Outcome},
    lab::Lab,
    meaning::Meaning,
    runner::{Options, Tally, names, run, soak},
};

/// Where a scenario runs, and what it does.
#[derive(Clone, Copy)]
enum Test {
    /// On two nodes and one broker without security.
    Plain(fn(&Bench<'_>) -> Outcome),
    /// On one node and one broker that wants TLS, a password and permissions.
    Secured(fn(&Bench<'_>) -> Outcome),
    /// On one node and three brokers without security.
    Brokers(fn(&Bench<'_>) -> Outcome),
    /// On one node and one broker that forgets within seconds what is not used.
    Forgetful(fn(&Bench<'_>) -> Outcome),
    /// On clusters of its own.
    Machine(fn() -> Outcome),
}

/// Whether another scenario may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// It touches nothing but its own.
    Any,
    /// It disturbs what all share, or needs the whole machine.
    None,
}

/// A rule, and what tries to break it.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    test: Test,
    company: Company,
    /// It wants the worker whose fault points can be armed.
    with_faults: bool,
}

impl Scenario {
    const fn plain(name: &'static str, run: fn(&Bench<'_>) -> Outcome) -> Self {
        Self { name, test: Test::Plain(run), company: Company::Any, with_faults: false }
    }

    const fn secured(name: &'static str, run: fn(&Bench<'_>) -> Outcome) -> Self {
        Self { name, test: Test::Secured(run), company: Company::Any, with_faults: false }
    }

    /// Alone, as it disturbs brokers.
    const fn brokers(name: &'static str, run: fn(&Bench<'_>) -> Outcome) -> Self {
        Self { name, test: Test::Brokers(run), company: Company::None, with_faults: false }
    }

    const fn forgetful(name: &'static str, run: fn(&Bench<'_>) -> Outcome) -> Self {
        Self { name, test: Test::Forgetful(run), company: Company::Any, with_faults: false }
    }

    const fn machine(name: &'static str, run: fn() -> Outcome) -> Self {
        Self { name, test: Test::Machine(run), company: Company::None, with_faults: false }
    }

    const fn with_faults(self) -> Self {
        Self { with_faults: true, ..self }
    }

    const fn alone(self) -> Self {
        Self { company: Company::None, ..self }
    }
}

/// All of them, in the order in which they run.
const ALL: &[Scenario] = &[
    Scenario::plain("the-judge-finds-every-fault-in-real-topics", oracle_self::run),
    Scenario::plain("the-api-server-refuses-what-the-schema-forbids", schema::refused),
    Scenario::plain("the-api-server-accepts-every-example", schema::examples),
    Scenario::plain("what-identifies-a-job-to-kafka-is-immutable", schema::immutable),
    Scenario::plain("kafka-is-spoken-to-correctly", wire::plaintext),
    Scenario::plain("a-wrong-job-is-refused-with-every-reason-before-a-worker-starts", validation::all_at_once),
    Scenario::plain("a-transaction-timeout-below-the-commit-interval-is-refused", validation::below_commit_interval),
    Scenario::plain("a-wrong-update-leaves-the-last-good-version-running", validation::wrong_update),
    Scenario::plain("every-record-counts-once", steady::run),
    Scenario::plain("aborted-input-counts-for-nothing", steady::aborted_input),
    Scenario::plain("bad-records-are-skipped-and-nothing-else", bad_records::skip),
    Scenario::plain("bad-records-go-to-the-dead-letter-topic-once", bad_records::dead_letter),
    Scenario::plain("a-bad-record-stops-the-job-behind-everything-before-it", bad_records::fail),
    Scenario::plain("a-thousand-partitions-are-read-like-four", topics::a_thousand_partitions),
    Scenario::plain("partitions-that-are-added-lose-nothing", topics::partitions_are_added),
    Scenario::plain("records-that-are-gone-are-never-passed-over-silently", topics::retention_is_faster),
    Scenario::plain("records-that-go-while-a-worker-stands-still-are-missed", topics::retention_overtakes),
    Scenario::plain("records-larger-than-a-fetch-are-read-like-others", topics::large_records),
    Scenario::plain("a-compacted-topic-is-read-as-it-is", topics::compacted),
    Scenario::plain("a-topic-of-small-batches-is-written-as-it-wants", topics::small_batches),
    Scenario::plain("a-query-that-makes-much-of-little-is-taken-in-parts", topics::much_of_little),
    Scenario::plain("timestamps-of-any-year-are-read-as-they-are", topics::any_year),
    Scenario::plain("a-topic-that-takes-more-gets-more", topics::limit_is_raised),
    Scenario::plain("at-least-once-repeats-only-after-failures", at_least_once::run),
    Scenario::plain("scaling-loses-and-repeats-nothing", scale::run),
    Scenario::plain("a-worker-that-is-scaled-away-leaves-nothing-open", scale::leaves_nothing_open).with_faults(),
    Scenario::plain("a-suspended-job-holds-nobody-up-and-goes-on", suspend::run).with_faults(),
    Scenario::plain("a-deleted-job-holds-nobody-up", deletion::run).with_faults(),
    Scenario::plain("a-group-that-moves-single-partitions-loses-and-repeats-nothing", group_protocol::run),
    Scenario::plain("two-generations-of-workers-never-run-at-once", change::run),
    Scenario::plain("a-version-waits-for-approval", change::approved),
    Scenario::plain("a-version-that-cannot-work-is-taken-back", rollback::run).with_faults(),
    Scenario::plain("a-fenced-worker-stays-out-until-a-person-lets-it-in", fenced::run),
    Scenario::plain("a-death-at-any-step-of-a-transaction-is-harmless", fault_points::run).with_faults(),
    Scenario::plain("a-death-in-an-abort-is-harmless", fault_points::aborts).with_faults(),
    Scenario::plain("a-death-around-a-commit-loses-nothing-at-least-once", fault_points::at_least_once).with_faults(),
    Scenario::plain("a-killed-worker-is-back-long-before-its-session-ends", recovery::classic).alone(),
    Scenario::plain("a-killed-worker-is-back-at-once-under-the-consumer-protocol", recovery::consumer).alone(),
    Scenario::plain("of-two-workers-with-one-ordinal-only-the-newer-commits", zombie::awake).alone(),
    Scenario::plain(
        "under-the-consumer-protocol-only-the-newer-commits-too",
        zombie::awake_under_the_consumer_protocol,
    )
    .alone(),
    Scenario::plain("a-worker-that-wakes-up-too-late-commits-nothing", zombie::asleep).alone(),
    Scenario::plain("a-transaction-that-expires-is-begun-anew", zombie::overslept).with_faults(),
    Scenario::plain("killed-workers-and-operators-lose-and-repeat-nothing", crashes::run).alone(),
    Scenario::plain("a-broker-that-goes-away-is-named-and-waited-for", outage::run).alone(),
    Scenario::plain("a-drained-node-hands-its-workers-on", drain::run).alone(),
    Scenario::brokers("brokers-that-die-lose-and-repeat-nothing", brokers::killed),
    Scenario::brokers("brokers-that-fall-silent-lose-and-repeat-nothing", brokers::black_holes),
    Scenario::brokers("brokers-that-are-silent-for-a-moment-lose-and-repeat-nothing", brokers::short_silences),
    Scenario::brokers("brokers-that-are-restarted-lose-and-repeat-nothing", brokers::restarted),
    Scenario::brokers("a-bad-network-loses-and-repeats-nothing", brokers::bad_network),
    Scenario::secured("kafka-is-spoken-to-correctly-under-tls-and-sasl", wire::secured),
    Scenario::secured("refused-credentials-and-missing-permissions-are-named", secured::named),
    Scenario::secured("a-permission-that-is-taken-away-is-named", secured::taken_away),
    Scenario::secured("a-topic-that-may-not-be-made-is-named", secured::topic_to_make),
    Scenario::secured("a-job-is-known-by-its-certificate", secured::mutual_tls),
    Scenario::secured("a-new-password-reaches-the-workers-one-by-one", rotation::password),
    Scenario::secured("a-new-certificate-reaches-the-workers-one-by-one", rotation::certificate),
    Scenario::forgetful("a-job-that-the-brokers-have-forgotten-goes-on", idle::run),
    Scenario::machine("a-killed-harness-leaves-nothing-behind", runner::killed_harness),
    Scenario::machine("two-clusters-stand-side-by-side", runner::two_clusters),
];
