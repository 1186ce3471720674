//! The servers of the case.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_cache_example::{Cache, Clock, Config, SquallStore, Store, serve};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::client::{Client, Load, Script};
use crate::case::{Missing, Role, Setting, Spec, Subject, Worker};
use crate::env;
use crate::rivals::{memcached, stores};

/// A server that runs until it is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    /// A runtime, or a child process.
    _what: Box<dyn Any + Send + Sync>,
}

/// A participant.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) start: fn() -> Result<Running, Missing>,
}

/// Relation of a server to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Our server, or the program on another map.
    Store,
    /// A second instance of our server, to show its variation.
    Again,
    /// Another program.
    Other,
}

pub(super) static ENTRIES: [Entry; 6] = [
    Entry { name: "squall", role: Role::Ours, kind: Kind::Store, start: ours::<SquallStore> },
    Entry { name: "dashmap", role: Role::Rival, kind: Kind::Store, start: ours::<stores::Dash> },
    Entry { name: "papaya", role: Role::Rival, kind: Kind::Store, start: ours::<stores::Papaya> },
    Entry { name: "scc-hashmap", role: Role::Rival, kind: Kind::Store, start: ours::<stores::SccHashMap> },
    Entry { name: "squall-again", role: Role::Ours, kind: Kind::Again, start: ours::<SquallStore> },
    Entry { name: "memcached", role: Role::Rival, kind: Kind::Other, start: other },
];

pub(super) static SPECS: &[Spec] = &[
    Spec::ours(ENTRIES[0].name, |setting| asked(&ENTRIES[0], setting)),
    Spec::rival(ENTRIES[1].name, |setting| asked(&ENTRIES[1], setting)),
    Spec::rival(ENTRIES[2].name, |setting| asked(&ENTRIES[2], setting)),
    Spec::rival(ENTRIES[3].name, |setting| asked(&ENTRIES[3], setting)),
    Spec::ours(ENTRIES[4].name, |setting| asked(&ENTRIES[4], setting)),
    Spec::rival(ENTRIES[5].name, |setting| asked(&ENTRIES[5], setting)),
];

/// Number of serving threads: one per processor.
fn threads() -> usize {
    env::processors().len()
}

/// Starts the server of the example.
fn ours<S: Store + Default>() -> Result<Running, Missing> {
    let failed = |error: std::io::Error| Missing(format!("the server cannot be started: {error}"));
    let runtime =
        Builder::new_multi_thread().worker_threads(threads()).enable_all().build().map_err(failed)?;
    let bound = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = bound.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let config = Config { memory_bytes_max: 1 << 30, ..Config::default() };
    runtime.spawn(serve(Cache::new(S::default(), config, Clock::system()), listener));
    Ok(Running { address, _what: Box::new(runtime) })
}

fn other() -> Result<Running, Missing> {
    let (child, address) = memcached::start(threads())?;
    Ok(Running { address, _what: Box::new(child) })
}

/// A server for an exact number of requests, for instruments that count.
struct Asked {
    running: Running,
    script: Arc<Script>,
    answered: AtomicU64,
}

fn asked(entry: &'static Entry, setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let running = (entry.start)()?;
    let script = Script::new(Load::of(setting.variant));
    let filled = Client::new(running.address, &script, 0).and_then(|mut client| client.fill());
    filled.map_err(|error| Missing(format!("the server cannot be filled: {error}")))?;
    Ok(Box::new(Asked { running, script, answered: AtomicU64::new(0) }))
}

impl Subject for Asked {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let client = Client::new(self.running.address, &self.script, thread);
        let mut client = client.expect("the server answers no more, although it answered a moment ago");
        Box::new(move |ops| {
            for _ in 0..ops {
                client.ask().expect("the server does not answer");
            }
            // Relaxed: read after the threads have met at the end.
            self.answered.fetch_add(ops, Ordering::Relaxed);
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let answered = self.answered.load(Ordering::Relaxed);
        if answered == ops { Ok(()) } else { Err(format!("{answered} answers to {ops} requests")) }
    }
}
