//! Rules about time.
//!
//! ```text
//!  begin ── records ── commit due ── flush, offsets, commit ── done
//!    |<-- commitInterval -->|<------- STALL_BUDGET -------->|
//!    |<------------------- transactionTimeout ------------------------- … ------------->| the brokers abort
//!                                              transactionTimeout <= transaction.max.timeout.ms of every broker
//! ```

use std::time::Duration;

use fencepost_crds::{conditions::Reason, resolve::millis};

use super::{Facts, Findings, Rule, transactional, violation};

pub(super) const RULES: &[Rule] = &[below_broker_maximum, above_commit_interval, long_timeout, drain_within_timeout];

/// What a transaction may take beyond the commit interval before the brokers abort it: a batch under way, the flush, the commit
/// itself, and an election of a coordinator meanwhile.
pub const STALL_BUDGET: Duration = Duration::from_secs(5);

/// From here on the stall of readers behind a dead worker is worth a warning.
pub const LONG_TRANSACTION_TIMEOUT: Duration = Duration::from_mins(1);

/// Brokers look for transactions to abort every ten seconds.
const BROKER_SWEEP: Duration = Duration::from_secs(10);

const FIELD: &str = "spec.processing.transactionTimeout";

fn below_broker_maximum(facts: Facts<'_>, findings: &mut Findings) {
    let Some(broker) = facts.broker.filter(|_| transactional(facts.spec)) else { return };
    let Some((id, maximum)) = broker.smallest(|limits| limits.transaction_max_timeout_ms) else { return };
    let timeout = millis(&facts.spec.processing.transaction_timeout);
    if i64::try_from(timeout).unwrap_or(i64::MAX) > maximum {
        findings.broker.push((
            Reason::BrokerLimitViolated,
            violation(
                "TransactionTimeoutAboveBrokerMaximum",
                FIELD,
                format!(
                    "{} is above transaction.max.timeout.ms of broker {id}, {}: set transactionTimeout to at most {}, or raise \
                     transaction.max.timeout.ms on every broker",
                    say(timeout),
                    say(u64::try_from(maximum).unwrap_or(0)),
                    written(u64::try_from(maximum).unwrap_or(0)),
                ),
            ),
        ));
    }
}

fn above_commit_interval(facts: Facts<'_>, findings: &mut Findings) {
    if !transactional(facts.spec) {
        return;
    }
    let timeout = millis(&facts.spec.processing.transaction_timeout);
    let interval = millis(&facts.spec.processing.protocol.transactional.commit_interval);
    let budget = as_millis(STALL_BUDGET);
    let needed = interval.saturating_add(budget);
    if timeout <= needed {
        findings.spec.push(violation(
            "TransactionTimeoutBelowCommitInterval",
            FIELD,
            format!(
                "{} must be more than commitInterval, {}, plus {budget} ms for a stall, together {}, or the brokers abort transactions of a \
                 healthy worker: raise transactionTimeout, or lower spec.processing.protocol.transactional.commitInterval",
                say(timeout),
                say(interval),
                say(needed),
            ),
        ));
    }
}

fn long_timeout(facts: Facts<'_>, findings: &mut Findings) {
    let timeout = millis(&facts.spec.processing.transaction_timeout);
    if transactional(facts.spec) && timeout > as_millis(LONG_TRANSACTION_TIMEOUT) {
        findings.warnings.push(violation(
            "LongTransactionTimeout",
            FIELD,
            format!(
                "readers with isolation.level=read_committed wait up to {} behind the open transaction of a worker that died for good: \
                 transactionTimeout, {}, and up to {} until the brokers look",
                written(timeout.saturating_add(as_millis(BROKER_SWEEP))),
                say(timeout),
                written(as_millis(BROKER_SWEEP)),
            ),
        ));
    }
}

fn drain_within_timeout(facts: Facts<'_>, findings: &mut Findings) {
    let timeout = millis(&facts.spec.processing.transaction_timeout);
    let drain = millis(&facts.spec.worker.drain_timeout);
    if transactional(facts.spec) && drain > timeout {
        findings.warnings.push(violation(
            "DrainTimeoutAboveTransactionTimeout",
            "spec.worker.drainTimeout",
            format!(
                "{} is more than transactionTimeout, {}: a worker that needs so long has lost its transaction before it can commit it",
                say(drain),
                say(timeout),
            ),
        ));
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds as Kafka's settings have them, and as a manifest would write them.
fn say(millis: u64) -> String {
    format!("{millis} ms ({})", written(millis))
}

/// As a manifest would write it: `1m30s`.
fn written(millis: u64) -> String {
    let mut rest = millis;
    let mut text = String::new();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_a_manifest_would() {
        let texts: Vec<String> = [0, 1, 1_500, 60_000, 900_000, 5_400_001].into_iter().map(written).collect();
        assert_eq!(texts, ["0s", "1ms", "1s500ms", "1m", "15m", "1h30m1ms"]);
    }
}
