//! An object in the tables: how a miss finds it, how it dies, and when its memory and its id are free again.
//!
//! The protocol, with its steps and races, is in `README.md` beside this file. It is written against [`Platform`], the
//! memory and the grace periods it stands on, so that a model checker can run it over small ones.
//!
//! - I1. A slot's occupant, object or mediator, is read within an operation, and replaced before the gate is shut: so before
//!   the gate is drained, and before the grace period begins after which the occupant is freed. What a miss finds there
//!   stays valid until its operation ends.
//! - I2. Entries of an object are stored by misses inside its gate only, after the VP is in its translation set.
//! - I3. The entries are cleared by whoever drains the gate (`gate/I2`), once, before the grace period begins.
//! - I4. An object's slots are used again only after its memory is quiet and its root was dropped, under the next
//!   generation.

#[cfg(not(loom))]
use squall_machine::{Vp, VpSet};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::cell::Cell;
#[cfg(not(loom))]
use std::cell::RefCell;
use std::panic::Location;
use std::ptr::NonNull;

use super::gate::Gate;
use super::header::Header;
use super::reps::Owner;
use super::sites;
use super::translations::Translations;
use crate::protocol::class::{Class, ObjectKind};
use crate::protocol::id::Id;

/// Whether `f` is true of any number below `count`, which is mostly 1 and never less. Asks for all of them.
///
/// A loop would cost more than what is done in it; and what `f` has is copied, so that it need not lie in memory.
#[inline(always)]
pub(crate) fn any(count: u32, f: impl Fn(u32) -> bool + Copy) -> bool {
    #[cold]
    #[inline(never)]
    fn rest(count: u32, f: impl Fn(u32) -> bool) -> bool {
        (1..count).fold(false, |any, index| f(index) | any)
    }
    let first = f(0);
    if count > 1 { first | rest(count, f) } else { first }
}

/// Calls `f` with each number below `count`, as [`any`].
#[inline(always)]
pub(crate) fn each(count: u32, f: impl Fn(u32) + Copy) {
    any(count, move |index| {
        f(index);
        false
    });
}

/// The part of an object that is the same for all classes. What a class adds follows it in memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    // Never written after it is published. (`id` is that of the next object while this is a husk, `recycle/I1`.)
    pub(crate) class: &'static Class,
    pub(crate) id: Id,
    pub(crate) made_at: &'static Location<'static>,
    // Written by misses and the destroyer.
    pub(crate) gate: Gate,
    pub(super) translations: Translations,
    // Never written after it is published: when it was made, in ticks of [`crate::clock`].
    pub(crate) made_ticks: u32,
    // Written when its memory is quiet, and by the last holds.
    held: AtomicU32,
    /// Links that keep the root: one of the object's own, one of each representative.
    links: AtomicU32,
    /// Whether its representatives are being dropped.
    pub(crate) closed: AtomicU32,
}

impl Object {
    pub(crate) fn new(
        class: &'static Class,
        id: Id,
        made_at: &'static Location<'static>,
        made_ticks: u32,
    ) -> Object {
        Object {
            class,
            id,
            made_at,
            made_ticks,
            gate: Gate::new(),
            translations: Translations::new(),
            held: AtomicU32::new(0),
            links: AtomicU32::new(1),
            closed: AtomicU32::new(0),
        }
    }

    /// An object that is to take another one's place: it has no id yet, and a mediator stands before it.
    #[cfg(any(not(loom), test))]
    pub(crate) fn replacement(
        class: &'static Class,
        made_at: &'static Location<'static>,
        made_ticks: u32,
    ) -> Object {
        Object { gate: Gate::suspended(), ..Object::new(class, Id::new(0, 0), made_at, made_ticks) }
    }

    /// The VPs whose tables may hold entries of it.
    #[inline(always)]
    pub(crate) fn for_each_translation(&self, vp_limit: usize, f: impl Fn(usize) + Copy) {
        self.translations.for_each(vp_limit, f);
    }

