//! `squall stress`: runs a stress of `squall-stress` and prints its counts. On a violation it prints the
//! violation and the command that replays it.

use std::time::Duration;

use squall_stress::{Report, Run, STRESSES, Violation, draw_seed, replay};

use crate::StressArgs;
use crate::output::{Failure, line};

pub(crate) fn run(args: &StressArgs) -> Result<(), Failure> {
    if args.list {
        return list();
    }
    let names = STRESSES.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    let Some(name) = &args.name else { return Err(Failure::new(format!("no stress was named; choose one of: {names}"))) };
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
