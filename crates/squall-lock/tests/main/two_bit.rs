//! Tests of the two-bit lock through its public interface. The models in `src/two_bit/model.rs` check the
//! protocol.

use squall_lock::{LockedPtr, TwoBits, Word};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// Four threads add to a plain pair of counters under the lock at `shift` of `word`.
fn one_at_a_time<A: Word + Sync>(word: &A, shift: u32) {
    let lock = TwoBits::<A>::at(shift);
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    let _guard = lock.lock(word);
                    let [first, second] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                    assert_eq!(first, second);
                    counts[0].store(first + 1, Ordering::Relaxed);
                    std::hint::spin_loop();
                    counts[1].store(second + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(counts.map(AtomicUsize::into_inner), [4 * ROUNDS; 2]);
    assert!(!lock.is_locked(word));
}

#[test]
fn to_10_in_any_word_at_any_place_it_costs_no_memory() {
    one_at_a_time(&AtomicU8::new(0), 6);
    one_at_a_time(&AtomicU16::new(0), 3);
    one_at_a_time(&AtomicU32::new(0), 0);
    one_at_a_time(&AtomicU64::new(0), 62);
    one_at_a_time(&AtomicUsize::new(0), 1);
    one_at_a_time(&AtomicPtr::<u64>::new(std::ptr::null_mut()), 0);
}

#[test]
fn to_10_the_other_bits_are_the_users() {
    const LOCK: TwoBits<AtomicU32> = TwoBits::at(4);
    let word = AtomicU32::new(0xf00f);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        // This thread changes other bits without the lock, all the time.
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                word.fetch_xor(0x8000_0000, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let lockers = [0, 1].map(|_| threads.spawn(|| (0..ROUNDS).for_each(|_| drop(LOCK.lock(&word)))));
        let ended = lockers.map(|locker| locker.join());
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|locker| locker.unwrap());
    });
    assert_eq!(word.into_inner() & 0x7fff_ffff, 0xf00f);
}

#[test]
fn to_10_the_holder_changes_the_word_through_the_guard() {
    const LOCK: TwoBits<AtomicU64> = TwoBits::low();
    let word = AtomicU64::new(0);
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = LOCK.lock(&word);
                    guard.set(guard.get() + 4);
                }
            });
        }
    });
    assert_eq!(word.into_inner(), 16 * ROUNDS as u64);
}

#[test]
fn try_lock_fails_while_the_lock_is_held() {
    const LOCK: TwoBits<AtomicUsize> = TwoBits::low();
    let word = AtomicUsize::new(0);
    let guard = LOCK.lock(&word);
    assert!(LOCK.try_lock(&word).is_none());
    assert!(LOCK.try_lock_for(&word, Duration::from_millis(1)).is_none());
    assert!(LOCK.try_lock_until(&word, Instant::now()).is_none());
    // The failed attempts did not release it.
    assert!(LOCK.is_locked(&word) && std::ptr::eq(guard.word(), &word));
    drop(guard);
    assert!(LOCK.try_lock_until(&word, Instant::now() - Duration::from_secs(1)).is_some());
    drop(LOCK.lock(&word));
    assert_eq!(word.into_inner(), 0, "without waiters the waiting bit is clear");
}

