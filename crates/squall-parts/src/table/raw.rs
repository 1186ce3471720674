//! The table's protocol: the current slab, how entries change, and how they move to another slab.
//!
//! Problem: a table must grow and shrink while all threads read and write it, and no reader may wait for
//! that. Idea: a slab that is being replaced names the `next` one. From then on a writer first moves the home
//! that it wants to write, with all entries, under the home's lock. A reader that finds no entry in a home
//! checks whether the home has moved. Each writer also moves a few other homes. The writer that moves the
//! last one makes the next slab the current one.
//!
//! - I1. Only the current slab gets a next one, once, from the thread that has claimed this. A slab becomes
//!   the current one when all homes of the slab before it have moved.
//! - I2. A writer holds the lock of the home in the one slab where it has not moved. Under that lock the
//!   writer loads `next`: in a slab with a next one, the home is moved before any other change. A thread that
//!   moves a home holds the same lock and has seen `next`. So a writer that loads a null `next` under the
//!   lock has a home that has not moved.
//! - I3. All entries of a home are in the next slab before `MOVED` is set. After that, the old home never
//!   changes and no bit of it is cleared. So a reader that loaded the state before reads a state of the table
//!   that was current between that load and the setting of `MOVED`. That moment is within its operation.
//! - I4. An entry stays in its slot until it is removed or its home has moved. So a reader that finds no
//!   entry has missed none that was present during its whole search, if the home had not moved when the
//!   search began.
//! - I5. Slabs and nodes are retired when no later operation can reach them. A slab is retired after another
//!   one is current, a node after its slot is empty or has another node. An old slab still has pointers to
//!   nodes, but only in moved homes, which no operation that began later reads.
//! - I6. Under a lock the only user code is the comparison and the hashing of keys. If one of these panics,
//!   the write has either not begun or is complete. If it is complete, the panic has interrupted the move of
//!   other homes.
//!
//! Progress: readers are lock-free: a lookup restarts only when an entry was removed from its bucket
//! meanwhile. Writers of one home exclude each other. A thread that stalls in a write blocks only writers of
//! its home. A thread that stalls while it makes the next slab blocks only callers of `resize_to`; all others
//! go on with longer chains.
//! Linearization: a read that finds its key takes effect at its load of the slot. A read that does not find
//! it takes effect at its load of the state of the key's bucket. A write takes effect at its store to the
//! slot or the state, which all processors see before the write returns (`store_with_barrier`).
//! Source: Appavoo 2005, §4.1.4 (DHash: fine-grained, each table resizes by itself), §7 (RCU in place of
//! counts, CO-66). Buckets of a line with tags follow the hash tables of memory-optimised caches (Fan et al.,
//! MemC3, 2013). Comparing sixteen tags at once follows Abseil's tables (Kulukundis 2017). The proof above is
//! our own.

use crate::table::bucket::is_moved;
use crate::table::hash::mix;
use crate::table::layout::{DynHash, DynIsKey, Layout};
use crate::table::platform::Count;
use crate::table::slab::{Location, Slab};
use crate::table::tags::SLOTS;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Homes of the smallest slab.
pub(crate) const MIN_HOMES: usize = if cfg!(loom) { 2 } else { 1 };
/// The table grows when it has more entries per 100 slots than this. A larger value means longer chains.
pub(crate) const GROW_PERCENT: usize = 80;

pub(crate) struct Raw<L: Layout> {
    pub(crate) current: AtomicPtr<Slab<L>>,
    /// The table does not shrink below this number of homes.
    pub(crate) min_homes: AtomicUsize,
    pub(crate) count: Count,
}

// SAFETY: it owns entries, which are `Send + Sync`.
unsafe impl<L: Layout> Send for Raw<L> {}
// SAFETY: as above; it lends `&` to them to every thread.
unsafe impl<L: Layout> Sync for Raw<L> {}

/// An entry that was found, and its location.
pub(crate) struct Found<'a, L: Layout> {
    pub(crate) location: Location<'a, L>,
    pub(crate) slab: &'a Slab<L>,
    pub(crate) mixed: u64,
}

impl<L: Layout> Found<'_, L> {
    #[inline(always)]
    pub(crate) fn raw(&self) -> L::Raw {
        self.location.raw
    }
}

/// Returns the number of homes for this many entries.
pub(crate) fn homes_for(entries: usize) -> usize {
    let slots = entries.saturating_mul(100) / GROW_PERCENT + 1;
    slots.div_ceil(SLOTS).max(MIN_HOMES).checked_next_power_of_two().unwrap_or(1 << 40)
}

