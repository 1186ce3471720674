//! The tokens that a woken thread of the parking table receives.

/// Token for a woken thread: it holds the lock.
pub(super) const HANDED: usize = 1;
/// Token for a woken thread: it is counted as awake.
pub(super) const COUNTED: usize = 2;
/// Token for a woken thread: it should check again.
pub(super) const AGAIN: usize = 3;
