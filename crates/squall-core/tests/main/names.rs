//! Names of objects: where they are shown, and how long they live.

use squall_core::swap::{Replacement, State, StateFormats, swap};
use squall_core::{
    Handle, Id, Name, NameError, Owned, info_of, name_of, set_name, shared, snapshot, swappable,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[squall_macros::interface(crate = squall_core)]
trait Base: Send + Sync {
    fn base(&self);
}

#[squall_macros::interface(crate = squall_core)]
trait Hits: Base {
    fn add(&self);
}

struct Plain<const MARK: u32>;

impl<const MARK: u32> Base for Plain<MARK> {
    fn base(&self) {}
}

impl<const MARK: u32> Hits for Plain<MARK> {
    fn add(&self) {}
}

impl<const MARK: u32> State for Plain<MARK> {
    fn formats(formats: &mut StateFormats<'_, Plain<MARK>>) {
        formats.export(|_| Ok(())).import(|_, ()| Ok(()));
    }
}

fn object(name: &str) -> (Owned<dyn Hits>, Id) {
    let object = shared::<dyn Hits, _>(Plain::<0>).named(name);
    let id = Handle::id(object.handle());
    (object, id)
}

fn name(id: Id) -> Option<String> {
    name_of(id).map(|name| name.to_string())
}

#[test]
fn a_name_is_in_the_inspection_and_in_errors_and_panics() {
    let (hits, id) = object("GET /login");
    let handle = hits.handle();
    assert_eq!(info_of(id).and_then(|info| info.name).as_deref(), Some("GET /login"));
    let listed = snapshot().into_iter().find(|info| info.id == id).expect("listed");
    assert_eq!(listed.name.as_deref(), Some("GET /login"));
    drop(hits);
    let error = handle.try_add().expect_err("destroyed");
    assert_eq!(error.name().map(|name| &**name), Some("GET /login"));
    let start = format!("Hits#{id}.add() of \"GET /login\"");
    assert!(error.to_string().starts_with(&start), "{error}");
    let panic = catch_unwind(AssertUnwindSafe(|| handle.add())).expect_err("destroyed");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains(&start), "{text}");
}

#[test]
fn all_interfaces_of_an_object_share_its_name() {
    let (hits, id) = object("first");
    let base = Handle::upcast::<dyn Base>(hits.handle());
    assert_eq!(name(Handle::id(base)).as_deref(), Some("first"));
    set_name(Handle::id(base), "second").expect("it lives");
    assert_eq!(name(id).as_deref(), Some("second"));
    drop(hits);
    let error = base.try_base().expect_err("destroyed");
    assert_eq!(error.name().map(|name| &**name), Some("second"));
}

#[test]
fn a_name_stays_through_a_swap() {
    let hits = swappable::<dyn Hits, _>(Plain::<1>).named("swapped");
    let id = Handle::id(hits.handle());
    swap(hits.handle(), Replacement::swappable(Plain::<2>)).expect("it swaps");
    assert_eq!(name(id).as_deref(), Some("swapped"));
    // The old object ends, and takes no name with it.
    squall_rcu::barrier().expect("outside operations");
    let info = info_of(id).expect("it lives");
    assert_eq!((info.class, info.name.as_deref()), (std::any::type_name::<Plain<2>>(), Some("swapped")));
    Owned::destroy(hits).wait().expect("outside operations");
    assert_eq!(name(id).as_deref(), Some("swapped"));
}

#[test]
fn a_destroyed_object_cannot_be_named() {
    let (hits, id) = object("it");
    assert_eq!(set_name(id, "still it"), Ok(()));
    drop(hits);
    let error = set_name(id, "no more").expect_err("destroyed");
    assert_eq!(error, NameError::NoObject(id));
    assert!(error.to_string().contains(&id.to_string()), "{error}");
    assert_eq!(name(id).as_deref(), Some("still it"));
    let (unnamed, never) = (shared::<dyn Hits, _>(Plain::<0>), Id::from_parts(4000, 7).expect("an id"));
    assert_eq!(name(Handle::id(unnamed.handle())), None);
    assert_eq!((set_name(never, ""), name(never)), (Err(NameError::NoObject(never)), None));
}

#[test]
fn a_name_outlives_the_next_objects_in_its_slot() {
    let (hits, id) = object("the first");
    Owned::destroy(hits).wait().expect("outside operations");
    for number in 0..8 {
        let (hits, _) = object(&number.to_string());
        Owned::destroy(hits).wait().expect("outside operations");
    }
    assert_eq!(name(id).as_deref(), Some("the first"));
}

#[test]
fn long_names_are_cut_and_control_characters_escaped() {
    // The limit is in the middle of a character of two bytes.
    let (_hits, id) = object(&format!("x{}", "ä".repeat(Name::BYTES_MAX)));
    assert_eq!(name_of(id).map(|name| name.len()), Some(Name::BYTES_MAX - 1));
    let (_hits, id) = object("a\u{1b}[2Jb\u{202e}\"ä");
    let shown = name_of(id).expect("named");
    assert_eq!(&*shown, "a\u{1b}[2Jb\u{202e}\"ä");
    assert_eq!(shown.to_string(), "a\\u{1b}[2Jb\\u{202e}\"ä");
    assert!(!info_of(id).map(|info| format!("{info:?}")).expect("it lives").contains('\u{1b}'));
}

/// Runs alone, because objects of other tests end meanwhile, too.
#[cfg(not(miri))]
#[test]
fn the_names_of_the_last_1024_ended_objects_are_kept() {
    if !crate::support::alone("names::the_names_of_the_last_1024_ended_objects_are_kept", &[&[]]) {
        return;
    }
    let ids: Vec<Id> = (0..1030)
        .map(|number| {
            let (hits, id) = object(&number.to_string());
            Owned::destroy(hits).wait().expect("outside operations");
            id
        })
        .collect();
    let kept: Vec<bool> = ids.iter().map(|id| name_of(*id).is_some()).collect();
    assert_eq!(kept, (0..1030).map(|number| number >= 6).collect::<Vec<_>>());
}
