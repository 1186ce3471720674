//! Ten thousand counters, of which ten are hot.
//!
//! - I1. All sets are made before the policy has seen anything, and live to the end: so what the resident set grows by from
//!   then on is what the policy keeps and what grows.
//!
//! Not promised: that growth at later thread counts of one run, which find memory that earlier ones left.

use std::time::{Duration, SystemTime};

use squall::CoRef;
use squall::objects::counter::Counter;

use super::figures::{BEST_FIXED, over_best};
use super::play::{Caller, Load, Step, play, policy_ms_per_s};
use super::turn::{BATCH, tells_why};
use crate::cases::rcu_idle::resident_bytes;
use crate::harness::{Table, median, paired_ratio, quantile};
use crate::ours_adapt::{Counted, Kind, checked};

/// Counters, and those of them to which most is added.
pub(super) const OBJECTS: usize = 10_000;
pub(super) const HOT: usize = 10;

/// One addition in so many goes to any of them.
const COLD_ONE_IN: u64 = 100;
/// For so long the load is there before anything is measured, and the policy decides.
const DECIDES: Duration = Duration::from_millis(1500);
/// A turn: until its caches are warm, and then. Four turns of others are shorter than a policy's quiet time, so that an object
/// that is hot in its own turns does not go back in theirs.
const AGAIN: Duration = Duration::from_millis(50);
const STEADY: Duration = Duration::from_millis(120);

/// One thread's way to pick among them.
pub(super) struct Picking {
    all: Vec<CoRef<dyn Counter>>,
    random: u64,
}

impl Picking {
    pub(super) fn new(counters: &[Counted], thread: usize) -> Picking {
        let all: Vec<CoRef<dyn Counter>> = counters.iter().map(Counted::co).collect();
        // A miss of each.
        all.iter().for_each(|co| co.add(0));
        Picking { all, random: 0x9E37_79B9_7F4A_7C15 ^ (thread as u64 + 1) << 20 }
    }

    /// Adds one so many times.
    pub(super) fn add(&mut self, calls: u64) -> u64 {
        let (all, objects) = (self.all.as_slice(), self.all.len() as u64);
        for _ in 0..calls {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let (which, among) = (self.random >> 32, self.random & 0xFFFF_FFFF);
            // The high bits of a product: without a division.
            let count = if (among * COLD_ONE_IN) >> 32 == 0 { objects } else { objects.min(HOT as u64) };
            all[((which * count) >> 32) as usize].add(1);
        }
        calls
    }
}

impl Caller for Picking {
    fn batch(&mut self, _: Load) -> (u64, u64) {
        (BATCH, self.add(BATCH))
    }
}

/// The counters of one kind.
struct Set {
    counters: Vec<Counted>,
    added: u64,
    ns: Vec<f64>,
    /// Of the policies' thread.
    policy_ms_per_s: Vec<f64>,
}

impl Set {
    fn new(kind: Kind, threads: usize) -> Result<Set, String> {
        let counters = kind.make(OBJECTS)?;
        let mut set = Set { counters, added: 0, ns: Vec::new(), policy_ms_per_s: Vec::new() };
        // Each thread calls each of them once, before it begins with nothing.
        set.play(threads, &[]);
        Ok(set)
    }

    fn play(&mut self, threads: usize, steps: &[Step]) -> super::play::Played {
        let played = play(threads, steps, |thread| Picking::new(&self.counters, thread));
        self.added += played.added;
        played
    }

    /// Bytes of all parts, by the library's account.
    fn bytes(&self) -> f64 {
        self.counters.iter().map(Counted::bytes).sum::<usize>() as f64
    }
}

/// The three sets.
pub(super) struct Many {
    threads: usize,
    /// Kept, so that nobody gets its memory.
    _first: Set,
    sets: [Set; 3],
    /// When the hot ones were swapped, after the load began.
    decisions_ms: Vec<f64>,
    /// The resident set when all were made, and before the policy had seen anything.
    undecided_rss_bytes: u64,
}

fn step(steady: bool, length: Duration) -> Step {
    Step { load: Load::Many, part: 0, steady, length }
}

