//! The tables: a local one for each VP, a global one, and the ids.
//!
//! Problem: a table must cover every object made anywhere, on every VP, and cost memory only where it is
//! used.
//!
//! Idea: each table is one reservation of address space, of fixed size. Pages appear where they are touched,
//! on the memory of the VP that touched them. A VP takes slots in blocks of one page of a local table. So the
//! objects of one VP are neighbours in every table, and an id names its home.
//!
//! - I1. `LOCAL_BASE` changes once, from 0 to the address of VP 0's table. The table of VP v is `v <<
//!   LOCAL_SHIFT` bytes further. In front of VP 0's table lies the *empty table*, which is never written. A
//!   thread that does not know its VP reads null in the empty table and takes the slow path. Each table has
//!   `slots_max` entries.
//! - I2. A slot belongs for good to the VP that took its block: its home. A free slot is in one free list of
//!   that home, in one recycled block there, or in the range `fresh`.
//! - I3. An object with n interfaces takes n consecutive slots, a *run*. A run of n slots stays a run of n.
//! - I4. An entry is null or the address of a header that was installed there. Discarding sets entries to
//!   null, at any time.
//!
//! Not promised: exclusion on a VP. Its list has a lock, which only threads of that VP and those that free
//! its slots take.
//!
//! Cost: reserved address space of `slots_max` × 8 bytes for each VP and × 16 bytes once; memory by the page.
//! `slots_max` is [`SLOTS_MAX`], or the bound of `observe::objects_max`. With a bound, addresses between the
//! local tables are free for other mappings.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.1 and §5.4.1 (CO-05, CO-06); Gamsa et al. 1999, *Tornado*,
//! §3.3 (TO-06, TO-08).

use squall_machine::park::EventCount;
use squall_machine::pervp::PerVp;
use squall_machine::{Vp, machine};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock};
use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::collections::{TryReserveError, VecDeque};
use std::ptr::NonNull;

use crate::protocol::class::Class;
use crate::protocol::clock::Epoch;
use crate::protocol::create_error::CreateError;
use crate::protocol::header::Header;
use crate::protocol::id::{Id, SLOTS_MAX};
use crate::protocol::object::{Object, any};
use crate::protocol::platform::{Platform, Stage};
use crate::protocol::recycle::Recycled;
use crate::protocol::slot::Slot;

const ENTRY_BYTES: usize = size_of::<AtomicPtr<Header>>();
/// Distance between the tables of neighbouring VPs, as a power of two.
pub(crate) const LOCAL_SHIFT: u32 = (SLOTS_MAX as usize * ENTRY_BYTES).trailing_zeros();
/// Slots that a VP takes at a time: one page of a local table.
pub(crate) const BLOCK: u32 = if cfg!(miri) { 32 } else { 512 };
/// The first slots, which are assigned by number.
pub(crate) const WELL_KNOWN: u32 = BLOCK;
/// Smallest bound of the slots: a local table of 64 KiB.
pub(crate) const SLOTS_MIN: u32 = if cfg!(miri) { 1 << 10 } else { 1 << 13 };
// A pair of cache lines has slots of one home only.
const _: () = assert!((BLOCK as usize * size_of::<Slot>()).is_multiple_of(128) && size_of::<Slot>() <= 16);

/// Address of VP 0's table, or 0 before the tables exist (I1).
pub(crate) static LOCAL_BASE: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));
/// The bound of the slots that the program set, or 0.
pub(crate) static SLOTS_BOUND: AtomicU32 = AtomicU32::new(0);
static TABLES: CachePadded<OnceLock<Tables>> = CachePadded::new(OnceLock::new());
/// Held while the tables are created.
static MAKING: Mutex<()> = Mutex::new(());

/// The tables of this process.
pub(crate) struct Tables {
    local: NonNull<AtomicPtr<Header>>,
    slots: NonNull<Slot>,
    // Written when a VP takes a block.
    next_block: CachePadded<AtomicU32>,
    free: PerVp<Mutex<Free>>,
    pub(crate) recycled: Recycled,
    vp_limit: usize,
    /// Number of slots: a power of two, at most [`SLOTS_MAX`].
    slots_max: u32,
    epoch: Epoch,
}

