//! Inspection: the objects of the process, seen from outside.
//!
//! - I1. The code here writes to no memory that a call reads: inspection does not slow an object down.
//!
//! Not promised: a consistent snapshot of several objects, or of one object that changes meanwhile.
//! Cost: a look at every slot ever used. One operation covers a few hundred slots, so that no grace period
//! waits long.

use squall_machine::{Cluster, Vp, VpSet};
use squall_sys::sync::atomic::{Ordering, fence};
use std::any::TypeId;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::call::mediated::Full;
use crate::protocol::class::{ObjectKind, Source};
use crate::protocol::destroy::for_each_held;
use crate::protocol::id::Id;
use crate::protocol::links::living;
use crate::protocol::mediator::{Mediator, Phase};
use crate::protocol::names::{Name, listed};
use crate::protocol::object::{Object, for_each_header, header};
use crate::protocol::platform::Platform;
use crate::protocol::reps::{Owner, Rep};
use crate::protocol::slot::Occupant;
use crate::protocol::tables::{BLOCK, Tables, existing};

/// An object at one moment.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let info = squall::info_of(squall::Handle::id(counter.handle())).unwrap();
/// assert_eq!((info.interface, info.reps.len()), ("Counter", 1));
/// assert!(info.class.ends_with("Central"));
/// println!("made at {}, {} bytes", info.made_at, info.bytes);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// The object's id, under the interface it was made for.
    pub id: Id,
    /// The name that the program gave it, if any ([`Owned::named`](crate::Owned::named)).
    pub name: Option<Name>,
    /// The live object that this one is a part of, if the program said so
    /// ([`Owned::part_of`](crate::Owned::part_of)). Empty once this object was destroyed.
    pub part_of: Option<Id>,
    /// The interface that the object was made for.
    pub interface: &'static str,
    /// The place where the interface is declared.
    pub interface_source: Source,
    /// The object's class: the author's type.
    pub class: &'static str,
    /// Shared objects have one representative, clustered ones any number.
    pub kind: ObjectKind,
    /// The place where the object was made.
    pub made_at: &'static Location<'static>,
    /// The VP from whose range the id was taken; `None` for well-known objects.
    pub home: Option<Vp>,
    /// The VP on which the serving implementation was made: [`place_of`].
    pub place: Option<Vp>,
    /// The VPs on which a call has ever missed.
    pub translations: VpSet,
    /// The object's representatives.
    pub reps: Vec<RepInfo>,
    /// Bytes of all its parts. Excludes the translation tables and memory that its fields point to.
    pub bytes: usize,
    /// Bytes of the author's own fields, which `bytes` includes.
    pub value_bytes: usize,
    /// The time since the object was made, accurate to some tens of milliseconds.
    pub age: Duration,
    /// Misses, modulo 2^32. A representative made ahead of a call counts as one miss.
    pub misses: u64,
    /// The object's stage of life.
    pub state: ObjectState,
    /// The mediator that calls meet in front of the object, if there is one.
    pub mediator: Option<MediatorInfo>,
}

/// A mediator at one moment. It stands in front of an object that is being swapped or is arbitrated.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, MediatorPhase, info_of, swap::arbitrate_method};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let _arbiter = arbitrate_method(counter.handle(), "add", |_| {})?;
/// let mediator = info_of(Handle::id(counter.handle())).unwrap().mediator.unwrap();
/// assert_eq!((mediator.phase, mediator.method), (MediatorPhase::Arbitrate, Some("add")));
/// assert!(mediator.target.ends_with("Central") && mediator.replacement.is_none());
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediatorInfo {
    /// The treatment of calls.
    pub phase: MediatorPhase,
    /// The class of the object behind the mediator.
    pub target: &'static str,
    /// The class of the object that takes its place if the swap succeeds.
    pub replacement: Option<&'static str>,
    /// The only method that an arbiter's function was asked for. Other calls then go to the object directly.
    pub method: Option<&'static str>,
}