    /// The same, as a set.
    #[cfg(not(loom))]
    pub(crate) fn translations(&self, vp_limit: usize) -> VpSet {
        let set = RefCell::new(VpSet::new());
        self.for_each_translation(vp_limit, |vp| _ = set.borrow_mut().insert(Vp::new(vp as u32)));
        set.into_inner()
    }

    /// Bytes beyond the object's own block, representatives apart.
    pub(crate) fn extra_bytes(&self, vp_limit: usize) -> usize {
        self.translations.extra_bytes(vp_limit)
    }

    /// Gives back what the object's block does not hold itself.
    #[inline(always)]
    pub(crate) fn free_extra(&mut self, vp_limit: usize) {
        self.translations.free(vp_limit);
    }

    /// From here on `held` counts what `finish` has to do (`destroy/I2`): so many things.
    pub(crate) fn count_up(&self, count: u32) {
        // Relaxed: published by whatever hands the things on.
        self.held.store(count, Ordering::Relaxed);
    }

    /// So many of them are done. Returns whether all are.
    pub(crate) fn count_down(&self, count: u32) -> bool {
        // AcqRel: pairs with itself: the last sees what the others did.
        self.held.fetch_sub(count, sites::HELD.order(Ordering::AcqRel)) == count
    }

    /// Takes a link to the root, for a representative.
    pub(crate) fn link(&self) {
        // Relaxed: whoever takes one has one, or is within the gate.
        let before = self.links.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            // Only links that were forgotten by the billion lead here. As `Arc` does: no way back is safe.
            std::process::abort();
        }
    }

    /// Gives one back. Returns whether it was the last, so that the root can be dropped.
    pub(crate) fn unlink(&self) -> bool {
        // AcqRel: pairs with itself: who drops the root sees the others done with it.
        self.links.fetch_sub(1, sites::LINKS.order(Ordering::AcqRel)) == 1
    }

    /// Whether its representatives are being dropped, or have been.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: whoever must see it was ordered after `close` by other means: a drop, by whatever handed it the
        // representative. A call ended before the memory was quiet.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Says that its representatives will be dropped now.
    pub(crate) fn close(&self) {
        self.closed.store(1, Ordering::Relaxed);
    }

    /// For a model: as [`Header::freed`].
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.gate.freed();
        self.translations.freed();
        self.held.with_mut(|_| ());
        self.links.with_mut(|_| ());
        self.closed.with_mut(|_| ());
    }
}

/// The header in `entry`, whosever it is: the beginning of the hot path.
///
/// # Safety
/// Within an operation; the header is used in it.
#[inline(always)]
pub(crate) unsafe fn cached(entry: &AtomicPtr<Header>) -> Option<NonNull<Header>> {
    // Acquire: pairs with the release in `install`. Entries are cleared before the grace period after which their header is freed (I3), and
    // this operation began before that ended, or after the entry was cleared.
    NonNull::new(entry.load(sites::ENTRY_LOAD.order(Ordering::Acquire)))
}

/// The same if it is that of `id`, whatever it lends.
///
/// # Safety
/// As of [`cached`].
#[inline(always)]
pub(crate) unsafe fn hit(entry: &AtomicPtr<Header>, id: Id) -> Option<NonNull<Header>> {
    // SAFETY: the caller.
    unsafe { cached(entry).filter(|header| header.as_ref().is_of(id.bits())) }
}

/// The header of interface `index` of the representative whose headers follow `owner`.
///
/// # Safety
/// It has that many, and `owner` may be used for the whole block.
#[inline(always)]
pub(crate) unsafe fn header(owner: NonNull<Owner>, index: u32) -> NonNull<Header> {
    // SAFETY: the caller's promise: the headers follow in the same block.
    unsafe { owner.add(1).cast::<Header>().add(index as usize) }
}

/// The owner of a header, found from where it lies.
///
/// # Safety
/// `header` is that of a representative, and may be used for its whole block.
pub(super) unsafe fn owner_of(header: NonNull<Header>) -> NonNull<Owner> {
    // SAFETY: the inverse of `header`, within one block.
    unsafe {
        let index = header.as_ref().index() as usize;
        header.sub(index).cast::<Owner>().sub(1)
    }
}