// SAFETY: the pointers are addresses of mappings that are never unmapped, of atomics that every thread may
// use.
unsafe impl Send for Tables {}
// SAFETY: every thread may use the atomics behind the pointers, as for `Send`.
unsafe impl Sync for Tables {}

/// The free slots of a VP, except those in recycled blocks.
#[derive(Debug)]
struct Free {
    /// Unused slots of the current block: the first one, and the end.
    fresh: (u32, u32),
    /// Runs that were used before, first in first out. Index 0 has the runs of length 1.
    runs: Vec<VecDeque<u32>>,
}

impl Free {
    fn new() -> Free {
        Free { fresh: (0, 0), runs: Vec::new() }
    }

    /// Takes a run of this length that was used before.
    fn pop(&mut self, length: u32) -> Option<u32> {
        self.runs.get_mut(length as usize - 1)?.pop_front()
    }

    /// Returns the queue of the runs of this length, with room for `more` runs.
    fn queue(&mut self, length: u32, more: usize) -> Result<&mut VecDeque<u32>, TryReserveError> {
        let lengths = self.runs.len().max(length as usize);
        self.runs.try_reserve(lengths - self.runs.len())?;
        self.runs.resize_with(lengths, VecDeque::new);
        let queue = &mut self.runs[length as usize - 1];
        queue.try_reserve(more)?;
        Ok(queue)
    }
}

/// Returns the tables, and creates them for the first object.
pub(crate) fn tables() -> Result<&'static Tables, CreateError> {
    match TABLES.get() {
        Some(tables) => Ok(tables),
        None => make_tables(),
    }
}

/// Returns the tables if they exist: an object was created before.
#[inline]
pub(crate) fn existing() -> Option<&'static Tables> {
    TABLES.get()
}

#[cold]
fn make_tables() -> Result<&'static Tables, CreateError> {
    let _cold = Cold::enter().ok_or(CreateError::Reentrant)?;
    let _making = lock(&MAKING);
    // Initialise the thread's VP now, so that calls need not check it (`entry_here`).
    let _ = Vp::current();
    if let Some(tables) = TABLES.get() {
        return Ok(tables);
    }
    let free =
        PerVp::try_new(|_| Mutex::new(Free::new())).map_err(|error| CreateError::OutOfMemory(error.cause))?;
    let recycled = Recycled::try_new().map_err(|error| CreateError::OutOfMemory(error.cause))?;
    // Last, since reserved address space is never returned.
    let vp_limit = machine().vp_limit();
    let slots_max = slots_max(vp_limit);
    let local_bytes = slots_max as usize * ENTRY_BYTES;
    let slots_bytes = slots_max as usize * size_of::<Slot>();
    let refused = |cause| CreateError::OutOfMemory(no_addresses(reserved_bytes(vp_limit, slots_max), cause));
    // The smaller one first: if the rows are refused, less is lost.
    let slots = squall_sys::rseq_memory::reserve(slots_bytes).map_err(refused)?;
    let rows = squall_sys::rseq_memory::reserve_rows(vp_limit + 1, 1 << LOCAL_SHIFT, local_bytes);
    // SAFETY: within the reservation: the first table belongs to no VP (I1).
    let local = unsafe { rows.map_err(refused)?.byte_add(1 << LOCAL_SHIFT) };
    let tables = Tables {
        local: local.cast(),
        slots: slots.cast(),
        // The first block has the well-known slots.
        next_block: CachePadded::new(AtomicU32::new(1)),
        free,
        recycled,
        vp_limit,
        slots_max,
        epoch: Epoch::now(),
    };
    // Release: needs no partner. A thread with a handle to an object got it after this store.
    LOCAL_BASE.store(local.as_ptr().expose_provenance(), Ordering::Release);
    squall_rcu::__name_tags(crate::protocol::stall::name);
    Ok(TABLES.get_or_init(|| tables))
}

