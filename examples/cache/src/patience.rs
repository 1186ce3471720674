//! How long a client is waited for.

use std::future::Future;
use std::io;
use std::time::Duration;

use crate::stats::{Fact, Stats};

/// For so long, and where it is noted that somebody was waited for no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience<'a> {
    stats: &'a Stats,
    idle_s_max: u64,
}

impl<'a> Patience<'a> {
    /// Of so many seconds for each thing that a client does; 0: for ever, and without a timer.
    pub(crate) fn new(stats: &'a Stats, idle_s_max: u64) -> Patience<'a> {
        Patience { stats, idle_s_max }
    }

    /// Waits for one thing that a client does: to send something, or to take something of what it is sent.
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
