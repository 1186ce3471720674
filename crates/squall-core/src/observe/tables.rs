//! The translation tables, as far as users may touch them: they are caches, and any part may be thrown away at any time.

use squall_machine::{Vp, VpSet, machine};
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::cell::RefCell;

use crate::observe::inspect;
use crate::protocol::destroy;
use crate::protocol::header::Header;
use crate::protocol::id::{Id, SLOTS_MAX};
use crate::protocol::platform::Platform;
use crate::protocol::slot::{Occupant, Slot};
use crate::protocol::tables::{BLOCK, LOCAL_SHIFT, Tables, existing};

/// What the tables amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Address space reserved for all tables, in bytes. Memory is used only for pages that were touched.
    pub reserved_bytes: usize,
    /// Slots that were ever handed to a VP.
    pub slots_count: usize,
    /// Objects that live now.
    pub objects_count: usize,
    /// Slots whose generations are used up.
    pub retired_count: usize,
    /// Bytes of the global table for one interface of one object.
    pub slot_bytes: usize,
    /// Bytes of a local table for one interface of one object.
    pub entry_bytes: usize,
    /// Drops of representatives and roots that panicked, and what the authors' `wake` did.
    pub panicked_drops: u64,
    /// Bytes of ended objects' blocks that are kept for the next ones, about. Of each size up to 248 bytes a VP keeps at most
    /// 2,048 blocks: 4 MiB if it keeps that many of all sizes. They stay until they are used or [`trim`] is called.
    pub kept_bytes: usize,
}

/// What the tables amount to now.
///
/// # Cost
/// A look at every slot that was ever used.
pub fn stats() -> TableStats {
    let entry_bytes = size_of::<*const ()>();
    let mut stats = TableStats {
        reserved_bytes: 0,
        slots_count: 0,
        objects_count: 0,
        retired_count: 0,
        slot_bytes: size_of::<Slot>(),
        entry_bytes,
        panicked_drops: destroy::panicked(),
        kept_bytes: existing().map_or(0, Tables::kept_bytes),
    };
    let Some(tables) = existing() else { return stats };
    stats.reserved_bytes = ((tables.vp_limit() + 1) << LOCAL_SHIFT) + SLOTS_MAX as usize * size_of::<Slot>();
    for number in 0..tables.slots_end() {
        let slot = tables.slot(number);
        let generation = slot.generation.load(Ordering::Relaxed);
        match slot.occupant() {
            Occupant::Object(_) | Occupant::Mediated(_) => {
                stats.objects_count += 1;
                stats.slots_count += 1;
            }
            Occupant::Gone(..) if generation == 0 => stats.retired_count += 1,
            _ if generation != 0 => stats.slots_count += 1,
            _ => {}
        }
    }
    stats
}

/// Gives the blocks of ended objects that are kept on the caller's VP ([`Stats::kept_bytes`]) back to the allocator, for a
/// program that made many objects and will not make as many again. Returns how many bytes.
///
/// # Cost
/// A call of the allocator for each. To do so on every VP, hand this to
/// [`quiescent_do`](squall_rcu::quiescent_do).
pub fn trim() -> usize {
    existing().map_or(0, Tables::trim)
}

/// Throws a VP's whole local table away. Its threads miss once for each object that they call next; nothing else changes.
///
/// # Panics
/// If the machine has no such VP.
/// # Cost
/// A system call.
/// # Source
/// Tornado §3.3: pages of the tables are discarded, not saved, since the miss handlers hold the truth.
pub fn discard(vp: Vp) {
    if let Some(tables) = existing() {
        tables.discard(vp, 0, tables.slots_end().next_multiple_of(BLOCK));
    }
}

/// Throws every VP's local table away.
///
/// # Cost
/// A system call for each VP.
pub fn discard_all() {
    for vp in machine().vps().iter() {
        discard(vp);
    }
}

/// Throws away the page of a VP's local table in which the object's entry lies.
///
/// # Panics
/// If the machine has no such VP.
pub fn discard_page_of(vp: Vp, id: Id) {
    if let Some(tables) = existing() {
        tables.discard(vp, id.slot() / BLOCK * BLOCK, BLOCK);
    }
}

/// Throws away every entry that leads to the object of this id, on every VP that ever missed it. With [`callers_of`] a free
/// sample of who calls: each VP that does misses once.
///
/// # Cost
/// A store for each VP of the translation set and each interface of the object, and for each of these VPs that calls it
/// again a miss. Lock-free.
pub fn forget(id: Id) {
    for_each_entry(id, |_, entry| {
        // Only if there is one: a look at an object that nobody calls writes nothing.
        if !entry.load(Ordering::Relaxed).is_null() {
            // Relaxed: null is right at any time, and orders nothing.
            entry.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    });
}

/// The VPs whose tables hold an entry that leads to the object of this id: since [`forget`], those that called it.
///
/// # Cost
/// A load for each VP of the translation set and each interface of the object. Lock-free.
pub fn callers_of(id: Id) -> VpSet {
    let callers = RefCell::new(VpSet::new());
    for_each_entry(id, |vp, entry| {
        if !entry.load(Ordering::Relaxed).is_null() {
            callers.borrow_mut().insert(Vp::new(vp as u32));
        }
    });
    callers.into_inner()
}

/// Calls `f` with each entry that may lead to the live object of this id, and the VP whose it is.
fn for_each_entry(id: Id, f: impl Fn(usize, &AtomicPtr<Header>)) {
    let Some(tables) = existing().filter(|_| !squall_sys::fork::forked()) else { return };
    let visit = || {
        let Some((object, _)) = inspect::serving(tables, id.slot()) else { return };
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { object.as_ref() };
        if object.id != id {
            return;
        }
        let f = &f;
        object.for_each_translation(tables.vp_limit(), |vp| {
            for slot in (id.slot()..).take(object.class.interfaces as usize) {
                f(vp, tables.entry(vp, slot));
            }
        });
    };
    let _ = squall_rcu::try_pin(|_| visit());
}