/// Returns the number of slots: the bound of the environment or the program, else all. Fewer if addresses are
/// limited: the tables take at most an eighth of those that remain, and [`STRICT_MAX`] where addresses count
/// as memory.
fn slots_max(vp_limit: usize) -> u32 {
    let environment = std::env::var("SQUALL_OBJECTS_MAX").ok().and_then(|text| text.parse().ok());
    // Relaxed: under the lock `MAKING`, as at the store.
    let chosen = environment.or(Some(SLOTS_BOUND.load(Ordering::Relaxed)).filter(|bound| *bound > 0));
    if let Some(bound) = chosen {
        return bound.clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
    }
    let left = squall_sys::pages::address_limit().map(|limit| {
        let used = squall_sys::pages::mapped_bytes().unwrap_or(limit / 2);
        limit.saturating_sub(used) / 8
    });
    // The kernel refuses to overcommit, also for mappings that ask for it.
    let is_strict = std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|text| text.starts_with(b"2"));
    let most = left.into_iter().chain(is_strict.then_some(STRICT_MAX)).min().unwrap_or(usize::MAX);
    let mut slots = SLOTS_MAX;
    while slots > SLOTS_MIN && reserved_bytes(vp_limit, slots) > most {
        slots /= 2;
    }
    slots
}

/// The most bytes of tables where each address counts as memory (`vm.overcommit_memory=2`).
const STRICT_MAX: usize = 64 << 20;

/// Bytes of all tables.
fn reserved_bytes(vp_limit: usize, slots: u32) -> usize {
    slots as usize * ((vp_limit + 1) * ENTRY_BYTES + size_of::<Slot>())
}

/// Adds the numbers to an error of a reservation, if the process has a limit on addresses.
fn no_addresses(needed: usize, cause: std::io::Error) -> std::io::Error {
    use squall_sys::pages::{address_limit, mapped_bytes};
    let (Some(limit), Some(used)) = (address_limit(), mapped_bytes()) else { return cause };
    let [needed, used, limit] = [needed, used, limit].map(|bytes| bytes >> 20);
    let text = format!(
        "the tables need {needed} MiB of addresses, and {used} of {limit} MiB are in use (ulimit -v); set \
         SQUALL_OBJECTS_MAX lower: {cause}"
    );
    std::io::Error::new(cause.kind(), text)
}

/// Calls `set` unless the tables exist.
pub(crate) fn before_tables(set: impl FnOnce()) -> Result<(), &'static Tables> {
    let _making = lock(&MAKING);
    match TABLES.get() {
        Some(tables) => Err(tables),
        None => {
            set();
            Ok(())
        }
    }
}

thread_local! {
    // Without a destructor, so that it can be read at any time, also by a signal handler.
    static COLD: Cell<bool> = const { Cell::new(false) };
}

/// A guard for code that takes a lock of this module. A signal handler that interrupts such code is refused,
/// because the interrupted code may hold the lock.
pub(crate) struct Cold;

