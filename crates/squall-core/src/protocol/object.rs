//! The part of an object that all classes share, and the functions that find headers, owners and holds.
//!
//! `README.md` beside this file has the protocol with its steps and races. The code uses the trait
//! [`Platform`](super::platform::Platform) for memory and grace periods, so that a model checker can run it
//! on small ones.
//!
//! - I1. A slot's occupant, an object or a mediator, is read within an operation. It is replaced before the
//!   gate is shut. So the replacement comes before the drain of the gate, and before the grace period after
//!   which the occupant is freed. An occupant that a miss finds stays valid until the end of the miss's
//!   operation.
//! - I2. Only a miss inside the gate stores entries of an object, after it added the VP to the translation
//!   set.
//! - I3. The thread that drains the gate (`gate/I2`) clears the entries, once, before the grace period
//!   begins.
//! - I4. An object's slots are used again only after its memory is quiet and its root was dropped, under the
//!   next generation.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.4.3 (X-05 for I4).

#[cfg(not(loom))]
use squall_machine::{Vp, VpSet};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};
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

/// Returns whether `f` is true of any number below `count`. Calls `f` for all of them.
///
/// `count` is at least 1, and mostly 1. A loop would cost more than its body. `f` is `Copy`, so that its
/// captures stay in registers.
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

/// Calls `f` with each number below `count`; see [`any`] for the conditions.
#[inline(always)]
pub(crate) fn each(count: u32, f: impl Fn(u32) + Copy) {
    any(count, move |index| {
        f(index);
        false
    });
}

/// The part of an object that all classes share. The fields of the class follow it in memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    // Never written after publication. While the block is recycled, `id` is that of the next object
    // (`recycle/I1`).
    pub(crate) class: &'static Class,
    pub(crate) id: Id,
    pub(crate) made_at: &'static Location<'static>,
    // Written by misses and by the thread that destroys the object.
    pub(crate) gate: Gate,
    pub(super) translations: Translations,
    // Creation time in ticks of [`clock`](super::clock). Never written after publication.
    pub(crate) made_ticks: u32,
    // Written when memory is quiet, and by the last holds.
    held: AtomicU32,
    /// Links that keep the root: one for the object itself and one for each representative.
    links: AtomicU32,
    /// Nonzero once the representatives are being dropped.
    closed: AtomicU16,
    /// The VP that made a replacement, plus one; 0 for an object made at the home of its id. Never written
    /// after publication.
    pub(crate) place: u16,
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
            closed: AtomicU16::new(0),
            place: 0,
        }
    }

    /// Creates the replacement of another object, made on the VP `place` less one: it has no id yet, and a
    /// mediator stands in front of it.
    #[cfg(any(not(loom), test))]
    pub(crate) fn replacement(
        class: &'static Class,
        made_at: &'static Location<'static>,
        made_ticks: u32,
        place: u16,
    ) -> Object {
        Object { gate: Gate::suspended(), place, ..Object::new(class, Id::new(0, 0), made_at, made_ticks) }
    }

    /// Calls `f` with each VP that may have entries of this object in its table.
    #[inline(always)]
    pub(crate) fn for_each_translation(&self, vp_limit: usize, f: impl Fn(usize) + Copy) {
        self.translations.for_each(vp_limit, f);
    }

    /// Returns the VPs that may have entries of this object in their tables.
    #[cfg(not(loom))]
    pub(crate) fn translations(&self, vp_limit: usize) -> VpSet {
        let set = RefCell::new(VpSet::new());
        self.for_each_translation(vp_limit, |vp| _ = set.borrow_mut().insert(Vp::new(vp as u32)));
        set.into_inner()
    }

    /// Bytes outside the object's own block, not counting representatives.
    pub(crate) fn extra_bytes(&self, vp_limit: usize) -> usize {
        self.translations.extra_bytes(vp_limit)
    }

    /// Frees the memory outside the object's own block.
    #[inline(always)]
    pub(crate) fn free_extra(&mut self, vp_limit: usize) {
        self.translations.free(vp_limit);
    }

    /// Sets `held` to the number of pending holds or drops. From `finish` on it counts drops (`destroy/I2`).
    pub(crate) fn count_up(&self, count: u32) {
        // Relaxed: published by the step that hands the counted items on.
        self.held.store(count, Ordering::Relaxed);
    }

    /// Subtracts `count` finished holds or drops. Returns whether all are finished.
    pub(crate) fn count_down(&self, count: u32) -> bool {
        // AcqRel: pairs with itself: the last thread sees the work of the others.
        self.held.fetch_sub(count, sites::HELD.order(Ordering::AcqRel)) == count
    }

    /// Takes a link to the root, for a representative.
    pub(crate) fn link(&self) {
        // Relaxed: the caller has a link already, or is within the gate.
        let before = self.links.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            // Only billions of leaked links lead here. Like `Arc`, abort: no recovery is safe.
            std::process::abort();
        }
    }

    /// Gives a link back. Returns whether it was the last one, so that the caller can drop the root.
    pub(crate) fn unlink(&self) -> bool {
        // AcqRel: pairs with itself: the thread that drops the root sees the others done with it.
        self.links.fetch_sub(1, sites::LINKS.order(Ordering::AcqRel)) == 1
    }

    /// Returns whether the representatives are being dropped, or were dropped.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: every reader that must see the flag is ordered after `close` by other means. A drop is
        // ordered by the step that handed it the representative. Calls ended before the memory was quiet.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Marks the object as closed: its representatives are dropped from now on.
    pub(crate) fn close(&self) {
        self.closed.store(1, Ordering::Relaxed);
    }

    /// For a model: marks the memory as freed, like [`Header::freed`].
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.gate.freed();
        self.translations.freed();
        self.held.with_mut(|_| ());
        self.links.with_mut(|_| ());
        self.closed.with_mut(|_| ());
    }
}

