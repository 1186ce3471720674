//! Frequency: of the entries that were drawn, the one with the fewest uses leaves, and a new key that was
//! wanted less often than that is refused.
//!
//! Problem: an order by the last use keeps entries that are used once, and loses to loops and scans. An order
//! by counts alone keeps entries of the past.
//!
//! Idea: an entry counts the epochs in which it was used, and a [sketch](super::sketch) the misses of absent
//! keys. Both are halved from time to time, and the time adapts. Two signs decide:
//!
//! - *Repeats*: misses of keys that were refused shortly before. A larger share of newcomers would be hits.
//! - *Late hits*: hits of entries that an order by the last use would have evicted. The counts earn them.
//!
//! If repeats are more, the counts are halved sooner, and newcomers win some comparisons by chance. If late
//! hits are more, it goes back. A sudden drop of the share of entries in use has one of two causes. With more
//! late hits than repeats, a scan passes, and the counts stay. Otherwise the load has shifted, and the counts
//! are halved several times at once.
//!
//! - I1. The sketch, and the refused keys, are estimates. The control sees one miss in four, under its lock.
//!
//! Cost: five and a half bytes for each entry of the cache.
//! Source: TinyLFU (Einziger, Friedman and Manes 2017) for the comparison with newcomers; the marks, the
//! control and the constants are from simulations, of which `squall bench cache` repeats the traces.

