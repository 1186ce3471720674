//! Tables inside an object of one's own: the sessions of a server, and how much each is used.
//!
//! The root has the table of all sessions, which every processor reads without a shared write. Each representative has a small table
//! beside it, of the requests that its cluster served for each session: a request writes there alone, and who wants the sum asks all.
//!
//! `cargo run --release -p squall --example session_registry`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use squall::prelude::*;
use squall::parts::table::{Compute, Table};

type Token = u64;

struct Session {
    user: String,
}

#[interface]
trait Registry: Send + Sync {
    /// Begins a session.
    fn log_in(&self, user: &str) -> Token;
    /// Serves a request of a session, if there is such a one: the user's name.
    fn request(&self, token: Token) -> Option<Arc<Session>>;
    /// Ends a session. Returns how many requests it made, if it was there.
    fn log_out(&self, token: Token) -> Option<u64>;
    /// The sessions that made most requests, and how many those were.
    fn busiest(&self, count: usize) -> Vec<(Arc<Session>, u64)>;
    /// How many there are.
    fn sessions(&self) -> usize;
}

#[derive(Default)]
struct Sessions {
    all: Table<Token, Arc<Session>>,
    next: AtomicU64,
}

#[repr(align(128))]
struct LocalSessions {
    served: Table<Token, u64>,
    at: RepContext<Sessions>,
}

impl Root for Sessions {
    type Interface = dyn Registry;
    type Rep = LocalSessions;

    fn make_rep(&self, at: RepContext<Sessions>) -> LocalSessions {
        LocalSessions { served: Table::new(), at }
    }
}

impl LocalSessions {
    /// Requests of one session, in all clusters.
    fn served_by_all(&self, token: Token) -> u64 {
        let here = |rep: &LocalSessions| rep.served.get(&token).unwrap_or(0);
        self.at.gather(here, |one, other| one + other).unwrap_or(0)
    }
}

impl Registry for LocalSessions {
    fn log_in(&self, user: &str) -> Token {
        let root = self.at.root();
        let token = root.next.fetch_add(1, Ordering::Relaxed);
        root.all.set(token, Arc::new(Session { user: user.to_owned() }));
        token
    }

    fn request(&self, token: Token) -> Option<Arc<Session>> {
        let session = self.at.root().all.get(&token)?;
        let _ = self.served.compute(token, |served| Compute::Put(served.unwrap_or(&0) + 1));
        Some(session)
    }

    fn log_out(&self, token: Token) -> Option<u64> {
        // Whoever takes it out is the one who ended it.
        self.at.root().all.remove(&token)?;
        let served = self.served_by_all(token);
        self.at.broadcast(|rep| _ = rep.served.discard(&token));
        Some(served)
    }

    fn busiest(&self, count: usize) -> Vec<(Arc<Session>, u64)> {
        let mut all: Vec<_> =
            self.at.root().all.iter().map(|(token, session)| (session, self.served_by_all(token))).collect();
        all.sort_by_key(|(_, served)| std::cmp::Reverse(*served));
        all.truncate(count);
        all
    }

    fn sessions(&self) -> usize {
        self.at.root().all.len()
    }
}

fn main() {
    let registry = Sessions::default().create(ClusterSize::Cpu);
    let co = registry.handle();
    let tokens: Vec<Token> = (0..100).map(|user| co.log_in(&format!("user {user}"))).collect();
    thread::scope(|threads| {
        for first in 0..4 {
            let tokens = &tokens;
            // Each session is used by all threads, the later ones more.
            threads.spawn(move || {
                for (at, token) in tokens.iter().enumerate() {
                    (0..=at * 10 + first).for_each(|_| assert!(co.request(*token).is_some()));
                }
            });
        }
    });
    for (session, requests) in co.busiest(3) {
        println!("{}: {requests} requests", session.user);
    }
    let served: u64 = tokens.iter().filter_map(|token| co.log_out(*token)).sum();
    assert_eq!((served, co.sessions(), co.log_out(tokens[0])), (4 * 49_500 + 1_000, 0, None));
    println!("{served} requests of {} sessions, which have ended", tokens.len());
}
