//! Model tests of the shipped two-bit lock, and their twins with one weakened site.

use super::TwoBits;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::time::{Duration, Instant};

struct Shared {
    word: AtomicU8,
    values: [UnsafeCell<usize>; 2],
}

// SAFETY: the protocol under test keeps the threads apart, and the model checker verifies that.
unsafe impl Sync for Shared {}
// SAFETY: the protocol under test keeps the threads apart, and the model checker verifies that.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared { word: AtomicU8::new(0), values: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    /// Adds to the value under the lock at two bits of the word.
    fn add(&self, which: usize) {
        let _guard = TwoBits::<AtomicU8>::at(2 * which as u32).lock(&self.word);
        self.count(which);
    }

    fn count(&self, which: usize) {
        // SAFETY: the pointer is valid in the closure. The model checks that no other thread writes at the
        // same time.
        self.values[which].with_mut(|value| unsafe { *value += 1 });
    }

    fn total(&self, which: usize) -> usize {
        // SAFETY: the pointer is valid in the closure, and all other threads have ended.
        self.values[which].with(|value| unsafe { *value })
    }
}

/// Two threads contend for one lock. One of them also changes another bit without the lock.
fn contended() {
    let shared = Shared::new();
    let other = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.word.fetch_or(0x80, Ordering::Relaxed);
            shared.add(0);
        })
    };
    shared.add(0);
    other.join().unwrap();
    assert_eq!((shared.total(0), shared.word.load(Ordering::Relaxed)), (2, 0x80));
}

/// Three threads contend for two locks in one word.
fn neighbours() {
    let shared = Shared::new();
    let others: Vec<_> = [0, 1]
        .map(|which| {
            let shared = shared.clone();
            thread::spawn(move || shared.add(which))
        })
        .into();
    let first = TwoBits::<AtomicU8>::at(0).lock(&shared.word);
    let second = TwoBits::<AtomicU8>::at(2).lock(&shared.word);
    drop(second);
    shared.count(0);
    drop(first);
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!((shared.total(0), shared.total(1), shared.word.load(Ordering::Relaxed)), (2, 1, 0));
}

/// One thread sleeps, and another gives up as soon as other threads had a turn.
fn giving_up() {
    let shared = Shared::new();
    let leaver = {
        let shared = shared.clone();
        thread::spawn(move || {
            let far = Instant::now() + Duration::from_secs(3600);
            let guard = TwoBits::<AtomicU8>::low().try_lock_until(&shared.word, far);
            guard.map(|_guard| shared.count(0)).is_some()
        })
    };
    let sleeper = {
        let shared = shared.clone();
        thread::spawn(move || shared.add(0))
    };
    shared.add(0);
    sleeper.join().unwrap();
    let left = usize::from(leaver.join().unwrap());
    assert_eq!((shared.total(0), shared.word.load(Ordering::Relaxed)), (2 + left, 0));
}

/// The lock lies in a pointer that is replaced under the lock.
fn pointer() {
    const LOCK: TwoBits<AtomicPtr<u64>> = TwoBits::low();
    let word = Arc::new(AtomicPtr::new(std::ptr::without_provenance_mut::<u64>(64)));
    let move_on = |word: &AtomicPtr<u64>| {
        let guard = LOCK.lock(word);
        guard.set(guard.get().wrapping_byte_add(64));
    };
    let other = {
        let word = word.clone();
        thread::spawn(move || move_on(&word))
    };
    move_on(&word);
    other.join().unwrap();
    assert_eq!(word.load(Ordering::Relaxed).addr(), 192);
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { contended neighbours giving_up pointer }

#[cfg(loom)]
#[test]
fn twins() {
    use super::sites::*;
    for (site, model) in [
        (TAKE, "contended"),
        (RELEASE, "contended"),
        (WAKE, "contended"),
        (LOOK, "contended"),
        (PLACE, "neighbours"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("two_bit::model::{model}::holds"));
    }
}
