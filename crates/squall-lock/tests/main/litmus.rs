//! Two threads on two processors at a biased lock: its owner marks itself inside by a plain store, while the
//! other thread takes the lock away.
//!
//! A correct lock passes under any schedule. One without the heavy fence fails soon, if there are two
//! processors. The test of the fence itself is in squall-machine, with a control.

use squall_lock::BiasedLock;
use squall_machine::asym::{self, Mode};
use squall_sys::affinity::{allowed, restrict_to};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// Counts the threads inside, and those that met another one.
#[derive(Default)]
struct Inside {
    now: AtomicU32,
    met: AtomicU32,
}

impl Inside {
    /// Is inside for a while. `lock` is held.
    fn stay(&self) {
        self.met.fetch_add(self.now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        (0..50).for_each(|_| spin_loop());
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until the condition holds.
fn until(holds: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while !holds() {
        spins += 1;
        if spins.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
    }
}

#[test]
fn a_lock_is_taken_from_an_owner_on_another_processor() {
    /// Each lock is taken from its first owner, which takes no long run of acquisitions.
    const LOCKS: usize = 1_000;
    /// Words beyond the caches.
    const COLD: usize = 1 << 22;
    let allowed = allowed().unwrap_or_default();
    let (Some(&first), Some(&second)) = (allowed.first(), allowed.get(1)) else {
        return println!("SKIP: only one processor may be used");
    };
    if asym::mode() != Mode::Membarrier || std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        return println!("SKIP: without membarrier no lock has an owner");
    }
    let locks: Vec<BiasedLock<()>> = (0..LOCKS).map(|_| BiasedLock::new(())).collect();
    let inside = Inside::default();
    // The number of locks that have got an owner, and that were taken from it.
    let (owned, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = restrict_to(&[first]);
            let (mut cold, mut store) = (vec![1; COLD], 0_usize);
            for (number, lock) in locks.iter().enumerate() {
                while taken.load(Ordering::Relaxed) <= number {
                    store += 1;
                    // A store to a line that is in no cache holds up the mark, a later store.
                    cold[store.wrapping_mul(0x9e37_79b9) % COLD] = store;
                    let guard = lock.lock();
                    inside.stay();
                    drop(guard);
                    if lock.is_mine() {
                        owned.store(number + 1, Ordering::Relaxed);
                    }
                }
            }
            std::hint::black_box(cold);
        });
        let _ = restrict_to(&[second]);
        for (number, lock) in locks.iter().enumerate() {
            until(|| owned.load(Ordering::Relaxed) > number);
            (0..number % 64).for_each(|_| spin_loop());
            let guard = lock.lock();
            inside.stay();
            drop(guard);
            taken.store(number + 1, Ordering::Relaxed);
        }
    });
    let _ = restrict_to(&allowed);
    let met = inside.met.into_inner();
    assert_eq!(met, 0, "with {LOCKS} locks, {met} times two threads were inside at once");
}
