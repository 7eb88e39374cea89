use kafka_protocol::messages::{ApiVersionsRequest, InitProducerIdRequest};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::error::{Cause, ErrorClass};

use super::*;

/// What a broker that knows InitProducerId v5 and ApiVersions v`max` answers to ApiVersions v3 or v4, after the number.
fn versions(max: u8) -> Vec<u8> {
    let apis = [[0, 18, 0, 0, 0, max, 0], [0, 22, 0, 0, 0, 5, 0]].concat();
    [&[0, 0][..], &[3], &apis, &[0; 4], &[0]].concat()
}

/// What a broker that knows ApiVersions up to `max` answers to a newer one, after the number.
fn versions_refused(max: u8) -> Vec<u8> {
    [&[0, 35][..], &[0, 0, 0, 1], &[0, 18, 0, 0, 0, max]].concat()
}

/// An answer to InitProducerId: producer id `id`, epoch 0.
fn initialised(id: u8) -> Vec<u8> {
    [&[0][..], &[0; 4], &[0, 0], &[0, 0, 0, 0, 0, 0, 0, id], &[0, 0], &[0]].concat()
}

/// The other side of a connection.
struct Peer(DuplexStream);

impl Peer {
    /// Key, version and number of the next request.
    async fn request(&mut self) -> (i16, i16, i32) {
        let length = self.0.read_i32().await.unwrap();
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut frame).await.unwrap();
        let mut head = &frame[..];
        (head.get_i16(), head.get_i16(), head.get_i32())
    }

    async fn answer(&mut self, number: i32, body: &[u8]) {
        let length = i32::try_from(body.len() + 4).unwrap();
        self.raw(&[&length.to_be_bytes()[..], &number.to_be_bytes(), body].concat()).await;
    }

    async fn raw(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }
}

fn fresh() -> (Connection, Peer) {
    let (ours, theirs) = duplex(1 << 16);
    let peer = HostPort { host: "broker".to_owned(), port: 9092 };
    (Connection::start(peer, "test".to_owned(), ours), Peer(theirs))
}

