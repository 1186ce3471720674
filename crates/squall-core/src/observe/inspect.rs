//! Inspection: what objects there are, seen from outside.
//!
//! - I1. Nothing here writes to anything that a call reads: an object does not run slower while it is looked at.
//!
//! Not promised: a consistent picture of several objects, or of one that changes meanwhile.
//! Cost: a look at every slot ever used; an operation for each few hundred, so that no grace period waits long.

use squall_machine::{Cluster, Vp, VpSet};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::protocol::class::{ObjectKind, Source};
use crate::protocol::destroy::for_each_held;
use crate::protocol::id::Id;
use crate::protocol::mediator::Phase;
use crate::protocol::object::{Object, header};
use crate::protocol::platform::Platform;
use crate::protocol::reps::{Owner, Rep};
use crate::protocol::slot::Occupant;
use crate::protocol::tables::{BLOCK, Tables, existing};

/// An object, as it was at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// Its id, as the interface it was made for.
    pub id: Id,
    /// That interface.
    pub interface: &'static str,
    /// Where the interface is declared.
    pub interface_source: Source,
    /// Its class: the author's type.
    pub class: &'static str,
    /// Whether it has one representative by nature.
    pub kind: ObjectKind,
    /// Where it was made.
    pub made_at: &'static Location<'static>,
    /// The VP whose range its id is of; none for well-known objects.
    pub home: Option<Vp>,
    /// The VPs on which a call ever missed.
    pub translations: VpSet,
    /// Its representatives.
    pub reps: Vec<RepInfo>,
    /// Bytes of all its parts, without the tables and what its fields point to.
    pub bytes: usize,
    /// Those of them that are the author's own fields.
    pub value_bytes: usize,
    /// Since it was made, to some tens of milliseconds.
    pub age: Duration,
    /// Misses, modulo 2^32; representatives made ahead of a call count as one each.
    pub misses: u64,
    /// Where it is in its life.
    pub state: ObjectState,
}

/// A representative, as it was at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepInfo {
    /// The cluster it serves; none for the one of a shared object.
    pub cluster: Option<Cluster>,
    /// The VP that made it; none for the one of a shared object.
    pub vp: Option<Vp>,
    /// Calls that hold it because they may block.
    pub holds: u32,
}

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectState {
    /// Calls reach it.
    Live,
    /// Calls reach it by way of a function of the user's ([`swap::arbitrate`](crate::swap::arbitrate)).
    Arbitrated,
    /// It is being swapped for another one.
    Swapping,
    /// It was destroyed, and a call still holds it.
    Ending,
}

/// What serves an object now, as far as it can be said without looking at its parts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClassInfo {
    /// Its class: the author's type.
    pub class: &'static str,
    /// The same, to compare.
    pub type_id: TypeId,
    /// The interface that it was made for.
    pub interface: &'static str,
    /// The same, to compare: of `dyn Trait`.
    pub interface_id: TypeId,
    /// Bytes of the parts that every object of its class has: representatives that are apart are not among them.
    pub bytes: usize,
}

/// What serves the live object of this id, the one that the object was made with.
///
/// # Cost
/// An operation. Lock-free.
pub fn class_of(id: Id) -> Option<ClassInfo> {
    let tables = existing().filter(|_| !squall_sys::fork::forked())?;
    let look = || {
        let (object, _) = serving(tables, id.slot())?;
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        let class = object.class;
        (object.id == id && !object.gate.is_dead()).then(|| ClassInfo {
            class: (class.name)(),
            type_id: class.more.type_id,
            interface: class.interface,
            interface_id: class.more.interface_id,
            bytes: class.object_bytes as usize,
        })
    };
    squall_rcu::try_pin(|_| look()).ok().flatten()
}

impl<I: ?Sized + Interface> Handle<I> {
    /// The live object of this id, if it was made for this interface.
    ///
    /// # Cost
    /// An operation. Lock-free.
    pub fn find(id: Id) -> Option<Handle<I>> {
        let class = class_of(id)?;
        // An object that was made for this interface has it under its own id (handle/I1).
        (class.interface_id == TypeId::of::<I>()).then(|| Handle::new(id))
    }
}

/// The objects that live now, by slot, and those that were destroyed while a call that may block still holds them.
///
/// In the child of a fork there are none.
pub fn snapshot() -> Vec<ObjectInfo> {
    // In a forked child the lock of the list below may be held for ever.
    let Some(tables) = existing().filter(|_| !squall_sys::fork::forked()) else { return Vec::new() };
    let mut objects = all(tables, |slot| look(tables, slot));
    for_each_held(|object| {
        let held = describe(tables, object, ObjectState::Ending);
        // It may have been alive when its slot was looked at.
        objects.retain(|seen| seen.id != held.id);
        objects.push(held);
    });
    objects
}

