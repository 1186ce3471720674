#![forbid(unsafe_code)]
//! `squall-workers`: a server of several processes with shared objects.

mod server;
mod service;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

/// A server of several processes that share counters, sessions and a drain gate.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Number of worker processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Number of requests after which the server drains.
    #[arg(long, default_value_t = 10_000)]
    requests: u64,
    /// Kills one worker midway and starts another one.
    #[arg(long)]
    kill: bool,
    /// Begin of the names of the objects. The server starts its workers with it.
    #[arg(long, hide = true)]
    worker: Option<String>,
}

fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()) else { return ExitCode::SUCCESS };
    eprintln!("squall-workers: {error}");
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match &arguments.worker {
        Some(names) => worker::run(names),
        None => server::run(arguments.workers, arguments.requests, arguments.kill),
    }
}
