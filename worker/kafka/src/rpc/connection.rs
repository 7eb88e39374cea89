//! One connection to one broker: requests go out as they come, answers come back in the same order.
//!
//! ```text
//!   call() ──frame──▶ queue ──▶ writer task ──▶ socket
//!     ▲                                            │
//!     └── oneshot ◀── waiting (oldest first) ◀── reader task
//! ```
//!
//! A broker answers the requests of a connection in their order, so the answer at hand must carry the number of the oldest
//! request that waits; anything else means that the two sides do not understand each other, and the connection ends. It
//! also ends when an answer is late: what arrives after that would only be mistaken for something else.

mod greeting;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::settings::HostPort;

use super::api::{Api, ApiTable, Wire};
use super::error::{CloseReason, LooksLike, RpcError, Sent};
use super::frame;

pub(super) use greeting::Dialer;

/// A connection that is ready for requests.
pub(super) struct Connection {
    peer: HostPort,
    client_id: String,
    versions: ApiTable,
    waiting: Arc<Mutex<Waiting>>,
    queue: mpsc::UnboundedSender<Bytes>,
    /// The broker ends the session then; a new connection is due before.
    expires: Option<Instant>,
    /// Reader and writer: they end with the connection.
    tasks: JoinSet<()>,
}

type Answer = Result<Bytes, Arc<CloseReason>>;

/// Requests without an answer, oldest first.
struct Waiting {
    next: i32,
    requests: VecDeque<(i32, oneshot::Sender<Answer>)>,
    closed: Option<Arc<CloseReason>>,
    phase: Phase,
}

/// How far a connection is: what it means when the broker hangs up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Versions and SASL.
    Greeting,
    /// Ready, and no request of a caller was answered yet.
    Fresh,
    /// At least one request of a caller was answered.
    Proven,
}

impl Connection {
    fn start<S>(peer: HostPort, client_id: String, stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let waiting =
            Arc::new(Mutex::new(Waiting { next: 1, requests: VecDeque::new(), closed: None, phase: Phase::Greeting }));
        let (queue, frames) = mpsc::unbounded_channel();
        let (reader, writer) = tokio::io::split(stream);
        let mut tasks = JoinSet::new();
        tasks.spawn(read_all(reader, Arc::clone(&waiting)));
        tasks.spawn(write_all(writer, frames, Arc::clone(&waiting)));
        Self { peer, client_id, versions: ApiTable::default(), waiting, queue, expires: None, tasks }
    }

    /// Whether a request may still be sent.
    pub(super) fn is_usable(&self) -> bool {
        let in_time = self.expires.is_none_or(|expires| Instant::now() < expires);
        in_time && !self.tasks.is_empty() && lock(&self.waiting).closed.is_none()
    }

    /// Sends a request in the newest version that both sides speak and waits for its answer.
    ///
    /// Calls may overlap. When the answer is late, the connection is given up.
    pub(super) async fn call<R: Api>(&self, request: &R, deadline: Instant) -> Result<R::Response, RpcError> {
        let version = self.version_of::<R>()?;
        let answer = self.exchange(R::NAME, request, version, deadline).await?;
        self.read::<R::Response>(R::NAME, answer, version)
    }

    /// The version in which [`Self::call`] makes a request.
    pub(super) fn version_of<R: Api>(&self) -> Result<i16, RpcError> {
        self.versions.pick::<R>(&self.peer)
    }

    pub(super) fn peer(&self) -> &HostPort {
        &self.peer
    }