#[test]
fn two_locks_in_one_word_wake_their_own() {
    let word = AtomicU8::new(0);
    let locks = [TwoBits::<AtomicU8>::at(0), TwoBits::at(2), TwoBits::at(4), TwoBits::at(6)];
    let total = AtomicUsize::new(0);
    thread::scope(|threads| {
        for which in 0..8 {
            let (word, lock, total) = (&word, locks[which % 4], &total);
            threads.spawn(move || {
                for round in 0..ROUNDS / 20 {
                    let _guard = lock.lock(word);
                    total.fetch_add(1, Ordering::Relaxed);
                    if round % 4 == 0 {
                        thread::sleep(Duration::from_micros(10));
                    }
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 8 * (ROUNDS / 20));
    assert!(locks.iter().all(|lock| !lock.is_locked(&word)));
}

#[test]
fn a_panic_releases_it() {
    const LOCK: TwoBits<AtomicUsize> = TwoBits::low();
    static WORD: AtomicUsize = AtomicUsize::new(0);
    let panicked = thread::spawn(|| {
        let _guard = LOCK.lock(&WORD);
        panic!("with the lock held");
    });
    assert!(panicked.join().is_err());
    assert!(!LOCK.is_locked(&WORD));
}

#[test]
fn a_pointer_with_its_lock() {
    let mut numbers = [1u32, 2];
    let pointer = LockedPtr::new(&raw mut numbers[0]);
    let guard = pointer.lock();
    assert!(pointer.try_lock().is_none());
    assert_eq!(pointer.load(), &raw mut numbers[0]);
    assert!(format!("{pointer:?}").ends_with("<locked>"));
    guard.set(&raw mut numbers[1]);
    assert_eq!(guard.get(), &raw mut numbers[1]);
    assert_eq!(format!("{guard:?}"), format!("{:?}", &raw mut numbers[1]));
    drop(guard);
    assert!(!pointer.is_locked());
    assert_eq!(pointer.load(), &raw mut numbers[1]);
}

#[test]
#[should_panic(expected = "not aligned")]
fn an_unaligned_pointer_is_rejected() {
    let pointer = LockedPtr::<u32>::new(std::ptr::null_mut());
    pointer.lock().set(std::ptr::without_provenance_mut(6));
}

/// Overwrites the whole word while it is locked and a thread sleeps. The release must keep the written value
/// and wake the sleeper.
///
/// A thread that announced its sleep but does not sleep yet finds the lock free and takes it. Then its own
/// release may find the word unlocked, if the first release was quicker. Exactly one of the two releases
/// does.
fn overwritten<A: Word + Sync>(
    word: &A,
    shift: u32,
    store: fn(&A),
    is_whole: fn(&A) -> bool,
    is_announced: fn(&A) -> bool,
) {
    let lock = TwoBits::<A>::at(shift);
    thread::scope(|threads| {
        let guard = lock.lock(word);
        let waiter = threads.spawn(move || {
            let guard = lock.lock(word);
            catch_unwind(AssertUnwindSafe(|| drop(guard)))
        });
        while !is_announced(word) {
            thread::yield_now();
        }
        store(guard.word());
        let released = catch_unwind(AssertUnwindSafe(|| drop(guard)));
        let released_later = waiter.join().expect("the waiter takes the lock");
        // Debug builds panic.
        assert_eq!(released.is_err() != released_later.is_err(), cfg!(debug_assertions));
    });
    assert!(is_whole(word) && !lock.is_locked(word));
}

#[test]
fn an_overwritten_word_keeps_its_value_and_wakes_sleepers() {
    let stored = |word: &AtomicU32| word.store(0x1000, Ordering::Relaxed);
    let whole = |word: &AtomicU32| word.load(Ordering::Relaxed) == 0x1000;
    let waits = |word: &AtomicU32| word.load(Ordering::Relaxed) & 2 != 0;
    overwritten(&AtomicU32::new(0), 0, stored, whole, waits);
    // The lock is at the end of the word, and the store leaves the bit of the waiter set.
    let stored = |word: &AtomicU8| word.store(0x85, Ordering::Relaxed);
    let whole = |word: &AtomicU8| word.load(Ordering::Relaxed) == 5;
    let waits = |word: &AtomicU8| word.load(Ordering::Relaxed) & 0x80 != 0;
    overwritten(&AtomicU8::new(1), 6, stored, whole, waits);
    // The store clears the bit of the waiter.
    let stored = |word: &AtomicU8| word.store(5, Ordering::Relaxed);
    overwritten(&AtomicU8::new(1), 6, stored, whole, waits);
    let stored = |word: &AtomicPtr<u64>| word.store(std::ptr::without_provenance_mut(64), Ordering::Relaxed);
    let whole = |word: &AtomicPtr<u64>| word.load(Ordering::Relaxed).addr() == 64;
    let waits = |word: &AtomicPtr<u64>| word.load(Ordering::Relaxed).addr() & 2 != 0;
    overwritten(&AtomicPtr::new(std::ptr::null_mut()), 0, stored, whole, waits);
}

#[test]
#[should_panic(expected = "are not inside the word")]
fn missing_bits_are_rejected() {
    let _ = TwoBits::<AtomicU8>::at(7);
}
