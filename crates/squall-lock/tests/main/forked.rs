//! Locks in the child of a fork, where another thread of the parent holds them for ever.

#[path = "../../../squall-rcu/tests/forked/mod.rs"]
mod child;
#[path = "../../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use child::{End, in_child_ending};
use squall_lock::{BiasedLock, DistributedRwLock, Lock, LockedPtr, ReadBiasedRwLock, TwoBits};
use squall_lock::{Cancel, ConfigurableLock, LockError, Request, Scheduling};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const BITS: TwoBits<AtomicU32> = TwoBits::low();
const LONG: Duration = Duration::from_secs(600);

/// One lock of each kind.
struct Locks {
    plain: Lock<u32>,
    biased: BiasedLock<u32>,
    word: AtomicU32,
    pointer: LockedPtr<u32>,
    configurable: ConfigurableLock<u32>,
    registered: ConfigurableLock<u32>,
    read: DistributedRwLock<u32>,
    written: DistributedRwLock<u32>,
    latch_read: ReadBiasedRwLock<u32>,
    latch_written: ReadBiasedRwLock<u32>,
}

impl Locks {
    fn new() -> Locks {
        let registered = ConfigurableLock::new(1);
        registered.set_scheduling(Scheduling::HAND_OFF);
        Locks {
            plain: Lock::new(1),
            biased: BiasedLock::new(1),
            word: AtomicU32::new(0),
            pointer: LockedPtr::new(std::ptr::null_mut()),
            configurable: ConfigurableLock::new(1),
            registered,
            read: DistributedRwLock::new(1),
            written: DistributedRwLock::new(1),
            latch_read: ReadBiasedRwLock::new(1),
            latch_written: ReadBiasedRwLock::new(1),
        }
    }

    /// Locks each. Returns the guards.
    fn hold(&self) -> impl Sized {
        // Makes this thread the owner.
        (0..100).for_each(|_| *self.biased.lock() += 1);
        (
            (self.plain.lock(), self.biased.lock(), BITS.lock(&self.word), self.pointer.lock()),
            (self.configurable.lock(), self.registered.lock()),
            (self.read.read(), self.written.write()),
            (self.latch_read.read(), self.latch_written.write()),
        )
    }
}

/// Returns whether `f` panics with the message for a forked child.
fn is_refused<R>(f: impl FnOnce() -> R) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => false,
        Err(payload) => {
            let message = payload.downcast_ref::<&str>().copied();
            message
                .or(payload.downcast_ref::<String>().map(String::as_str))
                .is_some_and(|message| message.contains("child of a fork"))
        }
    }
}

/// Tries the locks that the other thread holds.
fn all_are_refused(locks: &Locks) -> bool {
    is_refused(|| locks.plain.lock())
        && is_refused(|| locks.biased.lock())
        && is_refused(|| BITS.lock(&locks.word))
        && is_refused(|| locks.pointer.lock())
        && is_refused(|| locks.configurable.lock())
        && is_refused(|| locks.registered.lock())
        && is_refused(|| locks.read.write())
        && is_refused(|| locks.written.read())
        && is_refused(|| locks.written.write())
        && is_refused(|| locks.latch_read.write())
        && is_refused(|| locks.latch_written.read())
        && is_refused(|| locks.latch_written.write())
        && locks.plain.try_lock_for(LONG).is_none()
        && BITS.try_lock_for(&locks.word, LONG).is_none()
        && locks.configurable.try_lock_for(LONG).is_none()
        && locks.registered.lock_with(&Request::new()).is_err_and(|why| why == LockError::Forked)
        && locks.read.try_write_for(LONG).is_none()
        && locks.written.try_read_for(LONG).is_none()
        && locks.written.try_write_for(LONG).is_none()
        && locks.latch_read.try_write_for(LONG).is_none()
        && locks.latch_written.try_read_for(LONG).is_none()
        && *locks.latch_read.read() == 1
        && *locks.read.read() == 1
}

/// Takes the locks that were free at the fork.
fn all_are_free(locks: &Locks) -> bool {
    *locks.plain.lock() == 1
        && *locks.biased.lock() == 1
        && *locks.configurable.lock() == 1
        && *locks.registered.lock() == 1
        && *locks.written.write() == 1
        && *locks.latch_written.write() == 1
}

#[test]
fn a_wait_for_a_lock_of_a_thread_that_does_not_exist_in_a_child_is_refused() {
    const NAME: &str = "forked::a_wait_for_a_lock_of_a_thread_that_does_not_exist_in_a_child_is_refused";
    const CHILD: &str = "SQUALL_TEST_CHILD";
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        eprintln!("SKIP {NAME}: the emulator ignores wipe-on-fork");
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        let output =
            this_program::this_program().args(["--exact", NAME, "--nocapture"]).env(CHILD, "1").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    squall_sys::fork::arm();
    // A report of each panic, with a backtrace, would take most of the time.
    std::panic::set_hook(Box::new(|_| ()));
    let locks = &Locks::new();
    let (held, is_held) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let stop = &AtomicBool::new(false);
    let contended = &Lock::new(0);
    let ended = thread::scope(|scope| {
        scope.spawn(move || {
            let _guards = locks.hold();
            held.send(()).unwrap();
            may_go.recv().unwrap();
        });
        is_held.recv().unwrap();
        // These threads keep the table of sleepers, and the list of waiting threads of debug builds, busy.
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    *contended.lock() += 1;
                }
            });
        }
        let ended = (0..100).all(|round| {
            let end = if round % 2 == 0 { End::Orderly } else { End::AtOnce };
            // Held by this thread, and so free for the child to release.
            let own = (Locks::new(), Lock::new(3));
            let mut guard = Some(own.1.lock());
            let result = in_child_ending(end, || {
                drop(guard.take());
                all_are_refused(locks) && all_are_free(&own.0) && *own.1.lock() == 3 && {
                    Cancel::new().cancel();
                    locks.registered.set_scheduling(Scheduling::HAND_OFF);
                    // Fails if it is held at the fork.
                    contended.try_lock_for(LONG).is_none_or(|count| *count < u32::MAX)
                }
            });
            drop(guard);
            result
        });
        stop.store(true, Ordering::Relaxed);
        go.send(()).unwrap();
        ended
    });
    drop(std::panic::take_hook());
    assert!(ended);
    // The parent's locks are as before.
    assert_eq!((*locks.plain.lock(), *locks.biased.lock(), *locks.read.write()), (1, 101, 1));
    assert_eq!((*locks.configurable.lock(), *locks.registered.lock(), *locks.written.read()), (1, 1, 1));
}
