//! Inlined fast paths: operations that find their key in the home's own bucket.
//!
//! Nine of ten operations find their key in the home's own bucket, in the first slot with its tag, or find
//! that it is absent. They also meet no other writer. This code is compiled into the caller. It has no loop,
//! keeps its data in registers, and calls no function except to leave for the slow path. The slow path in
//! [`raw`](crate::table::raw) starts the operation again: a fast path that gives up leaves the table
//! unchanged. The invariants are in the header of `raw.rs`.

use crate::table::bucket::{FirstProbe, is_moved};
use crate::table::hash::{mix, tag};
use crate::table::layout::{DynHash, IsKey, Layout};
use crate::table::raw::{Found, Raw};
use crate::table::resize::EMPTIED_LOG2;
use crate::table::sites;
use crate::table::slab::Location;
use squall_sys::sync::atomic::Ordering;

/// The result of a lookup in the home's own bucket.
pub(crate) enum FastFind<'a, L: Layout> {
    Found(Found<'a, L>),
    Absent,
    /// The key may be in a chained bucket or in another slab: the slow path is needed.
    Unknown,
}

/// The fast path gave up: the key may be in a chained bucket or another slab, or another thread holds the
/// home.
pub(crate) struct NeedsSlowPath;

impl<L: Layout> Raw<L> {
    /// Finds a key in its home's own bucket. [`find`](Raw::find) is the slow path.
    ///
    /// # Safety
    /// The contract of [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_fast(&self, hash: u64, is_key: impl IsKey<L::Key>) -> FastFind<'_, L> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (bucket, _) = slab.prefetch(mixed);
        let state = bucket.state();
        if is_moved(state) {
            return FastFind::Unknown;
        }
        // SAFETY: the caller; the state of this home is not `MOVED`.
        match unsafe { bucket.probe_first(state, mixed, is_key) } {
            FirstProbe::Found { slot, raw } => {
                FastFind::Found(Found { location: Location { bucket, slot, raw, state }, slab, mixed })
            }
            FirstProbe::Absent => FastFind::Absent,
            FirstProbe::Unknown => FastFind::Unknown,
        }
    }

    /// Returns the content of a key's slot. Unlike `find`, without its location.
    ///
    /// # Safety
    /// The contract of [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_raw(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Option<L::Raw> {
        // SAFETY: the caller.
        unsafe {
            match self.find_fast(hash, is_key) {
                FastFind::Found(found) => Some(found.raw()),
                FastFind::Absent => None,
                FastFind::Unknown => self.find(hash, &is_key).map(|found| found.raw()),
            }
        }
    }

    /// Replaces the value of an entry that was found, if the home's lock is free, the table is not resizing,
    /// and the entry is unchanged. [`change`](Raw::change) is the slow path.
    ///
    /// # Errors
    /// The fast path gave up and the table is unchanged. The value comes back.
    /// # Safety
    /// In the operation in which [`find_fast`](Raw::find_fast) found the entry.
    #[inline(always)]
    pub(crate) unsafe fn change_value_fast(
        &self,
        found: &Found<'_, L>,
        value: L::NewValue,
    ) -> Result<(), L::NewValue> {
        // The entry is in the home's own bucket, which has the lock.
        let Found { slab, location: Location { bucket, slot, raw, state }, .. } = *found;
        let Some(lock) = bucket.try_lock() else { return Err(value) };
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        if moves && !sites::CHECK_MOVED.is_weak()
            || !bucket.holds_since(state, slot, raw) && !sites::CHECK_UNCHANGED.is_weak()
        {
            return Err(value);
        }
        // SAFETY: the entry was found and is still there, under the lock. Another value is in its place when
        // the old one is retired.
        unsafe {
            bucket.change(slot, |slot| L::replace_value(slot, raw, value));
            drop(lock);
            L::retire_value(raw);
        }
        Ok(())
    }

    /// Inserts an entry or replaces that of its key. Requires that the home's lock is free, the table is not
    /// resizing, and the home's own bucket has the key or room for it. Returns the replaced entry, already
    /// retired.
    ///
    /// # Errors
    /// The fast path gave up and the table is unchanged. The entry comes back, for [`write`](Raw::write).
    /// # Safety
    /// In an operation.
    #[inline(always)]
    pub(crate) unsafe fn put_fast(
        &self,
        hash: u64,
        new_entry: L::NewEntry,
        is_key: impl IsKey<L::Key>,
    ) -> Result<Option<L::Raw>, L::NewEntry> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Before the lock, as in `write`.
        let (bucket, row) = slab.prefetch(mixed);
        let Some(lock) = bucket.try_lock() else { return Err(new_entry) };
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        if !slab.next.load(Ordering::Acquire).is_null() && !sites::CHECK_MOVED.is_weak() {
            return Err(new_entry);
        }
        let state = bucket.state();
        // SAFETY: under the lock.
        match unsafe { bucket.probe_first_locked(state, mixed, is_key) } {
            FirstProbe::Found { slot, raw } => {
                let spare = bucket.change(slot, |slot| L::replace(slot, raw, new_entry));
                drop(lock);
                // SAFETY: the slot already has another entry. The thread that replaced the old one is the
                // only one to retire it.
                unsafe { if L::KEEPS_KEY { L::retire_value(raw) } else { L::retire(raw) } };
                drop(spare);
                Ok(Some(raw))
            }
            FirstProbe::Unknown => Err(new_entry),
            FirstProbe::Absent => {
                let Some(slot) = bucket.free_slot_in(state, row) else { return Err(new_entry) };
                bucket.publish_in(state, slot, tag(mixed), |slot| _ = L::store(slot, new_entry));
                drop(lock);
                self.count.add(1);
                Ok(None)
            }
        }
    }

    /// Removes a key. Requires that the home's lock is free, the table is not resizing, and the bucket's
    /// versions are not exhausted. The key must be in the home's own bucket or absent. Returns the removed
    /// entry, already retired.
    ///
    /// # Errors
    /// The fast path gave up and the table is unchanged: [`write`](Raw::write) is the slow path.
    /// # Safety
    /// In an operation.
    #[inline(always)]
    pub(crate) unsafe fn remove_fast(
        &self,
        hash: u64,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
    ) -> Result<Option<L::Raw>, NeedsSlowPath> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Before the lock, as in `write`.
        let (bucket, _) = slab.prefetch(mixed);
        let Some(lock) = bucket.try_lock() else { return Err(NeedsSlowPath) };
        let state = bucket.state();
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null() && !sites::CHECK_MOVED.is_weak();
        if moves || bucket.is_exhausted_in(state) {
            return Err(NeedsSlowPath);
        }
        // SAFETY: under the lock.
        match unsafe { bucket.probe_first_locked(state, mixed, is_key) } {
            FirstProbe::Found { slot, raw } => {
                let was_last = bucket.remove_in(state, slot);
                drop(lock);
                self.count.add(u64::MAX);
                // SAFETY: the slot is already empty. The thread that removed the entry is the only one to
                // retire it.
                unsafe { L::retire(raw) };
                if was_last {
                    // SAFETY: the caller.
                    unsafe { self.resize_if_sampled(mixed, rehash) };
                }
                Ok(Some(raw))
            }
            FirstProbe::Absent => Ok(None),
            FirstProbe::Unknown => Err(NeedsSlowPath),
        }
    }

    /// Checks, for some of the removals that empty a bucket, whether the table should shrink.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    unsafe fn resize_if_sampled(&self, mixed: u64, rehash: DynHash<'_, L::Key>) {
        // SAFETY: the caller.
        if unsafe { self.current() }.is_sampled(mixed, EMPTIED_LOG2) {
            // SAFETY: the caller.
            unsafe { self.resize(rehash) };
        }
    }
}
