//! Both ends of remote interfaces, as `#[interface(remote)]` writes them. The transport is a function call.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all)]

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use squall_call::__macro::{Full, Reader, Sink, Unserved, Writer};
use squall_call::Remote;
use squall_core::{CallError, CallErrorKind, Handle, Interface, MessageError, Owned, Transport, shared};
use squall_macros::interface;

/// The hidden modules of the façade, with a port that calls an object of this process.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) mod __macro {
            pub(crate) use crate::Port;
            pub(crate) use squall_call::__macro::{
                Borrowed, Field, InPlaceBorrowed, PackedField, PackedOrError, PlainField, Reader, Remote,
                SliceBorrowed, Unserved, ValueBorrowed, ValueOrError, Writer, fits,
            };
        }
    }
}

/// Room for the arguments or the result of a call.
const ROOM: usize = 8192;

struct Message(Vec<u8>);

impl Sink for Message {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if ROOM - self.0.len() < bytes.len() {
            return Err(Full);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// A port without a process behind it.
pub(crate) struct Port<I: ?Sized> {
    served: Handle<I>,
    /// The bytes that a hostile process answers to every call.
    answer: Option<Vec<u8>>,
}

impl<I: ?Sized + Remote> Port<I> {
    /// Encodes the arguments, serves the call and decodes the result.
    pub(crate) fn __call<R>(
        &self,
        method: u32,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), squall_call::__macro::Malformed>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<R, squall_call::__macro::Malformed>,
    ) -> Result<R, CallError> {
        let name = I::METHODS[method as usize];
        let failed = |reason| {
            CallError::__remote(I::NAME, Handle::id(self.served), name, CallErrorKind::Transport(reason))
        };
        let mut message = Message(Vec::new());
        write(&mut Writer::new(&mut message))
            .map_err(|malformed| failed(Transport::BadArguments(malformed.written())))?;
        let result = match &self.answer {
            Some(answer) => Ok(answer.clone()),
            None => served(self.served, method, &message.0),
        };
        let result = result.map_err(|unserved| match unserved {
            Unserved::NoSuchMethod => failed(Transport::Unsupported),
            Unserved::Arguments(malformed) => failed(Transport::BadArguments(malformed.read())),
            Unserved::Result(malformed) => failed(Transport::BadResult(malformed.written())),
            Unserved::Call(error) if error.reason() == CallErrorKind::Destroyed => {
                failed(Transport::NoSuchObject)
            }
            Unserved::Call(_) => failed(Transport::Denied),
            Unserved::Returned(_) => failed(Transport::Nested),
        })?;
        let mut reader = Reader::new(&result);
        let bad = |malformed: squall_call::__macro::Malformed| failed(Transport::BadResult(malformed.read()));
        let value = read(&mut reader).map_err(bad)?;
        reader.end().map_err(bad)?;
        Ok(value)
    }
}

/// Serves a call with these arguments, and returns the encoded result.
fn served<I: ?Sized + Remote>(object: Handle<I>, method: u32, arguments: &[u8]) -> Result<Vec<u8>, Unserved> {
    let mut result = Message(Vec::new());
    I::__serve(object, method, &mut Reader::new(arguments), &mut Writer::new(&mut result))?;
    Ok(result.0)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

/// An error that can carry the error of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Failure {
    Odd(u64),
    Lost(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Lost(error.to_string())
    }
}

/// Methods with every kind of argument and result.
#[interface(crate = crate::facade, remote, version = 3)]
trait Kinds: Send + Sync {
    fn nothing(&self);
    fn numbers(&self, a: u8, b: i128, c: f64) -> (u8, i128, f64);
    fn text(&self, a: &str, b: String, c: Option<&str>) -> String;
    fn bytes(&self, a: &[u8], b: Vec<u8>, c: Box<[u8]>) -> Vec<u8>;
    fn path(&self, a: &Path) -> PathBuf;
    fn slices(&self, a: &[u64], b: &[Point], c: &[String]) -> u64;
    fn values(&self, a: &Point, b: &VecDeque<Point>, c: &[i32; 2], d: &Option<Box<Point>>) -> Vec<Point>;
    fn cow<'a, 'b: 'a>(&self, a: Cow<'a, str>, b: &'b str, c: (&'a str, u8)) -> Cow<'static, str>;
    fn map(&self, a: BTreeMap<String, Point>) -> BTreeMap<String, i32>;
    fn halved(&self, n: u64) -> Result<u64, Failure>;
    fn carried(&self, n: u64) -> Result<u64, CallError>;
    fn carried_bytes(&self, n: usize) -> Result<Vec<u8>, CallError>;
    fn maybe_bytes(&self, n: usize) -> Option<Vec<u8>>;
    fn bytes_or_failure(&self, n: u64) -> Result<Vec<u8>, Failure>;
    fn boxed(&self, n: usize) -> Box<[u8]>;
    #[blocking]
    fn r#type(&self, r#type: u8) -> u8 {
        r#type.wrapping_add(1)
    }
    fn difference(&self, (a, b): (u8, u8)) -> u8 {
        a.wrapping_sub(b)
    }
    #[cfg(any())]
    fn absent(&self, types: Missing);
    #[deprecated]
    #[doc(hidden)]
    fn last(&self) -> u64;
}

