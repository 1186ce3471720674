//! Stress of restartable operations: threads move between processors all the time, and every operation is
//! accounted for.
//!
//! Promised (`squall_machine::pervp`): additions, exchanges, compare-and-stores, pushes and pops are neither
//! lost nor doubled, even if the thread is preempted, moved or interrupted in the middle of one.
//!
//! Tried: more threads than processors run bursts of operations with random numbers on shared words. Between
//! bursts a thread changes its affinity (or, in a virtual topology, its VP), yields, or sleeps. During bursts
//! another thread moves the threads. At the end of a round, after all threads have ended, the content of the
//! VPs must equal the threads' own accounts exactly. Rounds with new threads follow until the time is up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::gettid;
use squall_machine::machine;
use squall_machine::pervp::{self, PerVpStack, PerVpWord};

use crate::run::{Report, Rng, Run, Stress, Violation, lock, threads_beyond_processors};
use crate::skeleton::placement::{AllowedCpus, switch_vp};

pub(super) const STRESS: Stress = Stress {
    name: "percpu",
    about: "per-VP additions, exchanges, compare-and-stores, pushes and pops of threads that are moved are neither \
            lost nor doubled",
    run: |run| violate(run, None),
    threads: threads_beyond_processors,
};

pub(super) const DOWNGRADE: Stress = Stress {
    name: "percpu-downgrade",
    about: "per-VP operations are neither lost nor doubled while the process gives up restartable sequences",
    run: |run| violate(run, Some(run.rng(DOWNGRADER).below(DOWNGRADE_ROUNDS_MAX))),
    threads: threads_beyond_processors,
};

/// Maximum number of operations in a burst.
const BURST_MAX: u64 = 2_000;
/// Bursts of a thread in a round.
const BURSTS: u32 = 64;
/// Stream of random numbers of the thread that moves others.
const MOVER: u64 = u64::MAX;
/// Stream of random numbers that chooses the round of the downgrade.
const DOWNGRADER: u64 = u64::MAX / 2;
/// Latest round of the downgrade.
const DOWNGRADE_ROUNDS_MAX: u64 = 32;

/// The words and the stack on the VPs.
struct Words {
    added: PerVpWord,
    exchanged: PerVpWord,
    raised: PerVpWord,
    stack: PerVpStack<u64>,
}

impl Words {
    fn new() -> Words {
        Words {
            added: PerVpWord::new(),
            exchanged: PerVpWord::new(),
            raised: PerVpWord::new(),
            stack: PerVpStack::new(),
        }
    }
}

/// The threads' own accounts: wrapping sums, and numbers of operations.
#[derive(Default)]
struct Told {
    added: AtomicU64,
    exchanged_in: AtomicU64,
    exchanged_out: AtomicU64,
    raised: AtomicU64,
    pushed: AtomicU64,
    pushed_count: AtomicU64,
    popped: AtomicU64,
    popped_count: AtomicU64,
    additions: AtomicU64,
    exchanges: AtomicU64,
    moves: AtomicU64,
}

fn tell(place: &AtomicU64, more: u64) {
    place.fetch_add(more, Ordering::Relaxed);
}

fn told(place: &AtomicU64) -> u64 {
    place.load(Ordering::Relaxed)
}

/// Runs the stress. In round `downgrade`, if any, the process gives up restartable sequences.
fn violate(run: &Run, downgrade: Option<u64>) -> Result<Report, Violation> {
    let mut words = Words::new();
    let says = Told::default();
    let home = AllowedCpus::find()?;
    let mut rounds = 0;
    while !run.is_over() {
        round(run, &words, &says, &home, rounds, downgrade == Some(rounds));
        rounds += 1;
        compare(&mut words, &says)?;
    }
    Ok(Report(vec![
        ("additions", told(&says.additions)),
        ("exchanges", told(&says.exchanges)),
        ("compare-and-stores", told(&says.raised)),
        ("pushes", told(&says.pushed_count)),
        ("pops", told(&says.popped_count)),
        ("moves", told(&says.moves)),
        ("threads started", rounds * run.threads as u64),
        ("exact comparisons", rounds),
    ]))
}

fn round(run: &Run, words: &Words, says: &Told, home: &AllowedCpus, round: u64, downgrade: bool) {
    let begin = Barrier::new(run.threads);
    let tids = Mutex::new(Vec::new());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..run.threads as u64)
            .map(|index| {
                let (begin, tids) = (&begin, &tids);
                let mut rng = run.rng(round * run.threads as u64 + index);
                scope.spawn(move || {
                    lock(tids).push(gettid());
                    begin.wait();
                    for _ in 0..BURSTS {
                        burst(words, says, &mut rng);
                        wander(says, home, &mut rng);
                    }
                })
            })
            .collect();
        let (tids, over) = (&tids, &over);
        let rng = run.rng(MOVER ^ round);
        scope.spawn(move || {
            if downgrade {
                thread::sleep(Duration::from_micros(200));
                pervp::force_downgrade();
            }
            move_others(tids, over, says, home, rng);
        });
        let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a thread of the stress has panicked");
    });
}

