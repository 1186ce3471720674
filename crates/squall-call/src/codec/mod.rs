//! Arguments and results as bytes.
//!
//! Problem: the bytes come from another process, and it may be hostile. Decoding must end soon, allocate
//! little and never panic, for any bytes and any type.
//! Idea: use the format of postcard. The writer is postcard's. It writes into a [`Sink`], so that data
//! reaches the shared memory with one copy. The reader is our own, since postcard's has no limits. A limit on
//! the depth of nested values bounds the stack. A limit on the number of elements without bytes bounds the
//! time.
//!
//! - I1. A [`Reader`] reads memory that no other process can write. The caller has copied it.
//! - I2. A collection never reserves room for more elements than the input has bytes left.
//! - I3. The reader decodes the bytes of a [`Writer`] to an equal value, unless a limit is exceeded.
//!
//! Not promised: attributes of serde that need a self-describing format (`untagged`, `flatten`, `tag`,
//! `skip_serializing_if`).
//! Cost: plain data is copied once on each side. `str`, `[u8]` and byte vectors are copied whole; other
//! sequences by element.
//! Source: the wire format of postcard 1, <https://postcard.jamesmunns.com/wire-format>.

mod decoder;
mod fields;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

use squall_core::MessageError;

pub use fields::{
    Borrowed, Field, InPlaceBorrowed, PackedField, PackedOrError, PlainField, SliceBorrowed, ValueBorrowed,
    ValueOrError,
};
pub use reader::Reader;
pub use writer::{Full, Sink, Writer};

/// The reason why a value could not be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The encoded values are larger than a message.
    TooLarge,
    /// The input ends within a value.
    TooShort,
    /// The input goes on after the last value.
    TrailingBytes,
    /// The bytes are no value of this type.
    InvalidValue,
    /// The value is nested too deep.
    TooDeep,
    /// Too many elements take no bytes.
    TooMany,
    /// The type needs a format that describes itself, or does not know its length.
    Unsupported,
}

impl Malformed {
    /// Returns the error for a value that could not be written.
    pub fn written(self) -> MessageError {
        match self {
            Malformed::TooLarge => MessageError::TooLarge,
            _ => MessageError::Unencodable,
        }
    }

    /// Returns the error for bytes that could not be read.
    pub fn read(self) -> MessageError {
        MessageError::Undecodable
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::TooLarge => "the values are too large for one message; split them over several calls",
            Malformed::TooShort => {
                "the message ends within a value; build both processes with the same types"
            }
            Malformed::TrailingBytes => {
                "the message goes on after its last value; build both processes with the same types"
            }
            Malformed::InvalidValue => {
                "the message has an invalid value; build both processes with the same types"
            }
            Malformed::TooDeep => "a value is nested too deep; send a flat one, such as a vector of nodes",
            Malformed::TooMany => "a value has too many elements that take no bytes; send their number",
            Malformed::Unsupported => {
                "a type cannot be encoded; avoid `untagged`, `flatten` and `tag`, and give sequences a length"
            }
        })
    }
}

impl std::error::Error for Malformed {}
