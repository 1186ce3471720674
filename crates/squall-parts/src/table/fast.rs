//! Inlined fast paths: operations that find their key in the home's own bucket.
//!
//! Nine of ten operations find their key in the home's own bucket, in the first slot with its tag, or find
//! that it is absent. They also meet no other writer. This code is compiled into the caller. It has no loop,
//! keeps its data in registers, and calls no function except to leave for the slow path. The slow path in
//! [`raw`](crate::table::raw) starts the operation again: a fast path that gives up leaves the table
//! unchanged. The invariants are in the header of `raw.rs`. Writes name the layout `L`, since they retire the
//! old entry as soon as they have released the lock.

use crate::table::bucket::{Bucket, FirstProbe, is_moved};
use crate::table::compiled::Compiled;
use crate::table::hash::{mix, tag};
use crate::table::layout::{Layout, RawOf};
use crate::table::raw::{Found, Raw};
use crate::table::sites;
use crate::table::slab::Location;
use crate::table::slots::IsKey;
use crate::table::word::has_stable_bits;
use squall_sys::sync::atomic::Ordering;
use std::mem::forget;

/// The result of a lookup in the home's own bucket.
pub(crate) enum FastFind<'a, S: Compiled> {
    Found(Found<'a, S>),
    Absent,
    /// The key may be in a chained bucket or in another slab: the slow path is needed.
    Unknown,
}

/// The fast path gave up: the key may be in a chained bucket or another slab, or another thread holds the
/// home.
pub(crate) struct NeedsSlowPath;

/// Returns a comparison for use under the lock of this home. It names the lock if it may run users' code.
#[inline(always)]
fn named<L: Layout>(home: Bucket<'_, L::Slots>, is_key: impl IsKey<RawOf<L>>) -> impl IsKey<RawOf<L>> {
    move |raw| if has_stable_bits::<L::Key>() { is_key(raw) } else { home.under(|| is_key(raw)) }
}

impl<S: Compiled> Raw<S> {
    /// Finds a key in its home's own bucket. [`find`](Raw::find) is the slow path.
    ///
    /// # Safety
    /// The contract of [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_fast(&self, hash: u64, is_key: impl IsKey<S::Raw>) -> FastFind<'_, S> {
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
    pub(crate) unsafe fn find_raw(&self, hash: u64, is_key: impl IsKey<S::Raw>) -> Option<S::Raw> {
        // SAFETY: the caller.
        unsafe {
            match self.find_fast(hash, is_key) {
                FastFind::Found(found) => Some(found.raw()),
                FastFind::Absent => None,
                FastFind::Unknown => S::find(self, hash, &is_key).map(|found| found.raw()),
            }
        }
    }

    /// Replaces the value of an entry that was found, if the home's lock is free, the table is not resizing,
    /// and the entry is unchanged. [`change`](Raw::change) is the slow path.
    ///
    /// # Errors
    /// The fast path gave up and the table is unchanged. The value comes back.
    /// # Safety
    /// In the operation in which [`find_fast`](Raw::find_fast) found the entry, for which the value was made.
    #[inline(always)]
    pub(crate) unsafe fn change_value_fast<L: Layout<Slots = S>>(
        &self,
        found: &Found<'_, S>,
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
        let new = L::value_raw(&value);
        // The table owns it from here on.
        forget(value);
        // SAFETY: the entry was found and is still there, under the lock. Another value is in its place when
        // the old one is retired.
        unsafe {
            bucket.replace(slot, raw, new);
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
    pub(crate) unsafe fn put_fast<L: Layout<Slots = S>>(
        &self,
        hash: u64,
        new_entry: L::NewEntry,
        is_key: impl IsKey<S::Raw>,
    ) -> Result<Option<S::Raw>, L::NewEntry> {
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
        match unsafe { bucket.probe_first_locked(state, mixed, named::<L>(bucket, is_key)) } {
            FirstProbe::Found { slot, raw } => {
                let new = L::entry_raw(&new_entry);
                forget(new_entry);
                // SAFETY: 1. the old entry is in the slot, under the lock. 2. the slot has another entry when
                // the old one is retired. The thread that replaced it is the only one to retire it.
                unsafe {
                    bucket.replace(slot, raw, new);
                    drop(lock);
                    L::retire_replaced(raw, new);
                }
                Ok(Some(raw))
            }
            FirstProbe::Unknown => Err(new_entry),
            FirstProbe::Absent => {
                let Some(slot) = bucket.free_slot_in(state, row) else { return Err(new_entry) };
                let new = L::entry_raw(&new_entry);
                forget(new_entry);
                bucket.publish_in(state, slot, tag(mixed), new);
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
    pub(crate) unsafe fn remove_fast<L: Layout<Slots = S>>(
        &self,
        hash: u64,
        is_key: impl IsKey<S::Raw>,
        rehash: &impl Fn(S::Raw) -> u64,
    ) -> Result<Option<S::Raw>, NeedsSlowPath> {
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
        match unsafe { bucket.probe_first_locked(state, mixed, named::<L>(bucket, is_key)) } {
            FirstProbe::Found { slot, raw } => {
                let was_last = bucket.remove_in(state, slot);
                drop(lock);
                self.count.add(u64::MAX);
                // SAFETY: the slot is already empty. The thread that removed the entry is the only one to
                // retire it.
                unsafe { L::retire(raw) };
                if was_last {
                    // SAFETY: the caller.
                    unsafe { S::resize_if_sampled(self, mixed, rehash) };
                }
                Ok(Some(raw))
            }
            FirstProbe::Absent => Ok(None),
            FirstProbe::Unknown => Err(NeedsSlowPath),
        }
    }
}