/// Runs one burst. Operations are reported after they are done and before the round ends.
fn burst(words: &Words, says: &Told, rng: &mut Rng) {
    let operations = 1 + rng.below(BURST_MAX);
    let (mut added, mut exchanged_in, mut exchanged_out, mut exchanges) = (0u64, 0u64, 0u64, 0);
    for _ in 0..operations {
        let n = rng.next();
        words.added.add(n);
        added = added.wrapping_add(n);
        if n.is_multiple_of(8) {
            let (_, old) = words.exchanged.swap(n);
            exchanged_in = exchanged_in.wrapping_add(n);
            exchanged_out = exchanged_out.wrapping_add(old);
            exchanges += 1;
        }
    }
    tell(&says.added, added);
    tell(&says.additions, operations);
    tell(&says.exchanged_in, exchanged_in);
    tell(&says.exchanged_out, exchanged_out);
    tell(&says.exchanges, exchanges);
    for _ in 0..rng.below(64) {
        // A compare-and-store on the thread's VP, repeated until it succeeds.
        if words.raised.update(|old| Some(old + 1)).is_some() {
            tell(&says.raised, 1);
        }
    }
    for _ in 0..rng.below(64) {
        let n = rng.next();
        if rng.one_in(2) {
            words.stack.push(n);
            tell(&says.pushed, n);
            tell(&says.pushed_count, 1);
        } else if let Some(n) = words.stack.pop() {
            tell(&says.popped, n);
            tell(&says.popped_count, 1);
        }
    }
}

/// Moves the thread, or lets others run.
fn wander(says: &Told, home: &AllowedCpus, rng: &mut Rng) {
    match rng.below(8) {
        0 | 1 => thread::yield_now(),
        2 => thread::sleep(Duration::from_micros(rng.below(100))),
        _ => {
            tell(&says.moves, 1);
            if machine().is_virtual() { switch_vp(rng) } else { home.confine(None, rng) }
        }
    }
}

/// Moves threads during their bursts until the round is over.
fn move_others(tids: &Mutex<Vec<Pid>>, over: &AtomicBool, says: &Told, home: &AllowedCpus, mut rng: Rng) {
    while !over.load(Ordering::Relaxed) {
        let chosen = {
            let tids = lock(tids);
            (!tids.is_empty()).then(|| tids[rng.below(tids.len() as u64) as usize])
        };
        if let (Some(tid), false) = (chosen, machine().is_virtual()) {
            tell(&says.moves, 1);
            home.confine(Some(tid), &mut rng);
        }
        thread::sleep(Duration::from_micros(20 + rng.below(200)));
    }
}

/// Compares the content of the VPs with the accounts, after all threads of the round have ended.
fn compare(words: &mut Words, says: &Told) -> Result<(), Violation> {
    let same = |what: &str, held: u64, told: u64| {
        if held == told {
            return Ok(());
        }
        let off = held.wrapping_sub(told).cast_signed();
        Err(Violation(format!("{what}: the VPs hold {held}, but the threads report {told} (off by {off})")))
    };
    same("additions", words.added.sum(), told(&says.added))?;
    let exchanged = told(&says.exchanged_in).wrapping_sub(told(&says.exchanged_out));
    same("exchanges", words.exchanged.sum(), exchanged)?;
    same("compare-and-stores", words.raised.sum(), told(&says.raised))?;
    let left = words.stack.drain();
    // Drained values count as popped.
    tell(&says.popped_count, left.len() as u64);
    left.iter().for_each(|(_, n)| tell(&says.popped, *n));
    same("values pushed and popped", told(&says.popped_count), told(&says.pushed_count))?;
    same("sum of values pushed and popped", told(&says.popped), told(&says.pushed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_lost_or_doubled_is_a_violation() {
        let told_more: [fn(&Told) -> &AtomicU64; 5] =
            [|t| &t.added, |t| &t.exchanged_in, |t| &t.raised, |t| &t.pushed, |t| &t.pushed_count];
        for place in told_more {
            let says = Told::default();
            let mut words = Words::new();
            words.added.add(5);
            tell(&says.added, 5);
            words.stack.push(3);
            tell(&says.pushed, 3);
            tell(&says.pushed_count, 1);
            assert!(compare(&mut words, &says).is_ok());
            tell(place(&says), 1);
            assert!(compare(&mut words, &says).is_err_and(|Violation(why)| why.contains("off by -1")));
        }
    }
}
