use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;

/// What the API server does once `renewals` have worked.
#[derive(Clone, Copy)]
enum Then {
    /// No answer, as from behind a cut wire.
    Silence,
    /// An answer at once, as from an API server that starts.
    Refuses,
    /// Another replica has the lease.
    Taken,
}

/// An API server that holds one lease and takes a limited number of renewals.
fn server(renewals: u32, then: Then, renewed: watch::Sender<Instant>) -> Client {
    let lease = Arc::new(Mutex::new(json!({"metadata": {"name": "operator"}, "spec": {}})));
    let left = Arc::new(AtomicU32::new(renewals));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (lease, left) = (Arc::clone(&lease), Arc::clone(&left));
        async move {
            let method = request.method().clone();
            let sent = request.into_body().collect().await.unwrap().to_bytes();
            let patch: Value = serde_json::from_slice(&sent).unwrap_or_default();
            if patch.pointer("/spec/renewTime").is_some()
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err()
            {
                match then {
                    Then::Silence => return pending().await,
                    Then::Refuses => return Ok(answer(503, &json!({}))),
                    Then::Taken => {
                        let taken = json!({"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"});
                        lease.lock().unwrap_or_else(PoisonError::into_inner)["spec"] = taken;
                    }
                }
            } else if method == Method::PATCH {
                let mut lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
                for (name, value) in patch["spec"].as_object().unwrap() {
                    lease["spec"][name] = value.clone();
                }
            }
            Ok::<_, Infallible>(answer(200, &lease.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    });
    Client::new(NoteRenewals { inner: service, renewed }, "default")
}

fn answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(serde_json::to_vec(body).unwrap())).unwrap()
}

async fn leading(renewals: u32, then: Then) -> Candidate {
    let renewed = watch::Sender::new(Instant::now());
    let lease = Lease { name: "operator".into(), namespace: "default".into(), identity: "me".into() };
    let candidate = Candidate::with(server(renewals, then, renewed.clone()), lease, renewed).await.unwrap();
    candidate.lead().await;
    candidate
}

#[rstest::rstest]
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_others_may_take_the_lease(
    #[values(Then::Silence, Then::Refuses)] then: Then,
    #[values(1, 3)] renewals: u32,
) {
    let candidate = leading(renewals, then).await;
    assert!(matches!(candidate.keep().await, LeaderError::NotRenewed));
    let since = candidate.renewed.borrow().elapsed();
    assert!(since >= GIVE_UP && since < Duration::from_secs(LEASE_SECONDS - 2), "{since:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_ends_when_another_replica_has_the_lease() {
    let candidate = leading(2, Then::Taken).await;
    assert!(matches!(candidate.keep().await, LeaderError::Lost));
}
