//! Links of objects: a part shows its whole, and the whole its parts, as long as both live.

use std::sync::Mutex;

use squall_core::swap::{Replacement, State, StateFormats, swap};
use squall_core::{
    Handle, Id, LinkError, MediatorInfo, MediatorPhase, Owned, info_of, parts_of, set_part_of, shared,
    shared_with, snapshot, swappable, swappable_with, whole_of,
};

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

fn object() -> (Owned<dyn Hits>, Id) {
    let object = shared::<dyn Hits, _>(Plain::<0>);
    let id = Handle::id(object.handle());
    (object, id)
}

fn linked_to(whole: &Owned<dyn Hits>) -> (Owned<dyn Hits>, Id) {
    let part = shared::<dyn Hits, _>(Plain::<0>).part_of(whole.handle());
    let id = Handle::id(part.handle());
    (part, id)
}

#[test]
fn a_link_is_in_the_inspection_of_the_part_and_lists_it_for_the_whole() {
    let (whole, id) = object();
    let (_first, first) = linked_to(&whole);
    let (second, other) = linked_to(&whole);
    assert_eq!(info_of(first).and_then(|info| info.part_of), Some(id));
    let listed = snapshot().into_iter().find(|info| info.id == other).expect("listed");
    assert_eq!(listed.part_of, Some(id));
    let mut parts = parts_of(id);
    parts.sort();
    let mut expected = vec![first, other];
    expected.sort();
    assert_eq!(parts, expected);
    assert_eq!((whole_of(id), parts_of(first)), (None, vec![]));
    drop(second);
    assert_eq!(parts_of(id), [first]);
}

#[test]
fn all_interfaces_of_both_objects_share_the_link() {
    let ((whole, whole_id), (part, part_id)) = (object(), object());
    let base = |object: &Owned<dyn Hits>| Handle::id(Handle::upcast::<dyn Base>(object.handle()));
    set_part_of(base(&part), base(&whole)).expect("they live");
    assert_eq!((whole_of(part_id), whole_of(base(&part))), (Some(whole_id), Some(whole_id)));
    assert_eq!((parts_of(whole_id), parts_of(base(&whole))), (vec![part_id], vec![part_id]));
}

#[test]
fn a_part_has_the_latest_whole_and_can_be_without_one() {
    let ((first, _), (_second, second)) = (object(), object());
    let (_part, part) = linked_to(&first);
    set_part_of(part, second).expect("it lives");
    assert_eq!((whole_of(part), parts_of(Handle::id(first.handle()))), (Some(second), vec![]));
    set_part_of(part, None).expect("it lives");
    assert_eq!((whole_of(part), parts_of(second)), (None, vec![]));
}

#[test]
fn a_circle_is_refused_and_changes_nothing() {
    let (top, top_id) = object();
    let (middle, middle_id) = linked_to(&top);
    let (bottom, bottom_id) = linked_to(&middle);
    for part in [top_id, middle_id, bottom_id] {
        let refused = LinkError::Circular { part, whole: bottom_id };
        assert_eq!(set_part_of(part, bottom_id), Err(refused));
    }
    let base = Handle::id(Handle::upcast::<dyn Base>(bottom.handle()));
    assert!(matches!(set_part_of(top_id, base), Err(LinkError::Circular { .. })));
    assert_eq!(
        (whole_of(top_id), whole_of(middle_id), whole_of(bottom_id)),
        (None, Some(top_id), Some(middle_id))
    );
    // Without the middle, there is no circle.
    drop(middle);
    squall_rcu::barrier().expect("outside operations");
    assert_eq!(set_part_of(top_id, bottom_id), Ok(()));
}

