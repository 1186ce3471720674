//! Events of each lock type, from slow paths that a count shows to be taken. The trace is process-wide, so
//! the tests take turns, and each keeps only events of its own locks.

#[cfg(debug_assertions)]
use crate::DistributedRwLock;
use crate::lock::Lock;
use crate::steps::Steps;
use crate::two_bit::TwoBits;
use crate::{BiasedLock, ReadBiasedRwLock, VpLock};
use squall_machine::Vp;
use squall_sys::trace::{Kind, Subject, emit, install, switch};
use squall_sys::waits::sleeps;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
#[cfg(debug_assertions)]
use std::time::Duration;

type Event = (&'static str, &'static str, u64);

static SEEN: Mutex<Vec<(Subject, Event)>> = Mutex::new(Vec::new());

fn sink(kind: &'static Kind, subject: Subject, [lock, ns]: [u64; 2]) {
    let event = (kind.name(), kind.code_name(0, lock).unwrap_or("?"), ns);
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).push((subject, event));
}

/// A turn with the trace on.
struct Traced(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Traced {
    fn on() -> Traced {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(install(sink));
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).clear();
        switch(true);
        Traced(turn)
    }

    /// Takes the names and types of the events of this subject.
    fn take<T: ?Sized>(&self, subject: &T) -> Vec<(&'static str, &'static str)> {
        let subject = Subject::at(subject);
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (ours, others) = std::mem::take(&mut *seen).into_iter().partition(|(of, _)| *of == subject);
        *seen = others;
        ours.into_iter().map(|(_, (kind, lock, _))| (kind, lock)).collect()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        switch(false);
    }
}

fn count(events: &[(&str, &str)], kind: &str, lock: &str) -> usize {
    events.iter().filter(|event| **event == (kind, lock)).count()
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

/// Steps that count. A plain lock and a two-bit lock make a first step when a thread is about to sleep.
struct Counting;

static STEPS: AtomicU32 = AtomicU32::new(0);

impl Steps for Counting {
    fn step() {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `wait` on a thread while `held` exists, and drops `held` once `waits` returns true. Returns how often
/// the thread slept; 0 in builds without debug assertions.
fn contend<G>(held: G, waits: impl Fn() -> bool, wait: impl FnOnce() + Send) -> usize {
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = sleeps();
            wait();
            (sleeps() - before) as usize
        });
        until(waits);
        drop(held);
        waiter.join().expect("it does not panic")
    })
}

/// Checks one wait that ended with the lock, after this number of sleeps.
fn is_one_wait(events: &[(&str, &str)], lock: &str, slept: usize) {
    assert_eq!(count(events, "lock.wait", lock), 1, "{events:?}");
    let sleeps = count(events, "lock.sleep", lock);
    assert!(sleeps == slept || !cfg!(debug_assertions), "{events:?}, but {slept} sleeps");
    assert_eq!(events.len(), 1 + sleeps, "{events:?}");
}

#[test]
fn kt_18_a_contended_acquisition_is_one_wait() {
    let traced = Traced::on();
    let begun = || STEPS.load(Ordering::Relaxed) > 0;
    let lock: Lock<(), Counting> = Lock::with_steps(());
    STEPS.store(0, Ordering::Relaxed);
    let slept = contend(lock.lock(), begun, || drop(lock.lock()));
    is_one_wait(&traced.take(&lock), "plain", slept);

    let bits: TwoBits<AtomicU8, Counting> = TwoBits::with_steps(0);
    let word = AtomicU8::new(0);
    let held = bits.lock(&word);
    STEPS.store(0, Ordering::Relaxed);
    let slept = contend(held, begun, || drop(bits.lock(&word)));
    is_one_wait(&traced.take(&word), "two-bit", slept);
    drop((lock.lock(), bits.lock(&word)));
    assert!(traced.take(&lock).is_empty() && traced.take(&word).is_empty(), "free locks emit nothing");
}

#[cfg(feature = "adaptive-lock")]
#[test]
fn kt_18_a_configurable_lock_tells_of_its_waits() {
    use crate::{ConfigurableLock, Request, Scheduling};
    let traced = Traced::on();
    for scheduling in [Scheduling::FREE_FOR_ALL, Scheduling::HAND_OFF] {
        let lock = ConfigurableLock::new(());
        lock.set_scheduling(scheduling);
        let waits = || lock.monitor().waiters == 1;
        let slept = contend(lock.lock(), waits, || drop(lock.lock()));
        is_one_wait(&traced.take(&lock), "configurable", slept);
        let held = lock.lock();
        let late = Request::new().deadline(std::time::Instant::now());
        assert!(lock.lock_with(&late).is_err() && lock.try_lock().is_none());
        drop(held);
        assert_eq!(traced.take(&lock), [("lock.give_up", "configurable")], "an attempt does not wait");
    }
}

/// Tries to take a held lock until the thread slept for it. Returns the number of its sleeps.
#[cfg(debug_assertions)]
fn gives_up(try_for: impl Fn(Duration) -> bool + Send + Sync) -> usize {
    let mut limit = Duration::from_millis(1);
    loop {
        // A thread that is delayed may reach the limit before it sleeps.
        let slept = contend((), || true, || assert!(!try_for(limit), "the lock is held"));
        if slept > 0 {
            return slept;
        }
        limit *= 2;
        assert!(limit < Duration::from_secs(8), "no sleep was counted");
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_wait_that_ends_without_the_lock_gives_up_after_its_sleeps() {
    let traced = Traced::on();
    let check = |events: Vec<(&str, &str)>, lock, slept| {
        assert_eq!(count(&events, "lock.sleep", lock), slept, "{events:?}");
        assert!(count(&events, "lock.give_up", lock) >= 1, "{events:?}");
        assert!(events.iter().all(|(kind, of)| *of == lock && *kind != "lock.wait"), "{events:?}");
    };
    let lock = Lock::new(());
    let held = lock.lock();
    let slept = gives_up(|limit| lock.try_lock_for(limit).is_some());
    drop(held);
    check(traced.take(&lock), "plain", slept);

    let lock = DistributedRwLock::new(());
    let held = lock.write();
    let slept = gives_up(|limit| lock.try_read_for(limit).is_some());
    assert!(lock.try_read().is_none());
    drop(held);
    check(traced.take(&lock), "rw-read", slept);
    let held = lock.read();
    let slept = gives_up(|limit| lock.try_write_for(limit).is_some());
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_write().is_none()));
    });
    drop(held);
    check(traced.take(&lock), "rw-write", slept);
}

