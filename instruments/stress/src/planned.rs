//! Panics that are part of a stress. A stress raises its own by `resume_unwind`, which runs no panic hook: a planned one
//! says nothing, and what a real one says is seen. Those that it asks the library for are silenced while they are asked
//! for.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// The payload of a panic that is part of a stress.
pub(crate) struct Planned;

/// Panics as planned.
pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

thread_local! {
    /// A panic that the caller asked for is about to come: the hook says nothing.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which may panic with a message that nobody wants to see. Returns what it panicked with.
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    outcome
}

/// The message of a panic.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "something that is no text".to_owned())
}
