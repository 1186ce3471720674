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

use crate::drops::Drops;
use crate::table::bucket::is_moved;
use crate::table::hash::mix;
use crate::table::platform::Count;
use crate::table::slab::{Location, Slab};
use crate::table::slots::{DynHash, DynIsKey, Slots};
use crate::table::tags::SLOTS;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Homes of the smallest slab.
pub(crate) const MIN_HOMES: usize = if cfg!(loom) { 2 } else { 1 };
/// The table grows when it has more entries per 100 slots than this. A larger value means longer chains.
pub(crate) const GROW_PERCENT: usize = 80;

/// A table of raw entries. Its functions that are not inlined are generic. Code with types of keys and values
/// calls them through [`Compiled`](crate::table::compiled::Compiled) alone.
///
/// The drop frees the slabs. [`free_entries`](Raw::free_entries) frees the entries before.
pub(crate) struct Raw<S: Slots> {
    pub(crate) current: AtomicPtr<Slab<S>>,
    /// The table does not shrink below this number of homes.
    pub(crate) min_homes: AtomicUsize,
    pub(crate) count: Count,
}

// SAFETY: it owns slabs, which are `Send + Sync`.
unsafe impl<S: Slots> Send for Raw<S> {}
// SAFETY: as above.
unsafe impl<S: Slots> Sync for Raw<S> {}

/// An entry that was found, and its location.
pub(crate) struct Found<'a, S: Slots> {
    pub(crate) location: Location<'a, S>,
    pub(crate) slab: &'a Slab<S>,
    pub(crate) mixed: u64,
}

impl<S: Slots> Found<'_, S> {
    #[inline(always)]
    pub(crate) fn raw(&self) -> S::Raw {
        self.location.raw
    }
}

/// Returns the number of homes for this many entries.
pub(crate) fn homes_for(entries: usize) -> usize {
    let slots = entries.saturating_mul(100) / GROW_PERCENT + 1;
    slots.div_ceil(SLOTS).max(MIN_HOMES).checked_next_power_of_two().unwrap_or(1 << 40)
}

impl<S: Slots> Raw<S> {
    /// # Panics
    /// If memory for this many entries is exhausted.
    pub(crate) fn new(entries: usize) -> Raw<S> {
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
    pub(crate) unsafe fn current(&self) -> &Slab<S> {
        // Acquire: pairs with the release of `finish_move` and with the publication of the table.
        // SAFETY: never null; retired only after another slab is in its place (I5).
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the slab to which a home has moved.
    #[inline]
    pub(crate) fn next(slab: &Slab<S>) -> &Slab<S> {
        // Acquire: pairs with the release of `begin_move`.
        // SAFETY: a home moves only to a slab that exists (I3), and that is retired after this one.
        unsafe { &*slab.next.load(Ordering::Acquire) }
    }

    // --- slow path of lookups ---

    /// Finds a key.
    ///
    /// # Safety
    /// In an operation; the result is valid within it.
    pub(crate) unsafe fn find(&self, hash: u64, is_key: DynIsKey<'_, S>) -> Option<Found<'_, S>> {
        // SAFETY: the caller.
        unsafe { Self::find_in_slabs(self.current(), mix(hash), is_key) }
    }

    unsafe fn find_in_slabs<'s>(
        mut slab: &'s Slab<S>,
        mixed: u64,
        is_key: DynIsKey<'_, S>,
    ) -> Option<Found<'s, S>> {
        loop {
            let home = slab.home(mixed);
            let (bucket, _) = slab.prefetch(mixed);
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

    /// Calls `f` with copies of the entries of the home that contains the mixed hash `from`, starting there.
    /// Returns the first mixed hash behind the home; `None` after the last home.
    ///
    /// # Safety
    /// In an operation; the copies are valid within it.
    pub(crate) unsafe fn visit(
        &self,
        from: u64,
        rehash: DynHash<'_, S>,
        f: &mut dyn FnMut(S::Raw),
    ) -> Option<u64> {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (_, last) = slab.range(slab.home(from));
        let mut entries = Vec::with_capacity(SLOTS);
        // SAFETY: the caller.
        unsafe { Self::visit_range(slab, (from, last), rehash, &mut entries) };
        entries.into_iter().for_each(f);
        last.checked_add(1)
    }

    /// Copies the entries of a range of mixed hashes.
    unsafe fn visit_range(
        slab: &Slab<S>,
        (first, last): (u64, u64),
        rehash: DynHash<'_, S>,
        entries: &mut Vec<S::Raw>,
    ) {
        for home in slab.home(first)..=slab.home(last) {
            let (from, to) = slab.range(home);
            let part = (first.max(from), last.min(to));
            let bucket = slab.bucket(home);
            if !is_moved(bucket.state()) {
                let mut found = Vec::new();
                let all = part == (from, to);
                // SAFETY: the caller of `visit`.
                unsafe { slab.collect(home, if all { &mut *entries } else { &mut found }) };
                let within = |raw: &S::Raw| (part.0..=part.1).contains(&mix(rehash(*raw)));
                entries.extend(found.into_iter().filter(within));
                continue;
            }
            // SAFETY: as above.
            unsafe { Self::visit_range(Self::next(slab), part, rehash, entries) };
        }
    }

    /// Copies the entries of the home that contains the mixed hash `from` to `entries`. If the home has moved
    /// to several ones, copies the entries of one of them. Returns as [`visit`](Raw::visit).
    ///
    /// # Safety
    /// In an operation; the copies are valid within it.
    pub(crate) unsafe fn collect(&self, from: u64, entries: &mut Vec<S::Raw>) -> Option<u64> {
        // SAFETY: the caller.
        let mut slab = unsafe { self.current() };
        let (_, last) = slab.range(slab.home(from));
        while is_moved(slab.bucket(slab.home(from)).state()) {
            slab = Self::next(slab);
        }
        // SAFETY: the caller.
        unsafe { slab.collect(slab.home(from), entries) };
        last.checked_add(1)
    }

    /// Frees each entry by `free`. A panic there stops no other entry. The first one goes on at the end,
    /// unless the thread panics already.
    ///
    /// # Safety
    /// Called once, and the table is not used afterwards, except to drop it.
    pub(crate) unsafe fn free_entries(&mut self, free: &mut dyn FnMut(S::Raw)) {
        // Relaxed, here and below: no other thread has the table.
        // SAFETY: the slab belongs to this table, which no other thread has; so does its successor.
        let mut next = unsafe { self.current.load(Ordering::Relaxed).as_ref() };
        let (mut entries, mut drops) = (Vec::new(), Drops::default());
        while let Some(slab) = next {
            for home in 0..slab.homes() {
                if !is_moved(slab.bucket(home).state()) {
                    // SAFETY: as above.
                    unsafe { slab.collect(home, &mut entries) };
                    // Each entry is in exactly one home that has not moved (I2, I3).
                    drops.each(entries.drain(..), &mut *free);
                }
            }
            // SAFETY: as above.
            next = unsafe { slab.next.load(Ordering::Relaxed).as_ref() };
        }
    }
}

impl<S: Slots> Drop for Raw<S> {
    fn drop(&mut self) {
        // Relaxed, both: no other thread has the table.
        let mut slab = self.current.load(Ordering::Relaxed);
        while !slab.is_null() {
            // SAFETY: the slab belongs to this table, which no other thread has; so does its successor.
            let whole = unsafe { Box::from_raw(slab) };
            slab = whole.next.load(Ordering::Relaxed);
        }
    }
}
