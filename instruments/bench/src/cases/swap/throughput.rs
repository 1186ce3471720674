//! Compares the call rates with a thousand swaps a second and without.
//!
//! Problem: swaps cost a hundredth or less, and other programs of the machine take more. Idea: one crew calls
//! throughout, and the swapping thread changes every few milliseconds, so that a slow phase of the machine
//! affects all turns alike.
//!
//! - I1. A batch of calls counts for the turn in which it began. A turn ends only after its last swap has
//!   ended.
//! - I2. A round in which the threads lost time to other processes is left out while enough are clean (as
//!   `harness/I2`).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::crew::{crew, fit, watched};
use super::figures::Swaps;
use super::phases::{BATCH, one};
use crate::gate::Gate;
use crate::harness::{Lost, SliceWatch};
use crate::work::replace::Replace;

/// Time from one swap to the next.
const PACE: Duration = Duration::from_millis(1);
/// Length of a turn.
const TURN: Duration = Duration::from_millis(10);
/// Clean rounds that suffice to leave the disturbed ones out.
const CLEAN_MIN: usize = 3;

/// Values of the turn: no thread swaps.
const NOBODY: u8 = 0;
/// The first calling thread swaps.
const FIRST: u8 = 1;
/// One more thread swaps, and sleeps in between.
const BESIDE: u8 = 2;
const TURNS: usize = 3;
/// The turns are over.
const OVER: u8 = 3;

/// Work of one thread in the turns of each kind.
#[derive(Default)]
struct Done {
    calls: [u64; TURNS],
    seconds: [f64; TURNS],
    swaps: Swaps,
}

/// Calls per second of one round.
struct Round {
    rates: [f64; TURNS],
    disturbed: bool,
}

/// Call rate with a thousand swaps a second, over the rate without.
#[derive(Default)]
pub(super) struct Throughput {
    rounds: Vec<Round>,
    /// Swaps by the first calling thread.
    pub(super) swaps: Swaps,
    /// Swaps by the extra thread.
    pub(super) swaps_beside: Swaps,
    /// All calls that were made.
    pub(super) calls: u64,
    /// Time for which the first calling thread swapped.
    seconds: f64,
}

impl Throughput {
    /// Runs turns of all kinds for the given time in all. The first kind changes from round to round.
    pub(super) fn round<T: Replace>(
        &mut self,
        target: &T,
        threads: usize,
        round: usize,
        length: Duration,
    ) -> Result<(), String> {
        let turns = Turns {
            now: AtomicU8::new(NOBODY),
            may: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            beside: thread::current(),
        };
        let count = (length.as_millis() / TURN.as_millis()) as usize / TURNS * TURNS;
        let order = (round..round + count.max(TURNS)).map(|turn| (turn % TURNS) as u8);
        let watch = SliceWatch::begin();
        let body = |index: usize, gate: &Gate| {
            target.calls(BATCH);
            gate.wait();
            watched(|| match index {
                0 => turns.lead(target, order.clone()),
                _ => Ok(turns.follow(target)),
            })
        };
        let (all, beside) = crew(threads, body, || turns.swap_beside(target));
        self.swaps_beside.add(beside?);
        let lost: Vec<Lost> = all.iter().map(|(_, lost)| *lost).collect();
        let disturbed = fit(threads) && watch.disturbed(&lost, 0);
        let mut sum = Done::default();
        for (done, _) in all {
            let done = done?;
            sum.swaps.add(done.swaps);
            self.calls += BATCH + done.calls.iter().sum::<u64>();
            for kind in 0..TURNS {
                sum.calls[kind] += done.calls[kind];
                sum.seconds[kind] += done.seconds[kind];
            }
        }
        self.swaps.add(sum.swaps);
        self.seconds += sum.seconds[usize::from(FIRST)];
        let rates = std::array::from_fn(|kind| sum.calls[kind] as f64 / sum.seconds[kind]);
        self.rounds.push(Round { rates, disturbed });
        Ok(())
    }

    fn ratios_of(&self, kind: u8) -> Vec<f64> {
        let all = self.rounds.len() - self.disturbed() < CLEAN_MIN;
        let kept = self.rounds.iter().filter(|round| all || !round.disturbed);
        kept.map(|round| round.rates[usize::from(kind)] / round.rates[usize::from(NOBODY)]).collect()
    }