    fn read<T>(&self, call: &'static str, answer: Bytes, version: i16) -> Result<T, RpcError>
    where
        T: kafka_protocol::protocol::Decodable + kafka_protocol::protocol::HeaderVersion,
    {
        frame::decode(answer, version).map_err(|problem| RpcError::BadAnswer { peer: self.peer.clone(), call, problem })
    }

    async fn exchange<R: Wire>(
        &self,
        call: &'static str,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Result<Bytes, RpcError> {
        let frame =
            frame::encode(request, version, &self.client_id).map_err(|problem| RpcError::Encode { call, problem })?;
        let started = Instant::now();
        let answer = self.send(frame).map_err(|source| self.closed(call, Sent::No, source))?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(Ok(bytes))) => Ok(bytes),
            Ok(Ok(Err(source))) => Err(self.closed(call, Sent::Maybe, source)),
            // The sender went away without a word: the reader task was aborted with the connection.
            Ok(Err(_)) => Err(self.closed(call, Sent::Maybe, Arc::new(CloseReason::GivenUp))),
            Err(_) => {
                close(&self.waiting, CloseReason::GivenUp);
                let after = Instant::now().saturating_duration_since(started);
                Err(RpcError::Timeout { peer: self.peer.clone(), call, after })
            }
        }
    }

    /// Queues a frame. Number and place in the queue are given under one lock, so their orders agree.
    fn send(&self, mut frame: BytesMut) -> Result<oneshot::Receiver<Answer>, Arc<CloseReason>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if let Some(reason) = &waiting.closed {
            return Err(Arc::clone(reason));
        }
        let id = waiting.next;
        waiting.next = id.checked_add(1).unwrap_or(1);
        frame::number(&mut frame, id);
        if self.queue.send(frame.freeze()).is_err() {
            return Err(Arc::new(CloseReason::GivenUp));
        }
        waiting.requests.push_back((id, sender));
        Ok(receiver)
    }

    fn closed(&self, call: &'static str, sent: Sent, source: Arc<CloseReason>) -> RpcError {
        RpcError::Closed { peer: self.peer.clone(), call, sent, source }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the connection for everybody who waits. The first reason stays.
fn close(waiting: &Mutex<Waiting>, reason: CloseReason) {
    let mut waiting = lock(waiting);
    let reason = Arc::clone(waiting.closed.get_or_insert_with(|| Arc::new(reason)));
    for (_, sender) in waiting.requests.drain(..) {
        // Who does not wait any more needs no reason.
        drop(sender.send(Err(Arc::clone(&reason))));
    }
}

async fn write_all(
    mut socket: impl AsyncWrite + Unpin,
    mut frames: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<Mutex<Waiting>>,
) {
    while let Some(frame) = frames.recv().await {
        let mut written = socket.write_all(&frame).await;
        while written.is_ok() {
            match frames.try_recv() {
                Ok(frame) => written = socket.write_all(&frame).await,
                Err(_) => break,
            }
        }
        if written.is_ok() {
            written = socket.flush().await;
        }
        if let Err(error) = written {
            close(&waiting, CloseReason::Io(error));
            return;
        }
    }
}

async fn read_all(mut socket: impl AsyncRead + Unpin, waiting: Arc<Mutex<Waiting>>) {
    loop {
        let done = match read_frame(&mut socket).await {
            Ok(frame) => deliver(&waiting, frame),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = done {
            let first = lock(&waiting).phase == Phase::Fresh;
            close(
                &waiting,
                match reason {
                    CloseReason::ByPeer if first => CloseReason::ByPeerAtFirstRequest,
                    other => other,
                },
            );
            return;
        }
    }
}

/// Reads one frame, without its length.
async fn read_frame(socket: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, CloseReason> {
    let mut head = [0; 4];
    socket.read_exact(&mut head).await.map_err(ended)?;
    if let Some(what) = looks_like(head) {
        return Err(CloseReason::NotKafka(what));
    }
    let announced = i32::from_be_bytes(head);
    let length = usize::try_from(announced)
        .ok()
        .filter(|length| (4..=frame::MAX_FRAME).contains(length))
        .ok_or(CloseReason::Oversized(announced.into()))?;
    // The memory grows with what really arrives.
    let mut body = BytesMut::with_capacity(length.min(64 << 10));
    while body.len() < length {
        let missing = length - body.len();
        let read = (&mut *socket).take(missing as u64).read_buf(&mut body).await.map_err(ended)?;
        if read == 0 {
            return Err(CloseReason::ByPeer);
        }
    }
    Ok(body.freeze())
}

fn ended(error: std::io::Error) -> CloseReason {
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    match error.kind() {
        UnexpectedEof | ConnectionReset => CloseReason::ByPeer,
        _ => CloseReason::Io(error),
    }
}

fn looks_like(head: [u8; 4]) -> Option<LooksLike> {
    match &head {
        [0x15 | 0x16, 3, ..] => Some(LooksLike::Tls),
        b"HTTP" => Some(LooksLike::Http),
        _ => None,
    }
}

/// Gives a frame to the oldest request that waits.
fn deliver(waiting: &Mutex<Waiting>, frame: Bytes) -> Result<(), CloseReason> {
    let got = (&frame[..]).try_get_i32().unwrap_or(-1);
    let mut waiting = lock(waiting);
    match waiting.requests.pop_front() {
        Some((expected, sender)) if expected == got => {
            if waiting.phase == Phase::Fresh {
                waiting.phase = Phase::Proven;
            }
            drop(sender.send(Ok(frame)));
            Ok(())
        }
        other => {
            let expected = other.as_ref().map(|(id, _)| *id);
            if let Some(request) = other {
                waiting.requests.push_front(request);
            }
            Err(CloseReason::Correlation { expected, got })
        }
    }
}

/// Milliseconds of a duration as the protocol wants them.
pub(super) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
