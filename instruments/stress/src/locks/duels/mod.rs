//! Duels: a few threads with a lock that no other thread uses.
//!
//! Problem: in a crowd, a thread whose wake-up was lost is soon woken by another thread. Idea: in each round
//! of a duel the first thread takes the lock, the others request it, and the first releases it and does not
//! touch it again. So no further thread repairs a lost wake-up.
//!
//! - I1. From the first thread's release until all others have ended, only the others touch the lock. Each
//!   requests it once.
//! - I2. A thread is forgotten if it has not ended after [`LOOKS`] looks at which no thread was inside. In
//!   some rounds the first thread stays inside until a deadline or a cancellation has ended another's wait.
//!   If that wait does not end within [`LOOKS`] looks, its thread is forgotten, too. Looks are counted
//!   instead of time. A first thread that does not get a free lock is found when the run is over.
//! - I3. The times of a round have the magnitude of the sleeps between the steps of the protocols
//!   ([`Disturbed`]), of which one in three sleeps. So every order of two steps occurs often.

mod arena;
mod round;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rustix::thread::set_current_timer_slack;
use squall::lock::{ConfigurableLock, DistributedRwLock, Lock, ReadBiasedRwLock, Scheduling, Waiting};

use super::breaks::Break;
use super::disturbed::{self, Disturbed, short_us};
use super::gates::disturbed_counters;
use super::lock_types::{Exclusive, Forgetful, Named, in_bits};
use super::world::World;
use crate::run::{Rng, Run, Violation, leak, lock};
use arena::Arena;
use round::{Cancels, Round};

/// Maximum number of looks at threads that do not end.
const LOOKS: u32 = 3_000;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// A thread other than the first stays inside for less than two to this power microseconds.
const INSIDE_LOG: u64 = 6;
/// The first stream of random numbers of the duels' threads.
const STREAM: u64 = 1 << 24;
/// More than the number of threads in a duel.
const MOST: u64 = 8;

/// The data that the threads of a duel share.
struct Duel {
    arena: Arena,
    others: usize,
    world: &'static World,
    now: Mutex<Now>,
    begun: Condvar,
    /// Number of threads that are about to request the lock in this round, or have.
    asking: AtomicUsize,
    /// Number of other threads inside.
    inside: AtomicUsize,
    /// A bit for each of the others that has ended in this round.
    ended: AtomicU64,
}

/// The current round.
#[derive(Default)]
struct Now {
    number: u64,
    round: Option<Arc<Round>>,
    over: bool,
}

/// The threads of a duel.
struct DuelThreads {
    duel: &'static Duel,
    first: JoinHandle<u64>,
    others: Vec<JoinHandle<()>>,
}

/// All running duels.
pub(super) struct Duels {
    duels: Vec<DuelThreads>,
}

impl Duels {
    /// Starts all duels.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(run: &Run, world: &'static World) -> Result<Duels, Violation> {
        let mut duels = Vec::new();
        if world.is_broken_otherwise(Break::LoseInDuel) {
            // Duels would only disturb the search for another planned break.
            return Ok(Duels { duels });
        }
        for (index, (others, arena)) in arenas(world).into_iter().enumerate() {
            let duel = Duel {
                arena,
                others,
                world,
                now: Mutex::default(),
                begun: Condvar::new(),
                asking: AtomicUsize::new(0),
                inside: AtomicUsize::new(0),
                ended: AtomicU64::new(0),
            };
            let begun = leak(duel).begin(index as u64, run);
            duels.push(begun.map_err(|error| {
                world.run_state.stop();
                Violation(format!("cannot start: no thread for a duel ({error})"))
            })?);
        }
        Ok(Duels { duels })
    }

    /// Ends all duels after the run is over. Returns the number of rounds.
    pub(super) fn end(self, world: &World) -> u64 {
        let run_state = world.run_state;
        let mut rounds = 0;
        for DuelThreads { duel, first, others } in self.duels {
            // A forgotten thread does not end, so all threads are abandoned.
            if run_state.violation().is_some() {
                break;
            }
            if !duel.comes_to_an_end(&first) {
                let what = "in a duel the first thread does not end although no other thread is inside";
                run_state.fail(format!("{}: {what}", duel.arena));
                break;
            }
            match first.join() {
                Ok(done) => rounds += done,
                Err(_) => run_state.fail("a thread of a duel has panicked".to_owned()),
            }
            for other in others {
                if run_state.violation().is_none() && other.join().is_err() {
                    run_state.fail("a thread of a duel has panicked".to_owned());
                }
            }
        }
        rounds
    }
}

