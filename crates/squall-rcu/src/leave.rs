//! A call at the end of a thread's outermost operations, for a crate above that serves requests there.
//!
//! - I1. Only a thread that asked for it, and only while its [`OnLeave`] exists, calls the hook. It is
//!   outside every operation then, and neither in a callback-free scope, nor in a deferred call, nor in the
//!   transfer of an object's state, nor in a panic. Nor is it in the method of an object ([`serve_unless`]).
//! - I2. The end of an operation that Squall opens for itself does not call the hook: its code may hold a
//!   lock.
//!
//! Not promised: protection from signal handlers. An operation of a handler calls the hook, too.
//! Cost: an operation of such a thread takes the slow path when it ends. Operations of other
//! threads cost as much as before.

use squall_sys::sync::OnceLock;
use std::marker::PhantomData;

use crate::raw::record::attention;
use crate::thread::{PinError, current, in_deferred_call, is_quiet, is_transferring, own_record};

/// The hook, set once in a process.
static HOOK: OnceLock<fn()> = OnceLock::new();
/// Returns whether the calling thread is in the method of an object. Set once in a process.
static BUSY: OnceLock<fn() -> bool> = OnceLock::new();

/// Not public: the calling thread calls the hook until this is dropped. Scopes do not nest.
#[derive(Debug)]
#[must_use]
pub struct OnLeave {
    _this_thread: PhantomData<*mut ()>,
}

/// Not public: lets the calling thread call `hook` whenever it leaves an outermost operation. All callers in
/// a process give the same hook.
///
/// # Errors
/// [`PinError`], as for a thread's first operation.
pub fn call_on_leave(hook: fn()) -> Result<OnLeave, PinError> {
    crate::pin::register()?;
    HOOK.get_or_init(|| hook);
    if let Some(record) = own_record() {
        record.request(attention::HOOK);
    }
    Ok(OnLeave { _this_thread: PhantomData })
}

impl Drop for OnLeave {
    fn drop(&mut self) {
        if let Some(record) = own_record() {
            record.clear(attention::HOOK);
        }
    }
}

/// Not public: forbids the hook on a thread for which `busy` returns true. For the crate of the objects: a
/// call that runs in the middle of a method would find holds and locks of that method. All callers in a
/// process give the same function.
pub fn serve_unless(busy: fn() -> bool) {
    BUSY.get_or_init(|| busy);
}

/// Not public: returns whether the calling thread may run users' code that has nothing to do with the code
/// around it (I1).
pub fn may_serve() -> bool {
    current().depth() == 0
        && !is_quiet()
        && !in_deferred_call()
        && !is_transferring()
        && !std::thread::panicking()
        && !squall_sys::fork::forked()
        && !BUSY.get().is_some_and(|busy| busy())
}

/// Calls the hook for the calling thread, which has just left an operation.
pub(crate) fn call_hook() {
    if let Some(hook) = HOOK.get().filter(|_| may_serve()) {
        hook();
    }
}
