//! The operations on a map, drawn beforehand.
//!
//! Keys have numbers, from 0. If no thread writes, all numbered keys are present. In a mixed load two in
//! seventeen keys come and go, the others stay:
//!
//! - The keys that come and go are dealt to the threads. Each thread has its own in a ring, with one half
//!   present. It alternately inserts the next absent key and removes its oldest one. So every insertion and
//!   removal succeeds, and the size stays.
//! - Reads draw from all keys, so one in seventeen finds no entry. Updates draw from the keys that stay.
//!
//! - I1. Only its own thread inserts and removes the keys of a ring.
//! - I2. A plan alternates between insertions and removals, so it has equally many of both.
//! - I3. All subjects get the same plan. Each thread has its own position in the plan, and continues from
//!   that position in the next slice.
//!
//! Rows of drawn keys are larger than today's second-level caches. For a million entries a row contains most
//! keys.

use std::any::Any;
use std::sync::{Arc, Mutex};

use super::keys::{Key, scatter};
use super::shape::{Keys, Law, Shape};

/// One operation of a mixed load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Update,
    Insert,
    Remove,
}

/// Kinds in a plan; a power of two.
const KINDS: usize = 1 << 16;
/// Keys come in classes of this size: some of a class stay, some come and go.
const CLASS: u64 = 17;
/// Keys of a class that stay.
const STAY: u64 = 15;
/// Keys in a row for a small and for a large map; powers of two. Words take 4 and 32 MiB, strings 12 and 96.
const DRAWN: (usize, usize) = if cfg!(test) { (1 << 16, 1 << 16) } else { (1 << 19, 1 << 22) };
/// A ring needs this many keys to insert one and remove another.
pub(super) const RING_MIN: usize = 4;
/// Maps with more entries have the longer rows.
const SMALL: usize = 100_000;

pub(crate) struct Plan<K: Key> {
    /// Kinds, taken in order; empty if all operations are reads.
    pub(super) kinds: Vec<Kind>,
    /// The keys of the operations, taken in order.
    pub(super) drawn: K::Row,
    /// Keys in it; a power of two.
    pub(super) drawn_count: usize,
    /// The keys that come and go.
    pub(super) ring: K::Row,
    /// Keys in it.
    pub(super) ring_count: usize,
    /// The numbers of the keys present from the start, without the ring's.
    pub(super) stay: Vec<u64>,
}

/// The last plan. All subjects of a variant run one after the other and share it.
static LAST: Mutex<Option<(Made, Arc<dyn Any + Send + Sync>)>> = Mutex::new(None);

/// Parameters of a plan.
#[derive(Clone, Copy, PartialEq)]
struct Made {
    keys: Keys,
    entries: usize,
    law: Law,
    writes: usize,
    churn: bool,
}

impl<K: Key> Plan<K> {
    /// The plan of the variant: reads, or reads and writes.
    pub(super) fn of(shape: &Shape) -> Arc<Plan<K>> {
        Plan::shared(shape, false)
    }

    /// A plan without draws: every key comes and goes.
    pub(super) fn churning(shape: &Shape) -> Arc<Plan<K>> {
        Plan::shared(shape, true)
    }

    fn shared(shape: &Shape, churn: bool) -> Arc<Plan<K>> {
        let Shape { keys, entries, law, writes, .. } = *shape;
        let made = Made { keys, entries, law, writes, churn };
        let mut last = LAST.lock().expect("a thread panicked under the lock");
        if let Some((of, plan)) = &*last
            && *of == made
            && let Ok(plan) = plan.clone().downcast()
        {
            return plan;
        }
        // Drops the old plan first: each can take a hundred megabytes.
        *last = None;
        let plan = Arc::new(if churn { Plan::new_churning(entries) } else { Plan::new(shape) });
        *last = Some((made, plan.clone()));
        plan
    }

    fn new(shape: &Shape) -> Plan<K> {
        let entries = shape.entries as u64;
        let drawn_count = if shape.entries < SMALL { DRAWN.0 } else { DRAWN.1 };
        if shape.writes == 0 {
            let draw = Draw::new(entries, shape.law);
            let drawn = K::row((0..drawn_count as u64).map(|i| draw.number(i)));
            let (ring, stay) = (K::row(std::iter::empty()), (0..entries).collect());
            return Plan { kinds: Vec::new(), drawn, drawn_count, ring, ring_count: 0, stay };
        }
        let kinds = kinds(shape.writes);
        // A sixteenth more than are present: half of the keys that come and go are absent.
        let numbers = entries / (CLASS - 1) * CLASS;
        let draw = Draw::new(numbers, shape.law);
        let drawn = K::row((0..drawn_count as u64).map(|i| {
            let number = draw.number(i);
            match kinds[i as usize % KINDS] {
                Kind::Update => stays(number),
                _ => number,
            }
        }));
        let goes = |number: &u64| number % CLASS >= STAY;
        Plan {
            kinds,
            drawn,
            drawn_count,
            ring: K::row((0..numbers).filter(goes)),
            ring_count: (0..numbers).filter(goes).count(),
            stay: (0..numbers).filter(|number| !goes(number)).collect(),
        }
    }

