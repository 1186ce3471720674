//! The calling thread's record.
//!
//! - I1. A thread's pointer is the address of [`NOBODY`], or of the record that the registry gave to that thread and to no
//!   other.
//! - I2. The exit hook gives the record back. What reads on that thread later (in the destructor of another thread-local
//!   value) takes slots from the strays.

use super::marks::{RESERVED, Record, Registry};
use std::ptr;

/// The records of the process.
pub(super) static REGISTRY: Registry = Registry::new();

/// What a thread's pointer points to until it reads first: no slot of it is ever free.
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

/// The calling thread's record, or one without a free slot.
#[inline(always)]
pub(super) fn current() -> &'static Record {
    // SAFETY: I1; both live for ever: `NOBODY` is a static, and so is the registry (marks/I2).
    unsafe { &*pointer::current() }
}

/// Whether the calling thread has a mark of `key`, as far as one can know: of the strays' marks nobody knows whose they are.
pub(super) fn marks(key: usize) -> bool {
    let record = registered();
    !ptr::eq(record, REGISTRY.strays()) && record.marks(key)
}

/// The calling thread's record, made now if it has none.
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
