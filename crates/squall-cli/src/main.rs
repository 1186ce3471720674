//! The binary `squall`: demo, tour, benchmarks, exact loops for external instruments, stresses, the locality
//! profiler, machine information, and `top` for running programs.
//!
//! The command line is a contract that scripts rely on: extend it, never change it. Progress is shown only on
//! a terminal. Errors go to stderr. The exit status is 0 only if everything that was asked for succeeded.

#![forbid(unsafe_code)]

mod bench;
mod demo;
mod info;
mod locality;
mod output;
mod stress;
mod top;
mod tour;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use output::Failure;

/// Squall: shared objects for servers that scale with the number of processors.
///
/// Runs a short demo if no command is given.
#[derive(Parser)]
#[command(name = "squall", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Build a word index of real texts with many threads, compare maps, and show objects that adapt to their
    /// load.
    Demo(demo::DemoArgs),
    /// Compare counters and protected reads on this machine, and explain the results.
    Tour,
    /// Run benchmarks of Squall and its rivals, interleaved in this process.
    Bench(BenchArgs),
    /// Run an exact number of operations between two barriers, without a clock, for external instruments.
    Loop(LoopArgs),
    /// Run a program under emulation and report the cache lines that its threads share.
    Locality(Box<locality::LocalityArgs>),
    /// Run a stress. On a violation, exit with 1 and print the command that replays it.
    Stress(StressArgs),
    /// Show the detected machine and the mode of each primitive.
    Info(InfoArgs),
    /// Watch and control the objects of a running program.
    Top(top::TopArgs),
}

#[derive(Args)]
struct BenchArgs {
    /// The cases to run (see --list).
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// List the cases, one per line.
    #[arg(long)]
    list: bool,
    /// Thread counts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = parse_count)]
    threads: Vec<usize>,
    /// Run only this variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// Print one JSON object per line, and no other text, to stdout.
    #[arg(long)]
    json: bool,
    /// Run few and short rounds, for a first look or for CI.
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
struct LoopArgs {
    /// The case (see `squall bench --list`).
    case: String,
    /// The subject: one of Squall's or a rival.
    #[arg(long, value_name = "S")]
    subject: String,
    /// Number of threads. The main thread runs no operations.
    #[arg(long, default_value = "1", value_parser = parse_count)]
    threads: usize,
    /// Operations per thread.
    #[arg(long, value_name = "K")]
    ops: u64,
    /// The variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
}

#[derive(Args)]
struct StressArgs {
    /// The stress (see --list).
    name: Option<String>,
    /// List the stresses, one per line.
    #[arg(long)]
    list: bool,
    /// Duration of the run in seconds.
    #[arg(long, default_value = "10")]
    seconds: u64,
    /// Seed of all random choices. Without it, a seed is drawn and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of threads. The default exceeds the number of processors.
    #[arg(long, value_parser = parse_count)]
    threads: Option<usize>,
    /// Run on the real machine, even if the stress would simulate a virtual one.
    #[arg(long)]
    real: bool,
}

#[derive(Args)]
struct InfoArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses a thread count. The upper limit only catches typing errors.
fn parse_count(text: &str) -> Result<usize, String> {
    const THREADS_MAX: usize = 65_536;
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("expected a number from 1 to {THREADS_MAX}")),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => demo::run(&demo::DemoArgs::default()),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Tour) => tour::run(),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Loop(args)) => run_loop(&args),
        Some(Command::Locality(args)) => locality::run(&args),
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
            ExitCode::from(failure.status())
        }
    }
}

fn run_loop(args: &LoopArgs) -> Result<(), Failure> {
    let case = bench::find(&args.case)?;
    squall_bench::run_exact(case, &args.subject, args.variant.as_deref(), args.threads, args.ops)?;
    Ok(())
}

/// Serializes unit tests that use objects, because some of them check the state of the whole process.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}
