//! Bytes in frames, copied as a whole.
//!
//! Problem: serde encodes and decodes a `Vec<u8>` byte by byte. A profile of calls with 1 KiB shows it.
//! Idea: the fields with this encoding tell serde that they are bytes.
//!
//! - I1. The format is that of a `Vec<u8>`: postcard writes the length and then the bytes for both.
//!
//! Cost: a copy.

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;
use std::fmt;

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_bytes(Bytes)
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Whole(#[serde(with = "super")] Vec<u8>, u32);

    #[derive(Serialize)]
    struct Single(Vec<u8>, u32);

    #[test]
    fn the_format_is_that_of_a_sequence() {
        for size in [0, 1, 127, 128, 1000] {
            let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let whole = postcard::to_allocvec(&Whole(bytes.clone(), 7)).unwrap();
            assert_eq!(whole, postcard::to_allocvec(&Single(bytes.clone(), 7)).unwrap());
            assert_eq!(postcard::from_bytes::<Whole>(&whole), Ok(Whole(bytes, 7)));
            for end in 0..whole.len() {
                assert!(postcard::from_bytes::<Whole>(&whole[..end]).is_err());
            }
        }
        // A length beyond the end of the bytes.
        assert!(postcard::from_bytes::<Whole>(&[0xff, 0xff, 0xff, 0x7f, 1]).is_err());
    }
}
