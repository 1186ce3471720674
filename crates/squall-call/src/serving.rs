//! Whether this thread serves a call of another process.

use std::cell::Cell;

std::thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread serves a call. A call that it makes comes out of a call.
pub(crate) fn is_serving() -> bool {
    SERVES.get()
}

/// Says whether this thread serves a call.
pub(crate) fn set(serves: bool) {
    SERVES.set(serves);
}