/// A connection that knows the broker's versions and has answered nothing else.
async fn ready() -> (Connection, Peer) {
    let (mut connection, mut peer) = fresh();
    let (table, ()) = tokio::join!(connection.ask_versions(soon()), async {
        let (_, _, number) = peer.request().await;
        peer.answer(number, &versions(4)).await;
    });
    connection.versions = table.unwrap();
    lock(&connection.waiting).phase = Phase::Fresh;
    (connection, peer)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

async fn init(connection: &Connection) -> Result<i64, RpcError> {
    connection.call(&InitProducerIdRequest::default(), soon()).await.map(|answer| *answer.producer_id)
}

fn reason(error: &RpcError) -> (&CloseReason, Sent) {
    match error {
        RpcError::Closed { source, sent, .. } => (source, *sent),
        other => panic!("not closed: {other:?}"),
    }
}

#[tokio::test]
async fn overlapping_calls_get_their_own_answers() {
    let (connection, mut peer) = ready().await;
    let (a, b, ()) = tokio::join!(init(&connection), init(&connection), async {
        // Both are on their way before the first is answered.
        let (_, version, first) = peer.request().await;
        let (_, _, second) = peer.request().await;
        assert_eq!(version, 5);
        peer.answer(first, &initialised(1)).await;
        peer.answer(second, &initialised(2)).await;
    });
    assert_eq!((a.unwrap(), b.unwrap()), (1, 2));
}

#[tokio::test]
async fn the_answer_to_a_call_that_was_given_up_goes_to_nobody_else() {
    let (connection, mut peer) = ready().await;
    let mut given_up = Box::pin(init(&connection));
    assert!(futures::poll!(&mut given_up).is_pending());
    drop(given_up);
    let (answer, ()) = tokio::join!(init(&connection), async {
        for id in [1, 2] {
            let (_, _, number) = peer.request().await;
            peer.answer(number, &initialised(id)).await;
        }
    });
    assert_eq!(answer.unwrap(), 2);
}

#[tokio::test]
async fn an_answer_with_a_wrong_number_ends_the_connection() {
    let (connection, mut peer) = ready().await;
    let (answer, ()) = tokio::join!(init(&connection), async {
        let (_, _, number) = peer.request().await;
        peer.answer(number + 1, &initialised(1)).await;
    });
    let error = answer.unwrap_err();
    assert!(matches!(reason(&error), (CloseReason::Correlation { .. }, Sent::Maybe)), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Unknown);
    assert!(!connection.is_usable());
    // From now on nothing is sent, and that is certain.
    let error = init(&connection).await.unwrap_err();
    assert_eq!((reason(&error).1, error.class()), (Sent::No, ErrorClass::Retry));
}

#[tokio::test]
async fn an_answer_nobody_asked_for_ends_the_connection() {
    let (mut connection, mut peer) = ready().await;
    peer.answer(1, &initialised(1)).await;
    // The reader ends by itself.
    connection.tasks.join_next().await.unwrap().unwrap();
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn a_late_answer_is_a_timeout_and_the_connection_is_given_up() {
    let (connection, mut peer) = ready().await;
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = connection.call(&InitProducerIdRequest::default(), deadline).await.unwrap_err();
    assert!(matches!(error, RpcError::Timeout { call: "InitProducerId", .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Unknown);
    assert!(Instant::now() >= deadline);
    assert!(!connection.is_usable());
    peer.request().await;
}

#[tokio::test]
async fn a_broker_that_hangs_up_at_the_first_request_probably_wants_sasl() {
    let (connection, mut peer) = ready().await;
    let (answer, ()) = tokio::join!(init(&connection), async {
        peer.request().await;
        drop(peer);
    });
    let error = answer.unwrap_err();
    assert!(matches!(reason(&error).0, CloseReason::ByPeerAtFirstRequest), "{error:?}");
    assert_eq!(error.cause(), Cause::AuthenticationFailed);
}

#[tokio::test]
async fn a_broker_that_hangs_up_later_is_away() {
    let (connection, mut peer) = ready().await;
    let (first, second, ()) = tokio::join!(init(&connection), init(&connection), async {
        let (_, _, number) = peer.request().await;
        peer.answer(number, &initialised(1)).await;
        peer.request().await;
        // half an answer
        peer.raw(&[0, 0, 0, 9, 0, 0]).await;
        drop(peer);
    });
    first.unwrap();
    let error = second.unwrap_err();
    assert!(matches!(reason(&error), (CloseReason::ByPeer, Sent::Maybe)), "{error:?}");
    assert_eq!(error.cause(), Cause::BrokerUnreachable);
}

#[tokio::test]
async fn what_is_no_broker_is_recognised() {
    for (bytes, cause) in [
        (&[0x15, 3, 3, 0, 2, 2, 70][..], Cause::TlsFailed),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Cause::BrokerUnreachable),
        (&[0x7f, 0xff, 0xff, 0xff], Cause::BrokerUnreachable),
        (&[0xff, 0xff, 0xff, 0xff], Cause::BrokerUnreachable),
        (&[0, 0, 0, 3, 1, 2, 3], Cause::BrokerUnreachable),
        (&[], Cause::BrokerUnreachable),
    ] {
        let (connection, mut peer) = fresh();
        let (answer, ()) = tokio::join!(connection.ask_versions(soon()), async {
            peer.request().await;
            peer.raw(bytes).await;
            drop(peer);
        });
        let error = answer.unwrap_err();
        assert_eq!(error.cause(), cause, "{error:?}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_names_the_request() {
    let (connection, mut peer) = ready().await;
    let (answer, ()) = tokio::join!(init(&connection), async {
        let (_, _, number) = peer.request().await;
        peer.answer(number, &initialised(1)[..9]).await;
    });
    let error = answer.unwrap_err();
    assert!(matches!(error, RpcError::BadAnswer { call: "InitProducerId", .. }), "{error:?}");
}

#[tokio::test]
async fn a_broker_that_does_not_know_our_versions_of_versions_is_asked_in_its_own() {
    let (connection, mut peer) = fresh();
    let (table, ()) = tokio::join!(connection.ask_versions(soon()), async {
        let (key, version, number) = peer.request().await;
        assert_eq!((key, version), (18, 4));
        peer.answer(number, &versions_refused(3)).await;
        let (key, version, number) = peer.request().await;
        assert_eq!((key, version), (18, 3));
        peer.answer(number, &versions(3)).await;
    });
    assert_eq!(table.unwrap().max(ApiVersionsRequest::KEY), Some(3));
}

#[tokio::test]
async fn a_broker_that_is_too_old_is_refused_with_both_versions() {
    // The second says what makes no sense: it refuses the very version it offers.
    for max in [2, 4] {
        let (connection, mut peer) = fresh();
        let (answer, ()) = tokio::join!(connection.ask_versions(soon()), async {
            let (_, _, number) = peer.request().await;
            peer.answer(number, &versions_refused(max)).await;
        });
        let text = answer.unwrap_err().to_string();
        assert!(text.contains(&format!("0..{max}")) && text.contains("3..4"), "{text}");
    }
    let (connection, _peer) = ready().await;
    let unknown = connection.version_of::<kafka_protocol::messages::MetadataRequest>().unwrap_err();
    assert!(unknown.to_string().contains("speaks Metadata in versions none"), "{unknown}");
    assert_eq!(unknown.class(), ErrorClass::Fatal);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_never_hang_or_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), frame in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (connection, mut peer) = ready().await;
            let (answer, ()) = tokio::join!(init(&connection), async {
                let (_, _, number) = peer.request().await;
                if frame {
                    peer.answer(number, &bytes).await;
                } else {
                    peer.raw(&bytes).await;
                }
                drop(peer);
            });
            if !frame {
                // The number of the request is in no random frame, but for one chance in four thousand million.
                prop_assert!(answer.is_err());
            }
            Ok(())
        })?;
    }
}
