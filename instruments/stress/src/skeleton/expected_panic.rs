//! Panics that a stress plans. A stress raises its own by `resume_unwind`, which skips the panic hook, so
//! that only unplanned panics print. The hook is silenced for panics that a stress provokes in the library.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// The payload of a planned panic.
pub(crate) struct ExpectedPanic;

/// Raises a planned panic.
pub(crate) fn raise_expected_panic() -> ! {
    resume_unwind(Box::new(ExpectedPanic))
}

thread_local! {
    /// The hook prints no message for this thread.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, and catches its panic without a printed message.
pub(crate) fn catch_silently<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                usual(info);
            }
        }));
    });
    let before = SILENT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    SILENT.set(before);
    outcome
}

/// Returns the message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a payload without text".to_owned())
}
