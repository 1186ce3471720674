//! Tests of the codec: against postcard's own reader, with hostile bytes, and at its limits.

use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::reader::{DEPTH_MAX, EMPTY_MAX};
use super::*;

/// A sink of limited size.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl Sink for Limited {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if self.limit - self.bytes.len() < bytes.len() {
            return Err(Full);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

fn encoded<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut sink = Limited { bytes: Vec::new(), limit: usize::MAX };
    Writer::new(&mut sink).put(value).expect("a value that can be encoded");
    sink.bytes
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = reader.get()?;
    reader.end().map(|()| value)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(u64);
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pair(i16, String);
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Nothing,
    Round(f32),
    Flat(u8, i64),
    Named { name: String, inner: Option<Box<Shape>> },
}

/// One field of each type of the data model of serde.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    flag: bool,
    unsigned: (u8, u16, u32, u64, u128, usize),
    signed: (i8, i16, i32, i64, i128, isize),
    float: (f32, f64),
    letter: char,
    text: String,
    bytes: Vec<u8>,
    option: Option<Option<u16>>,
    unit: (),
    unit_struct: Unit,
    newtype: Wrapped,
    tuple_struct: Pair,
    array: [u16; 3],
    shapes: VecDeque<Shape>,
    map: BTreeMap<String, Vec<Shape>>,
    result: Result<u8, String>,
    units: Vec<()>,
    time: std::time::Duration,
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Nothing),
        (-1e9f32..1e9).prop_map(Shape::Round),
        any::<(u8, i64)>().prop_map(|(a, b)| Shape::Flat(a, b)),
    ];
    leaf.prop_recursive(4, 8, 1, |inner| {
        (".{0,5}", prop::option::of(inner))
            .prop_map(|(name, inner)| Shape::Named { name, inner: inner.map(Box::new) })
    })
}

