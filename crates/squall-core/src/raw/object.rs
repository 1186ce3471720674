//! An object in the tables: how a miss finds it, how it dies, and when its memory and its id are free again.
//!
//! The protocol, with its steps and races, is in `README.md` beside this file. It is written against [`Ground`], the
//! memory and the grace periods it stands on, so that a model checker can run it over small ones.
//!
//! - I1. A slot's occupant is read within an operation, and replaced by a tag before the gate is shut: so before the gate
//!   is drained, and before the grace period begins after which the object is freed. What a miss finds there stays valid
//!   until its operation ends.
//! - I2. Entries of an object are stored by misses inside its gate only, after the VP is in its translation set.
//! - I3. The entries are cleared by whoever drains the gate (`gate/I2`), once, before the grace period begins.
//! - I4. An object's slots are used again only after its memory is quiet and its root was dropped, under the next
//!   generation.

#[cfg(not(loom))]
use squall_machine::{Vp, VpSet};
use squall_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::cell::Cell;
#[cfg(not(loom))]
use std::cell::RefCell;
use std::panic::Location;
use std::ptr::{self, NonNull};

use super::gate::{Gate, Shut};
use super::header::{Header, Released};
use super::reps::Owner;
use super::sites;
use super::translations::Translations;
use crate::class::{Class, ObjectKind};
use crate::id::Id;

/// A place of the global table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Null, an [`Object`], or after its death its class with [`TAG`], and with [`OVER`] once its id is free.
    occupant: AtomicPtr<()>,
    /// That of the occupant, or else of the next one. Written by whoever owns the slot: its creator, then whoever frees it.
    pub(crate) generation: AtomicU32,
}

const TAG: usize = 1;
const OVER: usize = 2;
const _: () = assert!(align_of::<Class>() > (TAG | OVER));

/// What is in a slot.
pub(crate) enum Occupant {
    /// Nothing yet.
    Nobody,
    /// One of this class was; whether its id is free.
    Gone(&'static Class, bool),
    /// An object, valid within the operation in which it was found (I1). The pointer is good for its whole block.
    Object(NonNull<Object>),
}

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

impl Slot {
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn new() -> Slot {
        Slot { occupant: AtomicPtr::new(ptr::null_mut()), generation: AtomicU32::new(1) }
    }

    #[inline(always)]
    fn load(&self) -> *mut () {
        // Acquire: pairs with the release in `publish`, the object that is seen is fully built; with that in `vacate`; and
        // with those in `retire` and `advance`, the generation is the one that the class is of.
        self.occupant.load(sites::SLOT_LOAD.order(Ordering::Acquire))
    }

    /// The object that is there, for its owner, who has not ended it.
    #[inline(always)]
    pub(crate) fn own_object(&self) -> NonNull<Object> {
        debug_assert!(matches!(self.occupant(), Occupant::Object(_)), "an owner without an object");
        // SAFETY: published, and not retired before its owner ends it.
        // Relaxed: whoever has the owner has it from where the object was made.
        unsafe { NonNull::new_unchecked(self.occupant.load(Ordering::Relaxed).cast()) }
    }

    /// What is there now.
    pub(crate) fn occupant(&self) -> Occupant {
        who(self.load())
    }

    /// Why `id` leads to no object, where this was found, which is none. Whoever has the id of an object finds that one, or
    /// what came after.
    #[cold]
    #[inline(never)]
    fn absent(&self, found: *mut (), id: Id) -> Absent {
        // 0 when the generations are used up: later than all of them.
        let here = self.generation.load(Ordering::Relaxed).wrapping_sub(1);
        let asked = id.generation().wrapping_sub(1);
        match who(found) {
            // Being reclaimed; or the last one that was here, so the slot names the next.
            Occupant::Gone(class, over) if here == asked.wrapping_add(u32::from(over)) => {
                Absent::Destroyed(Some(class))
            }
            // A well-known slot names its next occupant before there is one, and while the last one goes.
            Occupant::Gone(..) if here < asked => Absent::NotThere,
            Occupant::Nobody if here <= asked => Absent::NotThere,
            _ => Absent::Destroyed(None),
        }
    }

    #[inline]
    fn publish(&self, object: NonNull<Object>) {
        // Release: pairs with the acquire in `load`.
        self.occupant.store(object.as_ptr().cast(), sites::SLOT_STORE.order(Ordering::Release));
    }

