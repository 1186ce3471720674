//! Decodes values from a private copy of a message.

use serde::Deserialize;

use super::Malformed;
use super::decoder::Decoder;

/// The greatest depth of nested values.
pub(super) const DEPTH_MAX: u32 = 128;
/// The greatest number of elements that take no bytes, in all sequences of a message.
pub(super) const EMPTY_MAX: u32 = 1 << 16;

/// Decodes the arguments or the result of a call.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The bytes after those that were decoded.
    left: &'a [u8],
    /// The number of levels that the value may still be nested.
    pub(super) levels: u32,
    /// The number of elements without bytes that may still follow.
    pub(super) empty: u32,
}

impl<'a> Reader<'a> {
    /// Makes a reader of these bytes, which no other process can write.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes, levels: DEPTH_MAX, empty: EMPTY_MAX }
    }

    /// Decodes a value. It may borrow from the message.
    pub fn get<T: Deserialize<'a>>(&mut self) -> Result<T, Malformed> {
        T::deserialize(Decoder { reader: self })
    }

    /// Decodes bytes, without a copy. A vector of the bytes has the same encoding.
    pub fn get_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    /// Fails unless every byte was decoded.
    pub fn end(&mut self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes) }
    }

    /// Returns the number of bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.left.len()
    }

    /// Takes `count` bytes.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.left.split_at_checked(count).ok_or(Malformed::TooShort)?;
        self.left = left;
        Ok(taken)
    }

    /// Takes `N` bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or(Malformed::TooShort)?;
        self.left = left;
        Ok(*taken)
    }

    /// Takes the length of a sequence, of text or of bytes.
    pub(super) fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint_u64(usize::BITS)?).map_err(|_| Malformed::InvalidValue)
    }

    /// Takes text.
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.get_bytes()?).map_err(|_| Malformed::InvalidValue)
    }

    /// Takes a byte that is 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::InvalidValue),
        }
    }
}

/// Defines a method that takes a number of at most `bits` bits: seven bits in each byte, the lowest first.
/// The highest bit of a byte says that another one follows.
macro_rules! varint {
    ($name:ident, $type:ident) => {
        impl Reader<'_> {
            #[doc = concat!("Takes a number of at most `bits` bits, as a `", stringify!($type), "`.")]
            #[inline]
            pub(super) fn $name(&mut self, bits: u32) -> Result<$type, Malformed> {
                let (mut number, mut shift) = (0, 0);
                while shift < bits {
                    let [byte] = self.array()?;
                    let part = $type::from(byte & 0x7f);
                    // The last byte has room for fewer than seven bits.
                    if bits - shift < 7 && part >> (bits - shift) != 0 {
                        return Err(Malformed::InvalidValue);
                    }
                    number |= part << shift;
                    if byte & 0x80 == 0 {
                        return Ok(number);
                    }
                    shift += 7;
                }
                Err(Malformed::InvalidValue)
            }
        }
    };
}
varint!(varint_u64, u64);
varint!(varint_u128, u128);
