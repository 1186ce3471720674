//! Re-entry: users' code that runs under a lock of a part, and calls the part again.
//!
//! Problem: `Eq` and `Hash` of keys run under a lock. If they write to the same part, the thread waits for
//! itself. Idea: a thread names the lock while it runs users' code under it. A thread that is about to wait
//! for a lock first looks whether it holds it.
//!
//! - I1. The named locks of a thread form a list, innermost first. Each is on the stack of a call of
//!   [`under`] that has not ended, so the list is valid while the thread reads it.
//!
//! Models do not name locks: their threads share one thread of the system.

#[cfg(not(loom))]
use std::cell::Cell;

/// A lock under which this thread runs users' code.
#[cfg(not(loom))]
struct Named {
    lock: usize,
    outer: *const Named,
}

#[cfg(not(loom))]
thread_local! {
    /// The innermost named lock (I1). Has no destructor, so it can be read at any time.
    static INNERMOST: Cell<*const Named> = const { Cell::new(std::ptr::null()) };
}

/// Ends the naming of a lock, also after a panic.
#[cfg(not(loom))]
struct End(*const Named);

#[cfg(not(loom))]
impl Drop for End {
    #[inline(always)]
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

/// Runs users' code under a lock that this thread holds.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn under<T, R>(lock: &T, f: impl FnOnce() -> R) -> R {
    let named = Named { lock: std::ptr::from_ref(lock).addr(), outer: INNERMOST.get() };
    let _end = End(named.outer);
    INNERMOST.set(&raw const named);
    f()
}

#[cfg(loom)]
pub(crate) fn under<T, R>(_: &T, f: impl FnOnce() -> R) -> R {
    f()
}

/// Checks that this thread may wait for a lock. Call it before a wait, not on a fast path.
///
/// # Panics
/// If this thread runs users' code under that lock.
#[cold]
#[inline(never)]
pub(crate) fn check<T>(lock: &T) {
    #[cfg(not(loom))]
    {
        let mut named = INNERMOST.get();
        // SAFETY: null, or a value on the stack of a call that has not ended (I1).
        while let Some(Named { lock: held, outer }) = unsafe { named.as_ref() } {
            if *held == std::ptr::from_ref(lock).addr() {
                refuse();
            }
            named = *outer;
        }
    }
    let _ = lock;
}

#[cfg(not(loom))]
fn refuse() -> ! {
    let object = squall_rcu::__object_of_operation();
    let object =
        object.map_or_else(|| "a table of squall-parts".to_owned(), |object| format!("map {object}"));
    panic!(
        "{object} was called by `Eq` or `Hash` of its own keys, which runs under its lock; call no map and no table there"
    )
}