/// The treatment of calls by a mediator.
///
/// ```
/// use squall::MediatorPhase;
///
/// assert_eq!(MediatorPhase::Transfer.to_string(), "transfer");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediatorPhase {
    /// Calls are counted and go to the object.
    Forward,
    /// New calls wait. Calls that some call in progress waits for go to the object.
    Block,
    /// Calls wait, while the state moves to the replacement.
    Transfer,
    /// Calls go to the object through the function of an arbiter.
    Arbitrate,
}

impl fmt::Display for MediatorPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediatorPhase::Forward => "forward",
            MediatorPhase::Block => "block",
            MediatorPhase::Transfer => "transfer",
            MediatorPhase::Arbitrate => "arbitrate",
        })
    }
}

/// A representative at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepInfo {
    /// The cluster it serves; `None` in a shared object.
    pub cluster: Option<Cluster>,
    /// The VP that made it; `None` in a shared object.
    pub vp: Option<Vp>,
    /// Number of blocking calls that hold the representative.
    pub holds: u32,
}

/// An object's stage of life.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, ObjectState, info_of, swap::arbitrate};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let state = || info_of(Handle::id(counter.handle())).unwrap().state;
/// assert_eq!(state(), ObjectState::Live);
/// let _arbiter = arbitrate(counter.handle(), |_| {})?;
/// assert_eq!(state(), ObjectState::Arbitrated);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectState {
    /// Calls reach the object.
    Live,
    /// Calls reach the object through a user's function ([`swap::arbitrate`](crate::swap::arbitrate)).
    Arbitrated,
    /// The object is being swapped for another one.
    Swapping,
    /// The object was destroyed, and a call still holds it.
    Ending,
}

/// The class of the object that serves now, with the facts that need no look at its parts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClassInfo {
    /// The object's class: the author's type.
    pub class: &'static str,
    /// The type id of the class, for comparisons.
    pub type_id: TypeId,
    /// The interface that the object was made for.
    pub interface: &'static str,
    /// The type id of the interface as `dyn Trait`, for comparisons.
    pub interface_id: TypeId,
    /// Bytes of the parts that every object of the class has, without representatives in blocks of their own.
    pub bytes: usize,
}

/// Returns the class of the live object with this id. The id must be that of the object's own interface.
///
/// # Cost
/// An operation. Lock-free.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::Handle;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let class = squall::class_of(Handle::id(counter.handle())).unwrap();
/// assert_eq!(class.type_id, std::any::TypeId::of::<Central>());
/// ```
pub fn class_of(id: Id) -> Option<ClassInfo> {
    let tables = existing().filter(|_| !squall_sys::fork::forked())?;
    let look = || {
        let object = live_at(tables, id.slot())?;
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        let class = object.class;
        (object.id == id).then(|| ClassInfo {
            class: (class.name)(),
            type_id: class.more.type_id,
            interface: class.interface,
            interface_id: class.more.interface_id,
            bytes: class.object_bytes as usize,
        })
    };
    squall_rcu::try_pin(|_| look()).ok().flatten()
}

/// Returns the VP on which the serving implementation of a live object was made, and near which its root
/// lies. At first this is the home of its id. After a swap it is the VP of the thread that made the
/// [`Replacement`](crate::swap::Replacement); the home stays the same.
///
/// The result is `None` if the object is gone, or if it is a well-known one that was not swapped.
///
/// # Cost
/// An operation. It reads the entry of the id in the global table, which its home keeps, and the object.
/// Lock-free.
///
/// # Source
/// Unrau et al. 1995, §4.1 (HU-07: the home of an id keeps a ghost with the place of the moved object).
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, info_of, ship};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let home = info_of(Handle::id(counter.handle())).unwrap().home;
/// assert_eq!(ship::place_of(counter.handle()), home);
/// ```
pub fn place_of<I: ?Sized + Interface>(handle: Handle<I>) -> Option<Vp> {
    let tables = existing().filter(|_| !squall_sys::fork::forked())?;
    let id = Handle::id(handle);
    let look = || {
        let object = live_at(tables, id.slot())?;
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        if object.id.generation() == id.generation() { place_in(tables, object) } else { None }
    };
    squall_rcu::try_pin(|_| look()).ok().flatten()
}

