//! Checks the clients of this crate against a real cluster: one line per check, exit code 1 when one fails.
//!
//! ```sh
//! cargo run -p fencepost-kafka --example rpc_check -- --bootstrap kafka:9092
//! cargo run -p fencepost-kafka --example rpc_check -- --bootstrap kafka:9093 --ca ca.crt \
//!     --mechanism SCRAM-SHA-512 --username admin --password … --weak-username nobody --weak-password …
//! ```
//!
//! The user must be a super user. The weak user must exist with the same mechanism and have no permission; it
//! gets some, on the names of this run only.
//! Topics, groups and transactional ids that are made carry the name of this program and a number.

#![allow(clippy::print_stdout, reason = "the output is what this program is for")]

mod delivery;
mod ended;
mod membership;
mod moving;
mod refused;
mod successor;
mod topics;
mod transactions;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fencepost_crds::v1alpha1::SaslMechanism;
use fencepost_kafka::rpc::{ClientOptions, Cluster};
use fencepost_kafka::settings::ConnectionSettings;

/// Checks the clients of this crate against a real cluster.
#[derive(Parser)]
struct Args {
    /// `host:port`, several separated by commas.
    #[arg(long)]
    bootstrap: String,
    /// PEM file with the authority; switches TLS on.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN; switches SASL on.
    #[arg(long, requires = "username", requires = "password")]
    mechanism: Option<String>,
    /// Name of a super user.
    #[arg(long)]
    username: Option<String>,
    /// Its password.
    #[arg(long)]
    password: Option<String>,
    /// Name of a user without permissions.
    #[arg(long, requires = "weak_password")]
    weak_username: Option<String>,
    /// Its password.
    #[arg(long)]
    weak_password: Option<String>,
    /// Run only the checks with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// What a check starts another process for: a member of the group of this topic, until it is killed.
    #[arg(long, hide = true)]
    hold: Option<String>,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}
pub(crate) use ensure;

/// What checks share.
struct World {
    args: Args,
    cluster: Cluster,
    /// Prefix of every name of this run.
    run: String,
}

impl World {
    fn new(args: Args) -> Result<Self, Box<dyn std::error::Error>> {
        let cluster = Cluster::new(settings(&args, args.username.as_deref(), args.password.as_deref())?)?;
        let run = format!("rpc-check-{}", std::process::id());
        Ok(Self { args, cluster, run })
    }

    fn name(&self, what: &str) -> String {
        format!("{}.{what}", self.run)
    }

    fn settings(&self) -> Result<ConnectionSettings, Box<dyn std::error::Error>> {
        settings(&self.args, self.args.username.as_deref(), self.args.password.as_deref())
    }

    /// The same cluster as somebody else.
    fn as_user(&self, username: &str, password: &str) -> Result<Cluster, Box<dyn std::error::Error>> {
        Ok(Cluster::with_options(settings(&self.args, Some(username), Some(password))?, impatient())?)
    }
}

/// For checks that expect a failure.
fn impatient() -> ClientOptions {
    ClientOptions { call_timeout: Duration::from_secs(4), ..ClientOptions::default() }
}

fn settings(
    args: &Args,
    username: Option<&str>,
    password: Option<&str>,
) -> Result<ConnectionSettings, Box<dyn std::error::Error>> {
    let mut settings = ConnectionSettings::plaintext(&args.bootstrap, "rpc-check")?;
    if let Some(path) = &args.ca {
        settings = settings.with_tls(Some(std::fs::read(path)?))?;
    }
    if let (Some(name), Some(username), Some(password)) = (&args.mechanism, username, password) {
        let mechanism: SaslMechanism = mechanism(name)?;
        settings = settings.with_sasl(mechanism, username.into(), password.into())?;
    }
    Ok(settings)
}

fn mechanism(name: &str) -> Result<SaslMechanism, String> {
    [SaslMechanism::ScramSha256, SaslMechanism::ScramSha512, SaslMechanism::Plain]
        .into_iter()
        .find(|mechanism| mechanism.to_string() == name)
        .ok_or_else(|| format!("no mechanism {name}"))
}

/// Runs checks and prints their outcome.
macro_rules! run {
    ($world:expr, $failed:expr, $($check:path),+ $(,)?) => {
        $(if $world.args.only.as_deref().is_none_or(|only| stringify!($check).contains(only)) {
            let started = tokio::time::Instant::now();
            let outcome = Box::pin($check($world)).await;
            report(stringify!($check), started.elapsed(), &outcome, $failed);
        })+
    };
}

fn report(name: &str, took: Duration, outcome: &Outcome, failed: &mut Vec<String>) {
    let line = match outcome {
        Ok(()) => format!("ok      {name} ({} ms)", took.as_millis()),
        Err(error) => format!("FAILED  {name} ({} ms): {}", took.as_millis(), fencepost_kafka::error::chain(&**error)),
    };
    println!("{line}");
    if outcome.is_err() {
        failed.push(line);
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let world = &World::new(Args::parse())?;
    if let Some(topic) = &world.args.hold {
        tokio::task::block_in_place(|| successor::hold(world, topic))?;
    }
    let failed = &mut Vec::new();
    run!(
        world,
        failed,
        topics::metadata_names_the_cluster_and_what_is_missing,
        topics::every_broker_tells_its_limits,
        topics::topics_are_created_once_and_deleted,
        topics::many_calls_share_a_connection,
        transactions::an_open_transaction_is_described_listed_and_committed,
        transactions::pending_offsets_are_waited_for_or_ignored,
        transactions::fencing_aborts_and_locks_out,
        transactions::many_ids_are_fenced_at_once,
        transactions::a_marker_frees_a_partition,
        ended::readers_pass_over_empty_aborted_transactions,
        ended::outputs_after_the_timeout_are_refused,
        ended::an_abort_with_outputs_in_the_queue_ends_and_the_id_goes_on,
        delivery::a_record_that_was_refused_stays_refused,
        membership::partitions_lost_while_paused_are_read_again,
        membership::partitions_revoked_while_paused_are_read_again,
        membership::a_member_that_leaves_is_gone_at_once_and_its_successor_stays,
        membership::a_position_in_an_open_transaction_is_waited_for,
        membership::a_producer_waits_for_the_end_of_the_transaction_it_takes_over,
        moving::nothing_is_passed_over_where_partitions_are_kept_or_move,
        successor::a_name_that_is_released_for_a_killed_member_brings_its_successor_what_it_had,
        refused::nobody_listens,
        refused::a_topic_that_does_not_exist,
    );
    if world.args.ca.is_some() {
        run!(world, failed, refused::an_authority_that_did_not_sign, refused::plain_text_to_a_tls_port);
    } else {
        run!(world, failed, refused::tls_to_a_plain_port);
    }
    if world.args.mechanism.is_some() {
        run!(world, failed, refused::a_wrong_password, refused::no_credentials);
    }
    if world.args.weak_username.is_some() {
        run!(world, failed, refused::missing_permissions_are_named_and_granting_them_helps);
    }
    if failed.is_empty() {
        println!("all checks passed");
        return Ok(ExitCode::SUCCESS);
    }
    // Once more: whoever shows only the end of what is printed shows what matters.
    println!("{} checks failed:\n{}", failed.len(), failed.join("\n"));
    Ok(ExitCode::FAILURE)
}
