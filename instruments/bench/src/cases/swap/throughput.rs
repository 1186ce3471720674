//! How many calls a second, with a thousand swaps in it and without.
//!
//! Problem: swaps cost a part in a hundred or less, and what else runs on a machine takes more. Idea: one crew calls
//! throughout, and who swaps changes every few milliseconds, so that whatever slows the machine slows all alike.
//!
//! - I1. A batch of calls counts for the turn in which it began. A turn ends when no swap of it is under way.
//! - I2. A round in which the threads lost time to other processes is left out while enough are clean (as `harness/I2`).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::crew::{crew, fit, watched};
use super::figures::Swaps;
use super::phases::{BATCH, Replace, one};
use crate::gate::Gate;
use crate::harness::{Lost, SliceWatch};

/// From one swap to the next.
const PACE: Duration = Duration::from_millis(1);
/// Length of a turn.
const TURN: Duration = Duration::from_millis(10);
/// Clean rounds that suffice to leave the disturbed ones out.
const CLEAN_MIN: usize = 3;

/// Whose turn it is to swap.
const NOBODY: u8 = 0;
/// The first of those who call.
const FIRST: u8 = 1;
/// One more thread, which sleeps in between.
const BESIDE: u8 = 2;
const TURNS: usize = 3;
/// No more turns come.
const OVER: u8 = 3;

/// What one thread did in the turns of each kind.
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

/// Calls with a thousand swaps a second over calls without.
#[derive(Default)]
pub(super) struct Throughput {
    rounds: Vec<Round>,
    /// By the first of those who call.
    pub(super) swaps: Swaps,
    /// By one more thread.
    pub(super) swaps_beside: Swaps,
    /// All calls that were made.
    pub(super) calls: u64,
    /// For so long the first of those who call swapped.
    seconds: f64,
}

impl Throughput {
    /// Turns of all kinds, for so long in all; which is the first changes from round to round.
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
        let disturbed = fit(threads) && watch.disturbed(&lost);
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

    /// Rounds that were disturbed.
    pub(super) fn disturbed(&self) -> usize {
        self.rounds.iter().filter(|round| round.disturbed).count()
    }

    /// Where the first thread swaps.
    pub(super) fn ratios(&self) -> Vec<f64> {
        self.ratios_of(FIRST)
    }

    /// Where one more thread swaps.
    pub(super) fn ratios_beside(&self) -> Vec<f64> {
        self.ratios_of(BESIDE)
    }

    /// Swaps that the first thread came to in a second: fewer than a thousand where it did not get to run in time.
    pub(super) fn swaps_per_second(&self) -> f64 {
        self.swaps.us.len() as f64 / self.seconds
    }
}

/// What the threads of one round share.
struct Turns {
    // Written by the first thread.
    now: AtomicU8,
    /// Whether the thread beside may swap.
    may: AtomicBool,
    /// The thread beside swaps.
    // Written by it.
    busy: AtomicBool,
    beside: Thread,
}

impl Turns {
    /// What the first thread does: it calls, takes the turns, and looks at the clock in each alike.
    fn lead<T: Replace>(&self, target: &T, order: impl Iterator<Item = u8>) -> Result<Done, String> {
        let mut done = Done::default();
        let mut result = Ok(());
        for turn in order {
            // Relaxed: the number is all there is to see.
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
        // SeqCst: pairs with the store of `busy` in `swap_beside`: that thread sees this, or we see that it is busy.
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
                // SeqCst: as above (I1).
                if turn != BESIDE || !self.busy.load(Ordering::SeqCst) {
                    done.seconds[kind] += now.duration_since(began).as_secs_f64();
                    return Ok(());
                }
            } else if turn == FIRST && now >= next {
                one(target, &mut done.swaps)?;
                // One that comes late puts off the next.
                next = now.max(next + PACE);
            }
        }
    }

    fn follow<T: Replace>(&self, target: &T) -> Done {
        let mut done = Done::default();
        loop {
            // Relaxed: the number is all there is to see.
            let turn = self.now.load(Ordering::Relaxed);
            let Some(calls) = done.calls.get_mut(usize::from(turn)) else { return done };
            target.calls(BATCH);
            *calls += BATCH;
        }
    }

    /// What one more thread does, the one that made this.
    fn swap_beside<T: Replace>(&self, target: &T) -> Result<Swaps, String> {
        let (mut swaps, mut next) = (Swaps::default(), Instant::now());
        loop {
            // Relaxed: who sees it late looks again, after it has slept or was woken.
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
