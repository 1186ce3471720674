//! Places where a stress test can delay a thread.
//!
//! Problem: a lost wake-up needs a thread that stops for long at one particular place. A scheduler hardly
//! ever does that.
//! Idea: each protocol calls [`Steps::step`] wherever its next action depends on an earlier observation. The
//! shipped locks use [`NoSteps`], and a stress test supplies a parameter that sleeps. Both run the same
//! protocol code.
//!
//! - I1. With [`NoSteps`] a step compiles to no code.

/// Runs between two steps of a protocol.
#[doc(hidden)]
pub trait Steps: 'static {
    /// True if few operations lead to a change of mode, so that a stress reaches many changes.
    const HURRIES: bool = false;

    /// Runs after a protocol read shared state and before it acts on the result.
    fn step();
}

/// The steps of the shipped locks: each step is empty.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct NoSteps;

impl Steps for NoSteps {
    #[inline(always)]
    fn step() {}
}
