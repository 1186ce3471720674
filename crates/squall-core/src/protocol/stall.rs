//! Names the object that a stalled call uses, for the report of a grace period that does not end.
//!
//! Problem: another thread than the caller writes the report. Meanwhile the object may be dying, or another
//! object may have its slot.
//!
//! Idea: a call stores only the id of its handle. The thread that makes the report looks the id up like a
//! miss. It does so in an operation of its own, takes only a free lock, and never waits. The stalled grace
//! period began before that operation and does not wait for it.
//!
//! Cost: only when a report is written.

use squall_sys::sync::atomic::Ordering;

use crate::protocol::class::Class;
use crate::protocol::id::Id;
use crate::protocol::names::try_name_of;
use crate::protocol::platform::Platform;
use crate::protocol::slot::{Occupant, Slot};
use crate::protocol::tables::existing;

/// Returns the name of the object that a call's tag stands for. The tag is the id with which the call was
/// made (see `squall_rcu::__name_tags`). Returns the bare id if neither the object nor its class is found.
pub(crate) fn name(tag: u64) -> String {
    let id = Id::new(tag as u32, (tag >> u32::BITS) as u32);
    let name = try_name_of(id).map_or(String::new(), |name| format!(" {name:?}"));
    match find(id) {
        Some(Found::Object(object, class)) => {
            format!("{}#{object}{name} of class {}", class.interface, (class.name)())
        }
        // An object with several interfaces: which of them this id names can no longer be found out.
        Some(Found::Dying(class)) if class.interfaces > 1 => {
            format!("{id}{name} of class {} (destroyed meanwhile)", (class.name)())
        }
        Some(Found::Dying(class)) => {
            format!("{}#{id}{name} of class {} (destroyed meanwhile)", class.interface, (class.name)())
        }
        None => format!("{id}{name}"),
    }
}

pub(super) enum Found {
    /// The object lives. Its own id, which differs from the call's id if the call uses an inherited
    /// interface.
    Object(Id, &'static Class),
    /// The object was destroyed, and is not reclaimed yet.
    Dying(&'static Class),
}

fn find(id: Id) -> Option<Found> {
    let slot = existing().filter(|tables| id.slot() < tables.slots_end())?.slot(id.slot());
    squall_rcu::__try_pin(|_| look(slot, id)).ok().flatten()
}

/// Looks an id up in its slot. Called within an operation.
pub(super) fn look(slot: &Slot, id: Id) -> Option<Found> {
    match slot.occupant() {
        Occupant::Object(object) => {
            // SAFETY: valid within this operation (`object/I1`).
            let object = unsafe { object.as_ref() };
            let same = object.id.generation() == id.generation();
            same.then_some(Found::Object(object.id, object.class))
        }
        Occupant::Mediated(mediator) => {
            // SAFETY: valid within this operation (`object/I1`).
            let mediator = unsafe { mediator.as_ref() };
            // SAFETY: valid within this operation (`object/I1`).
            let class = unsafe { mediator.class() };
            (mediator.id.generation() == id.generation()).then_some(Found::Object(mediator.id, class))
        }
        // Relaxed: a slot keeps the generation of a dying object until it is gone, and a later object has a
        // later one.
        Occupant::Gone(class, false) if slot.generation.load(Ordering::Relaxed) == id.generation() => {
            Some(Found::Dying(class))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_id_is_reported_bare() {
        let id = Id::new(1 << 10, u32::MAX);
        assert_eq!(name(id.bits()), id.to_string());
        crate::protocol::tables::tables().unwrap();
        assert_eq!(name(id.bits()), id.to_string());
    }
}
