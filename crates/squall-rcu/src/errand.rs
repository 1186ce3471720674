//! The errand: a function of an upper crate that a thread calls after it has left its operation.
//!
//! Problem: a sensor trips inside an operation, where its thread must not lock, allocate or wait. Idea: the
//! operation owes an errand. The thread runs it when it has left that operation.
//!
//! - I1. The errand runs outside every operation, callback-free scope, deferred call and transfer of its
//!   thread. Within one of the last three it is put off to a later operation.
//! - I2. Only the operation that owes the errand runs it (`record/I6`).
//! - I3. At most one call of the errand runs on a thread at a time: the bit is clear while it runs.
//!
//! Not promised: that it runs. A thread that opens no further operation does not run a postponed errand.
//!
//! Cost: a test of a bit when an operation takes the slow path at its end.

use squall_sys::sync::OnceLock;

use crate::raw::record::{Record, attention};
use crate::thread::own_record;
use crate::wait::may_run;

/// Returns `true` to be called again after the thread's next operation.
type Errand = fn() -> bool;

static ERRAND: OnceLock<Errand> = OnceLock::new();

/// Not public: sets the process's errand. A second call has no effect.
///
/// The errand returns `true` to be called again after the thread's next operation. It must not panic.
#[doc(hidden)]
pub fn __set_errand(errand: fn() -> bool) {
    let _ = ERRAND.set(errand);
}

/// Not public: has the calling thread run the errand once it has left the operation that is open. Returns
/// `false`, with no effect, outside operations, and where other work waits for the end of an operation.
///
/// # Cost
/// Some loads and a locked instruction. Neither locks nor allocates.
#[doc(hidden)]
pub fn __owe_errand() -> bool {
    let Some(record) = own_record() else { return false };
    // Other work belongs to the operation that owes it, which may be one that this one interrupted (I2).
    let is_free = record.depth() > 0 && !record.owes();
    if is_free {
        record.owe(attention::ERRAND);
    }
    is_free
}

/// Runs the errand of a thread that has left its operation.
pub(crate) fn after_operation(record: &'static Record) {
    record.clear(attention::ERRAND);
    // After a panic of the operation there may be more to drop, which a second panic would end.
    let is_put_off = may_run().is_err() || std::thread::panicking();
    if (is_put_off || ERRAND.get().is_some_and(|errand| errand())) && !record.owes() {
        record.owe(attention::ERRAND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pin, without_callbacks};
    use std::cell::Cell;

    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
        static MORE: Cell<bool> = const { Cell::new(false) };
    }

    fn errand() -> bool {
        assert!(!crate::in_operation());
        pin(|_| ());
        CALLS.set(CALLS.get() + 1);
        MORE.get()
    }

    #[test]
    fn an_errand_runs_after_the_outermost_operation_and_while_it_asks_for_more() {
        __set_errand(errand);
        assert!(!__owe_errand(), "no operation is open");
        pin(|_| {
            pin(|_| assert!(__owe_errand()));
            assert_eq!(CALLS.get(), 0);
            assert!(!__owe_errand(), "it is owed");
        });
        assert_eq!(CALLS.get(), 1);
        pin(|_| ());
        assert_eq!(CALLS.get(), 1);
        MORE.set(true);
        pin(|_| assert!(__owe_errand()));
        (0..3).for_each(|_| pin(|_| ()));
        assert_eq!(CALLS.get(), 5);
        without_callbacks(|| (0..3).for_each(|_| pin(|_| ())));
        assert_eq!(CALLS.get(), 5);
        MORE.set(false);
        (0..3).for_each(|_| pin(|_| ()));
        assert_eq!(CALLS.get(), 6);
    }
}
