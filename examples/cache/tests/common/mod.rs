//! A cache with a clock moved by hand, dialogues without a network, and clients of a server on loopback.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod dialogues;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use squall_cache_example::{Cache, Clock, Config, Hand, SquallStore, serve, serve_client};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The clock's first time: any large number.
pub(crate) const BEGAN: u64 = 1_700_000_000;

pub(crate) type TestCache = Arc<Cache<SquallStore>>;

pub(crate) fn cache_with(config: Config) -> (TestCache, Hand) {
    let (clock, hand) = Clock::by_hand(BEGAN);
    (Cache::new(SquallStore::new(), config, clock), hand)
}

pub(crate) fn cache() -> TestCache {
    cache_with(Config::default()).0
}

/// A client that sends these pieces, reads all answers, and leaves.
pub(crate) struct Script {
    pieces: VecDeque<Vec<u8>>,
    pub(crate) answers: Vec<u8>,
    /// Number of bytes of answers that the client reads before it stops.
    pub(crate) reads_max: usize,
    /// The maximum that waited to be sent at once.
    pub(crate) waited_max: usize,
    /// Number of bytes that the server took from the client.
    pub(crate) sent: usize,
}

impl Script {
    pub(crate) fn new<P: Into<Vec<u8>>>(pieces: impl IntoIterator<Item = P>) -> Script {
        let pieces = pieces.into_iter().map(Into::into).filter(|piece: &Vec<u8>| !piece.is_empty()).collect();
        Script { pieces, answers: Vec::new(), reads_max: usize::MAX, waited_max: 0, sent: 0 }
    }
}

impl AsyncRead for &mut Script {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let script = &mut **self.get_mut();
        if let Some(piece) = script.pieces.front_mut() {
            let count = piece.len().min(into.remaining());
            into.put_slice(&piece[..count]);
            script.sent += count;
            piece.drain(..count);
            if piece.is_empty() {
                script.pieces.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for &mut Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let script = &mut **self.get_mut();
        script.waited_max = script.waited_max.max(bytes.len());
        let count = bytes.len().min(script.reads_max - script.answers.len());
        if count == 0 {
            return Poll::Pending;
        }
        script.answers.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs the server with this client as far as it goes. Returns whether the dialogue is over.
pub(crate) fn play(cache: &TestCache, script: &mut Script) -> bool {
    let mut dialogue = Box::pin(serve_client(cache, script));
    match dialogue.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => {
            ended.expect("a script does not break off");
            true
        }
        Poll::Pending => false,
    }
}

/// Returns the server's answers to these pieces.
pub(crate) fn answers<P: Into<Vec<u8>>>(cache: &TestCache, pieces: impl IntoIterator<Item = P>) -> Vec<u8> {
    let mut script = Script::new(pieces);
    assert!(play(cache, &mut script), "the server waits for something");
    script.answers
}

/// Returns the server's answers as text.
pub(crate) fn say(cache: &TestCache, what: &str) -> String {
    String::from_utf8(answers(cache, [what])).expect("it is text")
}

/// A server on loopback, until the drop.
pub(crate) struct Served {
    pub(crate) cache: TestCache,
    pub(crate) hand: Hand,
    pub(crate) address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    pub(crate) fn new(config: Config) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let (cache, hand) = cache_with(config);
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        runtime.spawn(serve(cache.clone(), listener));
        Served { cache, hand, address, _runtime: runtime }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Waits until this many connections are open.
    pub(crate) fn await_connections(&self, count: usize) {
        let begun = Instant::now();
        while self.cache.connections() != count {
            assert!(
                begun.elapsed() < TIMEOUT,
                "{} connections are open, not {count}",
                self.cache.connections()
            );
            std::thread::yield_now();
        }
    }
}

/// A timeout that only a lost event can exceed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A client that waits for its answers.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    came: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("it is no zero");
        stream.set_nodelay(true).expect("it is a socket");
        Client { stream, came: Vec::new() }
    }

    pub(crate) fn send(&mut self, what: &[u8]) {
        self.stream.write_all(what).expect("the server reads");
    }

    /// Returns one line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut searched = 0;
        loop {
            let end = self.came[searched..].windows(2).position(|pair| pair == b"\r\n");
            if let Some(end) = end.map(|end| searched + end) {
                let rest = self.came.split_off(end + 2);
                let line = std::mem::replace(&mut self.came, rest);
                return String::from_utf8(line[..end].to_vec()).expect("it is text");
            }
            searched = self.came.len().saturating_sub(1);
            let mut bytes = [0; 16 << 10];
            let read = self.stream.read(&mut bytes).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            self.came.extend_from_slice(&bytes[..read]);
        }
    }

    /// Sends a line, and returns the first line of the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.line()
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) -> String {
        self.ask(&format!("set {key} 0 0 {}\r\n{value}", value.len()))
    }

    /// Returns the value and its `cas` number.
    pub(crate) fn gets(&mut self, key: &str) -> Option<(String, u64)> {
        let line = self.ask(&format!("gets {key}"));
        if line == "END" {
            return None;
        }
        let cas = line.rsplit(' ').next().and_then(|cas| cas.parse().ok()).expect("a number is last");
        let value = self.line();
        assert_eq!(self.line(), "END");
        Some((value, cas))
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

/// An empty folder, until the drop.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("squall-cached-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder can be made");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A reusable barrier for this many threads, which does not wait for a thread that panicked.
pub(crate) struct Barrier {
    count: usize,
    /// Number of threads that have come, and the number of the round.
    came: Mutex<(usize, usize)>,
    over: Condvar,
}

impl Barrier {
    pub(crate) fn new(count: usize) -> Barrier {
        Barrier { count, came: Mutex::new((0, 0)), over: Condvar::new() }
    }

    pub(crate) fn wait(&self) {
        let mut came = self.came.lock().expect("no thread panics here");
        came.0 += 1;
        if came.0 == self.count {
            *came = (0, came.1 + 1);
            self.over.notify_all();
            return;
        }
        let this = came.1;
        let (came, waited) = self
            .over
            .wait_timeout_while(came, TIMEOUT, |came| came.1 == this)
            .expect("no thread panics here");
        drop(came);
        assert!(!waited.timed_out(), "somebody does not come");
    }
}

/// A small generator (xorshift). Its output depends on the seed alone.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }
}
