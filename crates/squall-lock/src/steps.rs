//! Where a torture may hold a thread up.
//!
//! Problem: a lost wake-up needs a thread that stops at one particular place for long enough, which a scheduler hardly ever
//! does. Idea: each protocol calls [`Steps::step`] wherever its next action depends on what it saw before; in what ships
//! that is nothing, and a torture puts sleeps there. What is tortured is the same code, with another parameter.
//!
//! - I1. With [`Undisturbed`] a step costs nothing.

/// What happens between two steps of a protocol.
#[doc(hidden)]
pub trait Steps: 'static {
    /// Called between what was seen and what is done about it.
    fn step();
}

/// Nothing happens.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Undisturbed;

impl Steps for Undisturbed {
    #[inline(always)]
    fn step() {}
}