/// Returns each lock with its number of threads besides the first.
fn arenas(world: &World) -> Vec<(usize, Arena)> {
    let one = |lock: Box<dyn Exclusive>| Arena::One(lock);
    let plain = || one(Box::new(Named("the disturbed lock", Lock::<u64, Disturbed>::with_steps(0))));
    let [bits, _] = in_bits();
    let configurable = |waiting, scheduling| {
        let lock = ConfigurableLock::<u64, Disturbed>::with_steps(0, waiting, scheduling);
        one(Box::new(Named("the disturbed configurable lock", lock)))
    };
    let shared = DistributedRwLock::<u64, Disturbed>::with_steps(0);
    let read_biased = ReadBiasedRwLock::<u64, Disturbed>::with_steps(0);
    let mut arenas = vec![
        (1, plain()),
        (2, plain()),
        (2, one(bits)),
        (2, configurable(Waiting::SPIN_THEN_BLOCK, Scheduling::FREE_FOR_ALL)),
        (2, configurable(Waiting::BLOCK, Scheduling::HAND_OFF)),
        (3, configurable(Waiting::BLOCK, Scheduling::FREE_FOR_ALL)),
        (2, Arena::Several(Box::new(Named("the disturbed reader-writer lock", shared)))),
        (2, Arena::Several(Box::new(Named("the disturbed read-biased lock", read_biased)))),
    ];
    arenas.extend(disturbed_counters().into_iter().map(|(name, make)| (2, Arena::gate(name, make))));
    if world.is_broken(Break::LoseInDuel) {
        arenas[0] = (1, one(Box::new(Forgetful::new(world.run_state))));
    }
    arenas
}

/// Reduces the timer slack, so that the shortest sleeps are short.
fn sleep_precisely() {
    // If it is refused, the sleeps are longer.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn sleep_us(us: u64) {
    if us > 0 {
        thread::sleep(Duration::from_micros(us));
    }
}

impl Duel {
    fn begin(&'static self, index: u64, run: &Run) -> io::Result<DuelThreads> {
        let named = |number: usize| thread::Builder::new().name(format!("duel-{index}-{number}"));
        let rng = |number: usize| run.rng(STREAM + index * MOST + number as u64);
        let numbers = rng(0);
        let first = named(0).spawn(move || self.lead(numbers))?;
        let mut others = Vec::new();
        for number in 0..self.others {
            let (numbers, first) = (rng(number + 1), first.thread().clone());
            others.push(named(number + 1).spawn(move || self.follow(number, &first, numbers))?);
        }
        Ok(DuelThreads { duel: self, first, others })
    }

    /// Returns whether the first thread ends after the run is over. The first thread waits for the others at
    /// most twice, each time for at most [`LOOKS`] looks.
    fn comes_to_an_end(&self, first: &JoinHandle<u64>) -> bool {
        for _ in 0..4 * LOOKS {
            if first.is_finished() {
                return true;
            }
            thread::sleep(PAUSE);
        }
        false
    }