/// Returns the VP on which an object was made.
fn place_in(tables: &Tables, object: &Object) -> Option<Vp> {
    match object.place.checked_sub(1) {
        Some(vp) => Some(Vp::new(vp.into())),
        None => tables.home(object.id.slot()),
    }
}

impl<I: ?Sized + Interface> Handle<I> {
    /// Returns a handle to the live object of this id, if the object was made for this interface.
    ///
    /// # Cost
    /// An operation. Lock-free.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Handle, Id};
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let id: Id = Handle::id(counter.handle());
    /// let found = Handle::<dyn Counter>::find(id).unwrap();
    /// found.add(1);
    /// assert_eq!(counter.get(), 1);
    /// ```
    pub fn find(id: Id) -> Option<Handle<I>> {
        let class = class_of(id)?;
        // An object made for this interface has it under its own id (handle/I1).
        (class.interface_id == TypeId::of::<I>()).then(|| Handle::new(id))
    }
}

/// Returns the live objects in the order of slots. Also returns destroyed objects that a blocking call still
/// holds.
///
/// Returns an empty list in the child of a fork.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let _counter = squall::shared::<dyn Counter, _>(Central::default());
/// for object in squall::snapshot() {
///     println!("{}#{}: {} representatives", object.interface, object.id, object.reps.len());
/// }
/// ```
pub fn snapshot() -> Vec<ObjectInfo> {
    snapshot_after(None, usize::MAX)
}

/// Returns a part of a [`snapshot`]: the first `limit` objects after the object `after`, or from the start.
/// The order is that of slots, then generations.
///
/// # Cost
/// A description of each returned object, a look at each slot from the first to the last of them, and a look
/// at each destroyed object that a blocking call holds.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let _counters = [(); 5].map(|()| squall::shared::<dyn Counter, _>(Central::default()));
/// let mut count = 0;
/// let mut after = None;
/// loop {
///     let part = squall::snapshot_after(after, 2);
///     let Some(last) = part.last() else { break };
///     (after, count) = (Some(last.id), count + part.len());
/// }
/// assert!(count >= 5);
/// ```
pub fn snapshot_after(after: Option<Id>, limit: usize) -> Vec<ObjectInfo> {
    // In a forked child the lock of the list below may be held forever.
    let Some(tables) = existing().filter(|_| !squall_sys::fork::forked()) else { return Vec::new() };
    let is_after = |id: Id| after.is_none_or(|after| place(id) > place(after));
    let first = after.map_or(0, Id::slot);
    let mut objects =
        found(tables, first, limit, |slot| look(tables, slot).filter(|object| is_after(object.id)));
    // Objects after this one belong to the next part.
    let end = objects.last().filter(|_| objects.len() >= limit).map(|last| place(last.id));
    let mut held = Vec::new();
    for_each_held(|object| {
        // SAFETY: an object in the list is valid while the list is locked.
        let id = unsafe { object.as_ref() }.id;
        if is_after(id) && end.is_none_or(|end| place(id) <= end) {
            held.push(describe(tables, Serving::ending(object)));
        }
    });
    objects = merge(objects, held, |object| object.id);
    objects.truncate(limit);
    objects
}

/// Returns the number of objects that [`snapshot_after`] would return without a limit. Counts no destroyed
/// objects.
///
/// # Cost
/// A look at each slot from the one of `after`. No allocation.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let _counter = squall::shared::<dyn Counter, _>(Central::default());
/// assert_eq!(squall::count_after(None), squall::snapshot().len());
/// ```
pub fn count_after(after: Option<Id>) -> usize {
    let Some(tables) = existing().filter(|_| !squall_sys::fork::forked()) else { return 0 };
    let is_counted = |slot: &u32| {
        let Some(Serving { object, .. }) = serving(tables, *slot) else { return false };
        // SAFETY: valid within this operation (`object/I1`).
        let id = unsafe { object.as_ref() }.id;
        id.slot() == *slot && after.is_none_or(|after| place(id) > place(after))
    };
    let (first, end) = (after.map_or(0, Id::slot), tables.slots_end());
    let counts = (first..end).step_by(BLOCK as usize).map(|first| {
        let slots = first..end.min(first.saturating_add(BLOCK));
        squall_rcu::pin(|_| slots.filter(is_counted).count())
    });
    counts.sum()
}

