//! Panics of users' code that end where they began.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops the payload of a caught panic. That drop may panic too: its panic ends here, and its payload leaks.
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
}

/// Runs users' code. Its panic ends here, after the panic hook has reported it. In a model it goes on: a
/// model that has failed must end.
pub fn end_panic(code: impl FnOnce()) {
    if cfg!(loom) {
        return code();
    }
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        drop_payload(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload of no size, since it leaks here. Its drop panics with another one of its kind.
    struct Again;

    impl Drop for Again {
        fn drop(&mut self) {
            std::panic::panic_any(Again);
        }
    }

    #[test]
    fn a_panic_ends_here_and_so_does_that_of_its_payload() {
        end_panic(|| std::panic::panic_any(Again));
        let mut ran = false;
        end_panic(|| ran = true);
        assert!(ran);
    }
}
