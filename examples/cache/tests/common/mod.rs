//! A cache with a clock by hand; conversations without a network; and clients of a server on loopback.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod talks;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use squall_cache_example::{Cache, Clock, Config, Hand, SquallStore, converse, serve};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The clock's first time: any that is no small number.
pub(crate) const BEGAN: u64 = 1_700_000_000;

pub(crate) type TestCache = Arc<Cache<SquallStore>>;

pub(crate) fn cache_with(config: Config) -> (TestCache, Hand) {
    let (clock, hand) = Clock::by_hand(BEGAN);
    (Cache::new(SquallStore::new(), config, clock), hand)
}

pub(crate) fn cache() -> TestCache {
    cache_with(Config::default()).0
}

/// A client that sends these pieces, reads everything, and leaves.
pub(crate) struct Script {
    pieces: VecDeque<Vec<u8>>,
    pub(crate) answers: Vec<u8>,
    /// So many bytes of answers are read, and then no more.
    pub(crate) reads_max: usize,
    /// The most that waited to be sent at once.
    pub(crate) waited_max: usize,
    /// Bytes that were taken from it.
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

/// Has the server talk with this client as far as it goes; whether the conversation is over.
pub(crate) fn play(cache: &TestCache, script: &mut Script) -> bool {
    let mut talk = Box::pin(converse(cache, script));
    match talk.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => {
            ended.expect("a script does not break off");
            true
        }
        Poll::Pending => false,
    }
}

/// What the server answers to these pieces.
pub(crate) fn answers<P: Into<Vec<u8>>>(cache: &TestCache, pieces: impl IntoIterator<Item = P>) -> Vec<u8> {
    let mut script = Script::new(pieces);
    assert!(play(cache, &mut script), "the server waits for something");
    script.answers
}

/// As text, for bytes that are.
pub(crate) fn say(cache: &TestCache, what: &str) -> String {
    String::from_utf8(answers(cache, [what])).expect("it is text")
}

/// A server on loopback, until it is dropped.
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

    /// Waits until so many connections are open.
    pub(crate) fn await_connections(&self, count: usize) {
        let begun = Instant::now();
        while self.cache.connections() != count {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} connections are open, not {count}",
                self.cache.connections()
            );
            std::thread::yield_now();
        }
    }
}

/// Nobody waits so long but for what never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A client that waits for its answers.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    came: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
        stream.set_nodelay(true).expect("it is a socket");
        Client { stream, came: Vec::new() }
    }

    pub(crate) fn send(&mut self, what: &[u8]) {
        self.stream.write_all(what).expect("the server reads");
    }

    /// One line, without its end.
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

    /// Sends a line, and returns the first of the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.line()
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) -> String {
        self.ask(&format!("set {key} 0 0 {}\r\n{value}", value.len()))
    }

    /// The value and its `cas`.
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

/// Where so many threads wait for each other, again and again; but not for one that has panicked.
pub(crate) struct Meeting {
    count: usize,
    /// How many have come, and which meeting it is.
    came: Mutex<(usize, usize)>,
    over: Condvar,
}

impl Meeting {
    pub(crate) fn new(count: usize) -> Meeting {
        Meeting { count, came: Mutex::new((0, 0)), over: Condvar::new() }
    }

    pub(crate) fn wait(&self) {
        let mut came = self.came.lock().expect("nobody panics here");
        came.0 += 1;
        if came.0 == self.count {
            *came = (0, came.1 + 1);
            self.over.notify_all();
            return;
        }
        let this = came.1;
        let (came, waited) =
            self.over.wait_timeout_while(came, PATIENCE, |came| came.1 == this).expect("nobody panics here");
        drop(came);
        assert!(!waited.timed_out(), "somebody does not come");
    }
}

/// A small generator (xorshift): what is drawn depends on the seed alone.
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
