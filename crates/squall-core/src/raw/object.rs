//! An object in the tables: how a miss finds it, how it dies, and when its memory and its id are free again.
//!
//! The protocol, with its steps and races, is in `README.md` beside this file. It is written against [`Ground`], the
//! memory and the grace periods it stands on, so that a model checker can run it over small ones.
//!
//! - I1. A slot's occupant, object or mediator, is read within an operation, and replaced before the gate is shut: so before
//!   the gate is drained, and before the grace period begins after which the occupant is freed. What a miss finds there
//!   stays valid until its operation ends.
//! - I2. Entries of an object are stored by misses inside its gate only, after the VP is in its translation set.
//! - I3. The entries are cleared by whoever drains the gate (`gate/I2`), once, before the grace period begins.
//! - I4. An object's slots are used again only after its memory is quiet and its root was dropped, under the next
//!   generation.
//! - I5. The first slot decides: an object or a mediator gives way in it by one exchange, to a mediator, to an object, or to
//!   a tag. Who took it out by a tag ends the object, or tells the mediator to. The other slots follow; a tag stays.

use squall_machine::park::EventCount;
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
use super::mediator::Mediator;
use super::reps::Owner;
use super::sites;
use super::translations::Translations;
use crate::class::{Class, ObjectKind};
use crate::id::Id;

/// A place of the global table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Null, an [`Object`], a [`Mediator`] with [`MEDIATED`], or after its death its class with [`TAG`], and with [`OVER`] once
    /// its id is free.
    occupant: AtomicPtr<()>,
    /// That of the occupant, or else of the next one. Written by whoever owns the slot: its creator, then whoever frees it.
    pub(crate) generation: AtomicU32,
}

const TAG: usize = 1;
const OVER: usize = 2;
const MEDIATED: usize = 4;
const MARKS: usize = TAG | OVER | MEDIATED;
const _: () = assert!(align_of::<Class>() > MARKS && align_of::<Mediator>() > MARKS);
const _: () = assert!(align_of::<Object>() > MARKS);

/// What is in a slot.
pub(crate) enum Occupant {
    /// Nothing yet.
    Nobody,
    /// One of this class was; whether its id is free.
    Gone(&'static Class, bool),
    /// An object, valid within the operation in which it was found (I1). The pointer is good for its whole block.
    Object(NonNull<Object>),
    /// What stands before an object, valid as one.
    Mediated(NonNull<Mediator>),
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
        // Acquire: pairs with the release in `publish` and `exchange`, what is seen is fully built; with that in `vacate`; and
        // with those in `retire` and `advance`, the generation is the one that the class is of.
        self.occupant.load(sites::SLOT_LOAD.order(Ordering::Acquire))
    }

