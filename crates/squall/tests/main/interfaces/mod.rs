//! Traits that `#[interface]` accepts, and calls through its expansion, of living and of destroyed objects.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all)]

pub mod arguments;
pub mod blocking;
pub mod errors;
pub mod extending;
pub mod objects;
pub mod parameters;
pub mod scopes;

use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};

use squall::{CallError, Handle, Owned, interface, shared};

/// Counts.
#[interface]
pub trait Hits: Send + Sync {
    /// Counts `n` more.
    fn add(&self, n: u64);
    /// The count.
    fn total(&self) -> u64;
    /// Counts one more. Provided by the trait.
    fn hit(&self) {
        self.add(1);
    }
}

#[derive(Default)]
struct Count(AtomicU64);

impl Hits for Count {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Returns the message of a panic in `call`.
fn panic_of(call: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("a panic");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string())).expect("a panic with a text")
}

#[test]
fn plain_and_checked_calls() {
    let hits: Owned<dyn Hits> = shared(Count::default());
    let handle: Handle<dyn Hits> = hits.handle();
    hits.add(1);
    handle.add(2);
    handle.hit();
    handle.try_add(3).unwrap();
    handle.try_hit().unwrap();
    assert_eq!(handle.total(), 8);
    assert_eq!(handle.try_total().unwrap(), 8);

    // Inside an operation the slot keeps the class of the destroyed object.
    squall::rcu::pin(|_| {
        Owned::destroy(hits);
        let error: CallError = handle.try_total().unwrap_err();
        assert_eq!((error.interface(), error.method()), ("Hits", "total"));
        assert_eq!(handle.try_add(1).unwrap_err().method(), "add");
        assert_eq!(handle.try_hit().unwrap_err().method(), "hit");
        assert_eq!(panic_of(|| handle.add(1)), handle.try_add(1).unwrap_err().to_string());
    });
}

#[test]
fn implementors_have_the_checked_form_too() {
    let count = Count::default();
    count.try_add(2).unwrap();
    assert_eq!(count.try_total().unwrap(), 2);
}

#[test]
fn generic_code_takes_handles_and_implementors() {
    fn twice<H: Hits>(hits: &H) -> u64 {
        hits.add(1);
        hits.add(1);
        hits.total()
    }
    let hits: Owned<dyn Hits> = shared(Count::default());
    assert_eq!(twice(&hits.handle()), 2);
    assert_eq!(twice(&Count::default()), 2);
}

struct Knows;

impl Hits for Knows {
    fn add(&self, _: u64) {
        panic!("`hit` is provided here");
    }
    fn total(&self) -> u64 {
        0
    }
    fn hit(&self) {}
}

#[test]
fn an_overridden_provided_method_is_called() {
    let hits: Owned<dyn Hits> = shared(Knows);
    hits.hit();
    hits.try_hit().unwrap();
}