impl<L: Layout> Raw<L> {
    /// # Panics
    /// If memory for this many entries is exhausted.
    pub(crate) fn new(entries: usize) -> Raw<L> {
        let homes = homes_for(entries);
        let slab = Slab::new(homes)
            .expect("a table cannot be allocated: memory is exhausted; ask for a smaller capacity");
        Raw {
            current: AtomicPtr::new(Box::into_raw(slab)),
            min_homes: AtomicUsize::new(homes),
            count: Count::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.sum()
    }

    pub(crate) fn slots(&self) -> usize {
        // SAFETY: all callers are in an operation.
        unsafe { self.current() }.slots() * GROW_PERCENT / 100
    }

    /// Returns the current slab.
    ///
    /// # Safety
    /// In an operation, and used only within it, or in an exclusive borrow of the table.
    #[inline(always)]
    pub(crate) unsafe fn current(&self) -> &Slab<L> {
        // Acquire: pairs with the release of `finish_move` and with the publication of the table.
        // SAFETY: never null; retired only after another slab is in its place (I5).
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the slab to which a home has moved.
    #[inline]
    pub(crate) fn next(slab: &Slab<L>) -> &Slab<L> {
        // Acquire: pairs with the release of `begin_move`.
        // SAFETY: a home moves only to a slab that exists (I3), and that is retired after this one.
        unsafe { &*slab.next.load(Ordering::Acquire) }
    }

    // --- slow path of lookups ---

    /// Finds a key.
    ///
    /// # Safety
    /// In an operation; the result is valid within it.
    #[inline(never)]
    pub(crate) unsafe fn find(&self, hash: u64, is_key: DynIsKey<'_, L::Key>) -> Option<Found<'_, L>> {
        // SAFETY: the caller.
        unsafe { Self::find_in_slabs(self.current(), mix(hash), is_key) }
    }

    unsafe fn find_in_slabs<'s>(
        mut slab: &'s Slab<L>,
        mixed: u64,
        is_key: DynIsKey<'_, L::Key>,
    ) -> Option<Found<'s, L>> {
        loop {
            let home = slab.home(mixed);
            let bucket = slab.bucket(home);
            let state = bucket.state();
            if !is_moved(state) {
                // SAFETY: as in `find`.
                let location = unsafe { slab.probe(home, state, mixed, is_key) };
                return location.map(|location| Found { location, slab, mixed });
            }
            slab = Self::next(slab);
        }
    }

    // --- all entries ---

    /// Copies the entries of the home that contains the mixed hash `from`, starting there. Returns the first
    /// mixed hash behind the home; `None` after the last home.
    ///
    /// # Safety
    /// In an operation; the copies are valid within it.
    pub(crate) unsafe fn visit(
        &self,
        from: u64,
        rehash: DynHash<'_, L::Key>,
        entries: &mut Vec<L::Raw>,
    ) -> Option<u64> {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (_, last) = slab.range(slab.home(from));
        let mut found = Vec::new();
        // SAFETY: the caller.
        unsafe { Self::visit_range(slab, (from, last), rehash, &mut found, entries) };
        last.checked_add(1)
    }

    /// Copies the entries of a range of mixed hashes.
    unsafe fn visit_range(
        slab: &Slab<L>,
        (first, last): (u64, u64),
        rehash: DynHash<'_, L::Key>,
        found: &mut Vec<L::Raw>,
        entries: &mut Vec<L::Raw>,
    ) {
        for home in slab.home(first)..=slab.home(last) {
            let (from, to) = slab.range(home);
            let part = (first.max(from), last.min(to));
            let bucket = slab.bucket(home);
            if !is_moved(bucket.state()) {
                found.clear();
                // SAFETY: the caller of `visit`.
                unsafe { slab.collect(home, found) };
                let all = part == (from, to);
                // SAFETY: as above.
                let within =
                    |raw| unsafe { all || L::key(raw, |key| (part.0..=part.1).contains(&mix(rehash(key)))) };
                entries.extend(found.drain(..).filter(|&raw| within(raw)));
                continue;
            }
            // SAFETY: as above.
            unsafe { Self::visit_range(Self::next(slab), part, rehash, found, entries) };
        }
    }
}

impl<L: Layout> Drop for Raw<L> {
    fn drop(&mut self) {
        // Relaxed: no other thread has the table.
        let mut slab = self.current.load(Ordering::Relaxed);
        while !slab.is_null() {
            // SAFETY: the slab belongs to this table, which no other thread has; so does its successor.
            let whole = unsafe { Box::from_raw(slab) };
            let mut entries = Vec::new();
            for home in 0..whole.homes() {
                if !is_moved(whole.bucket(home).state()) {
                    // SAFETY: as above.
                    unsafe { whole.collect(home, &mut entries) };
                    // SAFETY: each entry is in exactly one home that has not moved (I2, I3).
                    entries.drain(..).for_each(|entry| unsafe { L::free(entry) });
                }
            }
            slab = whole.next.load(Ordering::Relaxed);
        }
    }
}
