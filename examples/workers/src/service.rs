//! The shared objects: their interfaces, and their implementations in the server's process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use squall::call::caller;
use squall::objects::counter::{self, Counter};
use squall::objects::gate::{self, Gate, GateExt, Request};
use squall::objects::map::{self, MapExt, OwnedMap};
use squall::{CallError, Owned, interface};

/// The number of requests.
#[interface(remote)]
pub(crate) trait Requests: Send + Sync {
    /// Counts a request.
    fn served(&self);
    /// Returns the number of requests.
    fn total(&self) -> u64;
}

/// A key of a session.
pub(crate) type Token = u64;

/// A session, as a worker sees it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) user: String,
    /// The number of its requests, with this one.
    pub(crate) requests: u64,
}

/// The sessions of users.
#[interface(remote)]
pub(crate) trait Sessions: Send + Sync {
    /// Starts a session.
    fn log_in(&self, user: &str) -> Token;
    /// Counts a request of a session and returns the session, if it exists.
    fn request(&self, token: Token) -> Option<Session>;
    /// Ends a session. Returns the number of its requests, if it existed.
    fn log_out(&self, token: Token) -> Option<u64>;
    /// Returns the keys of the sessions.
    fn tokens(&self) -> Vec<Token>;
}

/// The reason why no request may begin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Left {
    /// The server drains.
    Drained,
    /// The call failed.
    Lost(String),
}

impl From<CallError> for Left {
    fn from(error: CallError) -> Left {
        Left::Lost(error.to_string())
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Left::Drained => f.write_str("the server drains; end this worker"),
            Left::Lost(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for Left {}

/// The requests in flight.
#[interface(remote)]
pub(crate) trait Drain: Send + Sync {
    /// Begins a request of the calling process.
    fn enter(&self) -> Result<(), Left>;
    /// Ends a request of the calling process.
    fn leave(&self);
}

/// Counts on the processor of the caller.
pub(crate) struct Count(Owned<dyn Counter>);

impl Count {
    pub(crate) fn new() -> Count {
        Count(counter::distributed())
    }
}

impl Requests for Count {
    fn served(&self) {
        self.0.inc();
    }

    fn total(&self) -> u64 {
        self.0.total()
    }
}

struct Entry {
    user: String,
    requests: AtomicU64,
}

/// All sessions, in a map that readers only read.
pub(crate) struct Table {
    sessions: OwnedMap<Token, Arc<Entry>>,
    next: AtomicU64,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table { sessions: map::shared(), next: AtomicU64::new(1) }
    }
}

impl Sessions for Table {
    fn log_in(&self, user: &str) -> Token {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        self.sessions
            .handle()
            .set(token, Arc::new(Entry { user: user.to_owned(), requests: AtomicU64::new(0) }));
        token
    }

    fn request(&self, token: Token) -> Option<Session> {
        let entry = self.sessions.handle().get_cloned(&token)?;
        let requests = entry.requests.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Session { user: entry.user.clone(), requests })
    }

    fn log_out(&self, token: Token) -> Option<u64> {
        let entry = self.sessions.handle().remove(&token)?;
        Some(entry.requests.load(Ordering::Relaxed))
    }

    fn tokens(&self) -> Vec<Token> {
        self.sessions.handle().keys().collect()
    }
}

/// The gate of the requests in flight.
pub(crate) struct InFlight(Owned<dyn Gate>);

/// The requests in flight of one connection. They end with it.
#[derive(Default)]
struct Entered(Mutex<Vec<Request>>);

impl Entered {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Request>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl InFlight {
    pub(crate) fn new() -> InFlight {
        InFlight(gate::distributed())
    }

    /// Returns the gate, to stop it.
    pub(crate) fn gate(&self) -> squall::Handle<dyn Gate> {
        self.0.handle()
    }
}

impl Drain for InFlight {
    fn enter(&self) -> Result<(), Left> {
        let Some(caller) = caller() else { return Err(Left::Lost("requests come from workers".into())) };
        let request = self.0.handle().request_now().map_err(|_| Left::Drained)?;
        caller.value(Entered::default).with(|requests| requests.push(request));
        Ok(())
    }

    fn leave(&self) {
        if let Some(caller) = caller() {
            caller.value(Entered::default).with(|requests| drop(requests.pop()));
        }
    }
}
