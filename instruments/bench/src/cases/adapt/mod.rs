//! `adapt`: a counter that changes its form, compared with the two forms it may have.
//!
//! - The subjects are the counters of `squall-objects`, called through a `Handle<dyn Counter>`:
//!   `squall-shared` at home with the first thread, `squall-distributed`, and `squall-adaptive`, which starts
//!   shared. Each turn makes new counters, except in `ten-thousand-objects`.
//! - A turn plays a script: loads of some hundred milliseconds each. The time just after a change of load,
//!   when the policy may still decide, is left out of all subjects' rows. `ratio_whole` includes it.
//! - `squall-adaptive/best-fixed` is the ratio to the fixed counter that is faster in the same part of the
//!   script and the same round. Of several parts the worst ratio counts, so that no part makes up for
//!   another.
//!
//! - I1. Each sum is checked: the counter holds all additions of the threads, across all swaps.
//! - I2. The case tells the policy nothing. The times of its decisions are read from its history afterwards.

mod busy;
mod figures;
mod many;
mod play;
mod script;
mod turn;

use std::sync::atomic::{AtomicU64, Ordering};

use squall::Vp;

use crate::case::{Case, Make, Missing, Scale, Setting, Spec, Subject, Variant, Worker, variant};
use crate::cases::swap::crew::fit;
use crate::env;
use crate::harness::{CLEAN_ROUNDS_MIN, Plan, RoundWatch, RunError, Step, Table};
use crate::ours_adapt::{Counted, Kind, checked, for_counting, set_policy_nice};
use crate::ours_machine::on_processor;
use figures::{Seen, Turns, subject};
use play::Load;
use script::Script;

const MANY: &str = "ten-thousand-objects";
const BUSY: [&str; 2] = ["busy-4", "busy-16"];

const fn busy(name: &'static str, about: &'static str, threads: usize) -> Variant {
    Variant { threads_per_processor: Some(threads), ..variant(name, about) }
}