/// The owner of a shared object's one representative, which follows the object in its block.
///
/// # Safety
/// An object of a class of [`ObjectKind::Shared`]; the pointer may be used for the whole block.
#[inline(always)]
pub(crate) unsafe fn shared_owner(block: NonNull<Object>) -> NonNull<Owner> {
    // SAFETY: within the block (`single::Prefix`).
    unsafe { block.add(1).cast::<Owner>() }
}

/// Calls `f` with each header of each representative that is there now. The object is valid, of this class, not closed.
#[inline(always)]
pub(crate) fn for_each_header(block: NonNull<Object>, class: &'static Class, f: impl Fn(&Header) + Copy) {
    any_header(block, class, move |header| {
        f(header);
        false
    });
}

/// Whether `f` is true of any of them. Asks for all.
#[inline(always)]
fn any_header(block: NonNull<Object>, class: &'static Class, f: impl Fn(&Header) -> bool + Copy) -> bool {
    // SAFETY: the object is valid, and so are its representatives while it is not closed: so many headers follow.
    let any_of = move |owner| any(class.interfaces, move |index| f(unsafe { header(owner, index).as_ref() }));
    if class.kind == ObjectKind::Shared {
        // SAFETY: of that kind.
        return any_of(unsafe { shared_owner(block) });
    }
    any_of_many(block, any_of)
}

#[inline(never)]
fn any_of_many(block: NonNull<Object>, any_of: impl Fn(NonNull<Owner>) -> bool) -> bool {
    let mut any = false;
    // SAFETY: the object is valid and not closed; the function is its class's.
    unsafe { (block.as_ref().class.for_each_rep)(block, &mut |owner| any |= any_of(owner)) };
    any
}

/// Whether a call holds the object, or did not let it go for all to see. When the grace period after the death has passed,
/// holds only fall (header/I3): where there is none, none comes.
///
/// # Safety
/// The object is of this class, valid, and not closed.
#[inline(always)]
pub(crate) unsafe fn is_held(block: NonNull<Object>, class: &'static Class) -> bool {
    any_header(block, class, |header| header.is_held())
}

/// Asks the last call that holds the object to report. Returns whether none was left by then, so that the representatives
/// can be dropped now; if not, that call goes on from here, and may do so as soon as `before_waiting` has returned.
///
/// # Safety
/// As of [`is_held`], after that grace period, and this is called once for the object.
pub(crate) unsafe fn wait_for_holds(block: NonNull<Object>, before_waiting: impl FnOnce()) -> bool {
    // SAFETY: nobody frees it but who goes on from here.
    let object = unsafe { block.as_ref() };
    before_waiting();
    let headers = Cell::new(1);
    for_each_header(block, object.class, |_| headers.update(|count| count + 1));
    // The holds that will see it learn of it through `wait_for_holds`.
    object.count_up(headers.get());
    let free = Cell::new(1);
    for_each_header(block, object.class, |header| {
        free.update(|count| count + u32::from(!header.wait_for_holds()));
    });
    object.count_down(free.get())
}

/// The object that a header in a table belongs to.
///
/// # Safety
/// The header is valid, and may be used for its whole block.
pub(crate) unsafe fn object_of(header: NonNull<Header>) -> NonNull<Object> {
    // SAFETY: the caller's promise.
    unsafe { owner_of(header).as_ref() }.object
}

/// The header in `entry`, if it belongs to `object` and is of this interface, whether it is active or not.
///
/// # Safety
/// Within an operation; the header is used in it.
pub(crate) unsafe fn entry_of(
    entry: &AtomicPtr<Header>,
    object: NonNull<Object>,
    index: u32,
) -> Option<NonNull<Header>> {
    // Acquire: as in `hit`.
    let header = NonNull::new(entry.load(sites::ENTRY_LOAD.order(Ordering::Acquire)))?;
    // SAFETY: as in `hit`.
    unsafe { (object_of(header) == object && header.as_ref().index() == index).then_some(header) }
}