/// Loads the header in `entry`, of any object. The fast path begins here.
///
/// # Safety
/// The caller is within an operation, and uses the header only in it.
#[inline(always)]
pub(crate) unsafe fn cached(entry: &AtomicPtr<Header>) -> Option<NonNull<Header>> {
    // Acquire: pairs with the release in `install`. An entry is cleared before the grace period after which
    // its header is freed (I3). This operation began before the end of that grace period, or after the entry
    // was cleared.
    NonNull::new(entry.load(sites::ENTRY_LOAD.order(Ordering::Acquire)))
}

/// Loads the header in `entry` and returns it if it is active under `id`, with any view or without one.
///
/// # Safety
/// The caller is within an operation, and uses the header only in it.
#[inline(always)]
pub(crate) unsafe fn hit(entry: &AtomicPtr<Header>, id: Id) -> Option<NonNull<Header>> {
    // SAFETY: the caller's promise.
    unsafe { cached(entry).filter(|header| header.as_ref().is(id.bits())) }
}

/// Returns the header of interface `index` of the representative, given its owner.
///
/// # Safety
/// The representative has that many interfaces. `owner` may be used for the whole block.
#[inline(always)]
pub(crate) unsafe fn header(owner: NonNull<Owner>, index: u32) -> NonNull<Header> {
    // SAFETY: the caller's promise; the headers follow the owner in the same block.
    unsafe { owner.add(1).cast::<Header>().add(index as usize) }
}

/// Returns the owner of a header, computed from the header's address.
///
/// # Safety
/// `header` belongs to a representative, and may be used for its whole block.
pub(super) unsafe fn owner_of(header: NonNull<Header>) -> NonNull<Owner> {
    // SAFETY: the inverse of `header`, within one block.
    unsafe {
        let index = header.as_ref().index() as usize;
        header.sub(index).cast::<Owner>().sub(1)
    }
}