pub(super) static CASE: Case = Case {
    name: "adapt",
    about: "one call of a counter that adapts its form to the load, compared with its two fixed forms",
    variants: &[
        variant("one-adds", "the first thread adds, the others sleep"),
        variant("all-add", "all threads add"),
        busy(BUSY[0], "4 threads per processor add; the policy's thread has the lowest priority", 4),
        busy(BUSY[1], "16 threads per processor add; the policy's thread has the lowest priority", 16),
        variant("mostly-total", "all threads ask for the sum; one call in a hundred adds"),
        variant("phases", "these and other loads in sequence, each long enough to be followed"),
        variant(
            "square-wave",
            "all-add and mostly-total by turns, each too short to be followed: 20 ms and 100 ms",
        ),
        variant(
            MANY,
            "ten thousand counters, of a hundred additions one goes to any of them, the others to ten",
        ),
    ],
    subjects: &[
        Spec::ours("squall-shared", counted(Kind::Shared)),
        Spec::ours("squall-distributed", counted(Kind::Distributed)),
        Spec::ours("squall-adaptive", counted(Kind::Adaptive)),
    ],
    scale: Scale::Own(run),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

/// Rounds of variants that take seconds for each subject, in a full and in a quick run.
const LONG_ROUNDS: (usize, usize) = (8, 3);

fn run(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError> {
    let Setting { threads, variant, .. } = *setting;
    let rounds = match variant.name {
        "phases" | "square-wave" | "busy-4" | "busy-16" if plan.quick => LONG_ROUNDS.1,
        "phases" | "square-wave" | "busy-4" | "busy-16" => LONG_ROUNDS.0,
        _ => plan.rounds(),
    };
    let mut watched = Watched::new(threads);
    let mut rounds = |turn: &mut dyn FnMut(Kind) -> Result<(), String>| {
        for round in 0..rounds {
            watched.round(round, turn)?;
            progress(Step { case: CASE.name, variant: variant.name, threads, round: round + 1, rounds });
        }
        Ok::<(), String>(())
    };
    let failed = |why| RunError(format!("case {} {}, {threads} threads: {why}", CASE.name, variant.name));
    let mut table = empty(setting);
    if BUSY.contains(&variant.name) {
        let _low = Lowered::begin().map_err(failed)?;
        let mut starved = Vec::new();
        let mut turn = |kind| {
            if kind == Kind::Adaptive {
                starved.push(busy::turn(threads)?);
            }
            Ok(())
        };
        rounds(&mut turn).map_err(failed)?;
        table.metrics = busy::metrics(&starved);
    } else if variant.name == MANY {
        let mut many = many::Many::new(threads).map_err(failed)?;
        rounds(&mut |kind| many.turn(kind)).map_err(failed)?;
        many.tell(&watched.kept(), &mut table).map_err(failed)?;
    } else {
        let scripts = script::of(variant.name);
        let mut turns: [Turns; 3] = Default::default();
        let mut turn = |kind: Kind| {
            let turn = |script: &Script| turn::turn(kind, script, threads, plan.quick);
            turns[kind as usize].push(scripts.iter().map(turn).collect::<Result<_, String>>()?);
            Ok(())
        };
        rounds(&mut turn).map_err(failed)?;
        let kept = watched.kept();
        let keep = |of_kind: usize| kept.iter().map(|round| &turns[of_kind][*round]).collect();
        let seen =
            Seen { scripts: &scripts, turns: [keep(0), keep(1), keep(2)], homes: homes(threads), threads };
        table.subjects = Kind::ALL.map(|kind| subject(kind, seen.steady(kind))).into();
        table.ratios = seen.ratio_rows();
        table.metrics = seen.metrics();
    }
    table.rounds = watched.disturbed.len();
    table.disturbed = watched.disturbed_count();
    table.kept_disturbed = table.rounds - table.disturbed < CLEAN_ROUNDS_MIN;
    Ok(table)
}

fn empty(setting: &Setting) -> Table {
    Table {
        case: &CASE,
        variant: setting.variant,
        threads: setting.threads,
        pinned: is_pinned(setting.threads),
        subjects: Vec::new(),
        ratios: Vec::new(),
        metrics: Vec::new(),
        rounds: 0,
        disturbed: 0,
        kept_disturbed: false,
    }
}

fn is_pinned(threads: usize) -> bool {
    fit(threads) && !crate::ours_machine::is_virtual()
}

/// Gives the policy's thread the lowest priority until it is dropped.
struct Lowered;

impl Lowered {
    fn begin() -> Result<Lowered, String> {
        // The thread starts with the first adaptive object.
        drop(Kind::Adaptive.make(1)?);
        set_policy_nice(19).map(|()| Lowered)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        // Not allowed to all users. Then later variants run with the lowest priority, too.
        let _ = set_policy_nice(0);
    }
}

/// The VPs of the first and of the last thread, if they stay there.
fn homes(threads: usize) -> Option<(Vp, Vp)> {
    let home = |thread| on_processor(thread, Vp::current).ok();
    fit(threads).then(|| Some((home(0)?, home(threads - 1)?)))?
}

/// Rounds, and which of them other load disturbed.
struct Watched {
    processors: Vec<usize>,
    disturbed: Vec<bool>,
}

impl Watched {
    fn new(threads: usize) -> Watched {
        let mut processors = env::processors();
        if is_pinned(threads) {
            processors.truncate(threads);
        }
        Watched { processors, disturbed: Vec::new() }
    }

    /// Runs a turn of each kind, in an order rotated from round to round.
    fn round(
        &mut self,
        round: usize,
        turn: &mut dyn FnMut(Kind) -> Result<(), String>,
    ) -> Result<(), String> {
        let watch = RoundWatch::begin(&self.processors);
        let kinds = Kind::ALL.len();
        (0..kinds).try_for_each(|place| turn(Kind::ALL[(place + round) % kinds]))?;
        self.disturbed.push(watch.disturbed());
        Ok(())
    }

    fn disturbed_count(&self) -> usize {
        self.disturbed.iter().filter(|&&foreign| foreign).count()
    }

    /// The rounds that count: the clean ones, if they suffice.
    fn kept(&self) -> Vec<usize> {
        let all = self.disturbed.len() - self.disturbed_count() < CLEAN_ROUNDS_MIN;
        (0..self.disturbed.len()).filter(|&round| all || !self.disturbed[round]).collect()
    }
}

// --- `loop` ---

/// Makes the subject of this kind for an instrument that counts its operations. The loads of the variant
/// follow each other, with an equal number of operations in each. If one thread adds alone, the others'
/// operations are empty.
const fn counted(kind: Kind) -> Make {
    match kind {
        Kind::Shared => |setting| Looping::make(Kind::Shared, setting),
        Kind::Distributed => |setting| Looping::make(Kind::Distributed, setting),
        Kind::Adaptive => |setting| Looping::make(Kind::Adaptive, setting),
    }
}

struct Looping {
    counters: Vec<Counted>,
    loads: Vec<Load>,
    threads: usize,
    /// Operations that added zero.
    others: AtomicU64,
}

impl Looping {
    fn make(kind: Kind, setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let (count, grown, loads) = match setting.variant.name {
            MANY => (many::OBJECTS, many::HOT, vec![Load::Many]),
            "one-adds" | "mostly-total" => (1, 0, script::loads(script::of(setting.variant.name)[0])),
            name => (1, 1, script::loads(script::of(name)[0])),
        };
        let counters = for_counting(kind, setting, count, grown)?;
        Ok(Box::new(Looping { counters, loads, threads: setting.threads, others: AtomicU64::new(0) }))
    }
}

impl Subject for Looping {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut many = many::Picking::new(&self.counters, thread);
        Box::new(move |ops| {
            let (mut left, mut parts) = (ops, self.loads.len() as u64);
            let mut added = 0;
            for load in &self.loads {
                let calls = left / parts;
                (left, parts) = (left - calls, parts - 1);
                if load.is_for(thread, self.threads) {
                    added += match load {
                        Load::Many => many.add(calls),
                        _ => turn::call(self.counters[0].handle(), *load, calls),
                    };
                }
            }
            // Relaxed: the total is read after all threads have ended. If all operations add, the sum is
            // known without it.
            if added != ops {
                self.others.fetch_add(ops - added, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let not_added = self.others.load(Ordering::Relaxed);
        let sum = self.counters.iter().map(Counted::total).sum();
        checked(sum, ops - not_added)
    }
}