    fn new_churning(entries: usize) -> Plan<K> {
        let ring_count = 2 * entries;
        Plan {
            kinds: Vec::new(),
            drawn: K::row(std::iter::empty()),
            drawn_count: 1,
            ring: K::row(0..ring_count as u64),
            ring_count,
            stay: Vec::new(),
        }
    }

    /// A thread's part of the ring.
    pub(super) fn ring_of(&self, thread: usize, threads: usize) -> Ring {
        let begin = |thread: usize| thread * self.ring_count / threads;
        Ring::new(begin(thread), begin(thread + 1) - begin(thread))
    }
}

/// A key near this one that stays.
fn stays(number: u64) -> u64 {
    number - (number % CLASS).saturating_sub(STAY - 1)
}

/// Kinds with `writes` writes in a hundred: half of them update, a quarter each insert and remove.
pub(super) fn kinds(writes: usize) -> Vec<Kind> {
    let pairs = KINDS * writes / 100 / 4;
    let mut kinds = vec![Kind::Read; KINDS];
    kinds[..2 * pairs].fill(Kind::Update);
    kinds[2 * pairs..4 * pairs].fill(Kind::Insert);
    for i in (1..KINDS).rev() {
        kinds.swap(i, below(scatter(i as u64), i as u64 + 1) as usize);
    }
    // I2.
    let changes = kinds.iter_mut().filter(|kind| **kind == Kind::Insert);
    changes.skip(1).step_by(2).for_each(|kind| *kind = Kind::Remove);
    kinds
}

/// Maps a random word to a number below `limit`.
pub(in crate::cases) fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// The `i`-th number below a limit drawn by Zipf's law.
pub(in crate::cases) fn zipf(limit: u64) -> impl Fn(u64) -> u64 {
    let draw = Draw::new(limit, Law::Zipf);
    move |i| draw.number(i)
}

/// Numbers below a limit, drawn by a law.
struct Draw {
    limit: u64,
    zipf: Option<Zipf>,
}

/// Distance between the numbers of keys with neighbouring frequencies, so that hot keys are not adjacent. It
/// has no factor in common with a limit, so numbers are mapped one to one.
const STRIDE: u64 = 7_368_787;
/// Distinguishes the random words of draws from all others.
const SEED: u64 = 0x5a11 << 40;

impl Draw {
    fn new(limit: u64, law: Law) -> Draw {
        Draw { limit, zipf: (law == Law::Zipf).then(|| Zipf::new(limit)) }
    }

    /// The `i`-th number.
    fn number(&self, i: u64) -> u64 {
        let random = scatter(SEED + i);
        match &self.zipf {
            None => below(random, self.limit),
            Some(zipf) => (zipf.rank(random) * STRIDE) % self.limit,
        }
    }
}

/// Zipf's law by one power per draw. Source: Gray, Sundaresan, Englert, Baclawski, Weinberger, "Quickly
/// generating billion-record synthetic databases", SIGMOD 1994. The two most frequent ranks are exact, the
/// others nearly.
struct Zipf {
    limit: f64,
    /// Sum of the weights of all ranks; the first weighs 1.
    sum: f64,
    alpha: f64,
    eta: f64,
}

/// The exponent.
const THETA: f64 = 0.99;

impl Zipf {
    fn new(limit: u64) -> Zipf {
        let weight = |rank: u64| (rank as f64 + 1.0).powf(-THETA);
        let sum: f64 = (0..limit).map(weight).sum();
        let first_two = weight(0) + weight(1);
        let limit = limit as f64;
        let eta = (1.0 - (2.0 / limit).powf(1.0 - THETA)) / (1.0 - first_two / sum);
        Zipf { limit, sum, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// The rank for a random word; 0 is the most frequent.
    fn rank(&self, random: u64) -> u64 {
        let u = (random >> 11) as f64 / (1u64 << 53) as f64;
        let weighed = u * self.sum;
        if weighed < 1.0 {
            return 0;
        }
        if weighed < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.limit * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.limit as u64 - 1)
    }
}

/// A thread's keys that come and go. Those from `oldest` to before `next` are present, wrapping around the
/// end.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    first: usize,
    count: usize,
    oldest: usize,
    next: usize,
}

