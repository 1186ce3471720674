//! Calls over a carrier, which here is a function call.

#![cfg(not(loom))]
#![forbid(unsafe_code)]

use proptest::prelude::*;
use serde::{Deserialize, Serialize, Serializer};
use squall_call::carrier::{BYTES_MAX, Carried, Carrier, import_over, serve_bytes, unsupported};
use squall_call::with_deadline;
use squall_core::{CallError, CallErrorKind, Handle, Interface, MessageError, Owned, Transport, shared};
use squall_macros::interface;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden modules of the façade.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

#[interface(crate = crate::facade, remote)]
trait Desk: Send + Sync {
    fn add(&self, n: u64) -> u64;
    fn text(&self, a: &str, b: Option<String>) -> String;
    fn first(&self, bytes: &[u8]) -> Result<u8, CallError>;
    fn bytes(&self, count: usize) -> Vec<u8>;
    fn panic(&self);
    fn odd(&self, odd: Odd) -> u64;
    fn again(&self, depth: u64) -> u64;
}

std::thread_local! {
    /// A desk that values call while they are encoded, and methods while they run.
    static OTHER: Cell<Option<Handle<dyn Desk>>> = const { Cell::new(None) };
}

/// A value that makes a call while it is encoded.
#[derive(Deserialize)]
struct Odd(u64);

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let other = OTHER.get().map_or(0, |desk| desk.add(self.0));
        serializer.serialize_newtype_struct("Odd", &other)
    }
}

#[derive(Default)]
struct Here(AtomicU64);

impl Desk for Here {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Relaxed) + n
    }
    fn text(&self, a: &str, b: Option<String>) -> String {
        format!("{a}{b:?}")
    }
    fn first(&self, bytes: &[u8]) -> Result<u8, CallError> {
        Ok(bytes.first().copied().unwrap_or(0))
    }
    fn bytes(&self, count: usize) -> Vec<u8> {
        vec![7; count]
    }
    fn panic(&self) {
        panic!("asked for");
    }
    fn odd(&self, Odd(n): Odd) -> u64 {
        n
    }
    fn again(&self, depth: u64) -> u64 {
        match OTHER.get() {
            Some(desk) if depth > 0 => desk.again(depth - 1) + 1,
            _ => 0,
        }
    }
}

/// Carries calls to an object of this process, and keeps a list of them.
struct ByCall {
    object: Handle<dyn Desk>,
    seen: Mutex<Vec<(u32, Option<Instant>, usize)>>,
}

