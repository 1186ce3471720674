//! Runs the subjects of a case against each other and turns slices into medians.
//!
//! - I1. In each round every subject runs one slice, in an order rotated by one from round to round. Ratios
//!   are taken only between slices of one round.
//! - I2. A slice disturbed by foreign load is repeated a few times at most. A round that stays disturbed is
//!   left out of the medians while enough clean rounds remain. The outcome counts it either way.
//! - I3. The number of operations of a slice is fixed for each subject before the first counted round.

mod foreign;
mod plan;
mod pool;
mod progress;
mod stats;
mod table;

use std::thread;

use crate::case::{Case, Missing, Role, Scale, Setting, Spec, Subject, Variant};
use crate::env;
use pool::{Placement, Pool, Shared, Slice};

pub(crate) use foreign::{Lost, RoundWatch, SliceWatch, field, preemptions};
pub use foreign::{TICK_NS, busy_ticks, process_cpu_ns};
pub use plan::Plan;
pub use progress::{RunError, Step};
pub(crate) use stats::{median, paired_ratio, quantile, spread};
pub use table::{SubjectResult, Table};

/// Repeats of a disturbed slice within one round.
const SLICE_RETRIES_MAX: u32 = 2;
/// After this many disturbed rounds, slices are no longer repeated and rounds no longer added: the machine
/// stays busy.
pub(crate) const DISTURBED_ROUNDS_MAX: usize = 5;
/// Number of clean rounds that suffice to leave the disturbed ones out.
pub(crate) const CLEAN_ROUNDS_MIN: usize = 3;
/// Steps of the search for the number of operations; each step can multiply it by 32.
const CALIBRATION_STEPS_MAX: u32 = 24;
/// Slices per step near the end of the search; their median counts.
const CALIBRATION_SLICES: usize = 3;
/// One in this many operations of a slice runs beforehand, unmeasured.
const WARM_PART: u64 = 16;

/// Result of a case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Subjects that could not run here, with the reason.
    pub missing: Vec<(&'static str, String)>,
}

/// Runs `case`. Each finished table is passed to `table`, each step to `progress`.
pub fn run_case(
    case: &'static Case,
    plan: &Plan,
    progress: &mut dyn FnMut(Step<'_>),
    table: &mut dyn FnMut(&Table) -> Result<(), RunError>,
) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    for variant in plan.variants(case)? {
        for threads in plan.thread_counts(case, variant) {
            let mut done = timed(case, variant, threads, plan, progress, &mut outcome)?;
            if let Some(metrics) = case.metrics {
                done.metrics =
                    metrics(&Setting { threads, variant, counted: false }, plan.quick).map_err(RunError)?;
            }
            // A variant without any runnable subject prints no table.
            if !(done.subjects.is_empty() && done.metrics.is_empty()) {
                table(&done)?;
            }
        }
    }
    Ok(outcome)
}

/// One subject while it is being measured.
struct Entrant<'env> {
    spec: &'static Spec,
    subject: &'env dyn Subject,
    ops: u64,
    total_ops: u64,
    slices: Vec<Slice>,
}

