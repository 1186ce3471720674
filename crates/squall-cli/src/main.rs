//! The binary `squall`: a demo, benchmarks against rivals, exact loops for instruments, stresses, and what was found here.
//!
//! Its command line is a contract that scripts rely on: extend it, do not change it. Progress is shown on a terminal
//! only, errors go to stderr, and the exit status is 0 only if everything asked for ran.

#![deny(unsafe_code)]

mod bench;
mod demo;
mod info;
mod output;
mod stress;
mod top;
mod tour;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use output::Failure;

/// Squall: objects of a server that spread over the processors while they run.
///
/// Without a command: the demo.
#[derive(Parser)]
#[command(name = "squall", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Count the words of real texts with many threads, in shared, distributed and adaptive objects, and compare; and show
    /// objects that adapt while their load changes.
    Demo(DemoArgs),
    /// Show what the ground costs on this machine, explained: per-processor data and read-copy-update.
    Tour,
    /// Measure Squall against its rivals, interleaved in this process.
    Bench(BenchArgs),
    /// Run exactly so many operations between two barriers, without a clock, for instruments outside.
    Loop(LoopArgs),
    /// Run a stress; exit non-zero on the first violation and print how to replay it.
    Stress(StressArgs),
    /// Say what machine was found and in which mode each primitive runs.
    Info(InfoArgs),
    /// Look at the objects of a running program, and steer them.
    Top(top::TopArgs),
}

#[derive(Args)]
struct DemoArgs {
    /// Files and folders to read; this folder and /usr/share if there is none.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Threads that read; one for each processor, but two at least, unless told.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    threads: Option<usize>,
    /// Text that is kept in memory, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = demo::MIB, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
    /// How long objects are shown that adapt, in seconds, unless told: 10, 30 on a terminal, 60 with --serve; 0: not at all.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Take the time to look at the objects with `squall top`.
    #[arg(long)]
    serve: bool,
    /// Let nobody look at the objects meanwhile.
    #[arg(long, conflicts_with = "serve")]
    private: bool,
}

impl Default for DemoArgs {
    fn default() -> DemoArgs {
        DemoArgs {
            paths: Vec::new(),
            threads: None,
            mib: demo::MIB,
            seconds: Some(demo::SHOWN),
            serve: false,
            private: true,
        }
    }
}

#[derive(Args)]
struct BenchArgs {
    /// The cases to run (see --list).
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Name the cases, one on a line.
    #[arg(long)]
    list: bool,
    /// Thread counts.
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = parse_count)]
    threads: Vec<usize>,
    /// Only this variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// One JSON object per line, and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Few and short rounds: for a first look, and for CI.
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
struct LoopArgs {
    /// The case (see `squall bench --list`).
    case: String,
    /// Whose operations: one of ours or a rival.
    #[arg(long, value_name = "S")]
    subject: String,
    /// Threads; the main thread takes no part.
    #[arg(long, default_value = "1", value_parser = parse_count)]
    threads: usize,
    /// Operations in each thread.
    #[arg(long, value_name = "K")]
    ops: u64,
    /// This variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
}

#[derive(Args)]
struct StressArgs {
    /// The stress (see --list).
    name: Option<String>,
    /// Name the stresses, one on a line.
    #[arg(long)]
    list: bool,
    /// How long.
    #[arg(long, default_value = "10")]
    seconds: u64,
    /// Seed of every random choice; drawn and printed when not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; more than there are processors unless told.
    #[arg(long, value_parser = parse_count)]
    threads: Option<usize>,
    /// On the real machine, where a stress would make it a virtual one (objects).
    #[arg(long)]
    real: bool,
}

#[derive(Args)]
struct InfoArgs {
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

/// A count of threads; the limit only catches slips of the finger.
fn parse_count(text: &str) -> Result<usize, String> {
    const THREADS_MAX: usize = 65_536;
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("a number from 1 to {THREADS_MAX} is wanted")),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => demo::run(&DemoArgs::default()),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Tour) => tour::run(),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Loop(args)) => run_loop(&args),
        Some(Command::Stress(args)) => stress::run(&args),
        Some(Command::Info(args)) => info::run(args.json),
        Some(Command::Top(args)) => top::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                eprintln!("squall: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run_loop(args: &LoopArgs) -> Result<(), Failure> {
    let case = bench::find(&args.case)?;
    squall_bench::run_exact(case, &args.subject, args.variant.as_deref(), args.threads, args.ops)?;
    Ok(())
}

/// For tests that use objects: what some stresses check is the state of the whole process.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}
