//! The translation tables, as far as users may act on them. They are caches: any part may be discarded at any
//! time.

use squall_machine::{Vp, VpSet, machine};
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::cell::RefCell;

use crate::observe::inspect;
use crate::protocol::destroy;
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::platform::Platform;
use crate::protocol::slot::{Occupant, Slot};
use crate::protocol::tables::{BLOCK, SLOTS_BOUND, Tables, before_tables, existing};

/// Figures about the translation tables.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let _counter = squall::shared::<dyn Counter, _>(Central::default());
/// let stats = squall::tables::stats();
/// assert!(stats.objects_count >= 1);
/// println!("{} bytes of address space", stats.reserved_bytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Address space reserved for all tables, in bytes. Only pages that were touched use memory.
    pub reserved_bytes: usize,
    /// Slots that were ever given to a VP.
    pub slots_count: usize,
    /// Live objects.
    pub objects_count: usize,
    /// Slots with no generation left.
    pub retired_count: usize,
    /// Bytes of the global table for one interface of one object.
    pub slot_bytes: usize,
    /// Bytes of a local table for one interface of one object.
    pub entry_bytes: usize,
    /// Panics in drops of representatives and roots, and in the authors' `wake`.
    pub panicked_drops: u64,
    /// Bytes, approximately, of ended objects' blocks that are kept for new objects. A VP keeps at most 2,048
    /// blocks of each size up to 248 bytes: 4 MiB in total. They stay until they are used or [`trim`] is
    /// called.
    pub kept_bytes: usize,
}

/// Bounds the number of interfaces of objects that live at once, and with it the address space of the tables.
/// Call it before the first object is created.
///
/// The number is rounded up to a power of two, from 8,192 to 16,777,216, which is the default. The
/// environment variable `SQUALL_OBJECTS_MAX` has precedence. If the process has a limit on addresses
/// (`ulimit -v`), the default is lower: the tables take at most an eighth of the remaining addresses. The
/// same holds if the system does not overcommit memory (`vm.overcommit_memory=2`): at most 64 MiB.
///
/// # Errors
/// The bound in force, if an object was created before.
///
/// ```
/// squall::tables::set_objects_max(100_000).expect("no object was created yet");
/// ```
pub fn set_objects_max(objects: u32) -> Result<(), usize> {
    // Relaxed: under the lock of the tables' creation.
    before_tables(|| SLOTS_BOUND.store(objects.max(1), Ordering::Relaxed))
        .map_err(|tables| tables.slots_max() as usize)
}

/// Returns figures about the tables.
///
/// # Cost
/// A look at every slot that was ever used.
///
/// ```
/// let stats = squall::tables::stats();
/// assert_eq!(stats.entry_bytes, 8);
/// ```
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
    stats.reserved_bytes = tables.reserved_bytes();
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

/// Returns the kept blocks of ended objects on the caller's VP ([`TableStats::kept_bytes`]) to the allocator.
/// Returns their bytes. For a program that will not make that many objects again.
///
/// # Cost
/// A call of the allocator for each block. To trim every VP, pass this function to
/// [`quiescent_do`](squall_rcu::quiescent_do).
///
/// ```
/// let bytes = squall::tables::trim();
/// println!("returned {bytes} bytes");
/// ```
pub fn trim() -> usize {
    existing().map_or(0, Tables::trim)
}

/// Discards a VP's whole local table. Its threads then miss once for each object that they call.
///
/// # Panics
/// If the machine has no such VP.
/// # Cost
/// A system call.
/// # Source
/// Tornado §3.3: pages of the tables are discarded, not saved, since the miss handlers hold the truth.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// counter.add(1);
/// squall::tables::discard(squall::Vp::current());
/// assert_eq!(counter.get(), 1); // after a miss
/// ```
pub fn discard(vp: Vp) {
    if let Some(tables) = existing() {
        tables.discard(vp, 0, tables.slots_end().next_multiple_of(BLOCK));
    }
}

/// Discards every VP's local table.
///
/// # Cost
/// A system call for each VP.
///
/// ```
/// squall::tables::discard_all();
/// ```
pub fn discard_all() {
    for vp in machine().vps().iter() {
        discard(vp);
    }
}

/// Discards the page of a VP's local table that contains the object's entry.
///
/// # Panics
/// If the machine has no such VP.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, tables};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// tables::discard_page_of(squall::Vp::current(), Handle::id(counter.handle()));
/// counter.add(1);
/// ```
pub fn discard_page_of(vp: Vp, id: Id) {
    if let Some(tables) = existing().filter(|tables| id.slot() < tables.slots_end()) {
        tables.discard(vp, id.slot() / BLOCK * BLOCK, BLOCK);
    }
}

/// Returns the home of an id: the VP whose range of the global table it was taken from, usually the one that
/// made the object. Empty for well-known objects and for ids that were never used. It never changes, also
/// after the object has ended.
///
/// # Cost
/// A load.
/// # Source
/// Appavoo 2005, §4.1.2 and §5.4.1 (CO-05).
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, Id, tables};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let home = tables::home_of(Handle::id(counter.handle())).unwrap();
/// println!("made on {home}");
/// assert_eq!(tables::home_of(Id::NULL), None);
/// ```
pub fn home_of(id: Id) -> Option<Vp> {
    existing().filter(|tables| id.slot() < tables.slots_end())?.home(id.slot())
}

/// Sets every entry that leads to the object of this id to null, on every VP that ever missed it. Together
/// with [`callers_of`] it samples the callers: each VP that calls again misses once.
///
/// # Cost
/// A store for each VP of the translation set and each interface of the object. Later a miss for each of
/// these VPs that calls it again. Lock-free.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, tables};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let id = Handle::id(counter.handle());
/// counter.add(1);
/// tables::forget(id);
/// assert!(tables::callers_of(id).is_empty());
/// counter.add(1);
/// assert!(!tables::callers_of(id).is_empty());
/// ```
pub fn forget(id: Id) {
    for_each_entry(id, |_, entry| {
        // Only if the entry is set: sampling an object that no thread calls writes no memory.
        if !entry.load(Ordering::Relaxed).is_null() {
            // Relaxed: null is correct at any time, and orders no other access.
            entry.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    });
}

/// Returns the VPs with an entry that leads to the object of this id: those that called it since [`forget`].
///
/// # Cost
/// A load for each VP of the translation set and each interface of the object. Lock-free.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, tables};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// counter.add(1);
/// for vp in tables::callers_of(Handle::id(counter.handle())).iter() {
///     println!("{vp} calls the counter");
/// }
/// ```
pub fn callers_of(id: Id) -> VpSet {
    let callers = RefCell::new(VpSet::new());
    for_each_entry(id, |vp, entry| {
        if !entry.load(Ordering::Relaxed).is_null() {
            callers.borrow_mut().insert(Vp::new(vp as u32));
        }
    });
    callers.into_inner()
}

/// Calls `f` with each entry that may lead to the live object of this id, and with the entry's VP.
fn for_each_entry(id: Id, f: impl Fn(usize, &AtomicPtr<Header>)) {
    let Some(tables) = existing().filter(|_| !squall_sys::fork::forked()) else { return };
    let visit = || {
        let Some(inspect::Serving { object, .. }) = inspect::serving(tables, id.slot()) else { return };
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
    let _ = squall_rcu::__try_pin(|_| visit());
}
