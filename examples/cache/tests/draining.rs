//! The end of a server: requests that have arrived are answered, and all connections end.
#![cfg(unix)]

mod common;
#[path = "common/program.rs"]
mod program;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

use common::{BEGAN, Client, TIMEOUT, TestCache};
use program::Program;
use squall_cache_example::{Cache, Clock, Config, Drain, Fact, SquallStore, Store, serve_until};
use tokio::task::JoinHandle;

/// A server on loopback that a test drains.
struct Draining {
    cache: TestCache,
    address: SocketAddr,
    drain: Drain,
    served: JoinHandle<bool>,
    runtime: tokio::runtime::Runtime,
}

impl Draining {
    fn new() -> Draining {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let cache = Cache::new(SquallStore::new(), Config::default(), Clock::by_hand(BEGAN).0);
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let drain = Drain::new();
        let served = runtime.spawn({
            let (cache, drain) = (cache.clone(), drain.clone());
            async move { serve_until(&cache, vec![listener.into()], &drain, TIMEOUT).await }
        });
        Draining { cache, address, drain, served, runtime }
    }

    /// Waits until the server has counted so many events.
    fn await_fact(&self, fact: Fact, least: u64) {
        let begun = Instant::now();
        while self.cache.stats().total(fact) < least {
            assert!(begun.elapsed() < TIMEOUT, "{fact:?} is below {least}");
            thread::yield_now();
        }
    }

    /// Returns whether all connections had ended.
    fn end(self) -> bool {
        self.runtime.block_on(self.served).expect("the server does not panic")
    }
}

#[test]
fn idle_and_half_sent_connections_end_at_once_and_no_client_is_accepted() {
    let server = Draining::new();
    let (mut idle, mut half) = (Client::new(server.address), Client::new(server.address));
    assert_eq!([idle.set("k", "v"), half.set("l", "v")], ["STORED", "STORED"]);
    half.send(b"set half 0 0 5\r\nhal");
    server.await_fact(
        Fact::BytesRead,
        2 * "set k 0 0 1\r\nv\r\n".len() as u64 + "set half 0 0 5\r\nhal".len() as u64,
    );
    let (address, cache) = (server.address, server.cache.clone());
    server.drain.begin();
    assert!(idle.is_closed() && half.is_closed());
    assert!(server.end());
    assert!(TcpStream::connect(address).is_err(), "it still listens");
    assert_eq!((cache.store().len(), cache.connections()), (2, 0));
}

#[test]
fn requests_that_have_arrived_are_answered() {
    const REQUESTS: usize = 64;
    let server = Draining::new();
    let mut client = Client::new(server.address);
    let value = "x".repeat(1_000_000);
    assert_eq!(client.set("k", &value), "STORED");
    client.send(&b"get k\r\n".repeat(REQUESTS));
    // The client does not read, so the server waits for it in the middle of the answers.
    server.await_fact(Fact::GetHits, 1);
    server.drain.begin();
    // This one comes after the drain began, and before the server is ready for it.
    client.send(b"get none\r\n");
    for _ in 0..REQUESTS {
        assert_eq!(client.line(), "VALUE k 0 1000000");
        assert!(client.line() == value);
        assert_eq!(client.line(), "END");
    }
    assert_eq!(client.line(), "END");
    // The end of the stream, and no reset.
    assert_eq!(client.stream.read(&mut [0; 1]).expect("the connection is not reset"), 0);
    drop(client);
    assert!(server.end());
}

#[test]
fn clients_that_do_not_take_their_answers_are_cut_off_in_the_end() {
    let (clock, _) = Clock::by_hand(BEGAN);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a thread can be started");
    let cache = Cache::new(SquallStore::new(), Config::default(), clock);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("there is a port");
    let (address, drain) = (listener.local_addr().expect("it is bound"), Drain::new());
    let served = runtime.spawn({
        let (cache, drain) = (cache.clone(), drain.clone());
        async move { serve_until(&cache, vec![listener.into()], &drain, std::time::Duration::ZERO).await }
    });
    let mut deaf = Client::new(address);
    assert_eq!(deaf.set("k", &"x".repeat(1_000_000)), "STORED");
    deaf.send(&b"get k\r\n".repeat(100));
    let begun = Instant::now();
    while cache.stats().total(Fact::GetHits) == 0 {
        assert!(begun.elapsed() < TIMEOUT, "the server does not answer");
        thread::yield_now();
    }
    drain.begin();
    assert!(!runtime.block_on(served).expect("the server does not panic"));
    // The set of connections is dropped with the server.
    while cache.connections() > 0 {
        assert!(begun.elapsed() < TIMEOUT, "a connection is still open");
        thread::yield_now();
    }
}

#[test]
fn a_signal_ends_the_program_in_order() {
    for signal in ["TERM", "INT"] {
        let mut program = Program::start(&["--listen", "127.0.0.1:0", "--drain", "3600"], 1);
        let mut client = Client::new(program.places[0].parse().expect("an address"));
        assert_eq!(client.set("k", "v"), "STORED");
        program.signal(signal);
        assert!(client.is_closed());
        assert!(program.end(), "{signal}");
    }
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let mut program = Program::start(&["--listen", "127.0.0.1:0", "--drain", "3600"], 1);
    let mut deaf = Client::new(program.places[0].parse().expect("an address"));
    assert_eq!(deaf.set("k", &"x".repeat(1_000_000)), "STORED");
    deaf.send(&b"get k\r\n".repeat(100));
    // The first answer has begun, and the rest does not fit into the system's buffers.
    deaf.stream.read_exact(&mut [0; 1]).expect("the server answers");
    program.signal("TERM");
    program.signal("INT");
    assert!(program.end());
}

#[test]
fn a_unix_socket_serves_beside_a_port_and_is_removed_in_the_end() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    let folder = common::Folder::new();
    let path = folder.path().join("socket");
    let path_text = path.to_str().expect("it is text");
    let mut program =
        Program::start(&["--unix", path_text, "--unix-mode", "660", "--listen", "127.0.0.1:0"], 2);
    assert_eq!(program.places[1], path_text);
    let mode = std::fs::metadata(&path).expect("there is a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut client = Client::new(program.places[0].parse().expect("an address"));
    assert_eq!(client.set("k", "v"), "STORED");
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.write_all(b"get k\r\nquit\r\n").expect("it reads");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("it is text");
    assert_eq!(answers, "VALUE k 0 1\r\nv\r\nEND\r\n");
    program.signal("TERM");
    assert!(program.end());
    assert!(!path.exists());
    // Alone, it replaces the port. Another program may use the usual one meanwhile.
    let mut program = Program::start(&["--unix", path_text], 1);
    assert_eq!(program.places, [path_text]);
    program.signal("TERM");
    assert!(program.end());
}
