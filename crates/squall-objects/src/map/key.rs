//! `KeyForm`: a key in any borrowed form, as a trait object.

use squall_parts::table::position;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::parts::number;

/// A key in a borrowed form, for maps with keys of type `K` and hashers of type `S`.
pub(super) trait KeyForm<K, S> {
    /// Returns the hash.
    fn hash(&self, hasher: &S) -> u64;
    /// Whether `key` is this key.
    fn is(&self, key: &K) -> bool;
    /// Returns the position in walks: see [`position`].
    fn position(&self, hasher: &S) -> u64;
    /// Returns the key as a number: see [`number`].
    fn number(&self) -> u64;
}

/// A reference to a borrowed form of a key.
#[derive(Debug)]
pub(super) struct Borrowed<'q, Q: ?Sized>(pub(super) &'q Q);

impl<K: Borrow<Q>, S: BuildHasher, Q: Eq + Hash + ?Sized> KeyForm<K, S> for Borrowed<'_, Q> {
    fn hash(&self, hasher: &S) -> u64 {
        hasher.hash_one(self.0)
    }

    fn is(&self, key: &K) -> bool {
        key.borrow() == self.0
    }

    fn position(&self, hasher: &S) -> u64 {
        position(hasher, self.0)
    }

    fn number(&self) -> u64 {
        number(self.0)
    }
}
