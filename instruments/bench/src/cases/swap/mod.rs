//! `swap`: another implementation replaces a live object, idle or called by other threads.
//!
//! With `--threads N`, N threads call, and the first also swaps after every few thousand calls. The subjects'
//! rows are the cost of a call while no replacement runs: the permanent price of replaceability. The rest are
//! metrics:
//!
//! - `idle_*`: one thread swaps, and no other calls. `busy_*`: all call. Durations run from the request for
//!   the new implementation until it serves, by the swapping thread's clock. `attach_*` to `complete_*`:
//!   phases of the busy swaps, from their reports; `beyond_*`: time outside the phases.
//! - `pause_*`: for calls that waited in busy swaps, from parking to the release. The later delay until such
//!   a thread runs is the scheduler's: `run_queue_us_per_swap`. `idle_gap_p999_us` is seen by threads that
//!   only spin: the longest time between two clock readings in each ten microseconds. `interruption_p999_us`:
//!   only those times over one microsecond.
//! - `call_through_ns`: a call that a mediator counts and forwards, while a grace period is kept from ending.
//!   `arbitrated_call_ns`: a call passed by an arbiter function, which lets it proceed.
//! - `throughput_ratio_*`: call rate with a thousand swaps a second by the first thread, over the rate
//!   without, alternately; `paced_*` are the durations of those swaps. `beside_*`: one more thread swaps
//!   instead, and sleeps in between. It has no processor of its own if the callers occupy all. The rival's
//!   loss then shows the scheduler's part.
//! - The variant `contended` has other metrics: see `contended.rs`.
//!
//! - I1. The results of the calls are checked, as a sum over a batch; and so is the sum of the distributed
//!   counter, which moves with every swap of it. A lost or doubled call ends the run with an error.
//! - I2. All phases of a round follow each other at once, so they meet one state of the machine. A figure is
//!   a quantile over all rounds. Only the throughput comparisons look for foreign load.

mod contended;
pub(super) mod crew;
pub(super) mod figures;
mod phases;
mod throughput;

use std::time::Duration;

use crate::case::{Case, Make, Missing, Scale, Setting, Spec, Subject, variant};
use crate::harness::spread;
use crate::ours_swap::{Counting, Ours};
use crate::rivals::{arcswap, hazarc, rwlock};
use crate::work::call::{Reach, called};
use crate::work::replace::{Replace, Shape};
use figures::{Figures, Swaps};
use phases::{Arbitrating, Gaps};
use throughput::Throughput;

pub(super) static CASE: Case = Case {
    name: "swap",
    about: "one call of an object that can be replaced; and the duration and cost of its replacement",
    variants: &[
        variant("null", "one representative for all, no state moves; with the rivals"),
        variant("reps-1", "a distributed object with one representative, no state moves"),
        variant("reps-8", "a distributed object with eight representatives, no state moves"),
        variant("reps-64", "a distributed object with 64 representatives, no state moves"),
        variant("state-0", "one representative, with a format for an empty state"),
        variant("state-64k", "64 KiB of state, copied"),
        variant("state-16m", "16 MiB of state, copied"),
        variant("state-16m-pointer", "16 MiB of state, moved by a pointer"),
        variant("reps-8-state-64k", "eight representatives, 64 KiB in eight parts"),
        variant("reps-8-state-16m", "eight representatives, 16 MiB in eight parts"),
        variant("reps-64-state-64k", "sixty-four representatives, 64 KiB in sixty-four parts"),
        variant("reps-64-state-16m", "sixty-four representatives, 16 MiB in sixty-four parts"),
        variant(CONTENDED, "an object under a lock, swapped at contention and at random times"),
    ],
    subjects: &[
        Spec::ours("squall", calling::<crate::ours_core::Called>(true)),
        Spec::rival("arc-swap", calling::<arcswap::Swapped>(false)),
        Spec::rival("hazarc", calling::<hazarc::Swapped>(false)),
        Spec::rival("std-rwlock", calling::<rwlock::Locked>(false)),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1, 2, 8],
};

/// The variant with rivals.
const NULL: &str = "null";
/// The variant in which the object's contention sensor triggers swaps.
const CONTENDED: &str = "contended";