/// Returns the position of an id in a snapshot.
fn place(id: Id) -> (u32, u32) {
    (id.slot(), id.generation())
}

/// Merges held objects into a snapshot. A held object may have been alive when its slot was looked at, and
/// then replaces that entry. The number of comparisons does not depend on the product of the two lengths.
fn merge<T>(mut objects: Vec<T>, held: Vec<T>, id: impl Fn(&T) -> Id) -> Vec<T> {
    if held.is_empty() {
        return objects;
    }
    let ids: HashSet<Id> = held.iter().map(&id).collect();
    objects.retain(|object| !ids.contains(&id(object)));
    objects.extend(held);
    objects.sort_by_key(|object| place(id(object)));
    objects
}

/// Returns the object of this id, if it would be in a [`snapshot`]. The id may also be that of an interface
/// which the object's own one extends.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, ObjectState};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let id = Handle::id(counter.handle());
/// assert_eq!(squall::info_of(id).unwrap().state, ObjectState::Live);
/// drop(counter);
/// assert!(squall::info_of(id).is_none());
/// ```
pub fn info_of(id: Id) -> Option<ObjectInfo> {
    let tables = existing().filter(|_| !squall_sys::fork::forked())?;
    // SAFETY: called with valid objects only.
    let is_it = |object: NonNull<Object>| unsafe {
        let (own, interfaces) = (object.as_ref().id, object.as_ref().class.interfaces);
        (0..interfaces).any(|index| own.offset(index) == id)
    };
    let live = squall_rcu::pin(|_| {
        // Valid within this operation (`object/I1`).
        let serving = serving(tables, id.slot())?;
        is_it(serving.object).then(|| describe(tables, serving))
    });
    live.or_else(|| {
        let mut held = None;
        for_each_held(|object| {
            if is_it(object) {
                held = Some(describe(tables, Serving::ending(object)));
            }
        });
        held
    })
}

/// Not public: returns the number of calls that have had to wait for the current swap of the object of this
/// id, 32 at most. Returns a number only while a swap is under way and each new call meets its mediator.
/// Tests wait for this number instead of sleeping. Inside an operation such a wait may never end: the swap
/// then waits for that operation in `Forward`, where no call has to wait.
#[doc(hidden)]
pub fn __calls_parked(id: Id) -> Option<usize> {
    let tables = existing().filter(|tables| id.slot() < tables.slots_end() && !squall_sys::fork::forked())?;
    squall_rcu::pin(|_| {
        let Occupant::Mediated(found) = tables.slot(id.slot()).occupant() else { return None };
        // SAFETY: valid within this operation (`object/I1`).
        let (mediator, full) = unsafe { (found.as_ref(), Full::of(found)) };
        // SAFETY: the old object is valid within this operation.
        let old = unsafe { mediator.old.as_ref() };
        if mediator.id != id || mediator.new.is_none() || !old.gate.is_swapping() {
            return None;
        }
        let active = Cell::new(false);
        for_each_header(mediator.old, old.class, |header| {
            active.set(active.get() || header.is(id.offset(header.index()).bits()));
        });
        // Relaxed: each place is written once.
        let waits = || full.parked_at.iter().filter(|at| at.load(Ordering::Relaxed) != 0).count();
        (!active.get()).then(waits)
    })
}

/// Returns the serving objects of these classes that were made for this interface.
pub(crate) fn instances(interface: TypeId, classes: &[TypeId]) -> Vec<Id> {
    let Some(tables) = existing() else { return Vec::new() };
    all(tables, |slot| {
        let object = serving(tables, slot)?.object;
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        let more = &object.class.more;
        let is_one = more.interface_id == interface && classes.contains(&more.type_id);
        (is_one && object.id.slot() == slot).then_some(object.id)
    })
}

