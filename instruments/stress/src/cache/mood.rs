//! The random choices of code that a cache calls: loaders, listeners and policies. They have no place for a
//! generator of their own, so each thread has one.

use std::cell::{Cell, RefCell};

use crate::run::Rng;
use crate::skeleton::expected_panic::raise_expected_panic;

thread_local! {
    static RNG: RefCell<Option<Rng>> = const { RefCell::new(None) };
    /// A planned panic is on its way to the caller of the cache.
    static PANICS: Cell<bool> = const { Cell::new(false) };
    /// The thread is in code that the cache calls, and may not call it again.
    static NESTED: Cell<bool> = const { Cell::new(false) };
}

/// Lets the calling thread make random choices, or ends that.
pub(super) fn set(rng: Option<Rng>) {
    RNG.set(rng);
}

/// Returns a random number below `n`, or zero on a thread without choices.
pub(super) fn below(n: u64) -> u64 {
    RNG.with_borrow_mut(|rng| rng.as_mut().map_or(0, |rng| rng.below(n)))
}

/// Returns true once in `n` times, and never on a thread without choices.
pub(super) fn one_in(n: u64) -> bool {
    RNG.with_borrow_mut(|rng| rng.as_mut().is_some_and(|rng| rng.one_in(n)))
}

/// Raises a planned panic once in `n` times.
pub(super) fn panic_one_in(n: u64) {
    if one_in(n) {
        raise();
    }
}

/// Raises a planned panic.
pub(super) fn raise() -> ! {
    PANICS.set(true);
    raise_expected_panic()
}

/// Returns whether a planned panic is on its way.
pub(super) fn is_panicking() -> bool {
    PANICS.get()
}

/// Notes that the panic has reached the caller of the cache.
pub(super) fn note_caught() {
    PANICS.set(false);
}

/// Runs `f`, unless the thread runs such code already.
pub(super) fn nested(f: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            NESTED.set(false);
        }
    }
    if !NESTED.replace(true) {
        let _leave = Leave;
        f();
    }
}