fn everything() -> impl Strategy<Value = Everything> {
    let numbers = (
        any::<(u8, u16, u32, u64, u128, usize)>(),
        any::<(i8, i16, i32, i64, i128, isize)>(),
        (-1e30f32..1e30, -1e300f64..1e300),
        any::<(bool, char, u64, i16, [u16; 3])>(),
    );
    let collections = (
        (".{0,40}", prop::collection::vec(any::<u8>(), 0..300), any::<Option<Option<u16>>>()),
        prop::collection::vec(shape(), 0..4),
        prop::collection::btree_map(".{0,3}", prop::collection::vec(shape(), 0..3), 0..4),
        (prop::result::maybe_ok(any::<u8>(), ".{0,9}"), 0usize..9, any::<std::time::Duration>()),
    );
    (numbers, collections).prop_map(|((unsigned, signed, float, plain), (simple, shapes, map, last))| {
        let (flag, letter, wrapped, first, array) = plain;
        let (text, bytes, option) = simple;
        let (result, units, time) = last;
        Everything {
            flag,
            unsigned,
            signed,
            float,
            letter,
            tuple_struct: Pair(first, text.clone()),
            text,
            bytes,
            option,
            unit: (),
            unit_struct: Unit,
            newtype: Wrapped(wrapped),
            array,
            shapes: shapes.into(),
            map,
            result,
            units: vec![(); units],
            time,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_value_is_read_as_it_was_written(value in everything(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&value);
        prop_assert_eq!(decoded::<Everything>(&bytes), Ok(value.clone()));
        prop_assert_eq!(postcard::from_bytes::<Everything>(&bytes), Ok(value));
        prop_assert!(decoded::<Everything>(&bytes[..cut.index(bytes.len())]).is_err());
        let more = [&bytes[..], &[0]].concat();
        prop_assert_eq!(decoded::<Everything>(&more), Err(Malformed::TrailingBytes));
    }

    #[test]
    fn any_bytes_are_read_or_rejected_like_postcard_does(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fn same<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<(), TestCaseError> {
            let ours = Reader::new(bytes).get::<T>();
            let theirs = postcard::from_bytes::<T>(bytes);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}", ours.as_ref().err());
            // Encoded again, since no number is equal to a NaN.
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                prop_assert_eq!(encoded(&ours), encoded(&theirs));
            }
            Ok(())
        }
        same::<Everything>(&bytes)?;
        same::<Vec<Shape>>(&bytes)?;
        same::<(u16, u32, u64, u128)>(&bytes)?;
        same::<(i16, i32, i64, i128)>(&bytes)?;
        same::<HashMap<u8, (char, Option<bool>)>>(&bytes)?;
        same::<Vec<Result<String, Vec<u8>>>>(&bytes)?;
    }

    /// Changes a byte, which finds deeper places than random bytes do.
    #[test]
    fn a_changed_byte_never_panics(value in everything(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = encoded(&value);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decoded::<Everything>(&bytes);
    }

    #[test]
    fn bytes_have_the_encoding_of_a_vector(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut sink = Limited { bytes: Vec::new(), limit: usize::MAX };
        Writer::new(&mut sink).put_bytes(&bytes).expect("room");
        prop_assert_eq!(&sink.bytes, &encoded(&bytes));
        let mut reader = Reader::new(&sink.bytes);
        prop_assert_eq!(reader.get_bytes(), Ok(&bytes[..]));
        prop_assert_eq!(reader.end(), Ok(()));
    }
}

#[test]
fn numbers_beyond_their_type_are_rejected() {
    for bytes in [&[0xff, 0xff, 0x04][..], &[0x80, 0x80, 0x80, 0x00]] {
        assert_eq!(decoded::<u16>(bytes), Err(Malformed::InvalidValue), "{bytes:?}");
    }
    assert_eq!(decoded::<u16>(&[0xff, 0xff, 0x03]), Ok(u16::MAX));
    assert_eq!(decoded::<i16>(&[0xff, 0xff, 0x03]), Ok(i16::MIN));
    assert_eq!(decoded::<u64>(&[0xff; 10]), Err(Malformed::InvalidValue));
    assert_eq!(decoded::<u64>(&[0xff; 9]), Err(Malformed::TooShort));
    assert_eq!(decoded::<bool>(&[2]), Err(Malformed::InvalidValue));
    assert_eq!(decoded::<char>(&[2, b'a', b'b']), Err(Malformed::InvalidValue));
    assert_eq!(decoded::<String>(&[1, 0xff]), Err(Malformed::InvalidValue));
    assert_eq!(decoded::<Shape>(&[4]), Err(Malformed::InvalidValue));
    assert_eq!(decoded::<std::num::NonZeroU8>(&[0]), Err(Malformed::InvalidValue));
}

/// A collection that records the room that serde reserved.
struct Reserved(usize);

impl<'de> Deserialize<'de> for Reserved {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Reserved, D::Error> {
        struct Room;
        impl<'de> serde::de::Visitor<'de> for Room {
            type Value = usize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, elements: A) -> Result<usize, A::Error> {
                Ok(elements.size_hint().expect("a hint"))
            }
        }
        deserializer.deserialize_seq(Room).map(Reserved)
    }
}

#[test]
fn no_more_room_is_reserved_than_the_input_has_bytes() {
    let mut bytes = encoded(&u64::MAX);
    bytes.extend([0; 7]);
    let reserved: Reserved = Reader::new(&bytes).get().expect("the length of a sequence");
    assert_eq!(reserved.0, 7);
    assert_eq!(decoded::<Vec<u64>>(&bytes), Err(Malformed::TooShort));
    assert_eq!(decoded::<String>(&bytes), Err(Malformed::TooShort));
    assert_eq!(decoded::<HashMap<u64, ()>>(&bytes), Err(Malformed::TooShort));
}

#[test]
fn elements_without_bytes_are_limited() {
    let most = vec![(); EMPTY_MAX as usize];
    assert_eq!(decoded::<Vec<()>>(&encoded(&most)), Ok(most));
    assert_eq!(decoded::<Vec<()>>(&encoded(&u64::MAX)), Err(Malformed::TooMany));
    let twice = encoded(&(vec![(); EMPTY_MAX as usize], [(); 1]));
    assert_eq!(decoded::<(Vec<()>, [(); 1])>(&twice), Err(Malformed::TooMany));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nested(Option<Box<Nested>>);

#[test]
fn the_depth_is_limited() {
    let nested = |depth| (1..depth).fold(Nested(None), |inner, _| Nested(Some(Box::new(inner))));
    // A structure and an option.
    let most = nested(DEPTH_MAX / 2);
    assert_eq!(decoded(&encoded(&most)), Ok(most));
    assert_eq!(decoded::<Nested>(&encoded(&nested(DEPTH_MAX / 2 + 1))), Err(Malformed::TooDeep));
    assert_eq!(decoded::<Nested>(&[1; 8192]), Err(Malformed::TooDeep));
    // The levels of a value are free after it.
    let many: Vec<Nested> = (0..20).map(|_| nested(60)).collect();
    assert_eq!(decoded(&encoded(&many)), Ok(many));
}

#[test]
fn a_full_sink_is_an_error() {
    for limit in 0..9 {
        let mut sink = Limited { bytes: Vec::new(), limit };
        let put = Writer::new(&mut sink).put(&(3u8, "seven b"));
        assert_eq!(put, if limit < 9 { Err(Malformed::TooLarge) } else { Ok(()) });
    }
    assert_eq!(Malformed::TooLarge.written(), MessageError::TooLarge);
    assert_eq!(Malformed::TooDeep.written(), MessageError::Unencodable);
}

#[test]
fn types_without_an_encoding_are_errors() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        One(u8),
    }
    assert_eq!(decoded::<Untagged>(&encoded(&Untagged::One(1))), Err(Malformed::Unsupported));
    struct Endless;
    impl Serialize for Endless {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serde::ser::SerializeSeq::end(serializer.serialize_seq(None)?)
        }
    }
    struct Failing;
    impl Serialize for Failing {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    let mut sink = Limited { bytes: Vec::new(), limit: 9 };
    let mut writer = Writer::new(&mut sink);
    assert_eq!(writer.put(&Endless), Err(Malformed::Unsupported));
    assert_eq!(writer.put(&Failing), Err(Malformed::InvalidValue));
}

