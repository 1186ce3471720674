//! The record and the flags of the calling thread, and the process-wide domain.
//!
//! - I1. The thread-local record pointer has the address of `UNREGISTERED`, or of the record that the domain
//!   gave to that thread.
//!
//! The flags have no destructors, so they can be read at any time, also by a signal handler and by a later
//! thread-local destructor.

use squall_sys::pause;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::raw::domain::Domain;
use crate::raw::record::Record;
use squall_sys::sync::Once;

/// The process-wide domain.
pub(crate) static DOMAIN: Domain = Domain::new();

/// The record of every unregistered thread. Its word always says "slow".
static UNREGISTERED: Record = Record::new();

/// Registers [`note_fork`], before any thread has a record.
static AT_FORK: Once = Once::new();

mod pointer {
    use super::{Record, UNREGISTERED};
    squall_sys::thread_pointer!("__squall_rcu_record_v0_1", Record, UNREGISTERED);
}

thread_local! {
    /// The thread is inside a registration or gives its record back.
    static COLD: Cell<bool> = const { Cell::new(false) };
    /// Callback-free scopes that began without a record.
    static QUIET: Cell<u32> = const { Cell::new(0) };
    /// The thread is transferring the state of an object for a hot-swap.
    static TRANSFERRING: Cell<bool> = const { Cell::new(false) };
    /// The thread runs deferred calls.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// The reason why an operation could not be opened.
///
/// # Example
/// ```
/// // On an ordinary thread, operations are never refused.
/// assert_eq!(squall::rcu::try_pin(|_| 7), Ok(7));
/// assert!(squall::rcu::PinError::Forked.to_string().contains("may only exec"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinError {
    /// The process is the child of a fork. There a thread that is not registered opens no operation, and no
    /// thread opens one of an object.
    Forked,
    /// The caller is a signal handler that interrupted a cold path of this crate on the same thread.
    Reentrant,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PinError::Forked => {
                "squall-rcu: an operation cannot be opened in the child of a fork, which may only exec"
            }
            PinError::Reentrant => {
                "squall-rcu: an operation cannot be opened by a signal handler that interrupted a registration; \
                 call squall_rcu::register on its thread first"
            }
        })
    }
}

impl std::error::Error for PinError {}

/// Returns the record that the calling thread's pointer leads to.
#[inline(always)]
pub(crate) fn current() -> &'static Record {
    // SAFETY: by I1 the pointer leads to a record of `DOMAIN` or to `UNREGISTERED`. Both live forever
    // (`registry/I1`; both are statics).
    unsafe { &*pointer::current() }
}

/// Returns whether `record`, the calling thread's current one, is that of an unregistered thread.
#[inline]
pub(crate) fn is_unregistered(record: &Record) -> bool {
    ptr::eq(record, &UNREGISTERED)
}

/// Returns the calling thread's record, if it is registered.
#[inline]
pub(crate) fn own_record() -> Option<&'static Record> {
    let record = current();
    (!is_unregistered(record)).then_some(record)
}

/// Takes a record for the calling thread, which is not registered. Calls `prepare` before, while handlers are
/// refused, and `finish` before the record becomes visible to handlers.
pub(crate) fn take_record<T>(
    prepare: impl FnOnce() -> T,
    finish: impl FnOnce(&Record, T),
) -> Result<&'static Record, PinError> {
    if squall_sys::fork::forked() {
        return Err(PinError::Forked);
    }
    // A handler that arrives between here and the end of this function is refused: the lock below may be held
    // by the code that it interrupted.
    if COLD.replace(true) {
        return Err(PinError::Reentrant);
    }
    if cfg!(test) {
        pause::point("cold");
    }
    squall_sys::fork::arm();
    AT_FORK.call_once(|| squall_sys::fork::at_fork(note_fork));
    let prepared = prepare();
    let record = DOMAIN.register(squall_sys::affinity::thread_id(), Domain::fenced());
    finish(record, prepared);
    pointer::set_current(record);
    COLD.set(false);
    Ok(record)
}

/// Runs in the child of a fork, on its only thread. From here on, the calls of this thread are refused.
extern "C" fn note_fork() {
    if let Some(record) = own_record() {
        record.note_fork();
    }
}

/// Gives the calling thread's record back. Its deferred calls have been taken before.
pub(crate) fn give_record_back(record: &'static Record) {
    // From here on a handler must not use the record, which is about to belong to another thread. It cannot
    // register anew either: it would interrupt this function, so it is refused.
    COLD.set(true);
    pointer::set_current(&raw const UNREGISTERED);
    if cfg!(test) {
        pause::point("cold");
    }
    DOMAIN.unregister(record);
    COLD.set(false);
}

/// Begins a callback-free scope of a thread without a record.
pub(crate) fn begin_quiet_unregistered() {
    QUIET.set(QUIET.get() + 1);
}

/// Ends a callback-free scope of a thread without a record.
pub(crate) fn end_quiet_unregistered() {
    QUIET.set(QUIET.get().saturating_sub(1));
}

/// Returns whether the calling thread, the owner of `record`, is in a callback-free scope or a transfer. In a
/// scope, notes in the record that calls fell due. After a transfer, the next closed batch leads to the work.
pub(crate) fn postpone(record: &Record) -> bool {
    record.postpone() || QUIET.get() > 0 || TRANSFERRING.get()
}

/// Declares whether the calling thread is transferring the state of an object. Returns the previous value.
pub(crate) fn set_transferring(whether: bool) -> bool {
    TRANSFERRING.replace(whether)
}

/// Returns whether the calling thread is transferring the state of an object.
pub(crate) fn is_transferring() -> bool {
    TRANSFERRING.get()
}

/// Returns whether the calling thread is in a callback-free scope.
pub(crate) fn is_quiet() -> bool {
    own_record().is_some_and(Record::is_quiet) || QUIET.get() > 0
}

/// Returns whether the calling thread is inside a deferred call.
#[inline]
pub(crate) fn in_deferred_call() -> bool {
    RUNNING.get()
}

/// Runs `f` under the restrictions of a deferred call: above all, `f` may not wait for grace periods.
pub(crate) fn as_deferred<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _restore = Restore(RUNNING.replace(true));
    f()
}

/// Runs users' code under the restrictions of a deferred call. Returns whether it panicked.
pub(crate) fn run_caught(code: impl FnOnce()) -> bool {
    // The payload is leaked: its drop is also the caller's code, and could panic here.
    catch_unwind(AssertUnwindSafe(|| as_deferred(code))).map_err(std::mem::forget).is_err()
}