impl Cold {
    pub(crate) fn enter() -> Option<Cold> {
        COLD.with(|cold| !cold.replace(true)).then(|| Cold)
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        COLD.with(|cold| cold.set(false));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only a failed allocation can panic under these locks, and it leaves the lists whole.
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl Tables {
    /// Takes a run of `length` slots for the current VP, and returns the id of the first.
    pub(crate) fn take(&self, length: u32) -> Result<Id, CreateError> {
        let _cold = Cold::enter().ok_or(CreateError::Reentrant)?;
        let (vp, list) = loop {
            let vp = Vp::current();
            match self.free.get(vp) {
                Some(list) => break (vp, list),
                // Creates the list of the thread's current VP, which may have changed.
                None => _ = self.free.here(),
            }
        };
        let mut free = lock(list);
        let slot = match free.pop(length) {
            Some(slot) => slot,
            None => match self.carve(&mut free, vp, length) {
                Ok(slot) => slot,
                Err(error) => {
                    drop(free);
                    // The last free slots may be in recycled blocks of another size, or of other VPs.
                    let block = if length == 1 { self.recycled.free_one() } else { None };
                    if let Some((id, _)) = block {
                        return Ok(id);
                    }
                    let slot = self.take_from_others(vp, length).ok_or(error)?;
                    return Ok(Id::new(slot, self.slot(slot).generation.load(Ordering::Relaxed)));
                }
            },
        };
        drop(free);
        // Relaxed: the slot is ours; its generation was written under the lock of the list.
        Ok(Id::new(slot, self.slot(slot).generation.load(Ordering::Relaxed)))
    }

    /// Takes free slots of another VP, and makes them slots of `vp`. Their neighbours stay, so two VPs may
    /// write one cache line from now on.
    #[cold]
    fn take_from_others(&self, vp: Vp, length: u32) -> Option<u32> {
        let others = (0..self.vp_limit).map(|other| Vp::new(other as u32)).filter(|other| *other != vp);
        others.filter_map(|other| self.free.get(other)).find_map(|list| {
            let mut free = lock(list);
            if let Some(slot) = free.pop(length) {
                (slot..slot + length).for_each(|slot| self.set_home(slot, vp));
                return Some(slot);
            }
            let first = free.fresh.0;
            (free.fresh.1 - first >= length).then(|| {
                free.fresh.0 += length;
                (first..first + length).for_each(|slot| self.settle(slot, vp));
                first
            })
        })
    }

    /// Takes slots that were never used.
    fn carve(&self, free: &mut Free, vp: Vp, length: u32) -> Result<u32, CreateError> {
        if free.fresh.1 - free.fresh.0 < length {
            // The rest of the previous block is too short for this run. Its slots serve objects with one
            // interface.
            let rest = free.fresh.0..free.fresh.1;
            let singles = free.queue(1, rest.len()).map_err(|_| CreateError::no_memory())?;
            let block = self.next_block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |block| {
                (block < self.slots_max / BLOCK).then_some(block + 1)
            });
            let block =
                block.map_err(|_| CreateError::OutOfIds { used: self.slots_end(), bound: self.slots_max })?;
            rest.clone().for_each(|slot| self.settle(slot, vp));
            singles.extend(rest);
            free.fresh = (block * BLOCK, (block + 1) * BLOCK);
        }
        let first = free.fresh.0;
        free.fresh.0 += length;
        (first..first + length).for_each(|slot| self.settle(slot, vp));
        Ok(first)
    }

    /// Gives a slot that was never used its home and its first generation.
    fn settle(&self, slot: u32, home: Vp) {
        self.slot(slot).generation.store(1, Ordering::Relaxed);
        self.set_home(slot, home);
    }

    fn set_home(&self, slot: u32, home: Vp) {
        // Without a home, as on a VP beyond 65,534, the slot is not used again.
        let home = u16::try_from(home.index() + 1).unwrap_or(0);
        self.slot(slot).home.store(home, Ordering::Relaxed);
    }

    /// Ends the use of a run of slots by the object with this id and class, and gives the slots their next
    /// generation. Returns whether the run can be used again.
    #[inline]
    pub(crate) fn advance(&self, id: Id, class: &'static Class) -> bool {
        !any(class.interfaces, move |index| !self.slot(id.slot() + index).advance(id.generation(), class))
    }

    /// Ends the use of a well-known run.
    #[cold]
    pub(crate) fn vacate(&self, id: Id, class: &'static Class) {
        // Never within a signal handler: no memory is reclaimed there.
        let _cold = Cold::enter();
        // A lookup of a well-known object sees both changes or neither of them.
        super::claims::exclude_lookups(|| {
            self.advance(id, class);
            (id.slot()..id.slot() + class.interfaces).for_each(|slot| self.slot(slot).vacate());
        });
    }

    /// Returns a run that can be used again to its home.
    #[cold]
    pub(crate) fn give_back(&self, slot: u32, length: u32) {
        // Never within a signal handler: no memory is reclaimed there.
        let _cold = Cold::enter();
        if let Some(free) = self.home(slot).and_then(|home| self.free.get(home)) {
            let mut free = lock(free);
            let queue = free.queue(length, 1).unwrap_or_else(|_| handle_alloc_error(Layout::new::<u32>()));
            queue.push_back(slot);
        }
    }

    /// Returns the home of this slot. A well-known slot has none.
    #[inline]
    pub(crate) fn home(&self, slot: u32) -> Option<Vp> {
        let home = self.slot(slot).home.load(Ordering::Relaxed).checked_sub(1);
        home.map(|vp| Vp::new(vp.into()))
    }

    /// Number of slots.
    pub(crate) fn slots_max(&self) -> u32 {
        self.slots_max
    }

    /// Bytes of address space of all tables.
    pub(crate) fn reserved_bytes(&self) -> usize {
        reserved_bytes(self.vp_limit, self.slots_max)
    }

    /// Exclusive upper bound of the slots that any VP ever took. Text from outside may name others, which
    /// the tables may lack.
    pub(crate) fn slots_end(&self) -> u32 {
        self.next_block.load(Ordering::Relaxed) * BLOCK
    }

    /// Frees the recycled blocks of the current VP. Returns the number of bytes.
    pub(crate) fn trim(&self) -> usize {
        let mut freed = 0;
        while let Some((id, bytes)) = self.recycled.free_one() {
            self.give_back(id.slot(), 1);
            freed += bytes;
        }
        freed
    }

    /// Approximate bytes of all recycled blocks.
    pub(crate) fn kept_bytes(&self) -> usize {
        (0..self.vp_limit as u32).map(|vp| self.recycled.bytes_on(Vp::new(vp))).sum()
    }

    /// The creation time of the first object.
    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Sets the entries of this part of a VP's table to null, and returns their pages to the system.
    pub(crate) fn discard(&self, vp: Vp, first: u32, count: u32) {
        assert!(vp.index() < self.vp_limit && first + count <= self.slots_max);
        let bytes = count as usize * ENTRY_BYTES;
        let from = std::ptr::from_ref(self.entry(vp.index(), first)).cast_mut().cast::<u8>();
        // SAFETY: within the reservation of the tables (I1), which has only entries, and null is a valid
        // entry (I4).
        if unsafe { squall_sys::rseq_memory::discard(from, bytes) }.is_err() {
            for slot in first..first + count {
                self.entry(vp.index(), slot).store(std::ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }
}

impl Platform for Tables {
    #[inline(always)]
    fn entry(&self, vp: usize, slot: u32) -> &AtomicPtr<Header> {
        debug_assert!(vp < self.vp_limit && slot < self.slots_max);
        // SAFETY: within the reservation: the VP is below the limit (`current/I2`), and the slot came from an
        // id.
        unsafe { self.local.byte_add(vp << LOCAL_SHIFT).add(slot as usize).as_ref() }
    }

    #[inline]
    fn slot(&self, slot: u32) -> &Slot {
        // Every id was issued by these tables.
        debug_assert!(slot < self.slots_max);
        // SAFETY: within the reservation, and zeros are an empty slot.
        unsafe { self.slots.add(slot as usize).as_ref() }
    }

    fn sleepers(&self, slot: u32) -> &EventCount {
        super::sleepers::sleepers(slot)
    }

    fn vp_limit(&self) -> usize {
        self.vp_limit
    }

    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage) {
        crate::protocol::destroy::after_grace_period(object, stage);
    }
}

/// Returns the entry of `slot` on the current VP. If the thread does not know its VP, returns the entry of
/// the empty table.
///
/// # Safety
/// An object exists or existed, so the tables exist. The slot came from an id.
#[inline(always)]
pub(crate) unsafe fn entry_here(slot: u32) -> &'static AtomicPtr<Header> {
    // SAFETY: creating the tables initialises the thread's VP first.
    let vp = unsafe { Vp::index_at_hand() };
    let base = squall_sys::near_static!(LOCAL_BASE, usize);
    let address = base.wrapping_add_signed(vp << LOCAL_SHIFT) + slot as usize * ENTRY_BYTES;
    // SAFETY: within the reservation, which begins with the table of VP -1 (I1) and is never unmapped.
    unsafe { &*std::ptr::with_exposed_provenance(address) }
}
