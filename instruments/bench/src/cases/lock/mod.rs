//! `lock`: one acquisition and one release, uncontended or contended by all threads. `lock-mix`: the load
//! changes.
//!
//! - Inside a section, and outside, is work of a known length that touches no memory, and one word guarded by
//!   the lock.
//! - The subjects' rows are the time of a slice divided by the acquisitions of all threads, whichever thread
//!   got them. `min_share` shows their distribution: acquisitions of the least served thread over those of
//!   the most served. `wait_p99_us` is exceeded by one acquisition in a hundred. One acquisition in sixteen
//!   is timed, for all subjects alike, with two clock readings, the second inside the section.
//! - `SUBJECT/best-fair` divides one of ours by the fastest rival that is about as fair. A lock that serves
//!   one thread and lets the others starve wins any race.
//!
//! - I1. The word is checked: it must have counted the sections.

mod loads;
mod mix;
mod play;
mod rounds;
mod steady;
mod subjects;
mod waits;
mod work;

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::harness::{Plan, RunError, Step, Table};
use rounds::{Rounds, Script};

pub(super) static LOCK: Case = Case {
    name: "lock",
    about: "a lock taken and released, with work inside and outside",
    variants: loads::VARIANTS,
    subjects: subjects::SPECS,
    scale: Scale::Own(run_steady),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

pub(super) static MIX: Case = Case {
    name: "lock-mix",
    about: "a lock taken and released while the length of sections and the number of threads change every 40 ms",
    variants: &[Variant { threads: Some(loads::THREADS), ..PLAIN }],
    subjects: subjects::SPECS,
    scale: Scale::Own(run_mix),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

fn run_steady(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError> {
    let name = setting.variant.name;
    let shape =
        loads::Shape::of(name).ok_or_else(|| RunError(format!("case lock has no variant {name:?}")))?;
    let script = steady::Script::new(shape, plan.quick);
    run(&LOCK, setting, plan, &script, &[], progress)
}

fn run_mix(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError> {
    let names = loads::PHASES.map(|(name, ..)| name);
    run(&MIX, setting, plan, &mix::Script::new(plan.quick), &names, progress)
}

fn run(
    case: &'static Case,
    setting: &Setting,
    plan: &Plan,
    script: &dyn Script,
    phases: &[&str],
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Table, RunError> {
    let Setting { threads, variant, .. } = *setting;
    let failed = |why| RunError(format!("case {} {}: {why}", case.name, variant.name));
    let mut rounds = Rounds::begin(threads, script).map_err(failed)?;
    for round in 1..=plan.rounds() {
        rounds.round(script).map_err(failed)?;
        progress(Step { case: case.name, variant: variant.name, threads, round, rounds: plan.rounds() });
    }
    let mut table = Table {
        case,
        variant,
        threads,
        pinned: false,
        subjects: Vec::new(),
        ratios: Vec::new(),
        metrics: Vec::new(),
        rounds: 0,
        disturbed: 0,
        kept_disturbed: false,
    };
    rounds.fill_table(phases, &mut table);
    Ok(table)
}
