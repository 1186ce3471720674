//! One connection: the requests of a client, one after the other, and the answers in the same order.
//!
//! - I1. The connection keeps at most the input that the parser waits for, and one read more. output/I1
//!   bounds the output. While the client does not read its answers, the server does not read its requests.
//! - I2. A client's input, or its absence, ends only its own connection.
//! - I3. Input of more than [`UNCOUNTED_BYTES`] counts against the memory limit. A value that does not fit is
//!   rejected before its bytes are received.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::cache::{Cache, InputPart, Room};
use crate::drain::{Drain, DrainWait};
use crate::idle::IdleTimeout;
use crate::protocol::{Outcome, Parsed, Parser, Request};
use crate::responder::Responder;
use crate::stats::Fact;
use crate::store::Store;

/// Minimum number of bytes to read at once.
const READ_BYTES: usize = 8 << 10;
/// Size of a buffer for lines and small values. Every connection has one, and the number of connections is
/// limited.
const UNCOUNTED_BYTES: usize = 2 * READ_BYTES;

/// Maximum time for which a drained connection waits for its client to leave.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Received input that the parser has not used yet.
struct Input<'a, S: Store> {
    bytes: Vec<u8>,
    /// Number of bytes that are used.
    used: usize,
    /// The part of the memory limit that the buffer has.
    part: InputPart<'a, S>,
}

impl<S: Store> Input<'_, S> {
    fn new(cache: &Cache<S>) -> Input<'_, S> {
        Input { bytes: Vec::new(), used: 0, part: cache.input_part() }
    }

    /// Makes room for `wanted` bytes beside the used ones, a part at a time. So a client that announces a
    /// large value and sends no byte of it gets no more memory than others. Without room in the memory limit,
    /// the buffer stays as it is.
    fn make_place(&mut self, wanted: usize) -> Room {
        self.bytes.drain(..self.used);
        self.used = 0;
        let missing = wanted.saturating_sub(self.bytes.len());
        let more = missing.min(self.bytes.len()).max(READ_BYTES);
        let size = self.bytes.len() + more;
        if size < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(size);
        }
        let capacity = size.max(self.bytes.capacity());
        let counted = if capacity > UNCOUNTED_BYTES { capacity } else { 0 };
        if self.part.resize(counted as u64) == Room::None {
            return Room::None;
        }
        self.bytes.reserve_exact(more);
        Room::Made
    }
}

/// An event on a connection.
enum Event {
    /// The client sent so many bytes.
    Read(usize),
    /// The client left.
    Left,
    /// The server ends, and no more input has arrived.
    Drained,
}

/// Serves one client until it leaves or the connection breaks.
///
/// # Errors
/// The error of the stream.
pub async fn serve_client<S, T>(cache: &Arc<Cache<S>>, stream: T) -> io::Result<()>
where
    S: Store,
    T: AsyncRead + AsyncWrite + Unpin,
{
    serve_client_until(cache, stream, &Drain::new()).await
}

/// Serves one client until it leaves, or the connection breaks, or the drain has begun and all requests that
/// arrived before are answered.
///
/// # Errors
/// The error of the stream.
pub async fn serve_client_until<S, T>(cache: &Arc<Cache<S>>, mut stream: T, drain: &Drain) -> io::Result<()>
where
    S: Store,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut responder = Responder::new(cache);
    let (mut parser, mut input) = (Parser::new(), Input::new(cache));
    let mut drain_wait = pin!(DrainWait::new(drain));
    // Bytes of answers when the connection last waited before the drain.
    let mut sent_before = 0;
    loop {
        let (item_bytes_max, idle_s_max) =
            cache.config().read(|config| (config.item_bytes_max, config.idle_s_max));
        let mut parsed = parser.next(&input.bytes[input.used..], item_bytes_max);
        if let Parsed { used, outcome: Outcome::Wait { bytes } } = parsed {
            input.used += used;
            responder.send(&mut stream).await?;
            if !drain.has_begun() {
                sent_before = responder.sent_bytes();
            }
            let rejected = match input.make_place(bytes) {
                Room::Made => None,
                Room::None => parser.reject_value(&input.bytes),
            };
            if cache.is_reclaim_due() {
                run_blocking(cache, |cache| cache.store().reclaim()).await;
            }
            let Some(rejected) = rejected else {
                let timeout = IdleTimeout::new(cache.stats(), idle_s_max);
                let read = stream.read_buf(&mut input.bytes);
                match next_event(timeout.wait(read), drain_wait.as_mut()).await? {
                    Event::Read(read) => cache.stats().add(Fact::BytesRead, read as u64),
                    Event::Left => return Ok(()),
                    Event::Drained if responder.sent_bytes() > sent_before => return linger(stream).await,
                    Event::Drained => return Ok(()),
                }
                continue;
            };
            parsed = rejected;
        }
        let used = parsed.used;
        match parsed.outcome {
            Outcome::Request(Request::Get { keys, cas, exptime, is_last }) => {
                responder.get(keys, cas, exptime, is_last, &mut stream).await?;
            }
            Outcome::Request(Request::Quit) => {
                responder.send(&mut stream).await?;
                return Ok(());
            }
            Outcome::Request(request @ Request::FlushAll { delay: ..=0, .. }) => {
                responder.answer(request);
                // Before the answer is sent. So the client finds none of them in the statistics.
                run_blocking(cache, Cache::sweep_all).await;
            }
            Outcome::Request(request) => {
                // The value in the buffer is about to count as an item.
                let _ = input.part.resize(0);
                responder.answer(request);
                if cache.is_reclaim_due() {
                    run_blocking(cache, |cache| cache.store().reclaim()).await;
                }
            }
            Outcome::Refused { refusal, noreply } => responder.reply(noreply, refusal.text()),
            Outcome::Wait { .. } => unreachable!("handled above"),
        }
        input.used += used;
        responder.send_if_full(&mut stream).await?;
    }
}

