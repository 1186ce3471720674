//! Keys in the table.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::inline::Inline;

/// Keys up to this size need no memory of their own.
const INLINE_BYTES: usize = 22;

/// A key of 1 to 250 bytes. It hashes and compares as its bytes.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Inline<INLINE_BYTES>),
    Boxed(Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == INLINE_BYTES + 2);

impl Key {
    /// Returns the approximate size of the memory that a key of this size owns.
    pub(crate) fn owned_bytes(len: usize) -> usize {
        if len <= INLINE_BYTES { 0 } else { len }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        Key(Inline::new(key).map_or_else(|| Repr::Boxed(key.into()), Repr::Inline))
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(bytes) => bytes,
            Repr::Boxed(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn a_key_is_its_bytes() {
        let (bytes, hasher) = ([7; 250], RandomState::new());
        for len in 0..=250 {
            let key = Key::from(&bytes[..len]);
            assert_eq!(*key, bytes[..len]);
            assert_eq!(hasher.hash_one(&key), hasher.hash_one(&bytes[..len]));
            assert_eq!((key == key.clone(), key == Key::from(&[8; 250][..len])), (true, len == 0));
        }
    }
}
