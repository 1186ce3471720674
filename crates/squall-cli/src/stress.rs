//! `squall stress`: runs a stress of `squall-stress` and prints its counts. On a violation it prints the
//! violation and the command that replays it.

use std::time::Duration;

use clap::Args;
use squall_stress::{Report, Run, STRESSES, Violation, draw_seed, replay};

use crate::args::parse_count;
use crate::output::{Failure, line};

#[derive(Args)]
pub(crate) struct StressArgs {
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
pub(crate) struct ChildArgs {
    arguments: Vec<String>,
}

/// Runs a child process of the stress `calls`.
pub(crate) fn run_child(args: &ChildArgs) -> Result<(), Failure> {
    squall_stress::calls_child(&args.arguments).map_err(Failure::new)
}

/// Runs a member process of the stress `fleets` or of `squall fleet demo`.
pub(crate) fn run_member() -> Result<(), Failure> {
    squall_stress::fleets::member().map_err(Failure::new)
}

/// Runs a member process of the stress `pools`.
pub(crate) fn run_pool_member() -> Result<(), Failure> {
    squall_stress::pools::member().map_err(Failure::new)
}

pub(crate) fn run(args: &StressArgs) -> Result<(), Failure> {
    if args.list {
        return list();
    }
    let names = STRESSES.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    let Some(name) = &args.name else {
        return Err(Failure::new(format!("no stress was named; choose one of: {names}")));
    };
    let Some(stress) = STRESSES.iter().find(|stress| stress.name == name) else {
        return Err(Failure::new(format!("there is no stress {name:?}; choose one of: {names}")));
    };
    let seed = args.seed.unwrap_or_else(draw_seed);
    let threads = args.threads.unwrap_or_else(|| (stress.threads)(args.real));
    let replay = replay(stress.name, args.seconds, seed, threads, args.real);
    line(format_args!("{}: {}", stress.name, stress.about))?;
    line(format_args!("  {replay}"))?;
    match (stress.run)(&Run::new(seed, threads, args.real, Duration::from_secs(args.seconds))) {
        Ok(Report(counts)) => {
            for (what, count) in counts {
                line(format_args!("  {what:<24} {count:>16}"))?;
            }
            line("  no violation")
        }
        Err(Violation(what)) => {
            Err(Failure::new(format!("VIOLATION in stress {name}: {what}\nreplay: {replay}")))
        }
    }
}

fn list() -> Result<(), Failure> {
    for stress in STRESSES {
        line(stress.name)?;
    }
    Ok(())
}
