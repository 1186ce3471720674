//! Values.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::inline::Inline;

/// Values up to this size need no memory of their own.
const INLINE_BYTES: usize = 30;
/// Larger values are shared by their clones, and are sent from their place. Smaller ones are copied.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// The bytes of a value.
#[derive(Clone)]
pub struct Data(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Inline<INLINE_BYTES>),
    Boxed(Box<[u8]>),
    Shared(Arc<[u8]>),
}

const _: () = assert!(size_of::<Data>() == INLINE_BYTES + 2);

impl Data {
    /// Returns the bytes of a large value, to keep them without a copy.
    pub(crate) fn shared(&self) -> Option<&Arc<[u8]>> {
        match &self.0 {
            Repr::Shared(bytes) => Some(bytes),
            Repr::Inline(_) | Repr::Boxed(_) => None,
        }
    }

    /// Returns the approximate size of the memory that a value of this size owns.
    pub(crate) fn owned_bytes(len: usize) -> usize {
        if len <= INLINE_BYTES {
            0
        } else if len <= COPIED_BYTES_MAX {
            len
        } else {
            // The counts of the clones.
            len + 2 * size_of::<usize>()
        }
    }
}

impl From<&[u8]> for Data {
    fn from(data: &[u8]) -> Data {
        Data(match Inline::new(data) {
            Some(bytes) => Repr::Inline(bytes),
            None if data.len() > COPIED_BYTES_MAX => Repr::Shared(data.into()),
            None => Repr::Boxed(data.into()),
        })
    }
}

impl<const N: usize> From<&[u8; N]> for Data {
    fn from(data: &[u8; N]) -> Data {
        data[..].into()
    }
}

impl From<Vec<u8>> for Data {
    fn from(data: Vec<u8>) -> Data {
        if data.len() > INLINE_BYTES && data.len() <= COPIED_BYTES_MAX {
            return Data(Repr::Boxed(data.into()));
        }
        data[..].into()
    }
}

impl Deref for Data {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(bytes) => bytes,
            Repr::Boxed(bytes) => bytes,
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_bytes_and_large_ones_are_shared() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        for len in (0..100).chain([16_383, 16_384, 16_385, 40_000]) {
            for data in [Data::from(&bytes[..len]), Data::from(bytes[..len].to_vec())] {
                assert_eq!((&*data, &*data.clone()), (&bytes[..len], &bytes[..len]));
                assert_eq!(data.shared().is_some(), len > 16_384);
            }
        }
    }
}