use squall_core::Owned;
use squall_core::swap::{Replacement, State, StateFormats};
use squall_rcu::{Rcu, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sketch::Sketch;
use super::{Candidate, Eviction, Expected, Mark, Now, Turn, Verdict};
use crate::random;

/// Epochs in which as many keys are missed as the cache has entries.
const EPOCHS: u16 = 16;
/// Counters of the sketch for each entry.
const COUNTERS: usize = 7;
/// One key in so many is watched.
const WATCHED: u64 = 4;
/// The longest and the shortest time between two halvings, in misses for each entry.
const PERIODS: (f64, f64) = (1.0, 40.0);
/// The shortest period while repeats are fewer than late hits.
const PERIOD_MIDDLE: f64 = 3.0;
/// The largest share of newcomers that win by chance.
const CHANCE_MOST: f64 = 0.9;
/// Repeats for each late hit above and below which the control moves.
const REPEATS: (f64, f64) = (0.4, 0.5);
/// Entries that the control looks at before it decides.
const SAMPLES: f64 = 512.0;
/// A share of entries in use below this part of its mean is a shift, or a scan.
const DROP: f64 = 0.5;
/// Halvings at a shift.
const SHIFT_HALVINGS: u16 = 4;
/// Watched repeats that tell a shift from a scan.
const REPEATS_NEEDED: f64 = 16.0;

/// Makes the default policy: it keeps the keys that are wanted most often, and adapts to changes of the load.
///
/// If the cache is full, it compares a new key with the least used of about five drawn entries. It usually
/// refuses the key unless that was inserted more often than the entry was used.
///
/// # Cost
/// Five and a half bytes for each entry that fits, outside the bound of the cache.
///
/// # Source
/// TinyLFU (Einziger, Friedman and Manes 2017), for the comparison with newcomers.
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn frequency() -> Owned<dyn Eviction> {
    squall_core::swappable(Frequency::<false>::new())
}

/// Makes a policy like [`frequency`], for [`Cache::swap_policy`](crate::Cache::swap_policy).
pub fn new_frequency() -> Replacement<dyn Eviction> {
    Replacement::swappable(Frequency::<false>::new())
}

/// Makes a policy like [`frequency`] that refuses no entry: a new key always takes the place of another one.
/// It has fewer hits, but a program finds each value that it has just inserted, such as a lock or a session.
///
/// # Panics
/// As [`frequency`].
#[track_caller]
pub fn frequency_admitting_all() -> Owned<dyn Eviction> {
    squall_core::swappable(Frequency::<true>::new())
}

/// Makes a policy like [`frequency_admitting_all`], for
/// [`Cache::swap_policy`](crate::Cache::swap_policy).
pub fn new_frequency_admitting_all() -> Replacement<dyn Eviction> {
    Replacement::swappable(Frequency::<true>::new())
}

struct Frequency<const ADMITS_ALL: bool> {
    memory: Rcu<Memory>,
    control: Mutex<Control>,
    /// The bits of the share of newcomers that win by chance, an `f32`.
    chance: AtomicU32,
}

/// The memory of absent keys, for a number of entries.
struct Memory {
    entries: u64,
    sketch: Sketch,
    /// Refused keys that are watched: a fingerprint and the epoch.
    refused: Box<[AtomicU64]>,
}

impl Memory {
    fn new(entries: u64) -> Memory {
        let places = (entries / WATCHED).max(1) as usize;
        Memory {
            entries,
            sketch: Sketch::new(entries as usize * COUNTERS),
            refused: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the place and the fingerprint of a key, if it is watched.
    fn watched(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if hash >> 20 & (WATCHED - 1) != 0 {
            return None;
        }
        let place = ((u128::from(hash) * self.refused.len() as u128) >> 64) as usize;
        Some((&self.refused[place], (hash & 0xFFFF) + 1))
    }
}

impl<const ADMITS_ALL: bool> Frequency<ADMITS_ALL> {
    fn new() -> Self {
        Frequency {
            memory: Rcu::new(Box::new(Memory::new(0))),
            control: Mutex::new(Control::new()),
            chance: AtomicU32::new(0),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wins_by_chance(&self) -> bool {
        // Relaxed: one number.
        let chance = f32::from_bits(self.chance.load(Ordering::Relaxed));
        chance > 0.0 && (random::next() >> 40) as f32 / ((1_u64 << 24) as f32) < chance
    }
}

impl<const ADMITS_ALL: bool> State for Frequency<ADMITS_ALL> {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats
            .export(|policy| Ok(Expected { entries: pin(|guard| policy.memory.load(guard).entries) }))
            .import(|policy, Expected { entries }| {
                policy.resize(entries);
                Ok(())
            });
    }
}

impl<const ADMITS_ALL: bool> Eviction for Frequency<ADMITS_ALL> {
    fn resize(&self, entries: u64) {
        let now = pin(|guard| self.memory.load(guard).entries);
        // The counts of absent keys are worth more than a fitting size.
        if now == 0 || entries > now.saturating_mul(2) || entries < now / 4 {
            self.memory.replace(Box::new(Memory::new(entries)));
        }
    }

    fn epoch_length(&self) -> u64 {
        pin(|guard| (self.memory.load(guard).entries / u64::from(EPOCHS)).max(1))
    }

    fn begin_epoch(&self) -> Turn {
        let mut control = self.control();
        let halvings = control.begin_epoch(self.epoch_length() as f64 * f64::from(EPOCHS));
        self.chance.store((control.chance as f32).to_bits(), Ordering::Relaxed);
        Turn::new(halvings, control.late)
    }

    fn arrived(&self, hash: u64, now: Now) -> Mark {
        pin(|guard| {
            let memory = self.memory.load(guard);
            if let Some((place, fingerprint)) = memory.watched(hash) {
                // Relaxed, here and below: estimates (I1).
                let refused = place.load(Ordering::Relaxed);
                let age = now.epoch.wrapping_sub(refused as u16);
                if refused >> 16 == fingerprint {
                    let mut control = self.control();
                    if age <= control.late.min(EPOCHS) {
                        control.repeats += 1.0;
                    }
                }
            }
            Mark::new(now, memory.sketch.add(hash, now.halvings))
        })
    }

    fn choose(&self, newcomer: Option<Candidate>, drawn: &[Candidate], now: Now) -> Verdict {
        // Few uses first, and of as many the longest unused.
        let rank = |candidate: &Candidate| (candidate.mark.uses_now(now), u16::MAX - candidate.mark.age(now));
        let least = drawn.iter().enumerate().min_by_key(|(_, drawn)| rank(drawn));
        let Some((index, victim)) = least else { return Verdict::Refuse };
        let Some(newcomer) = newcomer else { return Verdict::Evict(index) };
        let uses = victim.mark.uses_now(now);
        let is_in = ADMITS_ALL || newcomer.mark.uses > uses || self.wins_by_chance();
        pin(|guard| {
            let memory = self.memory.load(guard);
            if let Some((place, fingerprint)) = memory.watched(newcomer.hash) {
                self.control().look(drawn, now);
                let refused = if is_in { 0 } else { fingerprint << 16 | u64::from(now.epoch) };
                place.store(refused, Ordering::Relaxed);
            }
            if is_in {
                memory.sketch.raise(victim.hash, now.halvings, uses);
            }
        });
        if is_in { Verdict::Evict(index) } else { Verdict::Refuse }
    }
}

/// The state of the control: see the module.
struct Control {
    /// Misses for each entry between two halvings.
    period: f64,
    /// Epochs since the last halving.
    since: f64,
    chance: f64,
    /// Epochs after which an order by the last use evicts an entry.
    late: u16,
    /// Sums since the last decision: entries seen, those in use, those hit late, watched repeats, epochs.
    seen: f64,
    in_use: f64,
    late_hits: f64,
    repeats: f64,
    epochs: f64,
    /// Entries seen, by the epochs since their last use.
    ages: [f64; EPOCHS as usize + 1],
    /// Means over some decisions: the share in use, repeats and late hits.
    mean_in_use: f64,
    mean_repeats: f64,
    mean_late_hits: f64,
    decisions: u32,
    /// Sums of repeats, late hits and watched repeats since the share in use fell.
    suspicion: Option<(f64, f64, f64)>,
}

impl Control {
    fn new() -> Control {
        Control {
            period: PERIODS.1,
            since: 0.0,
            chance: 0.0,
            late: EPOCHS,
            seen: 0.0,
            in_use: 0.0,
            late_hits: 0.0,
            repeats: 0.0,
            epochs: 0.0,
            ages: [0.0; EPOCHS as usize + 1],
            mean_in_use: 0.0,
            mean_repeats: 0.0,
            mean_late_hits: 0.0,
            decisions: 0,
            suspicion: None,
        }
    }

    /// Looks at entries that were drawn.
    fn look(&mut self, drawn: &[Candidate], now: Now) {
        for Candidate { mark, .. } in drawn {
            let age = mark.age(now);
            self.seen += 1.0;
            if mark.is_used {
                self.ages[age.min(EPOCHS) as usize] += 1.0;
                if age <= 1 {
                    self.in_use += 1.0;
                }
            }
            if age == 1 && mark.is_late {
                self.late_hits += 1.0;
            }
        }
    }

    /// Begins an epoch, and returns the number of halvings.
    fn begin_epoch(&mut self, entries: f64) -> u16 {
        self.since += 1.0;
        self.epochs += 1.0;
        let mut halvings = 0;
        if self.seen >= SAMPLES {
            halvings = self.decide(entries);
        }
        if halvings == 0 && self.since >= self.period * f64::from(EPOCHS) {
            self.since = 0.0;
            halvings = 1;
        }
        halvings
    }

    fn decide(&mut self, entries: f64) -> u16 {
        let in_use = self.in_use / self.seen;
        let watched = WATCHED as f64;
        // In an epoch, over the whole cache.
        let repeats = self.repeats * watched / (1.0 - self.chance) / self.epochs;
        let late_hits = self.late_hits / self.seen * entries;
        let mut halvings = 0;
        let is_warm = self.decisions >= 8;
        if !is_warm {
            self.decisions += 1;
            self.mean_in_use += (in_use - self.mean_in_use) / f64::from(self.decisions);
        } else if in_use < DROP * self.mean_in_use && self.mean_in_use * self.seen >= 16.0 {
            let (mut missed, mut kept, mut counted) = self.suspicion.unwrap_or_default();
            missed += repeats * self.epochs;
            kept += late_hits * self.epochs;
            counted += self.repeats;
            self.suspicion = Some((missed, kept, counted));
            if counted >= REPEATS_NEEDED {
                if missed >= kept {
                    halvings = SHIFT_HALVINGS;
                    self.since = 0.0;
                    self.mean_late_hits = late_hits;
                }
                self.mean_in_use = in_use;
                self.suspicion = None;
            }
        } else {
            self.mean_in_use += (in_use - self.mean_in_use) / 8.0;
            self.suspicion = None;
        }
        let weight = if is_warm { 8.0 } else { 3.0 };
        self.mean_repeats += (repeats - self.mean_repeats) / weight;
        self.mean_late_hits += (late_hits - self.mean_late_hits) / weight;
        if self.late < 3 {
            self.mean_repeats = 0.0;
        }
        if is_warm {
            self.steer();
        }
        self.late = self.coldest().max(1);
        (self.seen, self.in_use, self.late_hits, self.repeats, self.epochs) = (0.0, 0.0, 0.0, 0.0, 0.0);
        self.ages = [0.0; EPOCHS as usize + 1];
        halvings
    }

    /// Moves the period of the halvings and the chance of newcomers.
    fn steer(&mut self) {
        let (repeats, late_hits) = (self.mean_repeats, self.mean_late_hits);
        // Quarters of the time in which the cache is filled once.
        let time = self.epochs / f64::from(EPOCHS) * 4.0;
        if repeats > REPEATS.1 * late_hits {
            let shortest = if repeats > late_hits { PERIODS.0 } else { PERIOD_MIDDLE.min(self.period) };
            self.period = (self.period * 0.5_f64.powf(time)).max(shortest);
            if self.period <= PERIODS.0 && repeats > late_hits {
                self.chance = (self.chance.max(1.0 / 64.0) * 2_f64.powf(time)).min(CHANCE_MOST);
            }
        } else if repeats < REPEATS.0 * late_hits {
            self.chance *= 0.5_f64.powf(time);
            if self.chance < 0.01 {
                self.chance = 0.0;
                self.period = (self.period * 1.5_f64.powf(time)).min(PERIODS.1);
            }
        }
    }

    /// Returns the age in epochs of the coldest entry of an order by the last use, in a cache of this size.
    fn coldest(&self) -> u16 {
        let mut newer = 0.0;
        for age in 0..EPOCHS {
            newer += self.ages[usize::from(age)] / self.seen;
            if newer + f64::from(age) / f64::from(EPOCHS) >= 1.0 {
                return age;
            }
        }
        EPOCHS
    }
}
