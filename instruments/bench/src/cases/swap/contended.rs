//! Null swaps of an object under a lock: at contended points of a workload, and at random times.
//!
//! Each thread computes privately, then calls the object, which takes a lock and changes a table. Most of the
//! time the private work is long. In one phase in four it is short, so that threads meet at the lock. The
//! object has a contention [`Sensor`]: a call that finds the lock taken is a step of its alarm. Source:
//! Appavoo 2005, figure 7.4.
//!
//! The load runs in turns of three kinds. Without swaps; with a swap by the thread whose call made the alarm
//! post, right after that call. And with swaps at random times, by any thread between two calls.
//!
//! - I1. The table counts all calls, also across swaps, since a swap passes it on by a pointer. A lost or
//!   doubled call ends the run with an error.
//! - I2. One thread swaps at a time. A thread that wants to swap meanwhile goes on calling.
//! - I3. A round in which other programs used the processors is left out of the throughput while enough are
//!   clean (as `harness/I2`).

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use squall::Owned;
use squall::adapt::sensor::Sensor;
use squall::swap::{Replacement, State, StateFormats, Swap, SwapFailure};

use super::Lengths;
use super::crew::crew;
use super::figures::{Figures, Swaps};
use crate::env;
use crate::gate::Gate;
use crate::harness::{CLEAN_ROUNDS_MIN, RoundWatch};
use crate::objects::Probe;
use crate::work::replace::Replaced;

/// Length of a turn of one kind.
const TURN: Duration = Duration::from_millis(20);
/// Length of a phase, and the number of phases of which one is contended.
const PHASE: Duration = Duration::from_micros(500);
const PHASES: u128 = 4;
/// Steps of private work between two calls: in most phases, and in a contended one.
const PRIVATE: (u64, u64) = (2000, 20);
/// Words of the table that a call changes.
const WORDS: usize = 64;
/// Contended calls before the alarm posts.
const ALARM: u32 = 8;
/// Mean time from the end of a swap at a random time to the next one of the same thread.
const APART: Duration = Duration::from_millis(1);

/// Kinds of turns.
const NO_SWAPS: usize = 0;
const CONTENDED: usize = 1;
const RANDOM: usize = 2;
const KINDS: usize = 3;

/// State of the object, passed on by swaps.
struct Table {
    words: Mutex<[u64; WORDS]>,
    sensor: Sensor,
    /// Whether the alarm has posted since the last swap.
    posted: AtomicBool,
}

impl Table {
    fn new() -> Table {
        let sensor = Sensor::new();
        sensor.arm(ALARM);
        Table { words: Mutex::new([0; WORDS]), sensor, posted: AtomicBool::new(false) }
    }

