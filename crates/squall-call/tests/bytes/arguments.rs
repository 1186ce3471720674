//! One run of the fuzzer: bytes of a peer, decoded as arguments or as a result.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use squall_call::__macro::{Full, Reader, Sink, Writer};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf,
    Value(i64),
    Pair(Box<Tree>, Box<Tree>),
    Named { name: String, children: Vec<Tree> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Numbers(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, bool, char);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nothing;

struct Bytes(Vec<u8>);

impl Sink for Bytes {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Decodes bytes as values of one type, which the first byte chooses.
pub(crate) fn any(bytes: &[u8]) {
    let [kind, rest @ ..] = bytes else { return };
    match kind % 9 {
        0 => values::<Tree>(rest),
        1 => values::<Numbers>(rest),
        2 => values::<(String, Vec<u8>, Option<char>)>(rest),
        3 => values::<BTreeMap<u16, Vec<Option<i32>>>>(rest),
        4 => values::<Vec<Vec<()>>>(rest),
        5 => values::<Vec<(Nothing, Nothing)>>(rest),
        6 => values::<Result<Box<[u64]>, Tree>>(rest),
        7 => floats(rest),
        _ => in_place(rest),
    }
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Bytes(Vec::new());
    Writer::new(&mut bytes).put(value).expect("a decoded value can be encoded");
    bytes.0
}

/// Decodes values until the end or an error. Each is encoded to bytes that decode to an equal value.
fn values<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    // A type may take no bytes, so the number of values has a bound.
    for _ in 0..=bytes.len() {
        match reader.get::<T>() {
            Ok(value) => {
                let bytes = encoded(&value);
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.get::<T>().as_ref(), Ok(&value));
                reader.end().expect("nothing follows the value");
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}

/// Decodes floats, which have values that differ from themselves: their bits are compared.
fn floats(bytes: &[u8]) {
    if let Ok(value) = Reader::new(bytes).get::<(f32, f64)>() {
        assert_eq!(encoded(&value), bytes[..12]);
    }
}

/// Decodes text and bytes that lie within the message.
fn in_place(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    while let Ok(part) = reader.get_bytes() {
        assert!(bytes.as_ptr_range().contains(&part.as_ptr()) || part.is_empty());
        assert!(part.len() < bytes.len());
    }
    let mut reader = Reader::new(bytes);
    while let Ok(text) = reader.get::<&str>() {
        assert!(text.len() < bytes.len());
    }
}