impl Ring {
    /// A ring of `count` keys from `first` on; its first half is present.
    pub(super) fn new(first: usize, count: usize) -> Ring {
        Ring { first, count, oldest: 0, next: count / 2 }
    }

    /// Positions in the plan's ring of the keys present from the start.
    pub(super) fn at_first(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.next
    }

    /// Position of the key to insert; it then counts as present.
    #[inline(always)]
    pub(super) fn put_in(&mut self) -> usize {
        step(&mut self.next, self.first, self.count)
    }

    /// Position of the oldest key; it then counts as absent.
    #[inline(always)]
    pub(super) fn take_out(&mut self) -> usize {
        step(&mut self.oldest, self.first, self.count)
    }

    /// Number of present keys.
    pub(super) fn there(&self) -> usize {
        if self.count == 0 { 0 } else { (self.next + self.count - self.oldest) % self.count }
    }
}

#[inline(always)]
fn step(place: &mut usize, first: usize, count: usize) -> usize {
    let at = first + *place;
    *place += 1;
    if *place == count {
        *place = 0;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Variant;
    use crate::cases::map::shape::{MIXED, READING};

    fn shape_of(variants: &[Variant], name: &str) -> Shape {
        Shape::of(variants.iter().find(|variant| variant.name == name).expect("it is there"))
    }

    #[test]
    fn a_mixed_plan_keeps_its_proportions_and_its_turns() {
        for (writes, name) in [(5, "10k-u64-uniform-95-5"), (50, "10k-u64-zipf-50-50")] {
            let plan = Plan::<u64>::of(&shape_of(MIXED, name));
            let count = |kind| plan.kinds.iter().filter(|k| **k == kind).count();
            assert_eq!(count(Kind::Insert), count(Kind::Remove));
            assert_eq!(count(Kind::Update), 2 * count(Kind::Insert));
            assert_eq!(count(Kind::Insert), KINDS * writes / 400);
            let changes: Vec<_> =
                plan.kinds.iter().filter(|k| matches!(k, Kind::Insert | Kind::Remove)).collect();
            assert!(changes.chunks(2).all(|pair| pair == [&Kind::Insert, &Kind::Remove]));
        }
    }

    #[test]
    fn updates_draw_keys_that_stay_and_the_size_is_kept() {
        let shape = shape_of(MIXED, "1m-u64-uniform-50-50");
        let plan = Plan::<u64>::of(&shape);
        assert_eq!(plan.stay.len() + plan.ring_count / 2, shape.entries);
        let stay: std::collections::HashSet<u64> = plan.stay.iter().map(|n| u64::of(*n)).collect();
        for i in (0..plan.drawn_count).filter(|i| plan.kinds[i % KINDS] == Kind::Update) {
            assert!(stay.contains(u64::at(&plan.drawn, i)));
        }
        assert!((0..plan.ring_count).all(|i| !stay.contains(u64::at(&plan.ring, i))));
    }

    #[test]
    fn zipf_draws_the_first_keys_as_often_as_the_law() {
        let draws = 100_000u64;
        let zipf = Zipf::new(10_000);
        let mut seen = vec![0u64; 10_000];
        (0..draws).for_each(|i| seen[zipf.rank(scatter(i)) as usize] += 1);
        // Share of the first 1, 10, 100 and 1000 together: as the law says, within a tenth.
        for first in [1, 10, 100, 1000] {
            let part: f64 = (1..=first).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>() / zipf.sum;
            let found = seen[..first as usize].iter().sum::<u64>() as f64 / draws as f64;
            assert!((found / part - 1.0).abs() < 0.1, "{first}: {found} where {part} is the law's");
        }
    }

    #[test]
    fn a_ring_holds_half_its_keys_and_wraps_around() {
        let plan = Plan::<u64>::churning(&shape_of(READING, "10k-u64-uniform"));
        let rings: Vec<Ring> = (0..3).map(|thread| plan.ring_of(thread, 3)).collect();
        assert_eq!(rings.iter().map(|ring| ring.count).sum::<usize>(), plan.ring_count);
        let mut ring = rings[1].clone();
        let half = ring.there();
        assert_eq!(half, ring.count / 2);
        for turn in 0..3 * ring.count {
            let (put, taken) = (ring.put_in(), ring.take_out());
            assert!((ring.first..ring.first + ring.count).contains(&put));
            assert_eq!(taken, ring.first + turn % ring.count);
            assert_eq!(ring.there(), half);
        }
    }
}