/// The object of this id, if it lives or is held as in [`snapshot`]. An id of an interface that it extends is good too.
pub fn info_of(id: Id) -> Option<ObjectInfo> {
    let tables = existing().filter(|_| !squall_sys::fork::forked())?;
    // SAFETY: called with valid objects only.
    let is_it = |object: NonNull<Object>| unsafe {
        let (own, interfaces) = (object.as_ref().id, object.as_ref().class.interfaces);
        (0..interfaces).any(|index| own.offset(index) == id)
    };
    let live = squall_rcu::pin(|_| {
        // Valid within this operation (`object/I1`).
        let (object, state) = serving(tables, id.slot())?;
        is_it(object).then(|| describe(tables, object, state))
    });
    live.or_else(|| {
        let mut held = None;
        for_each_held(|object| {
            if is_it(object) {
                held = Some(describe(tables, object, ObjectState::Ending));
            }
        });
        held
    })
}

/// The objects of these classes that were made for this interface, and serve.
pub(crate) fn instances(interface: TypeId, classes: &BTreeSet<TypeId>) -> Vec<Id> {
    let Some(tables) = existing() else { return Vec::new() };
    all(tables, |slot| {
        let (object, _) = serving(tables, slot)?;
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        let more = &object.class.more;
        let is_one = more.interface_id == interface && classes.contains(&more.type_id);
        (is_one && object.id.slot() == slot).then_some(object.id)
    })
}

/// What `look` finds at the slots that were ever used: in one operation for each few hundred.
fn all<T>(tables: &Tables, look: impl Fn(u32) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for first in (0..tables.slots_end()).step_by(BLOCK as usize) {
        squall_rcu::pin(|_| found.extend((first..first + BLOCK).filter_map(&look)));
    }
    found
}

/// The object to which this slot leads, by way of a mediator too, and its state. Within an operation, in which it is valid.
pub(crate) fn serving(tables: &Tables, slot: u32) -> Option<(NonNull<Object>, ObjectState)> {
    match tables.slot(slot).occupant() {
        Occupant::Object(object) => Some((object, ObjectState::Live)),
        Occupant::Mediated(mediator) => {
            // SAFETY: valid within this operation (`object/I1`).
            let mediator = unsafe { mediator.as_ref() };
            Some(match (mediator.phase(), mediator.new) {
                (Phase::Complete, Some(new)) => (new, ObjectState::Live),
                (Phase::Arbitrate, _) => (mediator.old, ObjectState::Arbitrated),
                _ => (mediator.old, ObjectState::Swapping),
            })
        }
        Occupant::Nobody | Occupant::Gone(..) => None,
    }
}

/// The object that begins at this slot. Within an operation.
fn look(tables: &Tables, slot: u32) -> Option<ObjectInfo> {
    let (object, state) = serving(tables, slot)?;
    // SAFETY: valid within this operation (`object/I1`).
    (unsafe { object.as_ref() }.id.slot() == slot).then(|| describe(tables, object, state))
}

/// Within an operation in which the object was found, or while it is kept otherwise.
fn describe(tables: &Tables, block: NonNull<Object>, state: ObjectState) -> ObjectInfo {
    // SAFETY: valid within this operation, and not closed before it ends.
    let object = unsafe { block.as_ref() };
    let class = object.class;
    let mut reps = Vec::new();
    // SAFETY: as above; the function is the object's own.
    unsafe {
        (class.for_each_rep)(block, &mut |owner| reps.push(describe_rep(class.kind, class.interfaces, owner)))
    };
    let outside = if class.kind == ObjectKind::Clustered { reps.len() } else { 0 };
    ObjectInfo {
        id: object.id,
        interface: class.interface,
        interface_source: class.source,
        class: (class.name)(),
        kind: class.kind,
        made_at: object.made_at,
        home: tables.home(object.id.slot()),
        translations: object.translations(tables.vp_limit()),
        bytes: class.object_bytes as usize
            + outside * class.rep_bytes
            + object.extra_bytes(tables.vp_limit()),
        value_bytes: class.value_bytes.0 + outside * class.value_bytes.1,
        reps,
        age: tables.epoch().since(object.made_ticks),
        misses: object.gate.misses(),
        state: if object.gate.is_dead() { ObjectState::Ending } else { state },
    }
}

/// # Safety
/// The owner of a representative of an object of this kind, valid, with so many headers.
unsafe fn describe_rep(kind: ObjectKind, interfaces: u32, owner: NonNull<Owner>) -> RepInfo {
    // SAFETY: it has so many headers.
    let holds = (0..interfaces).map(|index| unsafe { header(owner, index).as_ref() }.holds()).sum();
    if kind == ObjectKind::Shared {
        return RepInfo { cluster: None, vp: None, holds };
    }
    // SAFETY: the owner is a field of a `Rep` in such objects.
    let rep = unsafe { Rep::of(owner).as_ref() };
    RepInfo { cluster: Some(Cluster::new(rep.cluster)), vp: Some(Vp::new(rep.vp)), holds }
}
