//! Runs the subjects of a case against each other and turns slices into medians.
//!
//! - I1. In each round every subject runs one slice, in an order rotated by one from round to round; a ratio is only
//!   ever taken between slices of the same round.
//! - I2. A slice that foreign load disturbed is repeated, a few times at most; a round that stays disturbed is left
//!   out of the medians as long as enough clean rounds remain, and is counted in the outcome either way.
//! - I3. The number of operations of a slice is fixed for each subject before the first counted round.

mod foreign;
mod gate;
mod pool;
mod stats;

use std::thread;

use crate::case::{Case, Missing, Role, Scale, Setting, Spec, Subject, Variant};
use crate::env;
use foreign::RoundWatch;
pub(crate) use foreign::field;
use pool::{Placement, Pool, Shared, Slice};
pub(crate) use stats::{median, paired_ratio, spread};

/// Repeats of a disturbed slice within one round.
const SLICE_RETRIES_MAX: u32 = 2;
/// Rounds begun at most, as a multiple of the rounds wanted.
const ROUNDS_FACTOR_MAX: usize = 2;
/// Clean rounds that suffice to leave the disturbed ones out.
const CLEAN_ROUNDS_MIN: usize = 3;
/// Steps of the search for the number of operations; each can multiply it by 32.
const CALIBRATION_STEPS_MAX: u32 = 24;
/// Slices of which the shortest counts, near the end of that search.
const CALIBRATION_SLICES: u32 = 3;
/// Part of a slice's operations that are done beforehand, unmeasured.
const WARM_PART: u64 = 16;

/// How long and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Thread counts; empty for the case's own.
    pub threads: Vec<usize>,
    /// Only this variant, where one is named.
    pub variant: Option<String>,
    /// Short slices and few rounds.
    pub quick: bool,
}