    /// Makes the slot ready for its next occupant (I4). Returns whether it can have one: a generation that would wrap ends it.
    #[inline]
    pub(crate) fn advance(&self, generation: u32, class: &'static Class) -> bool {
        let next =
            if sites::NEXT_GENERATION.is_weak() { Some(generation) } else { generation.checked_add(1) };
        // Also read by whoever takes the slot, by the lock of its list; and by misses that compare it with a stale
        // id, to whom either value says that the object is gone.
        // Release: pairs with the acquire in `Destruction::is_complete`, for which the drops are over then.
        self.generation.store(next.unwrap_or(0), Ordering::Release);
        // Release: pairs with the acquire in `load`: who finds it over finds the generation after it, or a later one. Who
        // finds the generation first forgets the class.
        self.occupant.store(tagged(class, TAG | OVER), sites::SLOT_OVER.order(Ordering::Release));
        next.is_some()
    }

    /// Forgets who was there.
    pub(crate) fn vacate(&self) {
        // Release: pairs with the acquire in `load`: who finds nobody finds the generation of
        // the next, by which a stale reference knows itself.
        self.occupant.store(ptr::null_mut(), sites::SLOT_VACATE.order(Ordering::Release));
    }

    fn retire(&self, class: &'static Class) {
        // Release: pairs with the acquire in `load`: who finds this class finds the generation that it is of. For those
        // who ask for nothing but the object `kill` releases the store to whoever drains the gate.
        self.occupant.store(tagged(class, TAG), sites::SLOT_RETIRE.order(Ordering::Release));
    }
}

/// The object in the word of a slot, if it is one.
#[inline(always)]
fn object_in(occupant: *mut ()) -> Option<NonNull<Object>> {
    NonNull::new(occupant.cast::<Object>()).filter(|_| occupant.addr() & TAG == 0)
}

/// What the word of a slot means.
fn who(occupant: *mut ()) -> Occupant {
    if occupant.is_null() {
        return Occupant::Nobody;
    }
    if let Some(object) = object_in(occupant) {
        return Occupant::Object(object);
    }
    let class = occupant.map_addr(|address| address & !(TAG | OVER)).cast::<Class>();
    // SAFETY: a tagged occupant is the address of a static class, plus the tags (`retire`, `advance`).
    Occupant::Gone(unsafe { &*class }, occupant.addr() & OVER != 0)
}

#[inline(always)]
fn tagged(class: &'static Class, tag: usize) -> *mut () {
    ptr::from_ref(class).cast_mut().cast::<()>().map_addr(|address| address | tag)
}

/// What follows a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Look whether calls still hold the object ([`is_held`]).
    Quiet,
    /// Drop its representatives ([`Class::finish`]).
    Finish,
}

/// What the protocol stands on: tables and grace periods.
pub(crate) trait Ground {
    /// The entry of `slot` in the table of `vp`.
    fn entry(&self, vp: usize, slot: u32) -> &AtomicPtr<Header>;
    /// The global slot.
    fn slot(&self, slot: u32) -> &Slot;
    /// VPs are below it.
    fn vp_limit(&self) -> usize;
    /// Does `stage` with the object after a grace period that begins after this call.
    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage);
}

/// The part of an object that is the same for all classes. What a class adds follows it in memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    // Never written after it is published. (`id` is that of the next object while this is a husk, `husks/I1`.)
    pub(crate) class: &'static Class,
    pub(crate) id: Id,
    pub(crate) made_at: &'static Location<'static>,
    // Written by misses and the destroyer.
    pub(crate) gate: Gate,
    translations: Translations,
    // Never written after it is published: when it was made, in ticks of [`crate::clock`].
    pub(crate) made_ticks: u32,
    // Written when its memory is quiet, and by the last holds.
    held: AtomicU32,
    /// Links that keep the root: one of the object's own, one of each representative.
    links: AtomicU32,
    /// Whether its representatives are being dropped.
    pub(crate) closed: AtomicU32,
}

