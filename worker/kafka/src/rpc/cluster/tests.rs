use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use tokio::net::TcpListener;

use crate::error::{BrokerCode, Cause, ErrorClass, Operation, Resource, Subject};
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

/// A broker says once why it cannot answer yet, and is then not heard before time is up.
struct SaidOnce<const READ_ONLY: bool>(AtomicBool);

impl<const READ_ONLY: bool> Routed for SaidOnce<READ_ONLY> {
    const NAME: &'static str = "SaidOnce";
    const READ_ONLY: bool = READ_ONLY;
    type Key = String;
    type Value = ();

    async fn route(&self, _: &Cluster, keys: &[String], deadline: Instant) -> Result<Routes<String>, RpcError> {
        if self.0.swap(true, Ordering::Relaxed) {
            tokio::time::sleep_until(deadline).await;
            let peer = HostPort { host: "broker".to_owned(), port: 9092 };
            return Err(RpcError::Timeout { peer, call: Self::NAME, after: Duration::ZERO });
        }
        let subject = Subject::new(Operation::Read, Resource::Group("group".to_owned()));
        let said = RpcError::broker(Self::NAME, BrokerCode::UNSTABLE_OFFSET_COMMIT, subject, None);
        Ok(keys.iter().map(|key| (key.clone(), Err(said.clone()))).collect())
    }

    fn misrouted(&self, _: &Cluster, _: &[String]) {}

    async fn ask(&self, _: &Connection, _: &[String], _: Instant) -> Answers<String, ()> {
        Ok(Vec::new())
    }
}

async fn last_words<const READ_ONLY: bool>() -> RpcError {
    // A request may take longer than the call: it is the call's time that is up.
    let options = ClientOptions { call_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let settings = ConnectionSettings::plaintext("broker:9092", "test").unwrap();
    let cluster = Cluster::with_options(settings, options).unwrap();
    let call = SaidOnce::<READ_ONLY>(AtomicBool::new(false));
    cluster.routed(&call, &["key".to_owned()]).await.remove("key").unwrap().unwrap_err()
}

#[tokio::test]
async fn what_a_broker_said_is_told_and_not_that_time_was_up_after_it() {
    assert_eq!(last_words::<true>().await.code(), Some(BrokerCode::UNSTABLE_OFFSET_COMMIT));
}

#[tokio::test]
async fn a_change_of_which_nothing_was_heard_stays_unknown_whatever_was_said_before() {
    assert_eq!(last_words::<false>().await.class(), ErrorClass::Unknown);
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