impl Plan {
    fn rounds(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    fn slice_ns(&self, case: &Case) -> f64 {
        let (full, quick) = case.slice_ms;
        (if self.quick { quick } else { full }) as f64 * 1e6
    }

    /// The thread counts of `case` under this plan.
    pub fn thread_counts(&self, case: &Case) -> Vec<usize> {
        if !self.threads.is_empty() {
            return self.threads.clone();
        }
        if !case.default_threads.is_empty() {
            return case.default_threads.to_vec();
        }
        let mut counts = vec![1, 2, env::processors().len()];
        counts.retain(|&n| n <= env::processors().len());
        counts.dedup();
        counts
    }

    /// The variants of `case` under this plan; an error when the one asked for does not exist.
    pub fn variants(&self, case: &'static Case) -> Result<Vec<&'static Variant>, RunError> {
        let Some(wanted) = &self.variant else { return Ok(case.variants.iter().collect()) };
        let found: Vec<_> = case.variants.iter().filter(|v| v.name == wanted).collect();
        if found.is_empty() {
            let names: Vec<_> = case.variants.iter().map(|v| v.name).filter(|n| !n.is_empty()).collect();
            let known = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            return Err(RunError(format!("case {} has no variant {wanted:?} ({known})", case.name)));
        }
        Ok(found)
    }
}

/// What the harness is doing now, for whoever shows progress.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The case.
    pub case: &'a str,
    /// The variant, or empty.
    pub variant: &'a str,
    /// Measured threads.
    pub threads: usize,
    /// Rounds done.
    pub round: usize,
    /// Rounds wanted.
    pub rounds: usize,
}

/// Why a run gave no figures.
#[derive(Debug)]
pub struct RunError(pub String);

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

/// All figures of one subject at one thread count.
#[derive(Clone, Debug)]
pub struct SubjectResult {
    /// Its name.
    pub name: &'static str,
    /// Its role.
    pub role: Role,
    /// Nanoseconds per operation, one value per kept round.
    pub ns: Vec<f64>,
    /// Metrics: name and one value per kept round.
    pub metrics: Vec<(String, Vec<f64>)>,
}

impl SubjectResult {
    /// The median, in nanoseconds per operation.
    pub fn median_ns(&self) -> f64 {
        median(&self.ns)
    }
}

/// All subjects of a case at one variant and thread count.
#[derive(Clone, Debug)]
pub struct Table {
    /// The case.
    pub case: &'static Case,
    /// The variant.
    pub variant: &'static Variant,
    /// Measured threads.
    pub threads: usize,
    /// Whether each measured thread had a processor of its own.
    pub pinned: bool,
    /// Those that ran.
    pub subjects: Vec<SubjectResult>,
    /// Metrics of the case itself.
    pub metrics: Vec<(String, f64)>,
    /// Rounds begun.
    pub rounds: usize,
    /// Of these, rounds in which foreign load was seen.
    pub disturbed: usize,
    /// Whether disturbed rounds had to be kept for want of clean ones.
    pub kept_disturbed: bool,
}

impl Table {
    /// The subject of this name, if it ran.
    pub fn subject(&self, name: &str) -> Option<&SubjectResult> {
        self.subjects.iter().find(|subject| subject.name == name)
    }
}

/// What came of a case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Subjects that could not run here, and why.
    pub missing: Vec<(&'static str, String)>,
}

/// Runs `case`: each finished table goes to `table`, each step to `progress`.
pub fn run_case(
    case: &'static Case,
    plan: &Plan,
    progress: &mut dyn FnMut(Step<'_>),
    table: &mut dyn FnMut(&Table) -> Result<(), RunError>,
) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    for variant in plan.variants(case)? {
        for threads in plan.thread_counts(case) {
            let done = match case.metrics {
                Some(metrics) => metrics_only(case, variant, threads, plan, metrics)?,
                None => timed(case, variant, threads, plan, progress, &mut outcome)?,
            };
            table(&done)?;
        }
    }
    Ok(outcome)
}

fn metrics_only(
    case: &'static Case,
    variant: &'static Variant,
    threads: usize,
    plan: &Plan,
    metrics: crate::case::MetricsRun,
) -> Result<Table, RunError> {
    let metrics = metrics(&Setting { threads }, plan.quick).map_err(RunError)?;
    Ok(Table {
        case,
        variant,
        threads,
        pinned: false,
        subjects: Vec::new(),
        metrics,
        rounds: 1,
        disturbed: 0,
        kept_disturbed: false,
    })
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
    let setting = Setting { threads };
    let mut made: Vec<(&'static Spec, Box<dyn Subject>)> = Vec::new();
    for spec in case.subjects {
        match (spec.make)(&setting) {
            Ok(subject) => made.push((spec, subject)),
            Err(Missing(why)) => {
                if !outcome.missing.iter().any(|(name, _)| *name == spec.name) {
                    outcome.missing.push((spec.name, why));
                }
            }
        }
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

/// Finds how many operations fill a slice: more and more of them, until the shortest of a few slices is long enough
/// to tell. The shortest, since a slice that was preempted says nothing about the subject.
fn calibrate<'env>(pool: &Pool<'_, 'env>, entrant: &mut Entrant<'env>, scale: Scale, slice_ns: f64) {
    let mut ops = 1u64;
    for _ in 0..CALIBRATION_STEPS_MAX {
        let mut shortest = f64::MAX;
        for _ in 0..CALIBRATION_SLICES {
            let slice = pool.slice(entrant.subject, scale, ops, 0);
            entrant.total_ops += slice.total_ops;
            shortest = shortest.min(slice.wall_ns.max(1.0));
            if shortest * 8.0 < slice_ns {
                break;
            }
        }
        let factor = slice_ns / shortest;
        ops = ((ops as f64 * factor.clamp(0.05, 32.0)) as u64).max(1);
        if factor < 4.0 {
            break;
        }
    }
    entrant.ops = ops;
}

/// Runs the rounds; for each begun round, whether it was disturbed.
fn measure<'env>(
    pool: &Pool<'_, 'env>,
    entrants: &mut [Entrant<'env>],
    scale: Scale,
    progress: &mut dyn FnMut(usize),
    wanted: usize,
) -> Vec<bool> {
    let mut disturbed: Vec<bool> = Vec::new();
    let count = entrants.len();
    while disturbed.len() < wanted * ROUNDS_FACTOR_MAX
        && disturbed.iter().filter(|&&foreign| !foreign).count() < wanted
    {
        let round = disturbed.len();
        let watch = RoundWatch::begin(pool.place().used());
        let mut foreign = false;
        for place in 0..count {
            let entrant = &mut entrants[(place + round) % count];
            let slice = slice_with_retries(pool, entrant, scale);
            foreign |= slice.disturbed;
            entrant.slices.push(slice);
        }
        foreign |= watch.disturbed();
        disturbed.push(foreign);
        progress(disturbed.iter().filter(|&&foreign| !foreign).count());
    }
    disturbed
}

fn slice_with_retries<'env>(pool: &Pool<'_, 'env>, entrant: &mut Entrant<'env>, scale: Scale) -> Slice {
    let mut tries = 0;
    loop {
        let slice = pool.slice(entrant.subject, scale, entrant.ops, entrant.ops / WARM_PART);
        entrant.total_ops += slice.total_ops;
        if !slice.disturbed || tries == SLICE_RETRIES_MAX {
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
        metrics: Vec::new(),
        rounds: disturbed.len(),
        disturbed: disturbed.len() - clean,
        kept_disturbed,
    }
}

/// Smallest time that is left of an operation after its baseline is subtracted, in nanoseconds.
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
