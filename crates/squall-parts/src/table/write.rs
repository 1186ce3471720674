//! Slow path of writes: insertions, changes and removals under the lock of a home.
//!
//! - I1. A write decides and applies its change under the lock of the home (raw/I2). It counts, retires and
//!   drops only after the lock is released, since drops run user code (raw/I6).

use crate::table::bucket::{Bucket, Probe, is_moved};
use crate::table::hash::{mix, tag};
use crate::table::layout::{DynHash, DynIsKey, Layout};
use crate::table::raw::{Found, Raw};
use crate::table::resize::{CROWDED_LOG2, EMPTIED_LOG2, MoveBatch};
use crate::table::sites;
use crate::table::slab::{Location, Slab};
use squall_lock::LockGuard;
use squall_sys::sync::atomic::Ordering;

/// The change that a write makes, decided from the entry that it found or missed.
pub(crate) enum Change<L: Layout> {
    Nothing,
    /// Insert an entry, or replace the whole entry.
    Put(L::NewEntry),
    /// Replace the value of the key that was found.
    Value(L::NewValue),
    Remove,
}

/// Decides about an entry that was found, or about its absence. Called once for each write.
pub(crate) type Decide<'a, L> = &'a mut dyn FnMut(Option<<L as Layout>::Raw>) -> Change<L>;

/// The reason to retry a write.
enum Retry {
    /// The home has moved to the next slab.
    Moved,
    /// The bucket has no version left for a removal.
    VersionsExhausted,
}

/// The work that remains after a write has released the lock.
struct AfterUnlock<L: Layout> {
    /// The replaced or removed entry, and whether its key lives on in the new entry.
    replaced: Option<(L::Raw, bool)>,
    /// The unused rest of an inserted entry.
    leftover: Option<L::NewEntry>,
    added: i8,
    /// Whether the caller should check the table's size.
    check_size: bool,
}

impl<L: Layout> Raw<L> {
    /// Finds a key and changes its entry, under its home's lock. `decide` gets the entry or its absence, and
    /// must run no user code.
    ///
    /// # Safety
    /// In an operation. `decide` changes a value or removes an entry only if it got one.
    #[inline(never)]
    pub(crate) unsafe fn write(
        &self,
        hash: u64,
        is_key: DynIsKey<'_, L::Key>,
        rehash: DynHash<'_, L::Key>,
        decide: Decide<'_, L>,
    ) {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Prefetches the slots before the lock, which is a barrier: they arrive while it is taken.
        let (bucket, _) = slab.prefetch(mixed);
        let lock = bucket.lock();
        let state = bucket.state();
        let found = 'here: {
            // Acquire: pairs with the release of `begin_move` (raw/I2).
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
        let change = decide(found.as_ref().map(|location| location.raw));
        // SAFETY: found here, under the lock.
        let done = unsafe { Self::apply(slab, bucket, mixed, change, found) };
        drop(lock);
        // SAFETY: the caller.
        unsafe { self.finish_write(done, rehash) }
    }

    /// Slow path of `write`: the key may be in a chained bucket, the home is moving, or a version is used up.
    /// `lock` is the home's.
    #[inline(never)]
    unsafe fn write_slow(
        &self,
        mut slab: &Slab<L>,
        mixed: u64,
        lock: LockGuard<'_, ()>,
        is_key: DynIsKey<'_, L::Key>,
        rehash: DynHash<'_, L::Key>,
        decide: Decide<'_, L>,
    ) {
        let mut lock = Some(lock);
        let done = loop {
            let home = slab.home(mixed);
            let lock = lock.take().unwrap_or_else(|| slab.bucket(home).lock());
            // SAFETY: the caller.
            match unsafe { Self::write_in_slab(slab, mixed, lock, is_key, rehash, decide) } {
                Ok(done) => break done,
                Err(Retry::Moved) => {
                    // SAFETY: the caller.
                    unsafe { self.help(slab, rehash) };
                    slab = Self::next(slab);
                }
                Err(Retry::VersionsExhausted) => {
                    // SAFETY: the caller.
                    unsafe { self.replace_exhausted(slab, rehash) };
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
    #[inline(never)]
    pub(crate) unsafe fn change(
        &self,
        found: Found<'_, L>,
        change: Change<L>,
        rehash: DynHash<'_, L::Key>,
    ) -> Result<bool, Change<L>> {
        let Found { slab, mixed, location } = found;
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let lock = first.lock();
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        let is_exhausted = matches!(change, Change::Remove) && location.bucket.is_exhausted();
        if moves && !sites::CHECK_MOVED.is_weak() || is_exhausted {
            return Err(change);
        }
        if !location.bucket.holds(location.slot, location.raw) && !sites::CHECK_UNCHANGED.is_weak() {
            return Ok(false);
        }
        // SAFETY: found, and still there, under the lock.
        let done = unsafe { Self::apply(slab, first, mixed, change, Some(location)) };
        drop(lock);
        // SAFETY: the caller.
        unsafe { self.finish_write(done, rehash) };
        Ok(true)
    }

    /// Finishes a write after its lock is released: counts, retires, and resizes if needed.
    ///
    /// # Safety
    /// In an operation; the write is complete.
    unsafe fn finish_write(&self, done: AfterUnlock<L>, rehash: DynHash<'_, L::Key>) {
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
    }

    /// Like [`write`](Raw::write), in this slab, unless the home has moved on. `_lock` is the home's lock.
    unsafe fn write_in_slab(
        slab: &Slab<L>,
        mixed: u64,
        _lock: LockGuard<'_, ()>,
        is_key: DynIsKey<'_, L::Key>,
        rehash: DynHash<'_, L::Key>,
        decide: &mut dyn FnMut(Option<L::Raw>) -> Change<L>,
    ) -> Result<AfterUnlock<L>, Retry> {
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let state = first.state();
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        if is_moved(state) && !sites::CHECK_MOVED.is_weak() || !slab.next.load(Ordering::Acquire).is_null() {
            if !is_moved(state) {
                // SAFETY: the caller; under the home's lock.
                unsafe { Self::move_home(home, rehash, &mut MoveBatch::new(slab)) };
            }
            return Err(Retry::Moved);
        }
        // SAFETY: the caller.
        let found = unsafe { slab.probe(home, state, mixed, is_key) };
        if found.as_ref().is_some_and(|location| location.bucket.is_exhausted()) {
            return Err(Retry::VersionsExhausted);
        }
        let change = decide(found.as_ref().map(|location| location.raw));
        // SAFETY: found here, under the lock.
        Ok(unsafe { Self::apply(slab, first, mixed, change, found) })
    }

    /// Applies a change under the home's lock; `first` is the home's own bucket.
    ///
    /// # Safety
    /// In an operation; the found entry is still there.
    unsafe fn apply(
        slab: &Slab<L>,
        first: Bucket<'_, L>,
        mixed: u64,
        change: Change<L>,
        found: Option<Location<'_, L>>,
    ) -> AfterUnlock<L> {
        let mut done = AfterUnlock { replaced: None, leftover: None, added: 0, check_size: false };
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
            (Change::Value(_) | Change::Remove, None) => {
                unreachable!("a change of an absent entry was requested")
            }
        }
        done
    }
}
