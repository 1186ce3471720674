#![forbid(unsafe_code)]
//! `squall-cached`: the cache server as a program.

use std::process::ExitCode;

use clap::Parser;
use squall_cache_example::{Cache, Clock, Config, SquallStore, listen, serve};

/// A cache server that speaks memcached's text protocol.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Address or host name to listen on, with the port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    listen: String,
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
    /// Number of serving threads; by default one per processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()) else { return ExitCode::SUCCESS };
    eprintln!("squall-cached: {error}");
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
    runtime.enable_all().build()?.block_on(async {
        let listener = listen(&arguments.listen).await?;
        eprintln!("serving on {}", listener.local_addr()?);
        let cache = Cache::new(SquallStore::new(), config, Clock::system());
        serve(cache, listener).await.map(|never| match never {})
    })
}