#[test]
fn a_link_to_an_ended_object_shows_no_later_object_of_its_slot() {
    let (_part, part) = object();
    for _ in 0..8 {
        let (whole, id) = object();
        assert_eq!(parts_of(id), [], "the slot may have been that of an earlier whole");
        assert_eq!(whole_of(part), None);
        set_part_of(part, id).expect("it lives");
        assert_eq!(whole_of(part), Some(id));
        Owned::destroy(whole).wait().expect("outside operations");
        assert_eq!((whole_of(part), info_of(part).and_then(|info| info.part_of)), (None, None));
    }
}

#[test]
fn a_later_object_in_the_slot_of_a_part_has_no_link() {
    let (whole, id) = object();
    for _ in 0..8 {
        let (part, part_id) = object();
        assert_eq!(whole_of(part_id), None);
        set_part_of(part_id, id).expect("it lives");
        drop(part);
        assert_eq!(parts_of(id), []);
        assert_eq!(set_part_of(part_id, id), Err(LinkError::NoObject(part_id)));
        squall_rcu::barrier().expect("outside operations");
    }
    drop(whole);
}

#[test]
fn a_link_stays_through_swaps_of_both_objects() {
    let whole = swappable::<dyn Hits, _>(Plain::<1>);
    let part = swappable::<dyn Hits, _>(Plain::<1>).part_of(whole.handle());
    for object in [&whole, &part] {
        swap(object.handle(), Replacement::swappable(Plain::<2>)).expect("it swaps");
    }
    // The old objects end, and take no link with them.
    squall_rcu::barrier().expect("outside operations");
    let (whole, part) = (Handle::id(whole.handle()), Handle::id(part.handle()));
    assert_eq!((whole_of(part), parts_of(whole)), (Some(whole), vec![part]));
}

#[test]
fn an_object_under_construction_can_be_the_whole() {
    struct Service {
        part: Owned<dyn Hits>,
    }
    impl Base for Service {
        fn base(&self) {
            self.part.base();
        }
    }
    impl Hits for Service {
        fn add(&self) {}
    }
    let mut part = None;
    let service = shared_with::<dyn Hits, _>(|service| {
        let (owner, id) = object();
        let owner = owner.part_of(service);
        assert_eq!(whole_of(id), None, "the whole cannot be called yet");
        part = Some(id);
        Service { part: owner }
    });
    let service = service.expect("room");
    let (whole, part) = (Handle::id(service.handle()), part.expect("it was made"));
    assert_eq!((whole_of(part), parts_of(whole)), (Some(whole), vec![part]));
}

struct Watched<const MARK: u32>(Id);

impl<const MARK: u32> Base for Watched<MARK> {
    fn base(&self) {}
}

impl<const MARK: u32> Hits for Watched<MARK> {
    fn add(&self) {}
}

/// The mediator that an inspection found while the state moved.
static SEEN: Mutex<Option<MediatorInfo>> = Mutex::new(None);

impl<const MARK: u32> State for Watched<MARK> {
    fn formats(formats: &mut StateFormats<'_, Watched<MARK>>) {
        let look = |id| info_of(id).and_then(|info| info.mediator);
        formats.export(move |old: &Watched<MARK>| {
            *SEEN.lock().expect("no panic") = look(old.0);
            Ok(())
        });
        formats.import(|_, ()| Ok(()));
    }
}

#[test]
fn the_mediator_of_a_swap_shows_its_target_and_the_replacement() {
    let object = swappable_with::<dyn Hits, _>(|handle| Watched::<1>(Handle::id(handle))).expect("room");
    let id = Handle::id(object.handle());
    let mediator = || info_of(id).and_then(|info| info.mediator);
    assert_eq!(mediator(), None);
    swap(object.handle(), Replacement::swappable(Watched::<2>(id))).expect("it swaps");
    let seen = SEEN.lock().expect("no panic").take().expect("the state moved behind a mediator");
    assert_eq!((seen.phase, seen.method), (MediatorPhase::Transfer, None));
    assert_eq!(seen.target, std::any::type_name::<Watched<1>>());
    assert_eq!(seen.replacement, Some(std::any::type_name::<Watched<2>>()));
    assert_eq!(mediator(), None);
}
