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
//!   entry has missed no entry that was there all the time, if the home had not moved when it began.
//! - I5. Slabs and nodes are retired when no later operation can reach them. A slab is retired after another
//!   one is current, a node after its slot is empty or has another node. An old slab still has pointers to
//!   nodes, but only in moved homes, which no operation that began later reads.
//! - I6. Under a lock the only user code is the comparison and the hashing of keys. If one of these panics,
//!   the write has either not begun or is complete; in the latter case, the panic interrupts the move of
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

use crate::table::bucket::{Bucket, Probe, SLOTS, is_moved};
use crate::table::fast::FastFind;
use crate::table::layout::{IsKey, Layout};
use crate::table::platform::{self, Count};
use crate::table::sites;
use crate::table::slab::{Location, Slab, mix, tag};
use squall_lock::LockGuard;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Homes of the smallest slab.
const MIN_HOMES: usize = if cfg!(loom) { 2 } else { 1 };
/// Homes that one writer moves for others.
const HOMES_PER_HELP: usize = if cfg!(loom) { 0 } else { 8 };
/// Sampling rates ([`Slab::is_sampled`]) of the two operations that may check the table's size: an insertion
/// into a chain, and a removal that empties a bucket.
const CROWDED_LOG2: u32 = 3;
pub(crate) const EMPTIED_LOG2: u32 = 2;
/// The table grows when it has more entries per 100 slots than this. A larger value means longer chains.
const GROW_PERCENT: usize = 80;
/// The table shrinks when it has fewer entries per 100 slots than this.
const SHRINK_PERCENT: usize = 15;

pub(crate) struct Raw<L: Layout> {
    current: AtomicPtr<Slab<L>>,
    /// The table does not shrink below this number of homes.
    min_homes: AtomicUsize,
    pub(crate) count: Count,
}

// SAFETY: it owns entries, which are `Send + Sync`.
unsafe impl<L: Layout> Send for Raw<L> {}
// SAFETY: as above; it lends `&` to them to every thread.
unsafe impl<L: Layout> Sync for Raw<L> {}

/// The change that a write makes, decided from the entry that it found or missed.
pub(crate) enum Change<L: Layout> {
    Nothing,
    /// Insert an entry, or replace the whole entry.
    Put(L::NewEntry),
    /// Replace the value of the key that was found.
    Value(L::NewValue),
    Remove,
}

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

/// The reason to retry a write.
enum Retry<F> {
    /// The home has moved to the next slab.
    Moved(F),
    /// The bucket has no version left for a removal.
    VersionsExhausted(F),
}

/// The result of starting a move.
#[derive(PartialEq, Eq)]
enum MoveStart {
    Ready,
    /// Another thread is about to make the next slab, or this slab is no longer the current one.
    Busy,
    NoMemory,
}

/// The work that remains after a write has released the lock.
struct AfterUnlock<L: Layout, R> {
    result: R,
    /// The replaced or removed entry, and whether its key lives on in the new entry.
    replaced: Option<(L::Raw, bool)>,
    /// The unused rest of an inserted entry.
    leftover: Option<L::NewEntry>,
    added: i8,
    /// Whether the caller should check the table's size.
    check_size: bool,
}

/// The homes of one slab that one thread is moving: buffers reused from home to home, and the number of homes
/// moved. The drop adds that number to the slab's counter, once, since all movers share that word.
struct MoveBatch<'s, L: Layout> {
    slab: &'s Slab<L>,
    found: Vec<L::Raw>,
    entries: Vec<(u64, L::Raw)>,
    homes: usize,
}

impl<L: Layout> MoveBatch<'_, L> {
    fn new(slab: &Slab<L>) -> MoveBatch<'_, L> {
        let (found, entries) = (Vec::with_capacity(2 * SLOTS), Vec::with_capacity(2 * SLOTS));
        MoveBatch { slab, found, entries, homes: 0 }
    }
}