/// Returns the results of `look` for all slots ever used. Uses one operation for each few hundred slots.
fn all<T>(tables: &Tables, look: impl Fn(u32) -> Option<T>) -> Vec<T> {
    found(tables, 0, usize::MAX, look)
}

/// Like [`all`], but begins at the slot `first`, and ends after `limit` results.
fn found<T>(tables: &Tables, first: u32, limit: usize, look: impl Fn(u32) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    let end = tables.slots_end();
    for first in (first..end).step_by(BLOCK as usize) {
        let left = limit - found.len();
        if left == 0 {
            break;
        }
        let slots = first..end.min(first.saturating_add(BLOCK));
        squall_rcu::pin(|_| found.extend(slots.filter_map(&look).take(left)));
    }
    found
}

/// An object that a slot leads to.
pub(crate) struct Serving {
    pub(crate) object: NonNull<Object>,
    state: ObjectState,
    mediator: Option<MediatorInfo>,
}

impl Serving {
    /// An object that was destroyed, and is still held.
    fn ending(object: NonNull<Object>) -> Serving {
        Serving { object, state: ObjectState::Ending, mediator: None }
    }
}

/// Returns the object to which this slot leads, through a mediator too. Called within an operation, in which
/// the object is valid.
pub(crate) fn serving(tables: &Tables, slot: u32) -> Option<Serving> {
    if slot >= tables.slots_end() {
        return None;
    }
    match tables.slot(slot).occupant() {
        Occupant::Object(object) => Some(Serving { object, state: ObjectState::Live, mediator: None }),
        Occupant::Mediated(found) => {
            // SAFETY: valid within this operation (`object/I1`).
            let mediator = unsafe { found.as_ref() };
            let phase = match (mediator.phase(), mediator.new) {
                (Phase::Complete, Some(object)) => {
                    return Some(Serving { object, state: ObjectState::Live, mediator: None });
                }
                (Phase::Arbitrate, _) => Some(MediatorPhase::Arbitrate),
                (Phase::Forward, _) => Some(MediatorPhase::Forward),
                (Phase::Block | Phase::Replaced, _) => Some(MediatorPhase::Block),
                (Phase::Transfer, _) => Some(MediatorPhase::Transfer),
                // The mediator is about to be removed.
                (Phase::RolledBack | Phase::Complete, _) => None,
            };
            let state = match phase {
                Some(MediatorPhase::Arbitrate) => ObjectState::Arbitrated,
                _ => ObjectState::Swapping,
            };
            // SAFETY: valid within this operation.
            let mediator = phase.map(|phase| unsafe { mediator_info(found, phase) });
            // SAFETY: valid within this operation.
            Some(Serving { object: unsafe { found.as_ref() }.old, state, mediator })
        }
        Occupant::Empty | Occupant::Gone(..) => None,
    }
}

/// Returns the object that serves the calls of this slot, unless it was destroyed. Called within an
/// operation.
fn live_at(tables: &Tables, slot: u32) -> Option<NonNull<Object>> {
    let mut dead = None;
    loop {
        let object = serving(tables, slot)?.object;
        // SAFETY: valid within this operation (`object/I1`).
        if !unsafe { object.as_ref() }.gate.is_dead() {
            return Some(object);
        }
        // A swap may have ended it since the slot was read. Then the slot has another object now, and within
        // an operation no address is used again.
        if dead == Some(object) {
            return None;
        }
        dead = Some(object);
        // Acquire: pairs with the AcqRel of `Gate::kill`, which follows the change of the slot.
        fence(Ordering::Acquire);
    }
}

/// Describes a mediator.
///
/// # Safety
/// The caller is within an operation that found the mediator in a slot.
unsafe fn mediator_info(found: NonNull<Mediator>, phase: MediatorPhase) -> MediatorInfo {
    // SAFETY: the caller's promise.
    let (full, target) = unsafe { (Full::of(found), found.as_ref().class()) };
    MediatorInfo {
        phase,
        target: (target.name)(),
        replacement: full.replacement.map(|class| (class.name)()),
        method: full.arbitration.as_ref().and_then(|arbitration| arbitration.method),
    }
}

