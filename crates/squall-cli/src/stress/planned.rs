//! Panics that are part of a stress. They are raised by `resume_unwind`, which runs no panic hook: a planned one says
//! nothing, and what a real one says is seen.

use std::panic::resume_unwind;

/// The payload of a panic that is part of a stress.
pub(crate) struct Planned;

/// Panics as planned.
pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}