impl Many {
    pub(super) fn new(threads: usize) -> Result<Many, String> {
        // The first ones bring what all share.
        let first = Set::new(Kind::Shared, threads)?;
        let sets = [Set::new(Kind::Shared, threads)?, Set::new(Kind::Distributed, threads)?];
        let [shared, distributed] = sets;
        let mut adaptive = Set::new(Kind::Adaptive, threads)?;
        let undecided_rss_bytes = resident_bytes()?;
        let began = adaptive.play(threads, &[step(false, DECIDES)]).steps[0].began;
        let hot = adaptive.counters.iter().take(HOT).filter_map(|hot| hot.swaps().first().copied());
        let after = |at: SystemTime| at.duration_since(began).unwrap_or_default().as_secs_f64() * 1e3;
        let decisions_ms = hot.map(|swap| after(swap.at)).collect();
        Ok(Many {
            threads,
            _first: first,
            sets: [shared, distributed, adaptive],
            decisions_ms,
            undecided_rss_bytes,
        })
    }

    pub(super) fn turn(&mut self, kind: Kind) -> Result<(), String> {
        let (threads, set) = (self.threads, &mut self.sets[kind as usize]);
        let steps = [step(false, AGAIN), step(true, STEADY)];
        let played = set.play(threads, &steps);
        let steady = played.steps[1];
        set.ns.push(steady.cpu_ns as f64 / steady.calls.max(1) as f64);
        set.policy_ms_per_s.push(policy_ms_per_s(steps.iter().zip(&played.steps)));
        Ok(())
    }

    /// Fills the table, of these rounds.
    pub(super) fn tell(&self, kept: &[usize], table: &mut Table) -> Result<(), String> {
        let ns = |kind: Kind| -> Vec<f64> {
            kept.iter().map(|round| self.sets[kind as usize].ns[*round]).collect()
        };
        table.subjects = Kind::ALL.map(|kind| super::subject(kind, ns(kind))).into();
        let mine = ns(Kind::Adaptive);
        let name = |other: &str| format!("{}/{other}", Kind::Adaptive.name());
        table.ratios.push((name(BEST_FIXED), over_best(kept.len(), |kind, round| ns(kind)[round]), ""));
        for kind in [Kind::Shared, Kind::Distributed] {
            table.ratios.push((name(kind.name()), paired_ratio(&mine, &ns(kind)), ""));
        }
        let [shared, _, adaptive] = &self.sets;
        let mut one = |name: &str, value: f64| table.metrics.push((name.to_owned(), value));
        let bytes = adaptive.bytes();
        one("bytes", bytes);
        one("policy_ms_per_s", median(&adaptive.policy_ms_per_s));
        // What has grown is in it twice.
        let kept_by_policy = resident_bytes()?.saturating_sub(self.undecided_rss_bytes) as f64;
        one("policy_rss_bytes", kept_by_policy);
        one("bytes_over_shared", (bytes + kept_by_policy) / shared.bytes());
        for (kind, set) in Kind::ALL.iter().zip(&self.sets) {
            one(&format!("{}_bytes", kind.name()), set.bytes());
        }
        let decided = |q| if self.decisions_ms.is_empty() { 0.0 } else { quantile(&self.decisions_ms, q) };
        one("decision_ms", decided(0.99));
        one("decision_ms_p50", decided(0.5));
        one("swaps", adaptive.counters.iter().map(|counter| counter.swaps().len()).sum::<usize>() as f64);
        let (hot, cold) = adaptive.counters.split_at(HOT);
        one("grown_hot", hot.iter().filter(|counter| counter.is_grown()).count() as f64);
        one("grown_cold", cold.iter().filter(|counter| counter.is_grown()).count() as f64);
        one("objects", OBJECTS as f64);
        if tells_why() {
            let told = adaptive.counters.iter().flat_map(Counted::story);
            told.for_each(|line| eprintln!("{line}"));
        }
        for (kind, set) in Kind::ALL.iter().zip(&self.sets) {
            let sum = set.counters.iter().map(Counted::total).sum();
            checked(sum, set.added).map_err(|why| format!("{}: {why}", kind.name()))?;
        }
        Ok(())
    }
}