impl Carrier for ByCall {
    fn carry(&self, call: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport> {
        let Carried { method, deadline, region, input } = call;
        self.seen.lock().unwrap().push((method, deadline, region));
        assert!(output.is_empty());
        Ok(serve_bytes(self.object, method, input, output))
    }
}

/// Answers every call with the same.
struct Same(Result<u32, Transport>, Vec<u8>);

impl Carrier for Same {
    fn carry(&self, _: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport> {
        output.extend_from_slice(&self.1);
        self.0
    }
}

fn import(carrier: impl Carrier) -> Owned<dyn Desk> {
    import_over::<dyn Desk>(Arc::new(carrier)).unwrap()
}

/// An object, its carrier, and the object that calls it over the carrier.
fn both() -> (Owned<dyn Desk>, Arc<ByCall>, Owned<dyn Desk>) {
    let object = shared::<dyn Desk, _>(Here::default());
    let carrier = Arc::new(ByCall { object: object.handle(), seen: Mutex::default() });
    let imported = import_over::<dyn Desk>(carrier.clone()).unwrap();
    (object, carrier, imported)
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, CallError>, with: Transport) {
    assert_eq!(result.unwrap_err().reason(), CallErrorKind::Transport(with));
}

#[test]
fn arguments_and_results_pass() {
    let (_object, carrier, imported) = both();
    assert_eq!((imported.add(2), imported.add(3)), (2, 5));
    assert_eq!(imported.text("a", Some("b".into())), "aSome(\"b\")");
    assert_eq!(imported.first(&[9, 1]), Ok(9));
    assert_eq!(imported.bytes(8192), vec![7; 8192]);
    let methods: Vec<u32> = carrier.seen.lock().unwrap().iter().map(|call| call.0).collect();
    assert_eq!(methods, [0, 0, 1, 2, 3]);
}

#[test]
fn each_failure_of_the_served_object_has_its_error() {
    let (object, _, imported) = both();
    fails(imported.try_panic(), Transport::Panicked);
    let too_large = vec![0; BYTES_MAX];
    fails(imported.first(&too_large), Transport::BadArguments(MessageError::TooLarge));
    fails(imported.try_bytes(BYTES_MAX), Transport::BadResult(MessageError::TooLarge));
    assert_eq!(imported.add(1), 1, "later calls are as before");
    let error = imported.try_panic().unwrap_err();
    assert_eq!(
        (error.interface(), error.method(), error.id()),
        ("Desk", "panic", Handle::id(imported.handle()))
    );
    drop(object);
    fails(imported.try_add(1), Transport::Destroyed);
}

#[test]
fn a_failure_leaves_the_output_as_it_was() {
    let (object, ..) = both();
    let mut output = b"head".to_vec();
    // A result that is begun, and then too large.
    let count = postcard_of(BYTES_MAX as u64);
    let bytes = <dyn Desk>::METHODS.iter().position(|method| *method == "bytes").unwrap() as u32;
    assert_ne!(serve_bytes(object.handle(), bytes, &count, &mut output), 0);
    assert_eq!(output, b"head");
    assert_eq!(serve_bytes(object.handle(), bytes, &postcard_of(3), &mut output), 0);
    assert_eq!(output, b"head\x03\x07\x07\x07");
    let status = serve_bytes(object.handle(), u32::MAX, &[], &mut output);
    assert_eq!((status, output.len()), (unsupported(), 8));
    assert_ne!(serve_bytes(object.handle(), 0, &vec![1; BYTES_MAX + 1], &mut output), 0);
}

/// The encoding of a number.
fn postcard_of(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn errors_of_the_carrier_reach_the_caller() {
    for transport in [Transport::Denied, Transport::Busy, Transport::WouldBlock, Transport::PeerGone] {
        fails(import(Same(Err(transport), b"unused".to_vec())).try_add(1), transport);
    }
    fails(import(Same(Ok(unsupported()), Vec::new())).try_add(1), Transport::Unsupported);
    // A result that is longer than any, or goes on after its value.
    let broken = Transport::BadResult(MessageError::Undecodable);
    fails(import(Same(Ok(0), vec![1; BYTES_MAX + 1])).try_add(1), broken);
    fails(import(Same(Ok(0), vec![1; 3 * BYTES_MAX])).try_add(1), broken);
    fails(import(Same(Ok(0), vec![1, 1])).try_add(1), broken);
    fails(import(Same(Ok(77), vec![1])).try_add(1), broken);
    assert_eq!(import(Same(Ok(0), vec![1])).add(1), 1);
}

#[test]
fn the_carrier_gets_the_deadline_and_the_method_does_not() {
    let (_object, carrier, imported) = both();
    let (_other, inner, other) = both();
    OTHER.set(Some(other.handle()));
    with_deadline(Duration::from_secs(600), || assert_eq!(imported.again(1), 1));
    OTHER.set(None);
    assert!(carrier.seen.lock().unwrap()[0].1.is_some());
    assert_eq!(inner.seen.lock().unwrap()[0].1, None, "a call that the method made");
}

#[test]
fn values_and_methods_make_calls_of_their_own() {
    let (_object, _, imported) = both();
    let (_other, _, other) = both();
    OTHER.set(Some(other.handle()));
    assert_eq!(other.add(5), 5);
    assert_eq!(imported.odd(Odd(4)), 9);
    assert_eq!(imported.again(10), 10);
    OTHER.set(None);
}

#[test]
fn threads_call_at_the_same_time() {
    let (_object, carrier, imported) = both();
    let (threads, calls) = (8, if cfg!(miri) { 3 } else { 200 });
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..calls).for_each(|_| assert!(imported.add(1) > 0)));
        }
    });
    assert_eq!(imported.add(0), threads * calls);
    let limit = squall_machine::machine().vp_limit();
    assert!(carrier.seen.lock().unwrap().iter().all(|call| call.2 < limit));
}

#[test]
fn the_carrier_ends_with_the_object() {
    let (_object, carrier, imported) = both();
    imported.add(1);
    drop(imported);
    // Representatives are dropped after a grace period.
    while Arc::strong_count(&carrier) > 1 {
        thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_served_and_read_without_a_panic(
        bytes in prop::collection::vec(0..10_u8, 0..40),
        status in 0..16_u32,
    ) {
        let (object, ..) = both();
        let panic = <dyn Desk>::METHODS.iter().position(|method| *method == "panic");
        for method in (0..8).filter(|method| Some(*method as usize) != panic) {
            serve_bytes(object.handle(), method, &bytes, &mut Vec::new());
        }
        let imported = import(Same(Ok(status), bytes));
        let _ = imported.try_text("", None);
        let _ = imported.first(&[]);
        let _ = imported.try_bytes(1);
    }
}