/// Returns the owner of a shared object's one representative, which follows the object in its block.
///
/// # Safety
/// The object's class is of [`ObjectKind::Shared`]. The pointer may be used for the whole block.
#[inline(always)]
pub(crate) unsafe fn shared_owner(block: NonNull<Object>) -> NonNull<Owner> {
    // SAFETY: within the block (`shared::Prefix`).
    unsafe { block.add(1).cast::<Owner>() }
}

/// Calls `f` with each header of each current representative. The object must be valid, of this class, and
/// not closed.
#[inline(always)]
pub(crate) fn for_each_header(block: NonNull<Object>, class: &'static Class, f: impl Fn(&Header) + Copy) {
    any_header(block, class, move |header| {
        f(header);
        false
    });
}

/// Returns whether `f` is true of any header of any current representative. Calls `f` for all of them.
#[inline(always)]
fn any_header(block: NonNull<Object>, class: &'static Class, f: impl Fn(&Header) -> bool + Copy) -> bool {
    // SAFETY: the object is valid and not closed, so its representatives are valid too. This many headers
    // follow each owner.
    let any_of = move |owner| any(class.interfaces, move |index| f(unsafe { header(owner, index).as_ref() }));
    if class.kind == ObjectKind::Shared {
        // SAFETY: the class is of that kind.
        return any_of(unsafe { shared_owner(block) });
    }
    any_of_many(block, any_of)
}

#[inline(never)]
fn any_of_many(block: NonNull<Object>, any_of: impl Fn(NonNull<Owner>) -> bool) -> bool {
    let mut any = false;
    // SAFETY: the object is valid and not closed, and the function is that of its class.
    unsafe { (block.as_ref().class.for_each_rep)(block, &mut |owner| any |= any_of(owner)) };
    any
}

/// Returns whether a call holds the object, or held it and its release is not yet visible.
///
/// After the grace period that follows the death, holds only fall (`header/I3`): a header without holds stays
/// without.
///
/// # Safety
/// The object is of this class, valid, and not closed.
#[inline(always)]
pub(crate) unsafe fn is_held(block: NonNull<Object>, class: &'static Class) -> bool {
    any_header(block, class, |header| header.is_held())
}

/// Asks the last call that holds the object to report.
///
/// Returns true if no hold was left, so that the caller drops the representatives now. Otherwise the thread
/// of the last hold continues, possibly as soon as `before_waiting` has returned.
///
/// # Safety
/// The object is valid and not closed. The grace period after its death has passed. This is called once for
/// the object.
pub(crate) unsafe fn wait_for_holds(block: NonNull<Object>, before_waiting: impl FnOnce()) -> bool {
    // SAFETY: only the thread that continues from here frees the object.
    let object = unsafe { block.as_ref() };
    before_waiting();
    let headers = Cell::new(1);
    for_each_header(block, object.class, |_| headers.update(|count| count + 1));
    // Holds that see the new count learn of it through `wait_for_holds`.
    object.count_up(headers.get());
    let free = Cell::new(1);
    for_each_header(block, object.class, |header| {
        free.update(|count| count + u32::from(!header.wait_for_holds()));
    });
    object.count_down(free.get())
}

/// Returns the object that a header in a table belongs to.
///
/// # Safety
/// The header is valid, and may be used for its whole block.
pub(crate) unsafe fn object_of(header: NonNull<Header>) -> NonNull<Object> {
    // SAFETY: the caller's promise.
    unsafe { owner_of(header).as_ref() }.object
}

/// Loads the header in `entry` and returns it if it belongs to interface `index` of `object`. The header may
/// be inactive.
///
/// # Safety
/// The caller is within an operation, and uses the header only in it.
pub(crate) unsafe fn entry_of(
    entry: &AtomicPtr<Header>,
    object: NonNull<Object>,
    index: u32,
) -> Option<NonNull<Header>> {
    // Acquire: pairs with the release in `install`, as in `cached`.
    let header = NonNull::new(entry.load(sites::ENTRY_LOAD.order(Ordering::Acquire)))?;
    // SAFETY: the header is valid within this operation, as in `cached`.
    unsafe { (object_of(header) == object && header.as_ref().index() == index).then_some(header) }
}
