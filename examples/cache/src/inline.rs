//! Few bytes, in place.

use std::ops::Deref;

/// At most `N` bytes, without memory of their own.
#[derive(Clone)]
pub(crate) struct Inline<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Inline<N> {
    /// Returns these bytes, unless they are too many.
    pub(crate) fn new(data: &[u8]) -> Option<Inline<N>> {
        const { assert!(N <= u8::MAX as usize) };
        let mut bytes = [0; N];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Inline { len: data.len() as u8, bytes })
    }
}

impl<const N: usize> Deref for Inline<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
