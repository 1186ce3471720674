//! Encodes values into a sink.

use std::fmt;

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use super::Malformed;

/// The end of a [`Sink`]: it has no room for the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Memory that takes the encoded bytes in their order.
pub trait Sink {
    /// Appends the bytes. If it fails, it may have appended some of them.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full>;
}

/// Encodes the arguments or the result of a call.
pub struct Writer<'a> {
    sink: &'a mut dyn Sink,
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl<'a> Writer<'a> {
    /// Makes a writer that appends to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Writer<'a> {
        Writer { sink }
    }

    /// Encodes a value.
    pub fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Malformed> {
        let mut serializer = postcard::Serializer { output: Output(self.sink) };
        value.serialize(&mut serializer).map_err(|error| match error {
            postcard::Error::SerializeBufferFull => Malformed::TooLarge,
            postcard::Error::SerdeSerCustom => Malformed::InvalidValue,
            _ => Malformed::Unsupported,
        })
    }

    /// Encodes bytes: their number, then one copy. A vector of the bytes has the same encoding.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.put(&Bytes(bytes))
    }
}

/// Bytes that are encoded by one copy.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// The sink, as the output of postcard.
struct Output<'a>(&'a mut dyn Sink);

impl Flavor for Output<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.write(bytes).map_err(|Full| postcard::Error::SerializeBufferFull)
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
