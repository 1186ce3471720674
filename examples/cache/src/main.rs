#![forbid(unsafe_code)]
//! `squall-cached`: the cache server as a program.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use clap::Parser;
use squall_cache_example::{Cache, Clock, Config, Drain, Listener, Policy, SquallStore, listen, serve_until};

// The build in which all tests run on this allocator has it already.
#[cfg(not(squall_global_alloc))]
#[global_allocator]
static ALLOCATOR: squall::alloc::LocalityAlloc = squall::alloc::LocalityAlloc;

/// A cache server that speaks memcached's text protocol.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Address or host name to listen on, with the port. By default 127.0.0.1:11211, but no port with --unix.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Path of a Unix socket to listen on.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Permissions of the Unix socket, as an octal number.
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = mode)]
    unix_mode: u32,
    /// Maximum size of all entries, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    memory: u64,
    /// Maximum size of one value with its key and 59 bytes, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    item: u64,
    /// Maximum number of connections.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections: usize,
    /// Seconds until an entry expires if its client says 0; 0: never.
    #[arg(long, value_name = "S", default_value_t = 0)]
    ttl: u64,
    /// Seconds a client may be silent before it is disconnected; 0: forever.
    #[arg(long, value_name = "S", default_value_t = 0)]
    idle: u64,
    /// Policy of evictions to begin with. `squall top` changes it while the server runs.
    #[arg(long, value_name = "POLICY", default_value = "frequency", value_parser = policy)]
    policy: Policy,
    /// Let `squall top` of this user inspect and change the server's objects.
    #[arg(long)]
    browse: bool,
    /// Number of serving threads; by default one per processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Seconds for the requests that have arrived when SIGTERM or SIGINT ends the server. A second signal
    /// ends it at once.
    #[arg(long, value_name = "S", default_value_t = 10)]
    drain: u64,
}

fn policy(text: &str) -> Result<Policy, &'static str> {
    match text {
        "frequency" => Ok(Policy::Frequency),
        "admission" => Ok(Policy::Admission),
        "lru" => Ok(Policy::Lru),
        _ => Err("the policies are frequency, admission and lru"),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    const MODE_MAX: u32 = 0o777;
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_MAX);
    mode.ok_or_else(|| format!("{text} is no octal number up to {MODE_MAX:o}"))
}

fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()) else { return ExitCode::SUCCESS };
    tell(&format!("squall-cached: {error}"));
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    let config = Config {
        memory_bytes_max: arguments.memory << 20,
        item_bytes_max: (arguments.item << 10) as usize,
        connections_max: arguments.connections,
        default_ttl_s: arguments.ttl,
        idle_s_max: arguments.idle,
        verbosity: 0,
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        runtime.worker_threads(threads.into());
    }
    let _browse = if arguments.browse { Some(squall::browse::serve()?) } else { None };
    let rest_max = Duration::from_secs(arguments.drain);
    let runtime = runtime.enable_all().build()?;
    let is_drained = runtime.block_on(async {
        // Before the first client can come.
        let signals = Signals::new()?;
        let listeners = listeners(arguments).await?;
        let cache = Cache::new(SquallStore::with_policy(arguments.policy), config, Clock::system());
        std::io::Result::Ok(run_until_signal(&cache, listeners, signals, rest_max).await)
    })?;
    // Without the second signal, no task runs any more.
    runtime.shutdown_background();
    if !is_drained {
        tell("squall-cached: ended with open connections");
    }
    Ok(())
}

/// Prints a line to stderr, which may be closed.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

async fn listeners(arguments: &Arguments) -> std::io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    let default = (arguments.unix.is_none()).then_some("127.0.0.1:11211");
    if let Some(address) = arguments.listen.as_deref().or(default) {
        let listener = listen(address).await?;
        tell(&format!("serving on {}", listener.local_addr()?));
        listeners.push(listener.into());
    }
    #[cfg(unix)]
    if let Some(path) = &arguments.unix {
        listeners.push(squall_cache_example::listen_unix(path, arguments.unix_mode).await?.into());
        tell(&format!("serving on {}", path.display()));
    }
    #[cfg(not(unix))]
    if let (Some(_), _) = (&arguments.unix, arguments.unix_mode) {
        return Err(std::io::Error::other("this system has no Unix sockets"));
    }
    Ok(listeners)
}

/// Serves until the first signal, and then drains until the second. Returns whether all connections have
/// ended.
async fn run_until_signal(
    cache: &Arc<Cache<SquallStore>>,
    listeners: Vec<Listener>,
    mut signals: Signals,
    rest_max: Duration,
) -> bool {
    let drain = Drain::new();
    let mut served = pin!(serve_until(cache, listeners, &drain, rest_max));
    for _ in 0..2 {
        let mut signal = pin!(signals.next());
        let event = poll_fn(|context| match served.as_mut().poll(context) {
            Poll::Ready(is_drained) => Poll::Ready(Some(is_drained)),
            Poll::Pending => signal.as_mut().poll(context).map(|()| None),
        });
        if let Some(is_drained) = event.await {
            return is_drained;
        }
        drain.begin();
    }
    false
}

/// The signals that end the server.
#[cfg(unix)]
struct Signals([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    /// Waits for the next signal.
    async fn next(&mut self) {
        poll_fn(|context| {
            let is_ready = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The signal that ends the server.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    /// Waits for the next signal.
    async fn next(&mut self) {
        // Without a handler, the system ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
