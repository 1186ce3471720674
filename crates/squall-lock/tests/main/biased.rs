//! Tests of the biased lock with threads that come and go.

use squall_lock::BiasedLock;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The number of locks tried one after the other. Each lock has a limited number of owners.
const LOCKS: u64 = if cfg!(miri) { 2 } else { 300 };
/// The number of turns that each thread takes with one lock.
const TURNS: u64 = if cfg!(miri) { 5 } else { 30 };
const IN_A_ROW: u64 = if cfg!(miri) { 1 } else { 4 };

/// Two numbers that are equal unless two threads are inside at once.
#[derive(Default)]
pub(crate) struct Twice(pub(crate) u64, pub(crate) u64);

impl Twice {
    pub(crate) fn add(&mut self) {
        assert_eq!(self.0, self.1, "two threads were inside");
        self.0 += 1;
        std::hint::black_box(&mut *self);
        self.1 += 1;
    }
}

#[test]
fn one_is_inside_at_a_time_while_owners_come_and_go() {
    for lock in 0..LOCKS {
        let shared = BiasedLock::new(Twice::default());
        let start = Barrier::new(3);
        let turns = |who: u64| {
            // Long runs of takings by one thread, so that it becomes the owner, at different times for each
            // thread.
            let (mut number, mut added) = (lock * 3 + who, 0);
            start.wait();
            for _ in 0..TURNS {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let times = (number >> 59) * IN_A_ROW;
                (0..times).for_each(|_| shared.lock().add());
                added += times;
                if number >> 40 & 3 == 0 {
                    thread::yield_now();
                }
                if let Some(mut twice) = shared.try_lock() {
                    twice.add();
                    added += 1;
                }
            }
            added
        };
        let added: u64 = thread::scope(|threads| {
            let turns = &turns;
            let all = [0, 1, 2].map(|who| threads.spawn(move || turns(who)));
            all.map(|thread| thread.join().unwrap()).iter().sum()
        });
        let twice = shared.into_inner();
        assert_eq!((twice.0, twice.1), (added, added));
    }
}

#[test]
fn the_lock_of_an_ended_owner_can_be_taken() {
    let shared = BiasedLock::new(0_u32);
    // A later thread may have the number of an earlier one.
    let threads = if cfg!(miri) { 2 } else { 50 };
    for _ in 0..threads {
        thread::scope(|scope| drop(scope.spawn(|| (0..40).for_each(|_| *shared.lock() += 1))));
    }
    assert_eq!(shared.into_inner(), threads * 40);
}

#[test]
fn another_thread_waits_for_the_owner_to_leave() {
    let shared = BiasedLock::new(0_u32);
    let done = AtomicBool::new(false);
    (0..100).for_each(|_| *shared.lock() += 1);
    let mut guard = shared.lock();
    thread::scope(|threads| {
        let other = threads.spawn(|| {
            assert!(*shared.lock() == 200, "the owner was still inside");
            done.store(true, Ordering::Relaxed);
        });
        // Gives the other thread time to come. A correct lock also passes if that thread comes later.
        for _ in 0..100 {
            *guard += 1;
            thread::yield_now();
        }
        assert!(!done.load(Ordering::Relaxed));
        drop(guard);
        other.join().unwrap();
    });
}

#[test]
fn a_failed_try_lock_lets_no_thread_in_beside_the_owner() {
    let shared = BiasedLock::new(0_u32);
    (0..100).for_each(|_| *shared.lock() += 1);
    let guard = shared.lock();
    for _ in 0..3 {
        thread::scope(|threads| {
            threads.spawn(|| assert!(shared.try_lock().is_none(), "the owner is inside"));
        });
        assert!(shared.try_lock().is_none(), "this thread is inside");
    }
    drop(guard);
    assert!(shared.try_lock().is_some());
}
