//! Decisions of closures about an entry, and their effects.

/// The decision of a closure about an entry: the result of the closure of a `compute` method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute<V> {
    /// Leave the entry unchanged.
    Keep,
    /// Insert the key with this value, or replace its value.
    Put(V),
    /// Remove the key if it is present.
    Remove,
}

/// The effect of such a decision: the result of a `compute` method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// No effect: the function returned `Keep`, or there was no entry to remove.
    Kept,
    /// The key was absent and has been inserted.
    Inserted,
    /// The key's value was replaced.
    Updated,
    /// The key was removed.
    Removed,
}