/// Why there is no object to call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent {
    /// Nothing was ever there, or not yet.
    NotThere,
    /// It was destroyed; its class, if the slot remembers it.
    Destroyed(Option<&'static Class>),
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

    /// The VPs whose tables may hold entries of it.
    #[inline(always)]
    pub(crate) fn for_each_translation(&self, ground: &impl Ground, f: impl Fn(usize) + Copy) {
        self.translations.for_each(ground.vp_limit(), f);
    }

    /// The same, as a set.
    #[cfg(not(loom))]
    pub(crate) fn translations(&self, ground: &impl Ground) -> VpSet {
        let set = RefCell::new(VpSet::new());
        self.for_each_translation(ground, |vp| _ = set.borrow_mut().insert(Vp::new(vp as u32)));
        set.into_inner()
    }

    /// Bytes beyond the object's own block, representatives apart.
    pub(crate) fn extra_bytes(&self, ground: &impl Ground) -> usize {
        self.translations.extra_bytes(ground.vp_limit())
    }

    /// Gives back what the object's block does not hold itself.
    #[inline(always)]
    pub(crate) fn free_extra(&mut self, ground: &impl Ground) {
        self.translations.free(ground.vp_limit());
    }

    /// From here on `held` counts what `finish` has to do (`death/I2`): so many things.
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

/// Makes a built object known under its id.
///
/// # Safety
/// The caller has just built it, under this id, with so many interfaces.
#[inline(always)]
pub(crate) unsafe fn publish(ground: &impl Ground, object: NonNull<Object>, id: Id, interfaces: u32) {
    each(interfaces, move |index| ground.slot(id.slot() + index).publish(object));
}

/// A miss in flight: it keeps the object's destruction from taking stock until it is dropped.
pub(crate) struct InFlight<'a, G: Ground> {
    ground: &'a G,
    object: NonNull<Object>,
    /// Which of the object's interfaces is called.
    index: u32,
}

impl<'a, G: Ground> InFlight<'a, G> {
    /// Enters the gate of an object that the caller keeps alive otherwise: it is in one of its methods.
    ///
    /// # Safety
    /// The object is valid until the result is dropped.
    pub(crate) unsafe fn inside(ground: &'a G, object: NonNull<Object>) -> Option<InFlight<'a, G>> {
        // SAFETY: the caller's promise.
        unsafe { object.as_ref() }.gate.enter().then(|| InFlight { ground, object, index: 0 })
    }

    /// Finds the object that `id` refers to, and enters its gate.
    ///
    /// # Safety
    /// Within an operation, and the result is dropped in it (I1).
    #[inline(always)]
    pub(crate) unsafe fn enter(ground: &'a G, id: Id) -> Result<InFlight<'a, G>, Absent> {
        let slot = ground.slot(id.slot());
        let occupant = slot.load();
        let Some(found) = object_in(occupant) else { return Err(slot.absent(occupant, id)) };
        // SAFETY: valid within this operation (I1).
        let object = unsafe { found.as_ref() };
        // The object first, then its generation (I4): what is compared is its own.
        if object.id.generation() != id.generation() {
            return Err(Absent::Destroyed(None));
        }
        if !object.gate.enter() {
            return Err(Absent::Destroyed(Some(object.class)));
        }
        Ok(InFlight { ground, object: found, index: id.slot() - object.id.slot() })
    }

    /// This was the last one, of an object that died meanwhile.
    #[cold]
    #[inline(never)]
    fn drained(ground: &G, block: NonNull<Object>) {
        // SAFETY: within the operation of the miss.
        let object = unsafe { block.as_ref() };
        clear(ground, object, object.class);
        ground.after_grace_period(block, Stage::Quiet);
    }

    /// The object, with its whole block.
    pub(crate) fn block(&self) -> NonNull<Object> {
        self.object
    }

    /// The object.
    pub(crate) fn object(&self) -> &Object {
        // SAFETY: valid within the operation in which this exists (`enter`).
        unsafe { self.object.as_ref() }
    }

    /// Which of its interfaces is called.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Stores `header` in the table of `vp` (I2).
    #[inline(always)]
    pub(crate) fn install(&self, vp: usize, header: NonNull<Header>) {
        let object = self.object();
        object.translations.insert(vp, self.ground.vp_limit());
        let entry = self.ground.entry(vp, object.id.slot() + self.index);
        // Release: pairs with the acquire in `hit`: whoever loads the entry sees the header built.
        entry.store(header.as_ptr(), sites::ENTRY_STORE.order(Ordering::Release));
    }
}

impl<G: Ground> Drop for InFlight<'_, G> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.object().gate.leave() == Shut::Drained {
            Self::drained(self.ground, self.object);
        }
    }
}

/// The header in `entry` if it is that of `id`: the hot path.
///
/// # Safety
/// Within an operation; the header is used in it.
#[inline(always)]
pub(crate) unsafe fn hit(entry: &AtomicPtr<Header>, id: Id) -> Option<NonNull<Header>> {
    // Acquire: pairs with the release in `install`.
    let header = NonNull::new(entry.load(sites::ENTRY_LOAD.order(Ordering::Acquire)))?;
    // SAFETY: entries are cleared before the grace period after which their header is freed (I3), and this operation
    // began before that ended, or after the entry was cleared.
    unsafe { header.as_ref() }.is(id.bits()).then_some(header)
}