#[derive(Default)]
struct Here {
    calls: AtomicU64,
    log: Mutex<Vec<String>>,
}

impl Here {
    fn note(&self, call: String) {
        self.log.lock().unwrap().push(call);
    }
}

impl Kinds for Here {
    fn nothing(&self) {
        self.calls.fetch_add(1, Relaxed);
    }
    fn numbers(&self, a: u8, b: i128, c: f64) -> (u8, i128, f64) {
        (a, b, c)
    }
    fn text(&self, a: &str, b: String, c: Option<&str>) -> String {
        format!("{a}{b}{c:?}")
    }
    fn bytes(&self, a: &[u8], b: Vec<u8>, c: Box<[u8]>) -> Vec<u8> {
        [a, &b, &c].concat()
    }
    fn path(&self, a: &Path) -> PathBuf {
        a.join("b")
    }
    fn slices(&self, a: &[u64], b: &[Point], c: &[String]) -> u64 {
        self.note(format!("{a:?}{b:?}{c:?}"));
        a.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
    fn values(&self, a: &Point, b: &VecDeque<Point>, c: &[i32; 2], d: &Option<Box<Point>>) -> Vec<Point> {
        let mut all: Vec<_> = b.iter().cloned().collect();
        all.push(a.clone());
        all.push(Point { x: c[0], y: c[1] });
        all.extend(d.as_deref().cloned());
        all
    }
    fn cow<'a, 'b: 'a>(&self, a: Cow<'a, str>, b: &'b str, c: (&'a str, u8)) -> Cow<'static, str> {
        Cow::Owned(format!("{a}{b}{}", c.0))
    }
    fn map(&self, a: BTreeMap<String, Point>) -> BTreeMap<String, i32> {
        a.into_iter().map(|(key, point)| (key, point.x.wrapping_add(point.y))).collect()
    }
    fn halved(&self, n: u64) -> Result<u64, Failure> {
        if n.is_multiple_of(2) { Ok(n / 2) } else { Err(Failure::Odd(n)) }
    }
    fn carried(&self, n: u64) -> Result<u64, CallError> {
        Ok(n)
    }
    fn carried_bytes(&self, n: usize) -> Result<Vec<u8>, CallError> {
        Ok(vec![7; n])
    }
    fn maybe_bytes(&self, n: usize) -> Option<Vec<u8>> {
        (n > 0).then(|| vec![8; n])
    }
    fn bytes_or_failure(&self, n: u64) -> Result<Vec<u8>, Failure> {
        if n.is_multiple_of(2) { Ok(vec![9; n as usize]) } else { Err(Failure::Odd(n)) }
    }
    fn boxed(&self, n: usize) -> Box<[u8]> {
        vec![1; n].into()
    }
    fn last(&self) -> u64 {
        self.calls.load(Relaxed)
    }
}

/// An object, and an object that reaches it through a port.
fn both() -> (Owned<dyn Kinds>, Owned<dyn Kinds>) {
    let object = shared(Here::default());
    let imported = shared(Port::<dyn Kinds> { served: object.handle(), answer: None });
    (object, imported)
}