/// Makes the subject that calls through `R`, in the one variant that compares calls. In other variants the
/// subject with `to_tell` reports a machine that is too small.
const fn calling<R: Reach + 'static>(to_tell: bool) -> Make {
    fn make<R: Reach + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        if setting.variant.name == NULL { called::<R>() } else { Err(Missing::no_part()) }
    }
    fn tell<R: Reach + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Shape::of(setting.variant.name)?;
        make::<R>(setting)
    }
    if to_tell { tell::<R> } else { make::<R> }
}

/// Number and length of the rounds.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    rounds: usize,
    /// Length of one phase in one round.
    phase: Duration,
    /// Length of one throughput comparison, with all its turns.
    turns: Duration,
}

impl Lengths {
    fn new(quick: bool) -> Lengths {
        let (rounds, phase_ms, turns_ms) = if quick { (5, 20, 150) } else { (15, 50, 300) };
        let ms = Duration::from_millis;
        Lengths { rounds, phase: ms(phase_ms), turns: ms(turns_ms) }
    }
}

/// Results of all rounds.
#[derive(Default)]
struct Seen {
    idle: Swaps,
    busy: Swaps,
    gaps: Gaps,
    through_ns: Vec<f64>,
    arbitrated_ns: Vec<f64>,
    run_queue_us: f64,
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let name = setting.variant.name;
    // The subjects have already reported the error.
    let Ok(shape) = Shape::of(name) else { return Ok(Vec::new()) };
    let (lengths, threads) = (Lengths::new(quick), setting.threads);
    if name == CONTENDED {
        return contended::measure(threads, &lengths);
    }
    let ours = Ours::new(shape)?;
    let mut against = (name == NULL).then(|| Against::new(threads));
    let mut seen = Seen::default();
    for round in 0..lengths.rounds {
        phases::idle(&ours, lengths.phase, &mut seen.idle)?;
        seen.run_queue_us += phases::busy(&ours, threads, lengths.phase, &mut seen.busy)?;
        seen.gaps.look(threads, lengths.phase);
        seen.through_ns.extend(phases::through(&ours, threads)?);
        seen.arbitrated_ns.push(phases::arbitrated(&ours, threads)?);
        if let Some(against) = &mut against {
            against.round(&ours, round, &lengths)?;
        }
    }
    ours.check()?;
    let mut figures = Figures::default();
    seen.tell(&mut figures, ours.reps());
    if let Some(against) = against {
        against.tell(&mut figures)?;
    }
    squall::rcu::barrier().map_err(|error| error.to_string())?;
    Ok(figures.all)
}

impl Seen {
    fn tell(&self, figures: &mut Figures, reps: usize) {
        let swaps = self.busy.us.len().max(1) as f64;
        figures.times("idle", &self.idle.us);
        figures.times("busy", &self.busy.us);
        for (phase, us) in self.busy.phases() {
            figures.times(phase, us);
        }
        figures.quantile("call_through_ns", &self.through_ns, 0.5);
        figures.quantile("arbitrated_call_ns", &self.arbitrated_ns, 0.5);
        figures.quantile("pause_p50_us", &self.busy.pauses_us, 0.5);
        figures.quantile("pause_p999_us", &self.busy.pauses_us, 0.999);
        figures.quantile("pause_max_us", &self.busy.pauses_us, 1.0);
        figures.quantile("idle_gap_p999_us", &self.gaps.of_windows, 0.999);
        figures.quantile("interruption_p999_us", &self.gaps.interruptions, 0.999);
        figures.one("run_queue_us_per_swap", self.run_queue_us / swaps);
        figures.one("forwarded_per_swap", self.busy.forwarded as f64 / swaps);
        figures.one("blocked_calls", self.busy.blocked as f64);
        figures.one("busy_swaps", self.busy.us.len() as f64);
        figures.one("failed_swaps", (self.idle.failed + self.busy.failed) as f64);
        figures.one("bytes_moved", self.busy.bytes_moved as f64);
        figures.one("reps", reps as f64);
        figures.histogram("idle", &self.idle.us);
        figures.histogram("busy", &self.busy.us);
        figures.histogram("pause", &self.busy.pauses_us);
    }
}

