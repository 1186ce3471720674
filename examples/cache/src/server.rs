//! Accepts clients, and takes out now and then what is dead.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::connection::converse;
use crate::stats::Fact;
use crate::store::Store;

/// Entries that the sweeper looks at in a second.
const SWEPT_PER_S: f64 = 5_000.0;
/// Between two of its looks, at least.
const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(100);
/// After accepting has failed, as it does while there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves on this listener until the future is dropped; then all connections are closed.
///
/// # Errors
/// None: what cannot be accepted is tried again.
pub async fn serve<S: Store>(cache: Arc<Cache<S>>, listener: TcpListener) -> io::Result<Infallible> {
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep(cache.clone()));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let Some(seat) = cache.seat() else {
            cache.stats().note(Fact::RejectedConnections);
            refuse(stream);
            continue;
        };
        cache.stats().note(Fact::TotalConnections);
        let cache = cache.clone();
        tasks.spawn(async move {
            let _seat = seat;
            // Answers are sent whole: to wait for more would only delay them.
            let served = match stream.set_nodelay(true) {
                Ok(()) => converse(&cache, stream).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served
                && cache.config().read(|config| config.verbosity) > 0
            {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}

/// Says why, if the client can still be told, and closes.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(b"ERROR Too many open connections\r\n");
    }
}

/// A few entries at a time, all over again: what nobody asks for any more goes, too.
async fn sweep<S: Store>(cache: Arc<Cache<S>>) {
    let (mut from, mut visited) = (0, 0);
    loop {
        let pause = Duration::from_secs_f64(visited as f64 / SWEPT_PER_S);
        tokio::time::sleep(pause.max(SWEEP_PAUSE_MIN)).await;
        let (next, looked_at) = cache.sweep(from);
        (from, visited) = (next.unwrap_or(0), looked_at);
    }
}