/// Describes the object that begins at this slot. Called within an operation.
fn look(tables: &Tables, slot: u32) -> Option<ObjectInfo> {
    let serving = serving(tables, slot)?;
    // SAFETY: valid within this operation (`object/I1`).
    (unsafe { serving.object.as_ref() }.id.slot() == slot).then(|| describe(tables, serving))
}

/// Describes an object. Called within an operation in which the object was found, or while the object is kept
/// alive by other means.
fn describe(tables: &Tables, serving: Serving) -> ObjectInfo {
    let Serving { object: block, state, mediator } = serving;
    // SAFETY: valid within this operation, and not closed before it ends.
    let object = unsafe { block.as_ref() };
    let class = object.class;
    let mut reps = Vec::new();
    // SAFETY: the object is valid; the function is that of its class.
    unsafe {
        (class.for_each_rep)(block, &mut |owner| reps.push(describe_rep(class.kind, class.interfaces, owner)))
    };
    let outside = if class.kind == ObjectKind::Clustered { reps.len() } else { 0 };
    let (name, whole) = listed(object.id).unwrap_or_default();
    let is_dead = object.gate.is_dead();
    ObjectInfo {
        id: object.id,
        name,
        // Not for an object in the list of held ones, under whose lock no operation may begin and end.
        part_of: whole.filter(|_| !is_dead).and_then(living),
        interface: class.interface,
        interface_source: class.source,
        class: (class.name)(),
        kind: class.kind,
        made_at: object.made_at,
        home: tables.home(object.id.slot()),
        place: place_in(tables, object),
        translations: object.translations(tables.vp_limit()),
        bytes: class.object_bytes as usize
            + outside * class.rep_bytes
            + object.extra_bytes(tables.vp_limit()),
        value_bytes: class.value_bytes.0 + outside * class.value_bytes.1,
        reps,
        age: tables.epoch().since(object.made_ticks),
        misses: object.gate.misses(),
        state: if is_dead { ObjectState::Ending } else { state },
        mediator: mediator.filter(|_| !is_dead),
    }
}

/// Describes a representative.
///
/// # Safety
/// The valid owner of a representative of an object of this kind, with that many headers.
unsafe fn describe_rep(kind: ObjectKind, interfaces: u32, owner: NonNull<Owner>) -> RepInfo {
    // SAFETY: the representative has that many headers.
    let holds = (0..interfaces).map(|index| unsafe { header(owner, index).as_ref() }.holds()).sum();
    if kind == ObjectKind::Shared {
        return RepInfo { cluster: None, vp: None, holds };
    }
    // SAFETY: the owner is a field of a `Rep` in such objects.
    let rep = unsafe { Rep::of(owner).as_ref() };
    RepInfo { cluster: Some(Cluster::new(rep.cluster)), vp: Some(Vp::new(rep.vp)), holds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_held_objects_are_merged_in_few_steps() {
        const OBJECTS: u32 = if cfg!(miri) { 500 } else { 10_000 };
        let id = |slot| Id::from_parts(slot, 1).expect("an id");
        let objects = (0..OBJECTS).map(|slot| (id(slot), "live")).collect();
        // Every tenth object died while the snapshot was made. The others' slots were empty by then.
        let held = (0..OBJECTS / 10).map(|n| (id(n * 10), "held"));
        let ended = (0..OBJECTS / 10).map(|n| (Id::from_parts(n * 10, 7).expect("an id"), "held"));
        let looks = Cell::new(0);
        let merged = merge(objects, held.chain(ended).collect(), |(id, _)| {
            looks.set(looks.get() + 1);
            *id
        });
        assert!(looks.get() < 30 * OBJECTS, "{} looks", looks.get());
        assert_eq!(merged.len() as u32, OBJECTS + OBJECTS / 10);
        assert!(merged.is_sorted_by_key(|(id, _)| place(*id)));
        let held = merged.iter().filter(|(_, state)| *state == "held").count();
        assert_eq!(held as u32, OBJECTS / 5);
    }
}