/// A rival, with the times of its replacements.
struct Rival<R> {
    object: R,
    idle: Swaps,
    busy: Swaps,
}

impl<R: Reach + Replace> Rival<R> {
    fn new() -> Rival<R> {
        Rival { object: R::new(crate::objects::Field::new()), idle: Swaps::default(), busy: Swaps::default() }
    }

    fn round(&mut self, threads: usize, length: Duration) -> Result<(), String> {
        phases::idle(&self.object, length, &mut self.idle)?;
        phases::busy(&self.object, threads, length, &mut self.busy).map(drop)
    }

    fn tell(&self, name: &str, figures: &mut Figures) {
        figures.times(&format!("{name}_idle"), &self.idle.us);
        figures.times(&format!("{name}_busy"), &self.busy.us);
    }
}

/// Comparisons made only in the first variant.
struct Against {
    threads: usize,
    arc_swap: Rival<arcswap::Swapped>,
    hazarc: Rival<hazarc::Swapped>,
    locked: Rival<rwlock::Locked>,
    read_only: Throughput,
    distributed: Throughput,
    arc_swap_throughput: Throughput,
    hazarc_throughput: Throughput,
    counting: Counting,
    attach_us: Vec<f64>,
    detach_us: Vec<f64>,
}

impl Against {
    fn new(threads: usize) -> Against {
        Against {
            threads,
            arc_swap: Rival::new(),
            hazarc: Rival::new(),
            locked: Rival::new(),
            read_only: Throughput::default(),
            distributed: Throughput::default(),
            arc_swap_throughput: Throughput::default(),
            hazarc_throughput: Throughput::default(),
            counting: Counting::new(),
            attach_us: Vec::new(),
            detach_us: Vec::new(),
        }
    }

    fn round(&mut self, ours: &Ours, round: usize, lengths: &Lengths) -> Result<(), String> {
        let threads = self.threads;
        let short = lengths.phase / 2;
        self.arc_swap.round(threads, short)?;
        self.hazarc.round(threads, short)?;
        self.locked.round(threads, short)?;
        let arbitrating = Arbitrating::new(ours);
        phases::busy(&arbitrating, threads, short, &mut Swaps::default())?;
        let (attach_us, detach_us) = arbitrating.into_times_us();
        self.attach_us.extend(attach_us);
        self.detach_us.extend(detach_us);
        self.read_only.round(ours, threads, round, lengths.turns)?;
        self.arc_swap_throughput.round(&self.arc_swap.object, threads, round, lengths.turns)?;
        self.hazarc_throughput.round(&self.hazarc.object, threads, round, lengths.turns)?;
        self.distributed.round(&self.counting, threads, round, lengths.turns)
    }

    fn tell(self, figures: &mut Figures) -> Result<(), String> {
        self.counting.check(self.distributed.calls)?;
        for (name, seen) in [
            ("read_only", &self.read_only),
            ("distributed", &self.distributed),
            ("arc-swap", &self.arc_swap_throughput),
            ("hazarc", &self.hazarc_throughput),
        ] {
            let ratios = seen.ratios();
            figures.quantile(&format!("throughput_ratio_{name}"), &ratios, 0.5);
            figures.one(&format!("throughput_spread_{name}"), spread(&ratios));
            figures.one(&format!("throughput_disturbed_rounds_{name}"), seen.disturbed() as f64);
            figures.one(&format!("paced_per_second_{name}"), seen.swaps_per_second());
            figures.times(&format!("paced_{name}"), &seen.swaps.us);
            figures.quantile(&format!("beside_throughput_ratio_{name}"), &seen.ratios_beside(), 0.5);
            figures.times(&format!("beside_{name}"), &seen.swaps_beside.us);
            let failed = seen.swaps.failed + seen.swaps_beside.failed;
            figures.one(&format!("paced_failed_{name}"), failed as f64);
        }
        figures.quantile("arbiter_attach_p50_us", &self.attach_us, 0.5);
        figures.quantile("arbiter_detach_p50_us", &self.detach_us, 0.5);
        self.arc_swap.tell("arc-swap", figures);
        self.hazarc.tell("hazarc", figures);
        self.locked.tell("std-rwlock", figures);
        Ok(())
    }
}
