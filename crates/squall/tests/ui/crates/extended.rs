//! An interface that extends another crate's.

use interfaces::Hits;

/// Counts, and forgets.
#[squall::interface]
pub trait Resettable: Hits<u64> {
    /// From nothing again.
    fn reset(&self);
}