/// Waits for the client. After the drain has begun, takes only input that has arrived.
async fn next_event(
    read: impl Future<Output = io::Result<usize>>,
    mut drain_wait: Pin<&mut DrainWait<'_>>,
) -> io::Result<Event> {
    let (mut read, mut is_asked) = (pin!(read), false);
    loop {
        let event = poll_fn(|context| match read.as_mut().poll(context) {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(Event::Left)),
            Poll::Ready(read) => Poll::Ready(read.map(Event::Read)),
            Poll::Pending => drain_wait.as_mut().poll(context).map(|()| Ok(Event::Drained)),
        });
        match event.await? {
            // The runtime asks the system for events before it comes back. It may not know all of them yet.
            Event::Drained if !is_asked => is_asked = true,
            event => return Ok(event),
        }
        tokio::task::yield_now().await;
    }
}

/// Closes a connection whose client was answered just now, and may still send. Its input is read and dropped
/// until it leaves, for a second at most: otherwise the system could reset the connection before the client
/// has read its answers.
async fn linger<T: AsyncRead + AsyncWrite + Unpin>(mut stream: T) -> io::Result<()> {
    stream.shutdown().await?;
    let mut dropped = [0; 1 << 10];
    let leaves = async { while stream.read(&mut dropped).await.is_ok_and(|read| read > 0) {} };
    // The client has had its time, if it is over.
    let _ = tokio::time::timeout(LINGER_MAX, leaves).await;
    Ok(())
}

/// Runs a function that takes long or waits. Uses a thread for blocking calls if there is a runtime.
pub(crate) async fn run_blocking<S: Store>(
    cache: &Arc<Cache<S>>,
    f: impl FnOnce(&Cache<S>) + Send + 'static,
) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            let cache = cache.clone();
            // The function does not panic.
            let _ = runtime.spawn_blocking(move || f(&cache)).await;
        }
        Err(_) => f(cache),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Config, SquallStore};

    fn cache(memory_bytes_max: u64) -> Arc<Cache<SquallStore>> {
        let config = Config { memory_bytes_max, ..Config::default() };
        Cache::new(SquallStore::new(), config, Clock::by_hand(1_000_000).0)
    }

    #[test]
    fn i1_room_is_made_for_received_bytes_not_for_announced_ones() {
        let cache = cache(64 << 20);
        let mut input = Input::new(&cache);
        assert_eq!(input.make_place(1 << 20), Room::Made);
        assert!(input.bytes.capacity() <= 2 * READ_BYTES);
        input.bytes.resize(100_000, 0);
        assert_eq!(input.make_place(1 << 20), Room::Made);
        assert!((200_000..300_000).contains(&input.bytes.capacity()));
        // A large value that is used up leaves no large buffer behind.
        input.used = input.bytes.len();
        assert_eq!(input.make_place(1), Room::Made);
        assert!(input.bytes.capacity() <= 2 * READ_BYTES);
        assert!(input.bytes.is_empty());
    }

    #[test]
    fn i3_large_buffers_count_while_they_are_held() {
        let cache = cache(400_000);
        let mut input = Input::new(&cache);
        assert_eq!(input.make_place(1), Room::Made);
        assert_eq!(cache.input_bytes(), 0);
        input.bytes.resize(100_000, 0);
        assert_eq!(input.make_place(1 << 20), Room::Made);
        assert_eq!(cache.input_bytes(), input.bytes.capacity() as u64);
        // The second one does not fit beside the first.
        let mut other = Input::new(&cache);
        other.bytes.resize(150_000, 0);
        assert_eq!(other.make_place(1 << 20), Room::None);
        assert_eq!(cache.input_bytes(), input.bytes.capacity() as u64);
        input.used = input.bytes.len();
        assert_eq!(input.make_place(1), Room::Made);
        assert_eq!(cache.input_bytes(), 0);
        assert_eq!(other.make_place(1 << 20), Room::Made);
        drop(other);
        assert_eq!(cache.input_bytes(), 0);
    }
}
