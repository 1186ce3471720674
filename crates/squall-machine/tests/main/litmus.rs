//! Two threads on two processors: a store-buffer litmus test of the asymmetric fence, and sequences in flight
//! that the kernel is asked to restart.
//!
//! A correct program passes under any schedule. A broken one fails soon, if there are two processors.

use squall_machine::asym::{self, Mode};
use squall_machine::pervp::{self, GatedWord, RestartMode};
use squall_machine::{machine, restartable};
use squall_sys::affinity::{allowed, restrict_to};
use squall_sys::membarrier::{self, Unavailable};
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use squall_sys::sync::hint::spin_loop;
use squall_sys::sync::{Mutex, MutexGuard, thread};
use std::mem::offset_of;

use crate::support::{roam, slowness};

/// Returns two processors for the two threads of a test, or the reason why it cannot run. One test at a time
/// uses them.
fn two_processors() -> Result<([usize; 2], MutexGuard<'static, ()>), &'static str> {
    static LOCK: Mutex<()> = Mutex::new(());
    if asym::CHECKED {
        return Err("the checker of this build has fences of its own");
    }
    if slowness() > 1 {
        return Err("an emulator runs this program");
    }
    let allowed = allowed().unwrap_or_default();
    let (Some(&first), Some(&second)) = (allowed.first(), allowed.get(1)) else {
        return Err("only one processor may be used");
    };
    Ok(([first, second], LOCK.lock().unwrap_or_else(|poison| poison.into_inner())))
}

/// Keeps the calling thread on a processor. If the kernel refuses, the test only finds less.
fn stay_on(processor: usize) {
    let _ = restrict_to(&[processor]);
}

/// A word that one thread of the litmus test writes, on cache lines of its own.
#[repr(align(256))]
struct Word(AtomicU64);

/// Stores the last round into `y` when it is dropped, so that the other thread ends even after a panic.
struct LastRound<'a>(&'a Word, usize);

impl Drop for LastRound<'_> {
    fn drop(&mut self) {
        self.0.0.store(self.1 as u64, Ordering::Relaxed);
    }
}

/// Runs the store-buffer test. One thread stores 1, 2, … to `x`, each time followed by a light fence and a
/// load of `y`. The other stores 1, 2, … to `y`, each time followed by `heavy` and a load of `x`. Returns how
/// often neither thread saw the other's store.
///
/// Suppose the second thread loads `b` after its store `j`. The first thread's store `b + 1` was then
/// invisible to it. By `asym/I1` its own store `j` is visible after the light fence that follows `b + 1`. So
/// the first thread sees `j` at its store `b + 1` at the latest.
fn missed(places: [usize; 2], rounds: usize, fenced: bool, heavy: impl Fn() + Sync) -> usize {
    /// Words beyond the caches.
    const COLD: usize = 1 << 22;
    let (x, y) = (Word(AtomicU64::new(0)), Word(AtomicU64::new(0)));
    let (seen_at, loaded) = thread::scope(|scope| {
        let light = scope.spawn(|| {
            stay_on(places[0]);
            let (mut seen_at, mut store, mut before) = (vec![0; rounds + 1], 0_usize, 0);
            let mut cold = vec![1; COLD];
            while before < rounds {
                store += 1;
                // A store to a line that is in no cache holds up the store to `x`, which a processor makes
                // later.
                cold[store.wrapping_mul(0x9e37_79b9) % COLD] = store;
                x.0.store(store as u64, Ordering::Relaxed);
                // Pairs with `heavy` of the other thread.
                asym::light_or_full(fenced);
                let seen = y.0.load(Ordering::Relaxed) as usize;
                if seen > before {
                    seen_at[before + 1..=seen].fill(store as u64);
                    before = seen;
                }
            }
            std::hint::black_box(cold);
            seen_at
        });
        let heavy = scope.spawn(|| {
            let _last = LastRound(&y, rounds);
            stay_on(places[1]);
            let in_round = |round| {
                // The first thread has gone on, and now lacks the line of `x`.
                for _ in 0..2 {
                    let (before, mut spins) = (x.0.load(Ordering::Relaxed), 0_u32);
                    while x.0.load(Ordering::Relaxed) == before {
                        spins += 1;
                        if spins.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
                    }
                }
                y.0.store(round, Ordering::Relaxed);
                heavy();
                x.0.load(Ordering::Relaxed)
            };
            (1..=rounds as u64).map(in_round).collect::<Vec<u64>>()
        });
        (light.join().expect("the light side"), heavy.join().expect("the heavy side"))
    });
    loaded.iter().zip(&seen_at[1..]).filter(|&(loaded, seen_at)| *seen_at > loaded + 1).count()
}

#[test]
fn a_heavy_fence_orders_the_light_fences_of_other_processors() {
    const ROUNDS: usize = 5_000;
    let (places, _alone) = match two_processors() {
        Ok(found) => found,
        Err(why) => return println!("SKIP: {why}"),
    };
    let fenced = asym::mode() != Mode::Membarrier;
    // A control without `membarrier`, to know whether this machine reorders at all.
    let reordered = missed(places, ROUNDS, false, || fence(Ordering::SeqCst));
    println!("without membarrier, {reordered} of {ROUNDS} rounds are reordered here");
    let missed = missed(places, ROUNDS, fenced, || asym::heavy().expect("membarrier worked before"));
    assert_eq!(missed, 0, "in {missed} of {ROUNDS} rounds neither side saw the other's store");
}

