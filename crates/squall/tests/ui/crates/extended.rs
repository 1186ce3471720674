//! An interface that extends an interface of another crate.

use interfaces::Hits;

/// A counter with a reset.
#[squall::interface]
pub trait Resettable: Hits<u64> {
    /// Sets the count to zero.
    fn reset(&self);
}
