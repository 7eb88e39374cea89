use super::*;

#[test]
fn a_prefix_is_taken_literally() {
    assert_eq!(pattern("shop.spend-"), r"shop\.spend\-.*");
    assert_eq!(pattern("a_b"), r"a\_b.*");
    assert_eq!(pattern(""), ".*");
}

#[test]
fn states_are_read_by_the_brokers_names_and_new_ones_are_kept() {
    for name in ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"] {
        assert_eq!(state(name).to_string(), name);
        assert!(!matches!(state(name), TransactionState::Other(_)), "{name}");
    }
    assert_eq!(state("Somewhere"), TransactionState::Other("Somewhere".to_owned()));
}

#[test]
fn a_commit_is_repeated_only_when_it_was_certainly_not_executed() {
    use crate::rpc::error::{CloseReason, Sent};
    use crate::settings::HostPort;
    use std::sync::Arc;

    let peer = HostPort { host: "kafka".to_owned(), port: 9092 };
    let call = Commit { producer: ProducerIdentity { id: 1, epoch: 0 } };
    let closed =
        |call, sent| RpcError::Closed { peer: peer.clone(), call, sent, source: Arc::new(CloseReason::ByPeer) };
    let timeout = |call| RpcError::Timeout { peer: peer.clone(), call, after: Duration::from_secs(1) };
    let answer = |code| refused(Commit::NAME, code, "id");
    for (error, again) in [
        (closed(Commit::NAME, Sent::No), true),
        (closed(Commit::NAME, Sent::Maybe), false),
        (timeout(Commit::NAME), false),
        // these only asked the way
        (closed("FindCoordinator", Sent::Maybe), true),
        (timeout("FindCoordinator"), true),
        (answer(BrokerCode::NOT_COORDINATOR), true),
        (answer(BrokerCode::COORDINATOR_LOAD_IN_PROGRESS), true),
        // the caller has to look before it asks again
        (answer(BrokerCode::CONCURRENT_TRANSACTIONS), false),
        (answer(BrokerCode::PRODUCER_FENCED), false),
        (answer(BrokerCode::REQUEST_TIMED_OUT), false),
    ] {
        assert_eq!(call.again(&error), again, "{error:?}");
    }
}
