//! An interface, implemented in another crate.

/// Counts.
#[squall::interface]
pub trait Hits<T>: Send + Sync {
    /// Counts `n` more.
    fn add(&self, n: T);
    /// The count.
    fn total(&self) -> T;
}