fn timed(
    case: &'static Case,
    variant: &'static Variant,
    threads: usize,
    plan: &Plan,
    progress: &mut dyn FnMut(Step<'_>),
    outcome: &mut Outcome,
) -> Result<Table, RunError> {
    let setting = Setting { threads, variant, counted: false };
    if let Scale::Own(run) = case.scale {
        let table = run(&setting, plan, progress)?;
        // A subject that is not in the table gives its reason.
        for spec in case.subjects.iter().filter(|spec| table.subject(spec.name).is_none()) {
            note_missing(spec, (spec.make)(&setting).err(), outcome);
        }
        return Ok(table);
    }
    let mut made: Vec<(&'static Spec, Box<dyn Subject>)> = Vec::new();
    for spec in case.subjects {
        match (spec.make)(&setting) {
            Ok(subject) => made.push((spec, subject)),
            Err(missing) => note_missing(spec, Some(missing), outcome),
        }
    }
    if made.is_empty() {
        return Ok(tabulate(case, variant, threads, false, &[], &[]));
    }
    let processors = env::processors();
    let background = (variant.background)(processors.len());
    let shared = Shared::new(Placement::new(processors, threads, background, variant.reading));
    let mut entrants: Vec<Entrant<'_>> = made
        .iter()
        .map(|(spec, s)| Entrant { spec, subject: &**s, ops: 1, total_ops: 0, slices: Vec::new() })
        .collect();
    let mut step = Step { case: case.name, variant: variant.name, threads, round: 0, rounds: plan.rounds() };
    let disturbed = thread::scope(|scope| {
        let pool = Pool::new(scope, &shared);
        for entrant in &mut entrants {
            calibrate(&pool, entrant, case.scale, plan.slice_ns(case));
        }
        measure(
            &pool,
            &mut entrants,
            case.scale,
            &mut |round| {
                step.round = round;
                progress(step);
            },
            plan.rounds(),
        )
    });
    for entrant in &entrants {
        entrant.subject.check(entrant.total_ops).map_err(|why| {
            RunError(format!("case {}, subject {}, {threads} threads: {why}", case.name, entrant.spec.name))
        })?;
    }
    Ok(tabulate(case, variant, threads, shared.place.pinned, &entrants, &disturbed))
}

/// Records that a subject cannot run here, unless it takes no part in the variant.
fn note_missing(spec: &Spec, missing: Option<Missing>, outcome: &mut Outcome) {
    let Some(missing) = missing.filter(|missing| !missing.is_no_part()) else { return };
    let Missing(why) = missing;
    if !outcome.missing.iter().any(|(name, known)| *name == spec.name && *known == why) {
        outcome.missing.push((spec.name, why));
    }
}

/// Finds the number of operations that fills a slice. It raises the number until the median of a few slices
/// is long enough to be reliable. The median ignores a preempted slice.
fn calibrate<'env>(pool: &Pool<'_, 'env>, entrant: &mut Entrant<'env>, scale: Scale, slice_ns: f64) {
    let mut ops = 1u64;
    for _ in 0..CALIBRATION_STEPS_MAX {
        let mut walls = Vec::new();
        while walls.len() < CALIBRATION_SLICES {
            let slice = pool.slice(entrant.subject, scale, ops, 0);
            entrant.total_ops += slice.total_ops;
            let wall_ns = slice.wall_ns.max(1.0);
            if wall_ns * 8.0 < slice_ns {
                // The number is too small. A longer slice before this one was preempted, or was the first.
                walls = vec![wall_ns];
                break;
            }
            walls.push(wall_ns);
        }
        let factor = slice_ns / median(&walls);
        ops = ((ops as f64 * factor.clamp(0.05, 32.0)) as u64).max(1);
        if factor < 4.0 {
            break;
        }
    }
    entrant.ops = ops;
}

/// Runs the rounds. Returns, for each round begun, whether it was disturbed.
fn measure<'env>(
    pool: &Pool<'_, 'env>,
    entrants: &mut [Entrant<'env>],
    scale: Scale,
    progress: &mut dyn FnMut(usize),
    wanted: usize,
) -> Vec<bool> {
    let mut disturbed: Vec<bool> = Vec::new();
    let count = entrants.len();
    loop {
        let (round, spoiled) = (disturbed.len(), disturbed.iter().filter(|&&foreign| foreign).count());
        let hopeful = spoiled <= DISTURBED_ROUNDS_MAX;
        if round - if hopeful { spoiled } else { 0 } >= wanted {
            return disturbed;
        }
        let (watch, elsewhere_before) = (RoundWatch::begin(pool.place().used()), elsewhere_ns(entrants));
        let mut foreign = false;
        for place in 0..count {
            let entrant = &mut entrants[(place + round) % count];
            let retries = if hopeful { SLICE_RETRIES_MAX } else { 0 };
            let slice = slice_with_retries(pool, entrant, scale, retries);
            foreign |= slice.disturbed;
            entrant.slices.push(slice);
        }
        foreign |= watch.disturbed_beside(elsewhere_ns(entrants).saturating_sub(elsewhere_before));
        disturbed.push(foreign);
        progress(disturbed.len().min(wanted));
    }
}

/// Processor time so far of the child processes of all subjects, in nanoseconds.
fn elsewhere_ns(entrants: &[Entrant<'_>]) -> u64 {
    entrants.iter().map(|entrant| entrant.subject.busy_elsewhere_ns()).sum()
}

fn slice_with_retries<'env>(
    pool: &Pool<'_, 'env>,
    entrant: &mut Entrant<'env>,
    scale: Scale,
    retries: u32,
) -> Slice {
    let mut tries = 0;
    loop {
        let slice = pool.slice(entrant.subject, scale, entrant.ops, entrant.ops / WARM_PART);
        entrant.total_ops += slice.total_ops;
        if !slice.disturbed || tries == retries {
            return slice;
        }
        tries += 1;
    }
}

fn tabulate(
    case: &'static Case,
    variant: &'static Variant,
    threads: usize,
    pinned: bool,
    entrants: &[Entrant<'_>],
    disturbed: &[bool],
) -> Table {
    let clean = disturbed.iter().filter(|&&foreign| !foreign).count();
    let kept_disturbed = clean < CLEAN_ROUNDS_MIN;
    let keep: Vec<usize> = (0..disturbed.len()).filter(|&r| kept_disturbed || !disturbed[r]).collect();
    let baseline = entrants.iter().find(|e| e.spec.role == Role::Baseline);
    let subjects = entrants
        .iter()
        .map(|entrant| {
            let ns = keep.iter().map(|&round| {
                let own = entrant.slices[round].ns;
                match baseline {
                    Some(base) if base.spec.name != entrant.spec.name => {
                        (own - base.slices[round].ns).max(NET_NS_MIN)
                    }
                    _ => own,
                }
            });
            SubjectResult {
                name: entrant.spec.name,
                role: entrant.spec.role,
                ns: ns.collect(),
                metrics: slice_metrics(case, entrant, &keep),
            }
        })
        .collect();
    Table {
        case,
        variant,
        threads,
        pinned,
        subjects,
        ratios: Vec::new(),
        metrics: Vec::new(),
        rounds: disturbed.len(),
        disturbed: disturbed.len() - clean,
        kept_disturbed,
    }
}

/// Least time left of an operation after its baseline is subtracted, in nanoseconds.
const NET_NS_MIN: f64 = 0.01;

fn slice_metrics(case: &Case, entrant: &Entrant<'_>, keep: &[usize]) -> Vec<(String, Vec<f64>)> {
    let mut metrics: Vec<(String, Vec<f64>)> = Vec::new();
    let mut push = |name: &str, value: f64| match metrics.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) => values.push(value),
        None => metrics.push((name.to_owned(), vec![value])),
    };
    for &round in keep {
        let slice = &entrant.slices[round];
        if case.thread_range {
            push("thread_range", slice.range);
        }
        for (name, value) in &slice.metrics {
            push(name, *value);
        }
    }
    metrics
}