    /// The body of the first thread. Returns the number of rounds.
    fn lead(&self, mut rng: Rng) -> u64 {
        sleep_precisely();
        disturbed::seed_duel(&mut rng);
        let mut rounds = 0;
        while self.world.run_state.checkpoint() {
            let round = Arc::new(Round::draw(self.arena.kind(), self.others, &mut rng));
            if let Err(what) = self.fight(&round, &mut rng) {
                let Round { first, cancels, hold_us, meddles, .. } = &*round;
                let attempt = format!(
                    "the first thread: {first:?} for {hold_us} us, cancels {cancels:?}, changes attributes: {meddles}"
                );
                self.world.has_lost.store(true, Ordering::Relaxed);
                self.world.run_state.fail(format!("{}: in a duel {what}; {attempt}", self.arena));
                break;
            }
            rounds += 1;
        }
        let mut now = lock(&self.now);
        now.over = true;
        drop(now);
        self.begun.notify_all();
        rounds
    }

    /// Runs one round of the first thread.
    fn fight(&self, round: &Arc<Round>, rng: &mut Rng) -> Result<(), String> {
        // Relaxed: the lock under which the round is shown publishes them.
        self.asking.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
        self.arena.prepare(round, rng);
        let mut stayed = Ok(());
        self.arena.ask(round.first, round, &mut || {
            self.show(round);
            if round.waits_for_all {
                self.wait_for_asking();
            }
            sleep_us(round.hold_us);
            if round.meddles && rng.one_in(2) {
                self.arena.meddle(rng);
            }
            if round.cancels == Cancels::Inside {
                round.cancel.cancel();
            }
            stayed = self.wait_for(
                round.stays_for,
                round,
                "has not ended, although it must end while the first thread is inside",
            );
        })?;
        stayed?;
        if round.cancels == Cancels::After {
            round.cancel.cancel();
        }
        self.wait_for(
            (1 << self.others) - 1,
            round,
            "has not ended, although no thread is inside: a wake-up was lost",
        )
    }

    fn show(&self, round: &Arc<Round>) {
        let mut now = lock(&self.now);
        now.number += 1;
        now.round = Some(Arc::clone(round));
        drop(now);
        self.begun.notify_all();
    }

    /// No thread is forgotten here, because a requesting thread has not yet touched the lock.
    fn wait_for_asking(&self) {
        while self.asking.load(Ordering::Relaxed) < self.others {
            thread::yield_now();
        }
    }

    /// Waits until the threads of these bits have ended (I2).
    fn wait_for(&self, those: u64, round: &Round, complaint: &str) -> Result<(), String> {
        let mut looks = 0;
        loop {
            let missing = those & !self.ended.load(Ordering::Relaxed);
            if missing == 0 {
                return Ok(());
            }
            if looks == LOOKS {
                let is_missing = |index: &usize| missing >> index & 1 == 1;
                let wishes: Vec<_> =
                    (0..self.others).filter(is_missing).map(|index| round.others[index]).collect();
                return Err(format!("{wishes:?} of {:?} {complaint}", round.others));
            }
            let empty = self.inside.load(Ordering::Relaxed) == 0;
            thread::park_timeout(PAUSE);
            looks = if empty { looks + 1 } else { 0 };
        }
    }

    /// The body of one of the others.
    fn follow(&self, index: usize, first: &Thread, mut rng: Rng) {
        sleep_precisely();
        disturbed::seed_duel(&mut rng);
        let mut last = 0;
        while let Some(round) = self.next_round(&mut last) {
            self.asking.fetch_add(1, Ordering::Relaxed);
            let asked = self.arena.ask(round.others[index], &round, &mut || {
                self.inside.fetch_add(1, Ordering::Relaxed);
                if rng.one_in(2) {
                    sleep_us(short_us(&mut rng, INSIDE_LOG));
                }
                self.inside.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(what) = asked {
                self.world.run_state.fail(format!("{}: in a duel {what}", self.arena));
            }
            self.ended.fetch_or(1 << index, Ordering::Relaxed);
            first.unpark();
        }
    }

    fn next_round(&self, last: &mut u64) -> Option<Arc<Round>> {
        let now = lock(&self.now);
        let now = self.begun.wait_while(now, |now| now.number == *last && !now.over);
        let now = now.unwrap_or_else(|poison| poison.into_inner());
        if now.number == *last {
            return None;
        }
        *last = now.number;
        now.round.clone()
    }
}