impl<L: Layout> Drop for MoveBatch<'_, L> {
    fn drop(&mut self) {
        if self.homes != 0 {
            // Release: pairs with the acquire of `finish_move`.
            self.slab.progress.moved.fetch_add(self.homes, Ordering::AcqRel);
        }
    }
}

/// Returns the number of homes for this many entries.
fn homes_for(entries: usize) -> usize {
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

    /// Starts to move to a slab of twice as many homes.
    #[cfg(all(test, loom))]
    pub(crate) fn grow(&self) {
        // SAFETY: no memory is freed in a model.
        let slab = unsafe { self.current() };
        assert!(self.begin_move(slab, 2 * slab.homes()) == MoveStart::Ready);
    }

    /// Moves all homes to a slab of twice as many, unless another thread has started a move.
    #[cfg(all(test, loom))]
    pub(crate) fn try_grow(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: no memory is freed in a model.
        let slab = unsafe { self.current() };
        if self.begin_move(slab, 2 * slab.homes()) == MoveStart::Ready {
            self.complete_move(rehash);
        }
    }

    /// Moves all homes that have not moved.
    #[cfg(all(test, loom))]
    pub(crate) fn complete_move(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: no memory is freed in a model.
        unsafe { self.move_all(self.current(), rehash) };
    }

    pub(crate) fn len(&self) -> usize {
        self.count.sum()
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
    fn next(slab: &Slab<L>) -> &Slab<L> {
        // Acquire: pairs with the release of `begin_move`.
        // SAFETY: a home moves only to a slab that exists (I3), and that is retired after this one.
        unsafe { &*slab.next.load(Ordering::Acquire) }
    }

    // --- reading ---

    /// Returns the content of a key's slot. Unlike `find`, without its location.
    ///
    /// # Safety
    /// As for [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_raw(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Option<L::Raw> {
        // SAFETY: the caller.
        unsafe {
            match self.find_fast(hash, is_key) {
                FastFind::Found(found) => Some(found.raw()),
                FastFind::Absent => None,
                FastFind::Unknown => self.find(hash, is_key).map(|found| found.raw()),
            }
        }
    }

    /// Finds a key.
    ///
    /// # Safety
    /// In an operation; the result is valid within it.
    #[inline(never)]
    pub(crate) unsafe fn find(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Option<Found<'_, L>> {
        // SAFETY: the caller.
        unsafe { Self::find_in_slabs(self.current(), mix(hash), is_key) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn find_in_slabs(
        mut slab: &Slab<L>,
        mixed: u64,
        is_key: impl IsKey<L::Key>,
    ) -> Option<Found<'_, L>> {
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

    // --- writing ---

    /// Finds a key and changes its entry, under its home's lock. `decide` gets the entry or its absence, and
    /// must run no user code.
    ///
    /// # Safety
    /// In an operation. `decide` changes a value or removes an entry only if it got one.
    #[inline(always)]
    pub(crate) unsafe fn write<R>(
        &self,
        hash: u64,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        decide: impl FnOnce(Option<L::Raw>) -> (Change<L>, R),
    ) -> R {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Prefetches the slots before the lock, which is a barrier: they arrive while it is taken.
        let (bucket, _) = slab.prefetch(mixed);
        let lock = bucket.lock();
        let state = bucket.state();
        let found = 'here: {
            // Acquire: pairs with the release of `begin_move` (I2).
            if !bucket.is_exhausted_in(state) && slab.next.load(Ordering::Acquire).is_null() {
                // SAFETY: the caller. The home is in this slab alone, so without a chain an absent key is
                // absent everywhere.
                match unsafe { bucket.probe(state, mixed, is_key) } {
                    Probe::Found { slot, raw, state } => {
                        break 'here Some(Location { bucket, slot, raw, state });
                    }
                    Probe::Absent { chained: false } => break 'here None,
                    Probe::Absent { chained: true } => {}
                }
            }
            // SAFETY: the caller.
            return unsafe { self.write_slow(slab, mixed, lock, is_key, rehash, decide) };
        };
        let (change, result) = decide(found.as_ref().map(|location| location.raw));
        // SAFETY: found here, under the lock.
        let done = unsafe { Self::apply(slab, bucket, mixed, change, found, result) };
        drop(lock);
        // SAFETY: the caller.
        unsafe { self.finish_write(done, rehash) }
    }

    /// Slow path of `write`: the key may be in a chained bucket, the home is moving, or a version is used up.
    /// `lock` is the home's.
    #[inline(never)]
    unsafe fn write_slow<R>(
        &self,
        mut slab: &Slab<L>,
        mixed: u64,
        lock: LockGuard<'_, ()>,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        mut decide: impl FnOnce(Option<L::Raw>) -> (Change<L>, R),
    ) -> R {
        let mut lock = Some(lock);
        let done = loop {
            let home = slab.home(mixed);
            let lock = lock.take().unwrap_or_else(|| slab.bucket(home).lock());
            // SAFETY: the caller.
            match unsafe { Self::write_in_slab(slab, mixed, lock, is_key, rehash, decide) } {
                Ok(done) => break done,
                Err(Retry::Moved(back)) => {
                    // SAFETY: the caller.
                    unsafe { self.help(slab, rehash) };
                    decide = back;
                    slab = Self::next(slab);
                }
                Err(Retry::VersionsExhausted(back)) => {
                    // SAFETY: the caller.
                    unsafe { self.replace_exhausted(slab, rehash) };
                    decide = back;
                }
            }
        };
        // SAFETY: the caller.
        unsafe { self.finish_write(done, rehash) }
    }

    /// Changes an entry that was found before, without a second lookup, if it is unchanged. Returns whether
    /// it did; otherwise the table is as before.
    ///
    /// # Errors
    /// The home is moving or its versions are exhausted. The change comes back, for [`write`](Raw::write).
    /// # Safety
    /// In the operation in which the entry was found.
    #[inline(always)]
    pub(crate) unsafe fn change(
        &self,
        found: Found<'_, L>,
        change: Change<L>,
        rehash: &impl Fn(&L::Key) -> u64,
    ) -> Result<bool, Change<L>> {
        let Found { slab, mixed, location } = found;
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let lock = first.lock();
        // Acquire: pairs with the release of `begin_move` (I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        let is_exhausted = matches!(change, Change::Remove) && location.bucket.is_exhausted();
        if moves && !sites::CHECK_MOVED.is_weak() || is_exhausted {
            return Err(change);
        }
        if !location.bucket.holds(location.slot, location.raw) && !sites::CHECK_UNCHANGED.is_weak() {
            return Ok(false);
        }
        // SAFETY: found, and still there, under the lock.
        let done = unsafe { Self::apply(slab, first, mixed, change, Some(location), true) };
        drop(lock);
        // SAFETY: the caller.
        Ok(unsafe { self.finish_write(done, rehash) })
    }

    /// Finishes a write after its lock is released: counts, retires, and resizes if needed.
    ///
    /// # Safety
    /// In an operation; the write is complete.
    #[inline(always)]
    unsafe fn finish_write<R>(&self, done: AfterUnlock<L, R>, rehash: &impl Fn(&L::Key) -> u64) -> R {
        if done.added != 0 {
            self.count.add(i64::from(done.added).cast_unsigned());
        }
        match done.replaced {
            // SAFETY: the slot is already empty or has another entry. The thread that changed it is the only
            // one to retire the old entry.
            Some((raw, false)) => unsafe { L::retire(raw) },
            // SAFETY: as above; `replace_value` took the key.
            Some((raw, true)) => unsafe { L::retire_value(raw) },
            None => {}
        }
        drop(done.leftover);
        if done.check_size {
            // SAFETY: the caller.
            unsafe { self.resize(rehash) };
        }
        done.result
    }

    /// Like [`write`](Raw::write), in this slab, unless the home has moved on. `_lock` is the home's lock.
    unsafe fn write_in_slab<R, D: FnOnce(Option<L::Raw>) -> (Change<L>, R)>(
        slab: &Slab<L>,
        mixed: u64,
        _lock: LockGuard<'_, ()>,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        decide: D,
    ) -> Result<AfterUnlock<L, R>, Retry<D>> {
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let state = first.state();
        // Acquire: pairs with the release of `begin_move` (I2).
        if is_moved(state) && !sites::CHECK_MOVED.is_weak() || !slab.next.load(Ordering::Acquire).is_null() {
            if !is_moved(state) {
                // SAFETY: the caller; under the home's lock.
                unsafe { Self::move_home(home, rehash, &mut MoveBatch::new(slab)) };
            }
            return Err(Retry::Moved(decide));
        }
        // SAFETY: the caller.
        let found = unsafe { slab.probe(home, state, mixed, is_key) };
        if found.as_ref().is_some_and(|location| location.bucket.is_exhausted()) {
            return Err(Retry::VersionsExhausted(decide));
        }
        let (change, result) = decide(found.as_ref().map(|location| location.raw));
        // SAFETY: found here, under the lock.
        Ok(unsafe { Self::apply(slab, first, mixed, change, found, result) })
    }

    /// Applies a change under the home's lock; `first` is the home's own bucket.
    ///
    /// # Safety
    /// In an operation; the found entry is still there.
    #[inline(always)]
    unsafe fn apply<R>(
        slab: &Slab<L>,
        first: Bucket<'_, L>,
        mixed: u64,
        change: Change<L>,
        found: Option<Location<'_, L>>,
        result: R,
    ) -> AfterUnlock<L, R> {
        let mut done = AfterUnlock { result, replaced: None, leftover: None, added: 0, check_size: false };
        match (change, found) {
            (Change::Nothing, _) => {}
            (Change::Put(new_entry), None) => {
                let (bucket, slot, own) = slab.find_room(first, mixed);
                bucket.publish(slot, tag(mixed), |slot| _ = L::store(slot, new_entry));
                done.added = 1;
                // A sample of the insertions into chains checks the size. A fuller table has more of them.
                done.check_size =
                    !own && (slab.is_sampled(mixed, CROWDED_LOG2) || slab.chain_length(slab.home(mixed)) > 1);
            }
            (Change::Put(new_entry), Some(Location { bucket, slot, raw, .. })) => {
                done.leftover = bucket.change(slot, |slot| L::replace(slot, raw, new_entry));
                done.replaced = Some((raw, L::KEEPS_KEY));
            }
            (Change::Value(value), Some(Location { bucket, slot, raw, .. })) => {
                // SAFETY: the caller.
                bucket.change(slot, |slot| unsafe { L::replace_value(slot, raw, value) });
                done.replaced = Some((raw, true));
            }
            (Change::Remove, Some(Location { bucket, slot, raw, .. })) => {
                bucket.remove(slot);
                // A removal from the home's own bucket leaves the chain as it is.
                if !bucket.is_same_bucket(first) {
                    slab.unchain_if_empty(slab.home(mixed), first);
                }
                done.replaced = Some((raw, false));
                done.added = -1;
                // In this order: few buckets are empty, and the sample is unpredictable.
                done.check_size = first.is_empty() && slab.is_sampled(mixed, EMPTIED_LOG2);
            }
            (Change::Value(_) | Change::Remove, None) => unreachable!("nothing was found"),
        }
        done
    }

    // --- moving ---

    /// Moves a home to the next slab, and counts it. The caller calls [`finish_move`](Raw::finish_move)
    /// afterwards.
    ///
    /// # Safety
    /// In an operation, under the home's lock; there is a next slab, and the home has not moved.
    unsafe fn move_home(home: usize, rehash: &impl Fn(&L::Key) -> u64, moving: &mut MoveBatch<'_, L>) {
        let slab = moving.slab;
        let next = Self::next(slab);
        moving.found.clear();
        moving.entries.clear();
        // SAFETY: the caller.
        unsafe { slab.collect(home, &mut moving.found) };
        // All hashes are computed before the first entry moves: they run user code, which may panic.
        // SAFETY: loaded in this operation.
        let hash = |raw| (unsafe { L::key(raw, |key| mix(rehash(key))) }, raw);
        moving.entries.extend(moving.found.iter().copied().map(hash));
        // In a larger slab, this home's entries go to homes that no other thread reaches before this home is
        // marked as moved.
        let shared = next.homes() < slab.homes();
        // A hasher that contradicts its earlier result must not lead into a home of other keys.
        let (first, last) = slab.range(home);
        // In a smaller slab, all entries go into one home, which has a larger range. Locks are taken in the
        // order of slabs. The next slab's homes are not moving yet (I1).
        let _lock = shared.then(|| next.bucket(next.home(first)).lock());
        for &(mixed, raw) in &moving.entries {
            let mixed = mixed.clamp(first, last);
            let (bucket, slot, _) = next.find_room(next.bucket(next.home(mixed)), mixed);
            bucket.publish_moved(slot, tag(mixed), |slot| L::copy(slot, raw));
        }
        slab.bucket(home).set_moved();
        moving.homes += 1;
    }

    /// Moves some homes of a slab that has a next one, and finishes the move if they were the last.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    unsafe fn help(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) {
        // Relaxed: a ticket. Tickets wrap around, since a thread that took a home before may have been
        // stopped halfway.
        let first = slab.progress.cursor.fetch_add(HOMES_PER_HELP, Ordering::Relaxed);
        let mut moving = MoveBatch::new(slab);
        for home in (0..HOMES_PER_HELP).map(|step| first.wrapping_add(step) & (slab.homes() - 1)) {
            // Checked before locking: towards the end, most homes have moved.
            if !is_moved(slab.bucket(home).state()) {
                // SAFETY: the caller.
                unsafe { Self::move_if_here(home, rehash, &mut moving) };
            }
        }
        drop(moving);
        self.finish_move(slab);
    }

    /// # Safety
    /// In an operation; there is a next slab.
    unsafe fn move_if_here(home: usize, rehash: &impl Fn(&L::Key) -> u64, moving: &mut MoveBatch<'_, L>) {
        let bucket = moving.slab.bucket(home);
        let _lock = bucket.lock();
        if !is_moved(bucket.state()) {
            // SAFETY: the caller; under the lock.
            unsafe { Self::move_home(home, rehash, moving) };
        }
    }

    /// Makes the next slab the current one, once all homes of this one have moved. Only the first call does
    /// so.
    fn finish_move(&self, slab: &Slab<L>) {
        // Acquire: pairs with the release of each `MoveBatch`: all its entries are in the next slab.
        if slab.progress.moved.load(Ordering::Acquire) < slab.homes() {
            return;
        }
        let old = std::ptr::from_ref(slab).cast_mut();
        let next = slab.next.load(Ordering::Acquire);
        // AcqRel: the release pairs with the acquire of `current`; the acquire with the release that made
        // `slab` current.
        if let Ok(old) = self.current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw`. The exchange cut the only path to it (I5). Only one exchange
            // succeeds: a slab becomes the current one once.
            unsafe { platform::retire_sized(old, slab.bytes()) };
        }
    }

    /// Moves all homes that have not moved. Returns whether there was a next slab.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn move_all(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) -> bool {
        // Acquire: pairs with the release of `begin_move`.
        if slab.next.load(Ordering::Acquire).is_null() {
            return false;
        }
        let mut moving = MoveBatch::new(slab);
        for home in 0..slab.homes() {
            if !is_moved(slab.bucket(home).state()) {
                // SAFETY: the caller.
                unsafe { Self::move_if_here(home, rehash, &mut moving) };
            }
        }
        drop(moving);
        // Acquire: as in `finish_move`.
        if slab.progress.moved.load(Ordering::Acquire) < slab.homes() {
            // Another thread has moved a home and is about to count it. Yield, since the caller will retry
            // until then.
            squall_sys::sync::thread::yield_now();
        }
        self.finish_move(slab);
        true
    }

    // --- another size ---

    /// Starts a move to another size if the number of entries asks for it.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn resize(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (len, slots) = (self.len(), slab.slots());
        // Relaxed: a hint.
        let min_homes = self.min_homes.load(Ordering::Relaxed);
        let full = len.saturating_mul(100) / GROW_PERCENT > slots;
        let sparse = len.saturating_mul(100) / SHRINK_PERCENT < slots && slab.homes() > min_homes;
        if full || sparse {
            // Room for half as many again, so that the next change of size is far away. If memory is
            // exhausted, the chains grow instead.
            if self.begin_move(slab, homes_for(len + len / 2).max(min_homes)) == MoveStart::Ready {
                // SAFETY: the caller.
                unsafe { self.help(slab, rehash) };
            }
        }
    }

    /// Gives a slab a next one, unless it is no longer current or another thread does.
    fn begin_move(&self, slab: &Slab<L>, homes: usize) -> MoveStart {
        // Acquire: pairs with the release further down.
        if !slab.next.load(Ordering::Acquire).is_null() {
            return MoveStart::Ready;
        }
        // One thread makes the next slab, which takes a while if it is large. Other threads that notice
        // meanwhile do not make their own, but go on with this slab.
        // Relaxed: a ticket. Its holder finds the slab to be current, or the slab would have a next one.
        // Acquire: pairs with the release of `finish_move`.
        if !std::ptr::eq(self.current.load(Ordering::Acquire), slab)
            || slab.progress.is_claimed.swap(true, Ordering::Relaxed) && !sites::CLAIM.is_weak()
        {
            return MoveStart::Busy;
        }
        let Some(new) = Slab::new(homes) else {
            slab.progress.is_claimed.store(false, Ordering::Relaxed);
            return MoveStart::NoMemory;
        };
        // Release: pairs with the acquire of `next` and of `write_in_slab`.
        slab.next.store(Box::into_raw(new), Ordering::Release);
        MoveStart::Ready
    }

    /// Replaces a slab with an exhausted bucket by one of the same size.
    #[cold]
    #[inline(never)]
    unsafe fn replace_exhausted(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: the caller. If the slab is not yet the current one, it becomes so.
        unsafe {
            let current = self.current();
            if !std::ptr::eq(current, slab) {
                self.move_all(current, rehash);
            }
        }
        match self.begin_move(slab, slab.homes()) {
            MoveStart::Ready => {}
            // The caller retries.
            MoveStart::Busy => squall_sys::sync::thread::yield_now(),
            // A repeated version could be mistaken for the earlier one.
            MoveStart::NoMemory => std::alloc::handle_alloc_error(std::alloc::Layout::new::<Slab<L>>()),
        }
    }

    /// Makes room for this many entries in all. With `less`, shrinks to the entries there are. Returns
    /// `false` if memory is exhausted.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn resize_to(
        &self,
        entries: usize,
        less: bool,
        rehash: &impl Fn(&L::Key) -> u64,
    ) -> bool {
        loop {
            // SAFETY: the caller.
            let slab = unsafe { self.current() };
            // Completes a move that is under way first.
            // SAFETY: the caller.
            if unsafe { self.move_all(slab, rehash) } {
                continue;
            }
            let homes = homes_for(entries.max(self.len()));
            if less {
                self.min_homes.store(MIN_HOMES, Ordering::Relaxed);
            }
            if homes != slab.homes() && (less || homes > slab.homes()) {
                match self.begin_move(slab, homes) {
                    MoveStart::Ready => {}
                    MoveStart::Busy => squall_sys::sync::thread::yield_now(),
                    MoveStart::NoMemory => return false,
                }
                continue;
            }
            if !less {
                self.min_homes.fetch_max(homes, Ordering::Relaxed);
            }
            return true;
        }
    }

    pub(crate) fn slots(&self) -> usize {
        // SAFETY: all callers are in an operation.
        unsafe { self.current() }.slots() * GROW_PERCENT / 100
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
        rehash: &impl Fn(&L::Key) -> u64,
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
        rehash: &impl Fn(&L::Key) -> u64,
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
