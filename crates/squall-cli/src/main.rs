//! The binary `squall`: a demo, benchmarks against rivals, exact loops for instruments, stresses, and what was found here.
//!
//! Its command line is a contract that scripts rely on: extend it, do not change it. Progress is shown on a terminal
//! only, errors go to stderr, and the exit status is 0 only if everything asked for ran.

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
    /// Build an index of the words of real texts with many threads, compare who keeps it, and show objects that adapt while
    /// their load changes.
    Demo(demo::DemoArgs),
    /// Show what the ground costs on this machine, explained: per-processor data and read-copy-update.
    Tour,
    /// Measure Squall against its rivals, interleaved in this process.
    Bench(BenchArgs),
    /// Run exactly so many operations between two barriers, without a clock, for instruments outside.
    Loop(LoopArgs),
    /// Run a program under emulation, and say which cache lines its threads share, who writes them, and from where.
    Locality(Box<locality::LocalityArgs>),
    /// Run a stress; exit non-zero on the first violation and print how to replay it.
    Stress(StressArgs),
    /// Say what machine was found and in which mode each primitive runs.
    Info(InfoArgs),
    /// Look at the objects of a running program, and steer them.
    Top(top::TopArgs),
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

/// For tests that use objects: what some stresses check is the state of the whole process.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}
