//! The idle timeout of a client.

use std::future::Future;
use std::io;
use std::time::Duration;

use crate::stats::{Fact, Stats};

/// An idle timeout, and the counters that record it when it expires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimeout<'a> {
    stats: &'a Stats,
    idle_s_max: u64,
}

impl<'a> IdleTimeout<'a> {
    /// Returns a timeout of this many seconds for each action of the client; 0: no timeout, and no timer.
    pub(crate) fn new(stats: &'a Stats, idle_s_max: u64) -> IdleTimeout<'a> {
        IdleTimeout { stats, idle_s_max }
    }

    /// Waits for one action of the client: it sends some bytes, or takes some of its answers.
    pub(crate) async fn wait<T>(self, client: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        if self.idle_s_max == 0 {
            return client.await;
        }
        match tokio::time::timeout(Duration::from_secs(self.idle_s_max), client).await {
            Ok(done) => done,
            Err(_) => {
                self.stats.note(Fact::IdleKicks);
                Err(io::Error::new(io::ErrorKind::TimedOut, "the client was silent for too long"))
            }
        }
    }
}
