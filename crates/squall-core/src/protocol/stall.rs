//! The name of an object, for the report of a grace period that its call holds up.
//!
//! Problem: the report comes from another thread than the call, while the object may be dying, or be gone with another one
//! in its place. Idea: all that the call leaves behind is the id it was made with. It is looked up as by a miss, in an
//! operation of the reporting thread's own, which takes no lock and waits for nobody; the grace period that is told of
//! began before it and does not wait for it.
//!
//! Cost: none before there is something to report.

use squall_sys::sync::atomic::Ordering;

use crate::protocol::class::Class;
use crate::protocol::id::Id;
use crate::protocol::platform::Platform;
use crate::protocol::slot::Occupant;
use crate::protocol::tables::existing;

/// What a call's tag means: the bits of the id with which it was made (see `squall_rcu::__name_tags`). The bare id, where
/// neither the object nor its class can be found.
pub(crate) fn name(tag: u64) -> String {
    let id = Id::new(tag as u32, (tag >> u32::BITS) as u32);
    match find(id) {
        Some(Found::Object(object, class)) => {
            format!("{}#{object} of class {}", class.interface, (class.name)())
        }
        // An id of several of one object: which of its interfaces this one is cannot be told any more.
        Some(Found::Dying(class)) if class.interfaces > 1 => {
            format!("{id} of class {} (destroyed meanwhile)", (class.name)())
        }
        Some(Found::Dying(class)) => {
            format!("{}#{id} of class {} (destroyed meanwhile)", class.interface, (class.name)())
        }
        None => id.to_string(),
    }
}

enum Found {
    /// It lives; its own id, which is another one than that of a call through an interface that it extends.
    Object(Id, &'static Class),
    /// It was destroyed, and is not reclaimed yet.
    Dying(&'static Class),
}

fn find(id: Id) -> Option<Found> {
    let slot = existing()?.slot(id.slot());
    let look = || match slot.occupant() {
        Occupant::Object(object) => {
            // SAFETY: valid within this operation (`object/I1`).
            let object = unsafe { object.as_ref() };
            let same = object.id.generation() == id.generation();
            same.then_some(Found::Object(object.id, object.class))
        }
        Occupant::Mediated(mediator) => {
            // SAFETY: as above.
            let mediator = unsafe { mediator.as_ref() };
            // SAFETY: as above.
            let class = unsafe { mediator.class() };
            (mediator.id.generation() == id.generation()).then_some(Found::Object(mediator.id, class))
        }
        // Relaxed: the slot keeps the generation of an object that goes until it is gone; one that is later says so.
        Occupant::Gone(class, false) if slot.generation.load(Ordering::Relaxed) == id.generation() => {
            Some(Found::Dying(class))
        }
        _ => None,
    };
    squall_rcu::try_pin(|_| look()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_nobody_is_given_bare() {
        let id = Id::new(1 << 10, u32::MAX);
        assert_eq!(name(id.bits()), id.to_string());
        crate::protocol::tables::tables().unwrap();
        assert_eq!(name(id.bits()), id.to_string());
    }
}
