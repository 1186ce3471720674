//! The server: accepts clients, and removes dead items in the background.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use squall::objects::read_mostly::ReadMostlyExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::connection::{run_blocking, serve_client_until};
use crate::drain::{Drain, DrainWait};
use crate::stats::Fact;
use crate::store::Store;
#[cfg(unix)]
use crate::unix_socket::UnixSocketListener;

/// Entries that the sweeper visits per second.
const SWEPT_PER_S: f64 = 5_000.0;
/// Minimum pause between two sweeps.
const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause after a failed accept, for example while no descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted. The system lowers it to `net.core.somaxconn`.
pub(crate) const BACKLOG: u32 = 4096;

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

/// A socket at which clients come.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A socket in the file system.
    #[cfg(unix)]
    Unix(UnixSocketListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener::Tcp(listener)
    }
}

/// A client that has come.
enum Client {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Client>> {
        match self {
            Listener::Tcp(listener) => listener
                .poll_accept(context)
                // Answers are sent whole: a delay in the kernel would not merge more.
                .map(|come| {
                    come.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| Client::Tcp(stream)))
                }),
            #[cfg(unix)]
            Listener::Unix(listener) => listener.poll_accept(context).map(|come| come.map(Client::Unix)),
        }
    }
}

/// Serves clients of this listener until the future is dropped. Then all connections are closed.
///
/// # Errors
/// Never returns an error: a failed accept is repeated.
pub async fn serve<S: Store>(cache: Arc<Cache<S>>, listener: impl Into<Listener>) -> io::Result<Infallible> {
    serve_until(&cache, vec![listener.into()], &Drain::new(), Duration::ZERO).await;
    unreachable!("its drain never begins")
}

/// Serves clients of these listeners until the drain begins. Then closes the listeners, and answers the
/// requests that have arrived. Returns after `rest_max` at the latest, and whether all connections had ended
/// by then. Open ones are closed.
pub async fn serve_until<S: Store>(
    cache: &Arc<Cache<S>>,
    listeners: Vec<Listener>,
    drain: &Drain,
    rest_max: Duration,
) -> bool {
    // Each set ends its tasks when it is dropped.
    let (mut sweeper, mut clients) = (JoinSet::new(), JoinSet::new());
    sweeper.spawn(sweep(cache.clone()));
    let mut drain_wait = pin!(DrainWait::new(drain));
    loop {
        let come = poll_fn(|context| {
            if drain_wait.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            let mut come = listeners.iter().map(|listener| listener.poll_accept(context));
            come.find(Poll::is_ready).map_or(Poll::Pending, |come| come.map(Some))
        });
        match come.await {
            None => break,
            Some(Ok(client)) => {
                while clients.try_join_next().is_some() {}
                begin(cache, client, &mut clients, drain);
            }
            Some(Err(_)) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
    drop(listeners);
    let ends = async { while clients.join_next().await.is_some() {} };
    tokio::time::timeout(rest_max, ends).await.is_ok()
}

/// Starts to serve a client, if there is room for it.
fn begin<S: Store>(cache: &Arc<Cache<S>>, client: Client, clients: &mut JoinSet<()>, drain: &Drain) {
    match client {
        Client::Tcp(stream) => begin_on(cache, stream, clients, drain),
        #[cfg(unix)]
        Client::Unix(stream) => begin_on(cache, stream, clients, drain),
    }
}

fn begin_on<S, T>(cache: &Arc<Cache<S>>, mut stream: T, clients: &mut JoinSet<()>, drain: &Drain)
where
    S: Store,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(permit) = cache.permit() else {
        cache.stats().note(Fact::RejectedConnections);
        // The reason, if the client takes it at once.
        let write = pin!(stream.write_all(b"ERROR Too many open connections\r\n"));
        let _ = write.poll(&mut Context::from_waker(std::task::Waker::noop()));
        return;
    };
    cache.stats().note(Fact::TotalConnections);
    let (cache, drain) = (cache.clone(), drain.clone());
    clients.spawn(async move {
        let _permit = permit;
        if let Err(error) = serve_client_until(&cache, stream, &drain).await
            && cache.config().read(|config| config.verbosity) > 0
        {
            // Stderr may be closed.
            let _ = writeln!(io::stderr(), "a connection ended: {error}");
        }
    });
}

/// Sweeps a few entries at a time, forever. So items that no client asks for are removed too. After a delayed
/// flush, sweeps all at once.
async fn sweep<S: Store>(cache: Arc<Cache<S>>) {
    let (mut from, mut visited, mut era) = (0, 0, cache.moment().era);
    loop {
        let pause = Duration::from_secs_f64(visited as f64 / SWEPT_PER_S);
        tokio::time::sleep(pause.max(SWEEP_PAUSE_MIN)).await;
        let now = cache.moment().era;
        if now != era {
            era = now;
            run_blocking(&cache, Cache::sweep_all).await;
        }
        let (next, looked_at) = cache.sweep(from);
        (from, visited) = (next.unwrap_or(0), looked_at);
        // A server without requests gives idle memory back, too.
        squall::alloc::decay();
    }
}
