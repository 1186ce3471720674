//! Links of objects: an object is a part of another one, as the program says.
//!
//! Problem: people who look at a program want to see which of its objects belong together. The program knows
//! it, but an object that is not linked must not pay for the others. An object may end before its parts.
//!
//! Idea: the link is in the part's entry of the list of [`names`](super::names). It is the id of the whole,
//! with its generation. A reader checks that the whole still lives.
//!
//! - I1. The links of live objects have no circle. A thread checks this under the lock of the list before it
//!   enters a link.
//! - I2. No id of an ended object, or of its successor in the slot, is returned as a whole: ids are not used
//!   twice (`object/I4`).
//!
//! Not promised: a consistent answer about a link that changes meanwhile.
//!
//! Cost: like that of a name.

use std::fmt;

use super::names::{Entry, Locked, Refusal, change, may_be_listed};
use super::stall::{Found, look};
use crate::protocol::class::Class;
use crate::protocol::id::Id;
use crate::protocol::platform::Platform;
use crate::protocol::tables::existing;

/// The reason why an object was not made a part of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// There is no live object with the part's id.
    NoObject(Id),
    /// The whole is the part itself, or is a part of it, perhaps through other objects.
    Circular {
        /// The part.
        part: Id,
        /// The whole.
        whole: Id,
    },
    /// The process is the child of a fork: see [forked children](crate#forked-children).
    Forked(Id),
    /// The call comes from a signal handler that interrupted a slow path of Squall on this thread.
    Reentrant(Id),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::NoObject(id) => {
                write!(
                    f,
                    "object {id} cannot be linked: it was destroyed or never existed; link it while it lives"
                )
            }
            LinkError::Circular { part, whole } if part == whole => {
                write!(f, "object {part} cannot be a part of itself; link it to another object")
            }
            LinkError::Circular { part, whole } => write!(
                f,
                "object {part} cannot be a part of object {whole}, which is a part of it; remove that link first"
            ),
            LinkError::Forked(id) => {
                write!(f, "object {id} cannot be linked: this is the child of a fork, which may only exec")
            }
            LinkError::Reentrant(id) => write!(
                f,
                "object {id} cannot be linked: a signal handler interrupted a slow path of Squall on this thread; link \
                 it outside handlers"
            ),
        }
    }
}

impl std::error::Error for LinkError {}

/// Declares an object to be a part of another one, for people. Replaces an earlier link of the part. `None`
/// removes the link. Both ids may be those of any interface of their objects.
///
/// The link has no effect on calls or on the life of either object. It is shown by
/// [`ObjectInfo`](crate::ObjectInfo), `squall top` and `squall browse`, and stays with both objects through
/// swaps. After the end of the whole, the part is shown without it. The whole may also be an object that is
/// being created. Owners have [`part_of`](crate::Owned::part_of).
///
/// # Errors
/// [`LinkError::NoObject`] if the part was destroyed. [`LinkError::Circular`] if the whole is a part of it.
/// Also in a forked child, and in a signal handler that interrupted a slow path of Squall.
///
/// # Cost
/// A lock of the process, an operation, and some tens of bytes unless the part has a name. Under the lock, a
/// look at each object that the whole is a part of. Calls of the objects cost as much as before.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, Id, parts_of, set_part_of, whole_of};
///
/// let service = squall::shared::<dyn Counter, _>(Central::default());
/// let cache = squall::shared::<dyn Counter, _>(Central::default());
/// let (whole, part): (Id, Id) = (Handle::id(service.handle()), Handle::id(cache.handle()));
/// set_part_of(part, whole)?;
/// assert_eq!((whole_of(part), parts_of(whole)), (Some(whole), vec![part]));
/// assert!(set_part_of(whole, part).is_err());
/// drop(service);
/// assert_eq!(whole_of(part), None);
/// # Ok::<(), squall::LinkError>(())
/// ```
pub fn set_part_of(part: Id, whole: impl Into<Option<Id>>) -> Result<(), LinkError> {
    let whole = whole.into();
    let linked = change(part, |list, entry| {
        let circle = whole.filter(|whole| leads_to(list, *whole, entry));
        if circle.is_none() {
            entry.whole = whole;
        }
        circle
    });
    match linked {
        Ok(None) => Ok(()),
        Ok(Some(whole)) => Err(LinkError::Circular { part, whole }),
        Err(Refusal::NoObject) => Err(LinkError::NoObject(part)),
        Err(Refusal::Forked) => Err(LinkError::Forked(part)),
        Err(Refusal::Reentrant) => Err(LinkError::Reentrant(part)),
    }
}