/// A sink that counts the writes.
struct Writes(u32);

impl Sink for Writes {
    fn write(&mut self, _: &[u8]) -> Result<(), Full> {
        self.0 += 1;
        Ok(())
    }
}

/// Returns the number of writes of an encoding.
macro_rules! writes {
    ($selector:expr, $method:ident, $value:expr) => {{
        let mut writes = Writes(0);
        ($selector).$method($value, &mut Writer::new(&mut writes)).expect("room");
        writes.0
    }};
}

/// A length and one copy, and a write more for the variant of an enumeration.
#[test]
fn bytes_are_copied_whole() {
    type OrCall = Result<Vec<u8>, squall_core::CallError>;
    let bytes = vec![7; 8000];
    let boxed: Box<[u8]> = bytes.clone().into();
    assert_eq!(writes!(&Borrowed::<[u8]>::new(), __squall_put, &bytes), 2);
    assert_eq!(writes!(&Borrowed::<str>::new(), __squall_put, "abcdefgh"), 2);
    assert_eq!(writes!(&Field::<Vec<u8>>::new(), __squall_put, &bytes), 2);
    assert_eq!(writes!(&Field::<Box<[u8]>>::new(), __squall_put, &boxed), 2);
    assert_eq!(writes!(&Field::<Option<Vec<u8>>>::new(), __squall_put, &Some(bytes.clone())), 3);
    assert_eq!(writes!(&Field::<Result<Vec<u8>, u8>>::new(), __squall_put, &Ok(bytes.clone())), 3);
    assert_eq!(writes!(&&&Field::<OrCall>::new(), __squall_answer, Ok(bytes)), 2);
}
