//! The basis of policies: handles found by id, values that know their handle, the callers of an object,
//! arbiters by id.

use crate::common::misses_are_counted;
use squall::swap::{Replacement, SwapFailure, arbitrate_object};
use squall::{Handle, Id, Owned, class_of, shared, shared_with, swappable_with, tables};
use std::any::TypeId;
use std::sync::atomic::{AtomicU64, Ordering};

#[squall::interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64) -> u64;
}

#[squall::interface]
trait Other: Send + Sync {
    fn other(&self);
}

#[squall::interface]
trait Both: Hits + Other {}

#[derive(Default)]
struct Count(AtomicU64);

impl Hits for Count {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }
}

impl Other for Count {
    fn other(&self) {}
}

impl Both for Count {}

fn hits() -> Owned<dyn Hits> {
    shared(Count::default())
}

#[test]
fn an_id_finds_its_object_by_its_own_interface_only() {
    let object = hits();
    let id = Handle::id(object.handle());
    assert_eq!(Handle::<dyn Hits>::find(id), Some(object.handle()));
    assert_eq!(Handle::<dyn Other>::find(id), None);
    let both: Owned<dyn Both> = shared(Count::default());
    // The id of an extended interface names the object, but the object was made for another interface.
    let upcast: Handle<dyn Hits> = Handle::upcast(both.handle());
    assert_eq!(Handle::<dyn Hits>::find(Handle::id(upcast)), None);
    assert_eq!(Handle::<dyn Both>::find(Handle::id(both.handle())), Some(both.handle()));
    drop(object);
    assert_eq!(Handle::<dyn Hits>::find(id), None);
    let made_up = Id::from_parts(4000, 1).unwrap();
    assert_eq!(Handle::<dyn Hits>::find(made_up), None);
    assert!(squall::info_of(made_up).is_none() && tables::callers_of(made_up).is_empty());
    assert_eq!(
        (Id::from_parts(u32::MAX, 1), Id::from_parts(7, 0)),
        (None, None),
        "ids that no object can have"
    );
    assert!(class_of(Id::NULL).is_none() && squall::info_of(Id::NULL).is_none());
    assert!(tables::callers_of(Id::NULL).is_empty() && Handle::<dyn Hits>::find(Id::NULL).is_none());
    tables::forget(Id::NULL);
    assert!(arbitrate_object(Id::NULL, |_| {}).is_err());
}

#[test]
fn an_id_is_read_from_the_text_that_it_is_written_as() {
    let id = Id::from_parts(17, 3).unwrap();
    assert_eq!(id.to_string(), "17.3");
    assert_eq!("17.3".parse(), Ok(id));
    for text in [
        "",
        "17",
        "17.",
        ".3",
        "+17.3",
        "17.+3",
        "17.3.1",
        "4294967296.1",
        "a.b",
        " 17.3",
        "-1.3",
        "4294967295.1",
        "17.0",
    ] {
        let error = text.parse::<Id>().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{text:?} is not an id: an id is a slot and a generation, as in 17.3")
        );
    }
}

#[test]
fn class_of_returns_the_current_class() {
    let object = stateless();
    let id = Handle::id(object.handle());
    let class = class_of(id).unwrap();
    assert_eq!(
        (class.type_id, class.interface, class.interface_id),
        (TypeId::of::<Count>(), "Hits", TypeId::of::<dyn Hits>())
    );
    assert!(class.bytes >= size_of::<Count>());
    squall::swap::Swap::new(object.handle()).without_state().run(Replacement::shared(Wide([0; 64]))).unwrap();
    assert_eq!(class_of(id).unwrap().type_id, TypeId::of::<Wide>());
    drop(object);
    assert!(class_of(id).is_none());
}

fn stateless() -> Owned<dyn Hits> {
    shared(Count::default())
}

struct Wide([u64; 64]);
impl Hits for Wide {
    fn add(&self, n: u64) -> u64 {
        self.0[0] + n
    }
}

/// A value that calls its own object through a handle.
struct Knows(Handle<dyn Hits>, AtomicU64);
impl Hits for Knows {
    fn add(&self, n: u64) -> u64 {
        self.1.fetch_add(n, Ordering::Relaxed);
        if n > 0 { self.0.add(0) } else { self.1.load(Ordering::Relaxed) }
    }
}
impl squall::swap::State for Knows {
    fn formats(_: &mut squall::swap::StateFormats<'_, Knows>) {}
}

#[test]
fn a_value_can_have_the_handle_of_its_object() {
    fn knows(handle: Handle<dyn Hits>) -> Knows {
        assert!(handle.try_add(1).is_err(), "the object is not installed yet");
        assert_eq!(Handle::find(Handle::id(handle)), None::<Handle<dyn Hits>>);
        Knows(handle, AtomicU64::new(0))
    }
    // The second round reuses the slots of the first.
    for _ in 0..2 {
        for object in [shared_with(knows), swappable_with(knows)] {
            let object: Owned<dyn Hits> = object.unwrap();
            assert_eq!(object.add(5), 5);
        }
    }
}

#[test]
fn a_panic_in_the_constructor_leaves_no_object() {
    let seen = std::cell::Cell::new(None);
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared_with::<dyn Hits, Count>(|handle| {
            seen.set(Some(handle));
            panic!("planned panic")
        })
    }));
    assert!(made.is_err());
    let gone = seen.get().unwrap();
    assert!(gone.try_add(1).is_err());
    // Another object gets the slot, with another generation.
    let others: Vec<_> = (0..64).map(|_| hits()).collect();
    assert!(others.iter().all(|other| other.handle() != gone));
    assert!(gone.try_add(1).is_err());
}

#[test]
fn callers_are_seen_after_entries_are_forgotten() {
    // No other test discards the entries.
    let _guard = misses_are_counted();
    let object = hits();
    let id = Handle::id(object.handle());
    assert!(tables::callers_of(id).is_empty(), "before the first call");
    object.add(1);
    let here = tables::callers_of(id);
    assert_eq!(here.len(), 1);
    tables::forget(id);
    assert!(tables::callers_of(id).is_empty());
    let misses = squall::info_of(id).unwrap().misses;
    object.add(1);
    // One more, or several if the thread migrated.
    assert!(squall::info_of(id).unwrap().misses > misses, "the entry is gone");
    assert!(!tables::callers_of(id).is_empty());
    assert_eq!(object.add(0), 2, "the object is unchanged");
    drop(object);
    tables::forget(id);
    assert!(tables::callers_of(id).is_empty());
}

#[test]
fn entries_are_forgotten_under_load_without_losing_calls() {
    let object = hits();
    let (handle, id) = (object.handle(), Handle::id(object.handle()));
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || (0..rounds).for_each(|_| _ = handle.add(1)));
        }
        for _ in 0..rounds / 10 {
            tables::forget(id);
            std::thread::yield_now();
        }
    });
    assert_eq!(handle.add(0), 3 * rounds);
}

#[test]
fn calls_are_arbitrated_by_the_id_of_their_object() {
    let object = hits();
    let id = Handle::id(object.handle());
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let arbiter = arbitrate_object(id, |call| {
        assert_eq!(call.method(), "add");
        SEEN.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    object.add(1);
    let again = arbitrate_object(id, |_| {}).unwrap_err();
    assert_eq!(again.failure(), SwapFailure::Arbitrated);
    arbiter.detach();
    object.add(1);
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    drop(object);
    assert_eq!(arbitrate_object(id, |_| {}).unwrap_err().failure(), SwapFailure::Destroyed);
}