    /// Locks the words. A lock that is not free is a step of the alarm.
    fn lock(&self) -> MutexGuard<'_, [u64; WORDS]> {
        match self.words.try_lock() {
            Ok(words) => return words,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        // Relaxed: the flag publishes no other data.
        self.sensor.note_contended(|| !self.posted.swap(true, Ordering::Relaxed));
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The object: a table under one lock.
struct Guarded(OnceLock<Arc<Table>>);

impl Probe for Guarded {
    fn get(&self, n: u64) -> u64 {
        let table = self.0.get().expect("a call came before the state");
        let mut words = table.lock();
        for word in words.iter_mut() {
            *word += n;
        }
        words[0]
    }
}

impl State for Guarded {
    fn formats(formats: &mut StateFormats<'_, Guarded>) {
        formats
            .export(|this| Ok(Arc::clone(this.0.get().ok_or("the table is not there")?)))
            .import(|this, table: Arc<Table>| Ok(this.0.set(table).map_err(|_| "two tables")?));
    }
}

/// The object, with the state of its swaps.
struct Subject {
    owner: Owned<dyn Probe>,
    table: Arc<Table>,
    swapping: AtomicBool,
}

impl Subject {
    fn new() -> Subject {
        let table = Arc::new(Table::new());
        let object = Guarded(OnceLock::from(Arc::clone(&table)));
        Subject { owner: squall::swappable(object), table, swapping: AtomicBool::new(false) }
    }

    /// Swaps the object by one of its type, unless another thread does so (I2).
    fn swap(&self, swaps: &mut Swaps) -> Result<(), String> {
        // Acquire: pairs with the Release below, so that swaps are in one order.
        if self.swapping.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        let began = Instant::now();
        let result = Swap::new(self.owner.handle()).run(Replacement::swappable(Guarded(OnceLock::new())));
        let took = began.elapsed();
        self.table.sensor.arm(ALARM);
        self.table.posted.store(false, Ordering::Relaxed);
        // Release: pairs with the Acquire above.
        self.swapping.store(false, Ordering::Release);
        let replaced = match result {
            Ok(report) => Replaced::swapped(report),
            Err(error) => match error.failure() {
                SwapFailure::TimedOut(_) => Replaced::TIMED_OUT,
                _ => return Err(error.to_string()),
            },
        };
        swaps.note(took, &replaced);
        Ok(())
    }
}

/// Work of one thread, by the kind of turn.
#[derive(Default)]
struct Done {
    calls: [u64; KINDS],
    swaps: [Swaps; KINDS],
}

/// The time of a round: its turns and phases.
#[derive(Clone, Copy)]
struct Clock {
    began: Instant,
    round: usize,
    turns: usize,
}

impl Clock {
    /// Returns the kind of the present turn, and whether the phase is contended. After the last turn it
    /// returns `None`.
    fn now(&self) -> Option<(usize, bool)> {
        let passed = self.began.elapsed();
        let turn = (passed.as_nanos() / TURN.as_nanos()) as usize;
        let contended = (passed.as_nanos() / PHASE.as_nanos()).is_multiple_of(PHASES);
        (turn < self.turns).then_some(((self.round + turn) % KINDS, contended))
    }
}

/// Calls the object until the round is over.
fn work(subject: &Subject, clock: Clock, index: usize) -> Result<Done, String> {
    let co = subject.owner.handle();
    let mut done = Done::default();
    let mut draws = Draws(clock.round as u64 * 64 + index as u64 + 1);
    // The next swap at a random time.
    let mut next: Option<Instant> = None;
    while let Some((kind, contended)) = clock.now() {
        private(if contended { PRIVATE.1 } else { PRIVATE.0 });
        black_box(&co).get(1);
        done.calls[kind] += 1;
        match kind {
            // Relaxed: the flag publishes no other data.
            CONTENDED if subject.table.posted.load(Ordering::Relaxed) => {
                subject.swap(&mut done.swaps[kind])?
            }
            RANDOM => {
                let now = Instant::now();
                if next.is_some_and(|next| now >= next) {
                    subject.swap(&mut done.swaps[kind])?;
                }
                if next.is_none_or(|next| now >= next) {
                    next = Some(now + draws.wait());
                }
            }
            _ => {}
        }
        if kind != RANDOM {
            next = None;
        }
    }
    Ok(done)
}

/// Computes without memory that others use.
fn private(steps: u64) {
    black_box((0..steps).fold(black_box(1u64), |sum, step| sum.wrapping_mul(31).wrapping_add(step)));
}

/// Pseudo-random waits (xorshift64).
struct Draws(u64);

impl Draws {
    /// A wait from zero to twice [`APART`].
    fn wait(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_nanos(self.0 % (2 * APART.as_nanos() as u64))
    }
}

/// Measures the variant with `threads` threads.
pub(super) fn measure(threads: usize, lengths: &Lengths) -> Result<Vec<(String, f64)>, String> {
    let subject = Subject::new();
    let (mut sum, mut rounds) = (Done::default(), Vec::new());
    let mut processors = env::processors();
    processors.truncate(threads);
    let turns = (lengths.turns.as_millis() / TURN.as_millis()) as usize / KINDS * KINDS;
    for round in 0..lengths.rounds {
        let watch = RoundWatch::begin(&processors);
        let clock = Clock { began: Instant::now(), round, turns: turns.max(KINDS) };
        let body = |index: usize, gate: &Gate| {
            gate.wait();
            work(&subject, clock, index)
        };
        let mut of_round = Done::default();
        for done in crew(threads, body, || ()).0 {
            of_round.add(done?);
        }
        rounds.push((of_round.calls, watch.disturbed()));
        sum.add(of_round);
    }
    let counted = subject.table.lock()[0];
    let calls: u64 = sum.calls.iter().sum();
    if counted != calls {
        return Err(format!("of {calls} calls {counted} were counted"));
    }
    let clean = rounds.iter().filter(|(_, disturbed)| !disturbed).count();
    let kept: Vec<_> = rounds.iter().filter(|it| clean < CLEAN_ROUNDS_MIN || !it.1).map(|it| it.0).collect();
    let mut figures = Figures::default();
    for (name, kind) in [("contended", CONTENDED), ("random", RANDOM)] {
        tell(name, &sum.swaps[kind], &mut figures);
        let ratios: Vec<f64> = kept.iter().map(|calls| calls[kind] as f64 / calls[NO_SWAPS] as f64).collect();
        figures.quantile(&format!("throughput_ratio_{name}"), &ratios, 0.5);
    }
    figures.one("disturbed_rounds", (rounds.len() - clean) as f64);
    squall::rcu::barrier().map_err(|error| error.to_string())?;
    Ok(figures.all)
}

impl Done {
    fn add(&mut self, other: Done) {
        for (kind, swaps) in other.swaps.into_iter().enumerate() {
            self.calls[kind] += other.calls[kind];
            self.swaps[kind].add(swaps);
        }
    }
}

/// Adds the figures of the swaps of one kind.
fn tell(name: &str, swaps: &Swaps, figures: &mut Figures) {
    let us = &swaps.us;
    let count = us.len().max(1) as f64;
    let mean = us.iter().sum::<f64>() / count;
    let variance = us.iter().map(|us| (us - mean).powi(2)).sum::<f64>() / count;
    figures.one(&format!("{name}_swaps"), us.len() as f64);
    figures.one(&format!("{name}_failed"), swaps.failed as f64);
    figures.times(name, us);
    figures.one(&format!("{name}_mean_us"), mean);
    figures.one(&format!("{name}_sd_us"), variance.sqrt());
    figures.quantile(&format!("{name}_min_us"), us, 0.0);
    figures.quantile(&format!("{name}_max_us"), us, 1.0);
    // Calls wait in the phases from `Block` on, and in no other.
    let (mut waits, mut all) = (0.0, 0.0);
    for (phase, phase_us) in swaps.phases() {
        let sum: f64 = phase_us.iter().sum();
        figures.one(&format!("{name}_{phase}_mean_us"), sum / count);
        waits += if matches!(phase, "block" | "transfer" | "complete") { sum } else { 0.0 };
        all += sum;
    }
    figures.one(&format!("{name}_part_with_waits"), if all > 0.0 { waits / all } else { 0.0 });
    figures.one(&format!("{name}_blocked_calls_per_swap"), swaps.blocked as f64 / count);
    figures.quantile(&format!("{name}_pause_p50_us"), &swaps.pauses_us, 0.5);
    figures.quantile(&format!("{name}_pause_max_us"), &swaps.pauses_us, 1.0);
    figures.histogram(name, us);
}