/// Returns whether the links from `id` upwards lead to this entry, which is not in the list.
fn leads_to(list: &Locked, id: Id, entry: &Entry) -> bool {
    let mut next = Some(id);
    while let Some(id) = next {
        if entry.is(id) {
            return true;
        }
        next = list.live(id).and_then(|above| above.whole);
    }
    false
}

/// Returns the live object that this one is a part of ([`set_part_of`]), by its own id. `part` may be the id
/// of any of the part's interfaces.
///
/// A forked child finds no object. Neither does a signal handler that interrupted a slow path of Squall.
///
/// # Cost
/// A load if no object of this slot ever had a name or a link. Otherwise a lock of the process and an
/// operation.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, whole_of};
///
/// let service = squall::shared::<dyn Counter, _>(Central::default());
/// let cache = squall::shared::<dyn Counter, _>(Central::default()).part_of(service.handle());
/// assert_eq!(whole_of(Handle::id(cache.handle())), Some(Handle::id(service.handle())));
/// ```
pub fn whole_of(part: Id) -> Option<Id> {
    let list = if may_be_listed(part) { Locked::enter()? } else { return None };
    let whole = list.live(part)?.whole;
    drop(list);
    whole.and_then(living)
}

/// Returns the live objects that are parts of this one ([`set_part_of`]), by their own ids, in the order of
/// slots. `whole` may be the id of any of its interfaces.
///
/// A forked child finds no objects. Neither does a signal handler that interrupted a slow path of Squall.
///
/// # Cost
/// A lock of the process, an operation, and a look at each object of the process that has a name or a link.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, parts_of};
///
/// let service = squall::shared::<dyn Counter, _>(Central::default());
/// let cache = squall::shared::<dyn Counter, _>(Central::default()).part_of(service.handle());
/// assert_eq!(parts_of(Handle::id(service.handle())), [Handle::id(cache.handle())]);
/// drop(cache);
/// assert!(parts_of(Handle::id(service.handle())).is_empty());
/// ```
pub fn parts_of(whole: Id) -> Vec<Id> {
    let Some((own, class)) = find(whole) else { return Vec::new() };
    let ids = own.slot()..own.slot() + class.interfaces;
    let is_part = |entry: &Entry| {
        entry.whole.is_some_and(|whole| whole.generation() == own.generation() && ids.contains(&whole.slot()))
    };
    let Some(list) = Locked::enter() else { return Vec::new() };
    let linked: Vec<Id> = list.all_live().filter(|entry| is_part(entry)).map(|entry| entry.id).collect();
    drop(list);
    // A destroyed part stays in the list until its memory is reclaimed.
    linked.into_iter().filter_map(living).collect()
}

/// Returns the own id of the live object with this id.
pub(crate) fn living(id: Id) -> Option<Id> {
    find(id).map(|(own, _)| own)
}

fn find(id: Id) -> Option<(Id, &'static Class)> {
    let tables = existing().filter(|tables| id.slot() < tables.slots_end() && !squall_sys::fork::forked())?;
    let found = squall_rcu::__try_pin(|_| look(tables.slot(id.slot()), id)).ok().flatten();
    match found {
        Some(Found::Object(own, class)) => Some((own, class)),
        _ => None,
    }
}
