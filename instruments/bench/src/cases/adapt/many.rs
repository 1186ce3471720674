//! Ten thousand counters, of which ten are hot.
//!
//! - I1. All sets are made before the policy has seen any load, and live to the end. So the resident set
//!   grows from then on only by the policy's records and by counters that are distributed.
//!
//! Not promised: such growth at later thread counts of one run, which reuse memory of earlier ones.

use std::time::{Duration, SystemTime};

use squall::Handle;
use squall::objects::counter::Counter;

use super::figures::{BEST_FIXED, over_best, subject};
use super::play::{Caller, Load, Step, play, policy_ms_per_s};
use super::turn::{BATCH, tells_why};
use crate::cases::rcu_idle::resident_bytes;
use crate::harness::{Table, median, paired_ratio, quantile};
use crate::ours_adapt::{Counted, Kind, checked};

/// Number of counters, and of the hot ones among them.
pub(super) const OBJECTS: usize = 10_000;
pub(super) const HOT: usize = 10;

/// One addition in this many goes to any of the counters.
const COLD_ONE_IN: u64 = 100;
/// Time for which the load runs before any measurement, while the policy decides.
const DECIDES: Duration = Duration::from_millis(1500);
/// The two parts of a turn: until the caches are warm, and measured. Between two turns of a set lie four
/// turns of other sets. These are shorter than the policy's quiet time, so the hot objects of the set do not
/// shrink in between.
const AGAIN: Duration = Duration::from_millis(50);
const STEADY: Duration = Duration::from_millis(120);

/// One thread's way to pick among the counters.
pub(super) struct Picking {
    all: Vec<Handle<dyn Counter>>,
    random: u64,
}

impl Picking {
    pub(super) fn new(counters: &[Counted], thread: usize) -> Picking {
        let all: Vec<Handle<dyn Counter>> = counters.iter().map(Counted::handle).collect();
        // Causes a miss of each.
        all.iter().for_each(|co| co.add(0));
        Picking { all, random: 0x9E37_79B9_7F4A_7C15 ^ (thread as u64 + 1) << 20 }
    }

    /// Adds one, `calls` times.
    pub(super) fn add(&mut self, calls: u64) -> u64 {
        let (all, objects) = (self.all.as_slice(), self.all.len() as u64);
        for _ in 0..calls {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let (which, among) = (self.random >> 32, self.random & 0xFFFF_FFFF);
            // The high bits of a product, to avoid a division.
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
    /// Processor time of the engine's thread.
    policy_ms_per_s: Vec<f64>,
}

impl Set {
    fn new(kind: Kind, threads: usize) -> Result<Set, String> {
        let counters = kind.make(OBJECTS)?;
        let mut set = Set { counters, added: 0, ns: Vec::new(), policy_ms_per_s: Vec::new() };
        // Each thread calls each counter once before it begins.
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
    /// Kept alive, so that its memory is not reused.
    _first: Set,
    sets: [Set; 3],
    /// Times of the swaps of the hot counters, after the load began.
    decisions_ms: Vec<f64>,
    /// The resident set after all were made, before the policy had seen any load.
    undecided_rss_bytes: u64,
}

fn step(steady: bool, length: Duration) -> Step {
    Step { load: Load::Many, part: 0, steady, length }
}

impl Many {
    pub(super) fn new(threads: usize) -> Result<Many, String> {
        // The first set also makes everything shared by all.
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

    /// Fills the table from the kept rounds.
    pub(super) fn tell(&self, kept: &[usize], table: &mut Table) -> Result<(), String> {
        let ns = |kind: Kind| -> Vec<f64> {
            kept.iter().map(|round| self.sets[kind as usize].ns[*round]).collect()
        };
        table.subjects = Kind::ALL.map(|kind| subject(kind, ns(kind))).into();
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
        // Memory of distributed counters is included twice.
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
