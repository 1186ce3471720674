//! Tables inside an object of your own: the sessions of a server, and the number of requests of each.
//!
//! The root has the table of all sessions. Every processor reads it without writing a shared line. Each
//! representative has a small table with the requests that its cluster served for each session. A request
//! writes to that table only. A sum visits the tables of all representatives.
//!
//! `cargo run --release -p squall --example session_registry`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use squall::parts::table::{Compute, Table};
use squall::prelude::*;

type Token = u64;

struct Session {
    user: String,
}

#[interface]
trait Registry: Send + Sync {
    /// Starts a session.
    fn log_in(&self, user: &str) -> Token;
    /// Counts a request of a session and returns the session, if it exists.
    fn request(&self, token: Token) -> Option<Arc<Session>>;
    /// Ends a session. Returns the number of its requests, if the session existed.
    fn log_out(&self, token: Token) -> Option<u64>;
    /// Returns the `count` sessions with the most requests, and the numbers of their requests.
    fn busiest(&self, count: usize) -> Vec<(Arc<Session>, u64)>;
    /// Returns the number of sessions.
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
    context: RepContext<Sessions>,
}

impl Root for Sessions {
    type Interface = dyn Registry;
    type Rep = LocalSessions;

    fn make_rep(&self, context: RepContext<Sessions>) -> LocalSessions {
        LocalSessions { served: Table::new(), context }
    }
}

impl LocalSessions {
    /// Adds up the requests of one session in all clusters.
    fn served_by_all(&self, token: Token) -> u64 {
        let here = |rep: &LocalSessions| rep.served.get(&token).unwrap_or(0);
        self.context.gather(here, |one, other| one + other).unwrap_or(0)
    }
}

impl Registry for LocalSessions {
    fn log_in(&self, user: &str) -> Token {
        let root = self.context.root();
        let token = root.next.fetch_add(1, Ordering::Relaxed);
        root.all.set(token, Arc::new(Session { user: user.to_owned() }));
        token
    }

    fn request(&self, token: Token) -> Option<Arc<Session>> {
        let session = self.context.root().all.get_cloned(&token)?;
        let _ = self.served.compute(token, |served| Compute::Put(served.unwrap_or(&0) + 1));
        Some(session)
    }

    fn log_out(&self, token: Token) -> Option<u64> {
        // Of several threads that end the session, one removes it and counts.
        self.context.root().all.remove(&token)?;
        let served = self.served_by_all(token);
        self.context.broadcast(|rep| _ = rep.served.delete(&token));
        Some(served)
    }

    fn busiest(&self, count: usize) -> Vec<(Arc<Session>, u64)> {
        let mut all: Vec<_> = self
            .context
            .root()
            .all
            .iter()
            .map(|(token, session)| (session, self.served_by_all(token)))
            .collect();
        all.sort_by_key(|(_, served)| std::cmp::Reverse(*served));
        all.truncate(count);
        all
    }

    fn sessions(&self) -> usize {
        self.context.root().all.len()
    }
}

fn main() {
    let registry = Sessions::default().create(ClusterSize::Cpu);
    let handle = registry.handle();
    let tokens: Vec<Token> = (0..100).map(|user| handle.log_in(&format!("user {user}"))).collect();
    thread::scope(|threads| {
        for first in 0..4 {
            let tokens = &tokens;
            // Every thread uses every session; later sessions get more requests.
            threads.spawn(move || {
                for (at, token) in tokens.iter().enumerate() {
                    (0..=at * 10 + first).for_each(|_| assert!(handle.request(*token).is_some()));
                }
            });
        }
    });
    for (session, requests) in handle.busiest(3) {
        println!("{}: {requests} requests", session.user);
    }
    let served: u64 = tokens.iter().filter_map(|token| handle.log_out(*token)).sum();
    assert_eq!((served, handle.sessions(), handle.log_out(tokens[0])), (4 * 49_500 + 1_000, 0, None));
    println!("{served} requests of {} ended sessions", tokens.len());
}