    /// Number of disturbed rounds.
    pub(super) fn disturbed(&self) -> usize {
        self.rounds.iter().filter(|round| round.disturbed).count()
    }

    /// Ratios for swaps by the first thread.
    pub(super) fn ratios(&self) -> Vec<f64> {
        self.ratios_of(FIRST)
    }

    /// Ratios for swaps by the extra thread.
    pub(super) fn ratios_beside(&self) -> Vec<f64> {
        self.ratios_of(BESIDE)
    }

    /// Swaps per second by the first thread: fewer than a thousand if it did not run in time.
    pub(super) fn swaps_per_second(&self) -> f64 {
        self.swaps.us.len() as f64 / self.seconds
    }
}

/// Shared state of the threads of one round.
struct Turns {
    // Written by the first thread.
    now: AtomicU8,
    /// Whether the extra thread may swap.
    may: AtomicBool,
    /// Whether the extra thread is swapping.
    // Written by the extra thread.
    busy: AtomicBool,
    beside: Thread,
}

impl Turns {
    /// The first thread's part: calls, changes turns, and reads the clock equally often in each turn.
    fn lead<T: Replace>(&self, target: &T, order: impl Iterator<Item = u8>) -> Result<Done, String> {
        let mut done = Done::default();
        let mut result = Ok(());
        for turn in order {
            // Relaxed: the number publishes no other data.
            self.now.store(turn, Ordering::Relaxed);
            self.let_beside(turn == BESIDE);
            result = self.turn(target, turn, &mut done);
            if result.is_err() {
                break;
            }
        }
        self.now.store(OVER, Ordering::Relaxed);
        self.let_beside(false);
        self.beside.unpark();
        result.map(|()| done)
    }

    fn let_beside(&self, may: bool) {
        // SeqCst: pairs with the store of `busy` in `swap_beside`. That thread sees this store, or this one
        // sees `busy`.
        self.may.store(may, Ordering::SeqCst);
        if may {
            self.beside.unpark();
        }
    }

    fn turn<T: Replace>(&self, target: &T, turn: u8, done: &mut Done) -> Result<(), String> {
        let (began, kind) = (Instant::now(), usize::from(turn));
        let mut next = began + PACE / 2;
        loop {
            target.calls(BATCH);
            done.calls[kind] += BATCH;
            let now = Instant::now();
            if now - began >= TURN {
                if turn == BESIDE {
                    self.let_beside(false);
                }
                // SeqCst: pairs with the store of `busy` in `swap_beside` (I1).
                if turn != BESIDE || !self.busy.load(Ordering::SeqCst) {
                    done.seconds[kind] += now.duration_since(began).as_secs_f64();
                    return Ok(());
                }
            } else if turn == FIRST && now >= next {
                one(target, &mut done.swaps)?;
                // A late swap delays the next one.
                next = now.max(next + PACE);
            }
        }
    }

    fn follow<T: Replace>(&self, target: &T) -> Done {
        let mut done = Done::default();
        loop {
            // Relaxed: the number publishes no other data.
            let turn = self.now.load(Ordering::Relaxed);
            let Some(calls) = done.calls.get_mut(usize::from(turn)) else { return done };
            target.calls(BATCH);
            *calls += BATCH;
        }
    }

    /// The body of the extra thread that swaps. It runs on the thread that made this value.
    fn swap_beside<T: Replace>(&self, target: &T) -> Result<Swaps, String> {
        let (mut swaps, mut next) = (Swaps::default(), Instant::now());
        loop {
            // Relaxed: a thread that sees the value late looks again after it has slept or was woken.
            if self.now.load(Ordering::Relaxed) == OVER {
                return Ok(swaps);
            }
            if !self.may.load(Ordering::Relaxed) {
                thread::park();
                next = Instant::now() + PACE / 2;
                continue;
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            next = Instant::now().max(next + PACE);
            // SeqCst: pairs with the store of `may` in `let_beside`.
            self.busy.store(true, Ordering::SeqCst);
            let mut result = Ok(());
            if self.may.load(Ordering::SeqCst) {
                result = one(target, &mut swaps);
            }
            self.busy.store(false, Ordering::SeqCst);
            result?;
        }
    }
}