/// A word with a gate whose sequence waits inside until it is told to commit.
#[repr(C)]
struct Slow {
    count: AtomicU64,
    /// Entries of the sequence.
    entries: AtomicU64,
    go_on: AtomicU64,
    home: AtomicU32,
}

const HOME_AT: usize = offset_of!(Slow, home);
const _: () = assert!(offset_of!(Slow, entries) == 8 && offset_of!(Slow, go_on) == 16);

impl Slow {
    fn new(processor: usize) -> Slow {
        let zero = || AtomicU64::new(0);
        Slow { count: zero(), entries: zero(), go_on: zero(), home: AtomicU32::new(processor as u32) }
    }

    /// Adds one at the gate once `go_on` is set. Returns whether it did.
    #[allow(unused_assignments, reason = "a build without sequences evaluates only the fallback")]
    fn add(&self) -> bool {
        let mut here = true;
        // SAFETY: of `restartable!`: 1. the last store commits. The store to `entries` counts restarts, too.
        // 2. Only `{tmp}` changes. 3. No address is formed with `{part}`. 4. As for 5: one thread runs the
        // sequence; `two_in_sequences` has asked for the mode. 5. `home` is HOME_AT bytes behind `count`, and
        // holds the index of a VP or `i32::MAX`.
        unsafe {
            restartable! {
                gate: [std::ptr::from_ref(self).cast::<u64>().cast_mut(), HOME_AT],
                in: [],
                x86_64: [
                    "add qword ptr [{gate} + 8], 1",
                    "41:",
                    "cmp qword ptr [{gate} + 16], 0",
                    "je 41b",
                    "add qword ptr [{gate}], 1",
                ],
                aarch64: [
                    "ldr {tmp}, [{gate}, #8]",
                    "add {tmp}, {tmp}, #1",
                    "str {tmp}, [{gate}, #8]",
                    "41:",
                    "ldr {tmp}, [{gate}, #16]",
                    "cbz {tmp}, 41b",
                    "ldr {tmp}, [{gate}]",
                    "add {tmp}, {tmp}, #1",
                    "str {tmp}, [{gate}]",
                ],
                fallback: here = false,
            }
        }
        here
    }
}

/// Returns two processors, if the kernel restarts the sequences of this process on request.
fn two_in_sequences() -> Result<([usize; 2], MutexGuard<'static, ()>), &'static str> {
    let found = two_processors()?;
    if pervp::restart_mode() != RestartMode::Restartable || machine().is_virtual() {
        return Err("no restartable sequences here");
    }
    membarrier::restart_all().map_err(|_| "the kernel does not restart sequences on request")?;
    Ok(found)
}

/// Runs rounds until a sequence passes a closed gate, and returns whether one did. In each round a thread on
/// the first processor is inside a sequence. This thread closes the gate, calls `restart`, and lets the
/// sequence go on. It commits if it was not restarted.
fn passes_closed(places: [usize; 2], rounds: usize, restart: impl Fn() -> Result<(), Unavailable>) -> bool {
    let passed = (0..rounds).any(|_| {
        let slow = Slow::new(places[0]);
        let committed = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                stay_on(places[0]);
                slow.add()
            });
            stay_on(places[1]);
            // Ends, too, if the thread was not let onto its processor.
            while slow.entries.load(Ordering::Relaxed) == 0 && !inside.is_finished() {
                thread::yield_now();
            }
            slow.home.store(i32::MAX as u32, Ordering::Relaxed);
            // Orders the store before the request, as in `GatedWord::finish_closing`.
            fence(Ordering::SeqCst);
            let restarted = restart();
            slow.go_on.store(1, Ordering::Relaxed);
            restarted.expect("the kernel did it before");
            inside.join().expect("it does not panic")
        });
        assert_eq!(slow.count.load(Ordering::Relaxed), u64::from(committed));
        committed
    });
    roam();
    passed
}

#[test]
fn closing_a_gate_restarts_the_sequence_inside() {
    let (places, _alone) = match two_in_sequences() {
        Ok(found) => found,
        Err(why) => return println!("SKIP: {why}"),
    };
    assert!(!passes_closed(places, 50, GatedWord::finish_closing), "a sequence passed a closed gate");
}

#[test]
fn restart_on_restarts_the_sequences_of_one_processor() {
    let (places, _alone) = match two_in_sequences() {
        Ok(found) => found,
        Err(why) => return println!("SKIP: {why}"),
    };
    let restart_on = |place| move || membarrier::restart_on(place);
    assert!(!passes_closed(places, 50, restart_on(places[0])), "a sequence was not restarted");
    // The kernel also restarts a sequence when it preempts the thread. So one of many rounds must be left
    // alone.
    assert!(
        passes_closed(places, 10_000, restart_on(places[1])),
        "every request for one processor restarted the sequence on another"
    );
}
