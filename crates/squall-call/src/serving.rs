//! Whether this thread serves a call of another process.

use std::cell::Cell;

std::thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread serves a call. A call that it makes comes out of a call.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn is_serving() -> bool {
    SERVES.get()
}

/// The service of a call by this thread, until it is dropped.
pub(crate) struct Serving {
    /// Whether the call came while the thread served another one.
    before: bool,
}

impl Serving {
    pub(crate) fn begin() -> Serving {
        Serving { before: SERVES.replace(true) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.before);
    }
}