    /// The object that `id` refers to. Within an operation, in which what is found is valid (I1).
    #[cfg(not(loom))]
    pub(crate) fn find(&self, id: Id) -> Result<NonNull<Object>, Absent> {
        let occupant = self.load();
        let Some(found) = object_in(occupant) else { return Err(self.absent(occupant, id)) };
        // SAFETY: valid within this operation (I1).
        let same = unsafe { found.as_ref() }.id.generation() == id.generation();
        if same { Ok(found) } else { Err(Absent::Destroyed(None)) }
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
            // SAFETY: valid within the operation of the caller (I1).
            Occupant::Mediated(mediator)
                if unsafe { mediator.as_ref() }.id.generation() == id.generation() =>
            {
                Absent::Mediated(mediator)
            }
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

    pub(super) fn retire(&self, class: &'static Class) {
        // Release: pairs with the acquire in `load`: who finds this class finds the generation that it is of. For those
        // who ask for nothing but the object `kill_object` releases the store to whoever drains the gate.
        self.occupant.store(tagged(class, TAG), sites::SLOT_RETIRE.order(Ordering::Release));
    }

    /// As `retire`, of a first slot (I5). Returns what was there.
    #[inline(always)]
    fn take(&self, class: &'static Class) -> *mut () {
        // Acquire: as `load`, of what is taken. No release: the exchange goes on with that of what it takes out, which was put
        // there after the generation was written.
        self.occupant.swap(tagged(class, TAG), sites::SLOT_TAKE.order(Ordering::Acquire))
    }

    /// Puts `to` where `from` is (I5). Returns whether it was.
    fn exchange(&self, from: *mut (), to: *mut ()) -> bool {
        // Release: pairs with the acquire in `load`: what is put there is fully built.
        let order = sites::SLOT_STORE.order(Ordering::Release);
        self.occupant.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }
}

/// What is put into slots in an object's place, or back.
pub(crate) fn object_word(object: NonNull<Object>) -> *mut () {
    object.as_ptr().cast()
}

/// The same, of a mediator.
pub(crate) fn mediator_word(mediator: NonNull<Mediator>) -> *mut () {
    mediator.as_ptr().cast::<()>().map_addr(|address| address | MEDIATED)
}

/// Puts `to` in the place of `from` in the slots of an object with this id. Returns whether it is there: not if something
/// else was in the first one.
///
/// # Safety
/// `to` is an object of this id with so many interfaces, or a mediator before one; and it stays valid until the grace period after it gave way in
/// every slot.
pub(crate) unsafe fn change_places(
    ground: &impl Ground,
    id: Id,
    interfaces: u32,
    from: *mut (),
    to: *mut (),
) -> bool {
    if !ground.slot(id.slot()).exchange(from, to) {
        return false;
    }
    for index in 1..interfaces {
        // Fails where a tag is, and stays (I5).
        ground.slot(id.slot() + index).exchange(from, to);
    }
    true
}

/// The object in the word of a slot, if it is one.
#[inline(always)]
fn object_in(occupant: *mut ()) -> Option<NonNull<Object>> {
    NonNull::new(occupant.cast::<Object>()).filter(|_| occupant.addr() & (TAG | MEDIATED) == 0)
}

/// What the word of a slot means.
fn who(occupant: *mut ()) -> Occupant {
    if occupant.is_null() {
        return Occupant::Nobody;
    }
    if let Some(object) = object_in(occupant) {
        return Occupant::Object(object);
    }
    let place = occupant.map_addr(|address| address & !MARKS);
    if occupant.addr() & MEDIATED != 0
        && let Some(mediator) = NonNull::new(place.cast())
    {
        return Occupant::Mediated(mediator);
    }
    let class = place.cast::<Class>();
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
    /// Where those sleep who wait for a swap of the object in this slot, and the swap itself. Others may sleep there too.
    fn sleepers(&self, slot: u32) -> &EventCount;
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
    /// There is a mediator to ask, valid in the operation of the call.
    Mediated(NonNull<Mediator>),
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
    pub(crate) fn to_come(
        class: &'static Class,
        made_at: &'static Location<'static>,
        made_ticks: u32,
    ) -> Object {
        Object { gate: Gate::suspended(), ..Object::new(class, Id::new(0, 0), made_at, made_ticks) }
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
    /// Enters the gate of an object that the caller keeps alive otherwise, for a call of this interface: it is in one of its
    /// methods, or was sent by a mediator.
    ///
    /// # Safety
    /// The object is valid until the result is dropped, and has so many interfaces.
    pub(crate) unsafe fn inside(
        ground: &'a G,
        object: NonNull<Object>,
        index: u32,
    ) -> Option<InFlight<'a, G>> {
        // SAFETY: the caller's promise.
        unsafe { object.as_ref() }.gate.enter().then(|| InFlight { ground, object, index })
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
    /// This one has. If it is drained the caller goes on, outside its operation: [`Ground::after_grace_period`] with
    /// [`Stage::Quiet`]. Else misses are in flight, the last of which goes on.
    Ended { object: NonNull<Object>, drained: bool },
    /// A mediator was there; it was told (I5).
    Mediated(NonNull<Mediator>),
}

/// Ends the object of this id: from the return of this call on, every call that begins errs. If another call of this
/// function was first, that one may still be at it.
///
/// # Safety
/// Within an operation: the last miss may send the object to its grace period while this function is still using it.
#[inline(always)]
pub(crate) unsafe fn kill(ground: &impl Ground, id: Id) -> Killed {
    let slot = ground.slot(id.slot());
    let found = slot.load();
    let Some(block) = object_in(found) else {
        // SAFETY: passed on.
        return unsafe { kill_mediated(ground, id) };
    };
    // SAFETY: valid within this operation (I1).
    let class = unsafe { block.as_ref() }.class;
    // Before the gate is shut, since from then on a miss in flight may drain it (I1).
    let taken = if sites::RETIRE_FIRST.is_weak() { found } else { slot.take(class) };
    if taken != found {
        // SAFETY: passed on.
        return unsafe { taken_otherwise(ground, id, taken) };
    }
    // SAFETY: taken out by us, in this operation.
    let killed = unsafe { kill_object(ground, block, class) };
    if sites::RETIRE_FIRST.is_weak() {
        slot.take(class);
    }
    killed
}

/// Ends an object that nobody finds in its first slot any more.
///
/// # Safety
/// As of [`kill`], by whoever took it out, or whoever did it for its mediator. `class` is its class.
#[inline(always)]
pub(crate) unsafe fn kill_object(
    ground: &impl Ground,
    block: NonNull<Object>,
    class: &'static Class,
) -> Killed {
    // SAFETY: the caller's promise.
    let object = unsafe { block.as_ref() };
    retire_rest(ground, object.id, class);
    let shut = object.gate.kill();
    debug_assert!(shut != Shut::Already, "an object was taken out of its slot twice");
    for_each_header(block, class, |header| header.poison());
    let drained = shut == Shut::Drained;
    if drained {
        clear(ground, object, class);
    }
    Killed::Ended { object: block, drained }
}

/// Takes the object out of its slots but the first.
#[inline(always)]
fn retire_rest(ground: &impl Ground, id: Id, class: &'static Class) {
    #[cold]
    #[inline(never)]
    fn rest(ground: &impl Ground, id: Id, class: &'static Class) {
        (1..class.interfaces).for_each(|index| ground.slot(id.slot() + index).retire(class));
    }
    if class.interfaces > 1 {
        rest(ground, id, class);
    }
}

/// [`kill`], where it finds no object.
#[cold]
#[inline(never)]
unsafe fn kill_mediated(ground: &impl Ground, id: Id) -> Killed {
    let slot = ground.slot(id.slot());
    // SAFETY: valid within this operation (I1).
    let class = match slot.occupant() {
        Occupant::Object(object) => unsafe { object.as_ref() }.class,
        Occupant::Mediated(mediator) => unsafe { mediator.as_ref().class() },
        Occupant::Nobody | Occupant::Gone(..) => return Killed::Before,
    };
    // SAFETY: passed on.
    unsafe { taken_otherwise(ground, id, slot.take(class)) }
}

/// [`kill`], where what it took out is not what it found at first.
#[cold]
#[inline(never)]
unsafe fn taken_otherwise(ground: &impl Ground, id: Id, taken: *mut ()) -> Killed {
    match who(taken) {
        // SAFETY: valid within this operation (I1), and taken out by us.
        Occupant::Object(block) => unsafe { kill_object(ground, block, block.as_ref().class) },
        Occupant::Mediated(mediator) => {
            // SAFETY: as above.
            let mediator_ref = unsafe { mediator.as_ref() };
            mediator_ref.condemn();
            // SAFETY: as above.
            retire_rest(ground, id, unsafe { mediator_ref.class() });
            Killed::Mediated(mediator)
        }
        Occupant::Nobody | Occupant::Gone(..) => Killed::Before,
    }
}

/// Ends an object whose id is another one's. Returns whether the caller sends it to its grace period: not if the last miss
/// does.
///
/// # Safety
/// Once, within an operation in which nobody finds it any more but by a mediator, who sends nobody there.
pub(crate) unsafe fn move_away(ground: &impl Ground, block: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let object = unsafe { block.as_ref() };
    let drained = object.gate.move_away() == Shut::Drained;
    if drained {
        clear(ground, object, object.class);
    }
    drained
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
pub(crate) fn any_header(
    block: NonNull<Object>,
    class: &'static Class,
    f: impl Fn(&Header) -> bool + Copy,
) -> bool {
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
    let (object, slot) = unsafe {
        let object = owner_of(held).as_ref().object;
        (object, object.as_ref().id.slot())
    };
    // SAFETY: as above.
    match unsafe { held.as_ref() }.release() {
        Released::Nothing => {}
        // The object may be gone already.
        Released::Noticed => ground.sleepers(slot).signal(u32::MAX),
        Released::Last => {
            // SAFETY: memory quiet waits for this hold to report, so the object is valid.
            if unsafe { object.as_ref() }.count_down(1) {
                ground.after_grace_period(object, Stage::Finish);
            }
        }
    }
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
