//! Registration: each thread gets a record at its first operation and gives it back when it ends.
//!
//! - I1. The exit hook of a thread takes its record back. The reclaimer has no hook, since it never ends
//!   (reclaimer/I1). After the hook has run, a later thread-local destructor takes a record for one outermost
//!   operation at a time.

use crate::raw::record::{Record, attention};
use crate::thread::{PinError, give_record_back, in_deferred_call, own_record, take_record};

thread_local! {
    static EXIT: ExitHook = const { ExitHook };
}

/// Registers the calling thread, which is not registered yet.
pub(crate) fn register_current() -> Result<&'static Record, PinError> {
    let hook = || EXIT.try_with(|_| ()).is_ok();
    take_record(hook, |record, hooked| {
        if !hooked {
            record.owe(attention::TEMPORARY);
        }
    })
}

/// Calls `f` with the calling thread's record, and registers the thread first if needed. After the exit hook
/// has run, the thread gives the record back when `f` returns.
pub(crate) fn with_record<R>(f: impl FnOnce(&'static Record) -> R) -> Result<R, PinError> {
    if let Some(record) = own_record() {
        return Ok(f(record));
    }
    let record = register_current()?;
    // Operations within `f` must not give the record back.
    let temporary = record.clear(attention::TEMPORARY) != 0;
    let result = f(record);
    if temporary {
        give_back(record);
    }
    Ok(result)
}

/// Takes the calling thread's record back (I1), and leaves its deferred calls to the reclaimer. In the child
/// of a fork, where another thread may hold the locks for ever, the record and its calls are leaked.
pub(crate) fn give_back(record: &'static Record) {
    if squall_sys::fork::forked() {
        return;
    }
    if crate::run::adopt_from(record) {
        crate::reclaimer::announce();
    }
    give_record_back(record);
}

/// Takes the record back when its thread ends.
struct ExitHook;

impl Drop for ExitHook {
    fn drop(&mut self) {
        // A deferred call ends the process. Its thread is still running calls, so its record stays as it is.
        if in_deferred_call() {
            return;
        }
        if let Some(record) = own_record() {
            give_back(record);
        }
    }
}
