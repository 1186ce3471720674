//! The calling thread's record.
//!
//! - I1. A thread's pointer is the address of [`NOBODY`], or of the record that the registry gave to this
//!   thread alone.
//! - I2. The exit hook gives the record back. A later read on that thread (in the destructor of another
//!   thread-local value) takes slots from the strays.

use super::marks::{RESERVED, Record, Registry};
use std::ptr;

/// The records of the process.
pub(super) static REGISTRY: Registry = Registry::new();

/// The target of a thread's pointer until its first read. Its slots are never free.
static NOBODY: Record = Record::new(RESERVED);

mod pointer {
    use super::{NOBODY, Record};
    squall_sys::thread_pointer!("__squall_lock_record_v0_1", Record, NOBODY);
}

thread_local! {
    static EXIT: ExitHook = const { ExitHook };
}

struct ExitHook;

impl Drop for ExitHook {
    fn drop(&mut self) {
        let record = current();
        if !ptr::eq(record, &NOBODY) {
            pointer::set_current(&NOBODY);
            REGISTRY.give_back(record);
        }
    }
}

/// Returns the calling thread's record, or one without a free slot.
#[inline(always)]
pub(super) fn current() -> &'static Record {
    // SAFETY: I1. Both targets live forever: `NOBODY` is a static, and so is the registry (marks/I2).
    unsafe { &*pointer::current() }
}

/// Returns whether the calling thread has a mark of `key`. Marks in the record of strays do not name their
/// threads, so they are ignored.
pub(super) fn marks(key: usize) -> bool {
    let record = registered();
    !ptr::eq(record, REGISTRY.strays()) && record.marks(key)
}

/// Returns the calling thread's record, and makes one first if necessary.
pub(super) fn registered() -> &'static Record {
    let record = current();
    if !ptr::eq(record, &NOBODY) {
        return record;
    }
    if EXIT.try_with(|_| ()).is_err() {
        return REGISTRY.strays();
    }
    let record = REGISTRY.take();
    pointer::set_current(record);
    record
}
