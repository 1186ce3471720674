//! The binary `squall`: demo, tour, benchmarks, exact loops for external instruments, stresses, the locality
//! profiler, machine information, `top` and `browse` for running programs, and `fleet` for groups of
//! processes.
//!
//! The command line is a contract that scripts rely on: extend it, never change it. Progress is shown only on
//! a terminal. Errors go to stderr. The exit status is 0 only if everything that was asked for succeeded.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod browse;
mod demo;
mod fleet;
mod info;
mod info_words;
mod locality;
mod output;
mod progress;
mod report;
#[cfg(test)]
mod serial;
mod stress;
mod top;
mod tour;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Squall: shared objects for servers that scale with the number of processors.
///
/// Without a command, runs the demo: the changing load of a service, with two locks, two crates, and Squall.
#[derive(Parser)]
#[command(name = "squall", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

// One value exists in a run.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Command {
    /// Show the changing load of a service, with two locks, two crates, and Squall; or use your own texts.
    Demo(demo::DemoArgs),
    /// Compare counters and protected reads on this machine, and explain the results.
    Tour,
    /// Run benchmarks of Squall and its rivals, interleaved in this process.
    Bench(bench::BenchArgs),
    /// Run the program that the benchmark case `browse` watches.
    #[command(hide = true)]
    Browsed(bench::BrowsedArgs),
    /// Run the serving process of the benchmark case `call-process`.
    #[command(name = squall_bench::CALL_SERVER, hide = true)]
    CallServer,
    /// Run a server or a client of the benchmark case `net`.
    #[cfg(feature = "net")]
    #[command(name = squall_bench::NET_PROGRAM, hide = true)]
    Net(bench::NetArgs),
    /// Run an exact number of operations between two barriers, without a clock, for external instruments.
    Loop(bench::LoopArgs),
    /// Run a program under emulation and report the cache lines that its threads share.
    Locality(Box<locality::LocalityArgs>),
    /// Run experiments of the literature on this machine, and write a page with plots.
    Report(report::ReportArgs),
    /// Run a stress. On a violation, exit with 1 and print the command that replays it.
    Stress(stress::StressArgs),
    /// Run a child process of the stress `calls`.
    #[command(name = squall_stress::CALLS_CHILD, hide = true)]
    StressCalls(stress::ChildArgs),
    /// Start, list and watch groups of processes that serve names.
    Fleet(fleet::FleetArgs),
    /// Run a member process of `squall fleet demo` or of the stress `fleets`.
    #[command(name = squall_stress::fleets::COMMAND, hide = true)]
    FleetMember,
    /// Run a member process of the stress `pools`.
    #[command(name = squall_stress::pools::COMMAND, hide = true)]
    PoolMember,
    /// Run a process of `squall fleet demo pages`.
    #[command(name = fleet::PAGES_PROCESS, hide = true)]
    PagesProcess,
    /// Show the detected machine and the mode of each primitive.
    Info(info::InfoArgs),
    /// Watch and control the objects of a running program.
    Top(top::TopArgs),
    /// Serve a web page of the objects of a running program, on this machine only.
    Browse(browse::BrowseArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => demo::run(&demo::DemoArgs::default()),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Tour) => tour::run(),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Browsed(args)) => bench::run_browsed(&args),
        Some(Command::CallServer) => bench::run_call_server(),
        #[cfg(feature = "net")]
        Some(Command::Net(args)) => bench::run_net(&args),
        Some(Command::Loop(args)) => bench::run_loop(&args),
        Some(Command::Locality(args)) => locality::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Stress(args)) => stress::run(&args),
        Some(Command::StressCalls(args)) => stress::run_child(&args),
        Some(Command::Fleet(args)) => fleet::run(&args),
        Some(Command::FleetMember) => stress::run_member(),
        Some(Command::PoolMember) => stress::run_pool_member(),
        Some(Command::PagesProcess) => fleet::run_pages_process(),
        Some(Command::Info(args)) => info::run(&args),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Browse(args)) => browse::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                eprintln!("squall: {}", output::printable(&failure.to_string()));
            }
            ExitCode::from(failure.status())
        }
    }
}