#[test]
fn every_kind_of_argument_and_result_passes() {
    let (_object, imported) = both();
    let kinds = imported.handle();
    kinds.nothing();
    assert_eq!(kinds.numbers(255, i128::MIN, 0.5), (255, i128::MIN, 0.5));
    assert_eq!(kinds.text("a", "b".into(), Some("c")), "abSome(\"c\")");
    assert_eq!(kinds.bytes(&[1, 2], vec![3], Box::new([4])), [1, 2, 3, 4]);
    assert_eq!(kinds.path(Path::new("a")), Path::new("a/b"));
    let points = [Point { x: 1, y: -2 }, Point { x: 3, y: 4 }];
    assert_eq!(kinds.slices(&[5, 6], &points, &["t".into()]), 11);
    let boxed = Some(Box::new(points[1].clone()));
    let values = kinds.values(&points[0], &points.to_vec().into(), &[8, 9], &boxed);
    let x: Vec<_> = values.iter().map(|point| point.x).collect();
    assert_eq!(x, [1, 3, 1, 8, 3]);
    assert_eq!(kinds.cow("a".into(), "b", ("c", 0)), "abc");
    let map = BTreeMap::from([("p".to_owned(), points[1].clone())]);
    assert_eq!(kinds.map(map), BTreeMap::from([("p".to_owned(), 7)]));
    assert_eq!((kinds.halved(8), kinds.halved(7)), (Ok(4), Err(Failure::Odd(7))));
    assert_eq!((kinds.carried(1), kinds.carried_bytes(3)), (Ok(1), Ok(vec![7; 3])));
    assert_eq!((kinds.maybe_bytes(0), kinds.maybe_bytes(2)), (None, Some(vec![8; 2])));
    assert_eq!(kinds.bytes_or_failure(2), Ok(vec![9; 2]));
    assert_eq!(kinds.bytes_or_failure(3), Err(Failure::Odd(3)));
    assert_eq!((kinds.boxed(2), kinds.r#type(4), kinds.difference((5, 3))), ([1, 1].into(), 5, 2));
    #[expect(deprecated)]
    let calls = kinds.last();
    assert_eq!(calls, 1);
}

#[test]
fn every_method_may_wait() {
    assert!(<dyn Kinds>::BLOCKING.iter().all(|blocking| *blocking));
}

#[test]
fn the_signature_names_every_method() {
    let expected = "Counter{add(u64,&str)->();get()->Option<Vec<u8>>};version=1";
    assert_eq!(<dyn counter::Counter>::SIGNATURE, expected);
    // FNV-1a of 64 bits.
    let hash = expected
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!(<dyn counter::Counter>::SCHEMA, hash);
    assert_ne!(<dyn counter::Counter>::SCHEMA, <dyn later::Counter>::SCHEMA);
    assert!(<dyn Kinds>::SIGNATURE.ends_with("};version=3"), "{}", <dyn Kinds>::SIGNATURE);
}

mod counter {
    #[squall_macros::interface(crate = crate::facade, remote)]
    pub(crate) trait Counter: Send + Sync {
        /// Documented, and written with other white space and names.
        #[allow(dead_code)]
        fn add(&self, number: u64, _: &str);
        fn get(&self) -> Option<Vec<u8>>;
    }
}

mod later {
    #[squall_macros::interface(remote, version = 2, crate = crate::facade)]
    pub(crate) trait Counter: Send + Sync {
        fn add(&self, number: u64, _: &str);
        fn get(&self) -> Option<Vec<u8>>;
    }
}

#[test]
fn the_number_of_a_method_is_its_place_in_the_trait() {
    let (object, _) = both();
    let number = |name| <dyn Kinds>::METHODS.iter().position(|method| *method == name).unwrap() as u32;
    assert_eq!(served(object.handle(), number("last"), &[]), Ok(vec![0]));
    assert_eq!(served(object.handle(), number("absent"), &[]), Err(Unserved::NoSuchMethod));
    assert_eq!(served(object.handle(), u32::MAX, &[]), Err(Unserved::NoSuchMethod));
}

#[test]
fn hostile_arguments_are_errors_and_do_not_reach_the_object() {
    let (object, _) = both();
    for method in 0..<dyn Kinds>::METHODS.len() as u32 {
        for arguments in [&[0xff; 40][..], &[0xff, 0xff, 0xff, 0xff, 0x7f, 0xff]] {
            let result = served(object.handle(), method, arguments);
            assert!(result.is_err(), "{method}: {result:?}");
        }
    }
    // Bytes after the last argument.
    assert!(matches!(served(object.handle(), 0, &[0]), Err(Unserved::Arguments(_))));
    #[expect(deprecated)]
    let calls = object.last();
    assert_eq!(calls, 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Neither end panics. An answer is read as the type of the result, or rejected.
    #[test]
    fn any_bytes_are_served_and_read_without_a_panic(bytes in prop::collection::vec(0..10u8, 0..40)) {
        let (object, _) = both();
        for method in 0..<dyn Kinds>::METHODS.len() as u32 {
            let _ = served(object.handle(), method, &bytes);
        }
        let imported = shared(Port { served: object.handle(), answer: Some(bytes) });
        let kinds: Handle<dyn Kinds> = imported.handle();
        let _ = kinds.try_text("", String::new(), None);
        let _ = kinds.try_bytes(&[], Vec::new(), Box::new([]));
        let _ = kinds.try_map(BTreeMap::new());
        let _ = kinds.carried_bytes(1);
        let _ = kinds.bytes_or_failure(1);
        let _ = kinds.try_maybe_bytes(1);
    }
}

#[test]
fn errors_of_the_transport_go_where_the_method_can_carry_them() {
    let (object, imported) = both();
    let kinds = imported.handle();
    let too_large = vec![0; ROOM];
    let error = kinds.try_bytes(&too_large, Vec::new(), Box::new([])).unwrap_err();
    assert_eq!(error.reason(), CallErrorKind::Transport(Transport::BadArguments(MessageError::TooLarge)));
    assert_eq!((error.interface(), error.method()), ("Kinds", "bytes"));
    let error = kinds.carried_bytes(ROOM).unwrap_err();
    assert_eq!(error.reason(), CallErrorKind::Transport(Transport::BadResult(MessageError::TooLarge)));
    drop(object);
    let reason = Transport::NoSuchObject;
    assert_eq!(kinds.carried(1).unwrap_err().reason(), CallErrorKind::Transport(reason));
    assert_eq!(kinds.carried_bytes(1).unwrap_err().reason(), CallErrorKind::Transport(reason));
    assert_eq!(kinds.try_nothing().unwrap_err().reason(), CallErrorKind::Transport(reason));
    assert!(matches!(kinds.halved(2), Err(Failure::Lost(text)) if text.ends_with(&reason.to_string())));
    // The error of the import itself.
    drop(imported);
    assert_eq!(kinds.try_nothing().unwrap_err().reason(), CallErrorKind::Destroyed);
}

#[test]
fn a_panic_is_at_the_callers_line() {
    let (object, imported) = both();
    drop(object);
    let place = Mutex::new(None);
    let hook = std::panic::take_hook();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::panic::set_hook(Box::new(move |info| {
        let _ = sender.send((info.location().map(Location::to_string), info.to_string()));
    }));
    let here = Location::caller().line() + 1;
    let caught = catch_unwind(AssertUnwindSafe(|| imported.handle().nothing()));
    std::panic::set_hook(hook);
    *place.lock().unwrap() = Some(receiver.try_iter().last().expect("a panic"));
    assert!(caught.is_err());
    let (location, text) = place.into_inner().unwrap().unwrap();
    let location = location.expect("a location");
    assert!(location.starts_with(&format!("{}:{here}:", file!())), "{location}");
    assert!(text.contains(&Transport::NoSuchObject.to_string()), "{text}");
}

/// Names in scope that the expansion must not mean.
#[test]
fn the_expansion_keeps_its_meaning_in_any_scope() {
    #![allow(dead_code, non_camel_case_types)]
    struct Vec;
    struct Result;
    struct Field;
    struct Port;
    struct Reader;
    struct Some;
    struct Ok;
    struct Err;
    trait Remote {}
    type u32 = u8;
    #[interface(crate = crate::facade, remote)]
    trait Scoped: Send + Sync {
        fn get(&self, __writer: u32, __argument0: &[u8], n: ::std::vec::Vec<u8>) -> u32;
    }
    struct One;
    impl Scoped for One {
        fn get(&self, a: u32, b: &[u8], c: ::std::vec::Vec<u8>) -> u32 {
            a + b[0] + c[0]
        }
    }
    let object = shared::<dyn Scoped, _>(One);
    let imported =
        shared::<dyn Scoped, _>(crate::Port::<dyn Scoped> { served: object.handle(), answer: None });
    assert_eq!(imported.get(1, &[2], ::std::vec![3]), 6);
}
