//! The server: accepts clients, and removes dead items in the background.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::connection::serve_client;
use crate::stats::Fact;
use crate::store::Store;

/// Entries that the sweeper visits per second.
const SWEPT_PER_S: f64 = 5_000.0;
/// Minimum pause between two sweeps.
const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause after a failed accept, for example while no descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted. The system lowers it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Listens on an address, like `127.0.0.1:11211`, `[::1]:11211` or `localhost:11211`. If a name has several
/// addresses, uses the first on which it can listen.
///
/// # Errors
/// There is no such address, or it is in use. The message names the address.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    let name =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await.map_err(name)? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(name(last))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server need not wait for the end of its old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves clients of this listener until the future is dropped. Then all connections are closed.
///
/// # Errors
/// Never returns an error: a failed accept is repeated.
pub async fn serve<S: Store>(cache: Arc<Cache<S>>, listener: TcpListener) -> io::Result<Infallible> {
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep(cache.clone()));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let Some(permit) = cache.permit() else {
            cache.stats().note(Fact::RejectedConnections);
            refuse(stream);
            continue;
        };
        cache.stats().note(Fact::TotalConnections);
        let cache = cache.clone();
        tasks.spawn(async move {
            let _permit = permit;
            // Answers are sent whole: a delay in the kernel would not merge more.
            let served = match stream.set_nodelay(true) {
                Ok(()) => serve_client(&cache, stream).await,
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

/// Tells the client the reason, if possible, and closes.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(b"ERROR Too many open connections\r\n");
    }
}

/// Sweeps a few entries at a time, forever. So items that no client asks for are removed too.
async fn sweep<S: Store>(cache: Arc<Cache<S>>) {
    let (mut from, mut visited) = (0, 0);
    loop {
        let pause = Duration::from_secs_f64(visited as f64 / SWEPT_PER_S);
        tokio::time::sleep(pause.max(SWEEP_PAUSE_MIN)).await;
        let (next, looked_at) = cache.sweep(from);
        (from, visited) = (next.unwrap_or(0), looked_at);
    }
}
