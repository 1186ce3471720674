//! A call at the end of a thread's outermost operations, for a crate above that serves requests there.
//!
//! - I1. Only a thread that asked for it, and only while its [`OnLeave`] exists, calls the hook. It is
//!   outside every operation then, and neither in a callback-free scope, nor in a deferred call, nor in the
//!   transfer of an object's state, nor in a panic.
//!
//! Not promised: protection from signal handlers. An operation of a handler calls the hook, too.
//! Cost: an operation of such a thread takes the slow path when it ends. Operations of other
//! threads cost as much as before.

use squall_sys::sync::OnceLock;
use std::marker::PhantomData;

use crate::raw::record::{Record, attention};
use crate::thread::{PinError, in_deferred_call, is_quiet, is_transferring, own_record};

/// The hook, set once in a process.
static HOOK: OnceLock<fn()> = OnceLock::new();

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

/// Calls the hook for the thread of `record`, which has just left its outermost operation.
pub(crate) fn call_hook(record: &Record) {
    let may_call = record.depth() == 0
        && !is_quiet()
        && !in_deferred_call()
        && !is_transferring()
        && !std::thread::panicking();
    if let Some(hook) = HOOK.get().filter(|_| may_call && !squall_sys::fork::forked()) {
        hook();
    }
}