/// Makes a published representative answer calls, unless the object died meanwhile. Within its gate.
///
/// # Safety
/// `owner` precedes the headers of a representative of `object`, which are valid.
pub(crate) unsafe fn activate(object: &Object, owner: NonNull<Owner>) {
    if !sites::ASK_BEFORE_ACTIVE.is_weak() && !object.gate.confirm() {
        return;
    }
    let id = object.id;
    each(object.class.interfaces, move |index| {
        // SAFETY: the caller's promise.
        unsafe { header(owner, index).as_ref() }.activate(id.offset(index).bits());
    });
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
unsafe fn owner_of(header: NonNull<Header>) -> NonNull<Owner> {
    // SAFETY: the inverse of `header`, within one block.
    unsafe {
        let index = header.as_ref().index() as usize;
        header.sub(index).cast::<Owner>().sub(1)
    }
}

/// What [`kill`] led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Killed {
    /// It had ended before.
    Before,
    /// Misses are in flight; the last of them goes on.
    Draining,
    /// The caller goes on, outside its operation: [`Ground::after_grace_period`] with [`Stage::Quiet`].
    Drained,
}

/// Ends the object: from the return of this call on, every call that begins errs. If another call of this function was
/// first, that one may still be at it.
///
/// # Safety
/// `class` is the object's. Within an operation in which `block` was valid already: the last miss may send it to its grace period while this
/// function is still using it.
#[inline(always)]
pub(crate) unsafe fn kill(ground: &impl Ground, block: NonNull<Object>, class: &'static Class) -> Killed {
    // SAFETY: the caller's promise.
    let object = unsafe { block.as_ref() };
    // Before the gate is shut, since from then on a miss in flight may drain it (I1).
    if !sites::RETIRE_FIRST.is_weak() {
        retire(ground, object, class);
    }
    let shut = object.gate.kill();
    if shut == Shut::Already {
        return Killed::Before;
    }
    if sites::RETIRE_FIRST.is_weak() {
        retire(ground, object, class);
    }
    for_each_header(block, class, |header| header.poison());
    if shut == Shut::Drained {
        clear(ground, object, class);
        return Killed::Drained;
    }
    Killed::Draining
}

/// Takes the object out of its slots, which are its own as long as it is valid.
#[inline(always)]
fn retire(ground: &impl Ground, object: &Object, class: &'static Class) {
    let first = object.id.slot();
    each(class.interfaces, move |index| ground.slot(first + index).retire(class));
}

/// Clears the entries (I3). Whoever calls this sends the object to its grace period next.
#[inline(always)]
fn clear(ground: &impl Ground, object: &Object, class: &'static Class) {
    if !sites::CLEAR_ENTRIES.is_weak() {
        let (interfaces, first) = (class.interfaces, object.id.slot());
        object.for_each_translation(ground, move |vp| {
            each(interfaces, move |index| {
                // Relaxed: ordered before the grace period by its beginning. No miss stores any more (gate/I2).
                ground.entry(vp, first + index).store(ptr::null_mut(), Ordering::Relaxed);
            });
        });
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

/// Whether a call holds the object, or did not let it go for all to see. The grace period after the death has passed: holds
/// only fall now (header/I3), so where there is none, none comes.
///
/// # Safety
/// It has, and the object is of this class and valid.
#[inline(always)]
pub(crate) unsafe fn is_held(block: NonNull<Object>, class: &'static Class) -> bool {
    any_header(block, class, |header| header.is_held())
}

/// Asks the last call that holds the object to report. Returns whether none was left by then, so that the representatives
/// can be dropped now; if not, that call goes on from here, and may do so as soon as `before_waiting` has returned.
///
/// # Safety
/// As of [`is_held`], and this is called once for the object.
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

/// Lets a hold go.
///
/// # Safety
/// `header` was held, and came from a table or a miss.
pub(crate) unsafe fn release(ground: &impl Ground, held: NonNull<Header>) {
    // SAFETY: the hold keeps it valid, until the release is done; read before it.
    let object = unsafe { owner_of(held).as_ref() }.object;
    // SAFETY: as above.
    if unsafe { held.as_ref() }.release() == Released::Last {
        // SAFETY: memory quiet waits for this hold to report, so the object is valid.
        if unsafe { object.as_ref() }.count_down(1) {
            ground.after_grace_period(object, Stage::Finish);
        }
    }
}