#[cfg(debug_assertions)]
#[test]
fn a_reader_and_a_writer_that_slept_have_waited() {
    let traced = Traced::on();
    let lock: DistributedRwLock<(), Counting> = DistributedRwLock::with_steps(());
    let check = |name, slept| {
        let events = traced.take(&lock);
        let waits = usize::from(slept > 0);
        assert_eq!(count(&events, "lock.wait", name), waits, "{slept} sleeps, {events:?}");
        assert_eq!(count(&events, "lock.sleep", name), slept, "{events:?}");
        assert_eq!(events.len(), waits + slept, "{events:?}");
    };
    let held = lock.write();
    STEPS.store(0, Ordering::Relaxed);
    check("rw-read", contend(held, || STEPS.load(Ordering::Relaxed) > 3, || drop(lock.read())));
    let held = lock.read();
    let waits = || lock.has_writer();
    check("rw-write", contend(held, waits, || drop(lock.write())));
    let held = lock.write();
    STEPS.store(0, Ordering::Relaxed);
    let slept = contend(held, || STEPS.load(Ordering::Relaxed) > 0, || drop(lock.write()));
    is_one_wait(&traced.take(&lock), "rw-turn", slept);
}

/// Makes the calling thread the owner of the lock. Returns `false` where locks have no owners.
fn own(lock: &BiasedLock<u32>) -> bool {
    (0..8).for_each(|_| *lock.lock() += 1);
    lock.is_mine()
}

#[test]
fn kt_18_an_ownership_that_ends_is_revoked_once() {
    let traced = Traced::on();
    let lock = BiasedLock::new(0);
    if !own(&lock) {
        return;
    }
    assert!(traced.take(&lock).is_empty(), "becoming an owner takes nothing away");
    thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| *lock.lock() += 1));
    });
    assert_eq!(traced.take(&lock), [("lock.revoke", "biased")]);

    // An attempt that fails has taken the ownership away, and no lock.
    let lock = BiasedLock::new(0);
    assert!(own(&lock));
    let guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock().is_none() && lock.try_lock().is_none()));
    });
    assert_eq!(traced.take(&lock), [("lock.revoke", "biased")]);
    // Another thread waits for the former owner, unless that one leaves first.
    contend(guard, || lock.common.is_locked(), || *lock.lock() += 1);
    let events = traced.take(&lock);
    assert!(events.len() <= 1 && events.len() == count(&events, "lock.wait", "biased-owner"), "{events:?}");
}

#[test]
fn a_read_bias_that_ends_is_revoked_once() {
    let traced = Traced::on();
    let lock = ReadBiasedRwLock::new(0);
    *lock.write() += 1;
    while !lock.is_biased() {
        drop(lock.read());
    }
    assert!(traced.take(&lock).is_empty(), "an unbiased lock has no bias to lose");
    for _ in 0..3 {
        *lock.write() += 1;
    }
    assert_eq!(traced.take(&lock), [("lock.revoke", "rw-write")]);
}

#[test]
fn a_gate_that_closes_is_revoked_once() {
    let traced = Traced::on();
    let allowed = squall_sys::affinity::allowed().unwrap_or_default();
    thread::scope(|scope| {
        scope.spawn(|| {
            if allowed.first().is_none_or(|&first| squall_sys::affinity::restrict_to(&[first]).is_err()) {
                return;
            }
            let lock = VpLock::new(Vp::current(), 0);
            (0..8).for_each(|_| *lock.lock() += 1);
            assert!(traced.take(&lock).is_empty());
            if lock.is_open() {
                *lock.lock_commonly() += 1;
                assert_eq!(traced.take(&lock), [("lock.revoke", "vp")]);
                *lock.lock_commonly() += 1;
                assert!(traced.take(&lock).is_empty(), "the gate was closed");
            }
        });
    });
}

#[test]
fn nothing_is_emitted_while_the_trace_is_off() {
    let traced = Traced::on();
    switch(false);
    let lock: Lock<(), Counting> = Lock::with_steps(());
    STEPS.store(0, Ordering::Relaxed);
    let held = lock.lock();
    contend(held, || STEPS.load(Ordering::Relaxed) > 0, || drop(lock.lock()));
    let owned = BiasedLock::new(0);
    own(&owned);
    thread::scope(|scope| {
        scope.spawn(|| *owned.lock() += 1);
    });
    // A wait that began before the switch stays without an event.
    let held = lock.lock();
    STEPS.store(0, Ordering::Relaxed);
    contend(
        held,
        || {
            let begun = STEPS.load(Ordering::Relaxed) > 0;
            switch(begun);
            begun
        },
        || drop(lock.lock()),
    );
    let events = traced.take(&lock);
    assert_eq!(count(&events, "lock.wait", "plain"), 0, "{events:?}");
    assert!(traced.take(&owned).is_empty());
    emit(&super::WAIT, Subject::at(&owned), [2, 5]);
    assert_eq!(traced.take(&owned), [("lock.wait", "biased")], "it is on now");
}
