use futures::future::join_all;
use tokio::net::TcpListener;

use crate::error::Cause;
use crate::rpc::{Isolation, NoCoordinatorKnowsThisProducer, OffsetSpec, Pending, ProducerIdentity, TransactionFilter};

use super::*;

/// A port where connections are taken and nothing is ever said.
async fn silent() -> (TcpListener, HostPort) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, HostPort { host: "127.0.0.1".to_owned(), port })
}

fn cluster(bootstrap: &[&HostPort]) -> Cluster {
    let servers = bootstrap.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let options = ClientOptions {
        connect_timeout: Duration::from_millis(50),
        request_timeout: Duration::from_millis(200),
        call_timeout: Duration::from_millis(300),
    };
    Cluster::with_options(ConnectionSettings::plaintext(&servers, "test").unwrap(), options).unwrap()
}

#[tokio::test]
async fn calls_that_wait_for_the_same_dial_keep_their_deadlines() {
    let (_listener, peer) = silent().await;
    let cluster = cluster(&[&peer]);
    let started = Instant::now();
    let answers = join_all((0..50).map(|_| cluster.metadata(&[]))).await;
    // One after another they would take 2.5 s.
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(matches!(error, RpcError::ConnectTimeout { .. }), "{error:?}");
        assert_eq!(error.cause(), Cause::BrokerUnreachable);
    }
}

#[tokio::test]
async fn a_broker_that_could_not_be_reached_is_asked_last() {
    let ((_a, first), (_b, second)) = (silent().await, silent().await);
    let cluster = cluster(&[&first, &second]);
    assert_eq!(cluster.candidates(), [first.clone(), second.clone()]);
    let deadline = Instant::now() + Duration::from_secs(5);
    assert!(cluster.connection(&first, deadline).await.is_err());
    assert_eq!(cluster.candidates(), [second, first]);
}

/// The operator and the worker run calls in tasks of a multi-threaded runtime.
#[test]
fn calls_can_be_spawned() {
    fn send(_: impl Future + Send) {}
    let (cluster, ids, id) =
        (cluster(&[&HostPort { host: "kafka".to_owned(), port: 9092 }]), [], ProducerIdentity { id: 1, epoch: 0 });
    let permit = NoCoordinatorKnowsThisProducer::i_have_checked_every_coordinator();
    send(cluster.metadata(&[]));
    send(cluster.broker_limits());
    send(cluster.create_topics(&[]));
    send(cluster.delete_topics(&[]));
    send(cluster.create_acls("User:a", &[]));
    send(cluster.list_offsets(&[], OffsetSpec::Latest, Isolation::ReadCommitted));
    send(cluster.committed_offsets("group", None, Pending::Wait));
    send(cluster.describe_transactions(&ids));
    send(cluster.init_producer_ids(&ids, Duration::ZERO));
    send(cluster.commit_transaction("id", id));
    send(cluster.list_transactions(&TransactionFilter::default()));
    send(cluster.describe_producers(&[]));
    send(cluster.write_abort_markers(permit, id, 0, &[]));
}
