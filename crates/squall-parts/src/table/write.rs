//! Slow path of writes: insertions, changes and removals under the lock of a home.
//!
//! - I1. A write decides and applies its change under the lock of the home (raw/I2). After the lock is
//!   released, it counts. The caller then retires the old entry and drops unused parts of a new one, since
//!   drops run user code (raw/I6).
//! - I2. A new entry or value belongs to the caller until `is_made` is set, and to the table from then on. A
//!   write sets it under the lock, when the change is applied. So the owner is known after a panic, too.

use crate::table::bucket::{Bucket, Probe, is_moved};
use crate::table::hash::{mix, tag};
use crate::table::raw::{Found, Raw};
use crate::table::resize::{CROWDED_LOG2, EMPTIED_LOG2, LockMode, MoveBatch};
use crate::table::sites;
use crate::table::slab::{Location, Slab};
use crate::table::slots::{DynHash, DynIsKey, Slots};
use squall_lock::LockGuard;
use squall_sys::sync::atomic::Ordering;

/// A wanted change of the entry of a key.
pub(crate) enum Change<S: Slots> {
    /// Insert this entry, or replace the present one.
    Put(S::Raw),
    /// Insert this entry if the key is absent.
    Insert(S::Raw),
    /// Replace the value of the entry `seen` by that of `new`, if the entry is unchanged.
    Replace { seen: S::Raw, new: S::Raw },
    /// Remove the entry if the key is present.
    Remove,
    /// Remove this entry if it is unchanged.
    RemoveSeen(S::Raw),
}

impl<S: Slots> Change<S> {
    /// Whether to make the change, given the key's present entry.
    fn is_wanted(&self, found: Option<S::Raw>) -> bool {
        match self {
            Change::Put(_) => true,
            Change::Insert(_) => found.is_none(),
            Change::Replace { seen, .. } | Change::RemoveSeen(seen) => {
                found.is_some_and(|now| S::is_same(now, *seen))
            }
            Change::Remove => found.is_some(),
        }
    }
}

/// The entry that a write found under the lock, and the work that it leaves to its caller. If the change was
/// made, the caller retires the entry that was found.
pub(crate) struct Written<S: Slots> {
    pub(crate) found: Option<S::Raw>,
    /// Whether the caller must check the table's size by [`Raw::resize`], after it has retired the entry.
    pub(crate) check_size: bool,
}

/// The reason to retry a write.
enum Retry<'s, S: Slots> {
    /// The home has moved to the next slab. The batch has it if this thread moved it.
    Moved(MoveBatch<'s, S>),
    /// The bucket has no version left for a removal.
    VersionsExhausted,
}

/// The work that remains after a write has released the lock.
struct AfterUnlock<S: Slots> {
    written: Written<S>,
    added: i8,
}

impl<S: Slots> Raw<S> {
    /// Finds a key and changes its entry, under its home's lock. Sets `is_made` if it makes the change (I2).
    ///
    /// # Safety
    /// In an operation. A raw entry in the change is new and owned by the caller, or was loaded in this
    /// operation.
    pub(crate) unsafe fn write(
        &self,
        hash: u64,
        is_key: DynIsKey<'_, S>,
        rehash: DynHash<'_, S>,
        change: &Change<S>,
        is_made: &mut bool,
    ) -> Written<S> {
        // SAFETY: the caller.
        unsafe { self.write_mixed(mix(hash), is_key, rehash, change, is_made) }
    }

    unsafe fn write_mixed(
        &self,
        mixed: u64,
        is_key: DynIsKey<'_, S>,
        rehash: DynHash<'_, S>,
        change: &Change<S>,
        is_made: &mut bool,
    ) -> Written<S> {
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
                match unsafe { bucket.under(|| bucket.probe(state, mixed, is_key)) } {
                    Probe::Found { slot, raw, state } => {
                        break 'here Some(Location { bucket, slot, raw, state });
                    }
                    Probe::Absent { chained: false } => break 'here None,
                    Probe::Absent { chained: true } => {}
                }
            }
            // SAFETY: the caller.
            return unsafe { self.write_slow(slab, mixed, lock, is_key, rehash, change, is_made) };
        };
        // SAFETY: found here, under the lock.
        let done = unsafe { Self::apply(slab, bucket, mixed, change, found, is_made) };
        drop(lock);
        self.finish_write(done)
    }

    /// Slow path of `write`: the key may be in a chained bucket, the home is moving, or a version is used up.
    /// `lock` is the home's.
    #[expect(clippy::too_many_arguments)]
    #[inline(never)]
    unsafe fn write_slow(
        &self,
        mut slab: &Slab<S>,
        mixed: u64,
        lock: LockGuard<'_, ()>,
        is_key: DynIsKey<'_, S>,
        rehash: DynHash<'_, S>,
        change: &Change<S>,
        is_made: &mut bool,
    ) -> Written<S> {
        let mut lock = Some(lock);
        let done = loop {
            let home = slab.home(mixed);
            let lock = lock.take().unwrap_or_else(|| slab.bucket(home).lock());
            // SAFETY: the caller.
            match unsafe { Self::write_in_slab(slab, mixed, lock, is_key, rehash, change, is_made) } {
                Ok(done) => break done,
                Err(Retry::Moved(moving)) => {
                    // SAFETY: the caller.
                    unsafe { self.help(moving, rehash) };
                    slab = Self::next(slab);
                }
                Err(Retry::VersionsExhausted) => {
                    // SAFETY: the caller.
                    unsafe { self.replace_exhausted(slab, rehash) };
                }
            }
        };
        self.finish_write(done)
    }

    /// Replaces the value of an entry that was found before by that of `new`, or removes the entry, if it is
    /// unchanged. Searches for it again only if its home is moving or its versions are exhausted. Sets
    /// `is_made` if it makes the change (I2).
    ///
    /// # Safety
    /// In the operation in which the entry was found.
    pub(crate) unsafe fn change(
        &self,
        found: Found<'_, S>,
        is_key: DynIsKey<'_, S>,
        rehash: DynHash<'_, S>,
        new: Option<S::Raw>,
        is_made: &mut bool,
    ) -> Written<S> {
        let Found { slab, mixed, location } = found;
        let seen = location.raw;
        let change = match new {
            Some(new) => Change::Replace { seen, new },
            None => Change::RemoveSeen(seen),
        };
        let first = slab.bucket(slab.home(mixed));
        let lock = first.lock();
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        let is_exhausted = new.is_none() && location.bucket.is_exhausted();
        if moves && !sites::CHECK_MOVED.is_weak() || is_exhausted {
            drop(lock);
            // SAFETY: the caller.
            return unsafe { self.write_mixed(mixed, is_key, rehash, &change, is_made) };
        }
        if !location.bucket.holds(location.slot, seen) && !sites::CHECK_UNCHANGED.is_weak() {
            return Written { found: None, check_size: false };
        }
        // SAFETY: found, and still there, under the lock.
        let done = unsafe { Self::apply(slab, first, mixed, &change, Some(location), is_made) };
        drop(lock);
        self.finish_write(done)
    }

    /// Counts the added or removed entry after the lock is released.
    fn finish_write(&self, done: AfterUnlock<S>) -> Written<S> {
        if done.added != 0 {
            self.count.add(i64::from(done.added).cast_unsigned());
        }
        done.written
    }

    /// Like [`write`](Raw::write), in this slab, unless the home has moved on. `_lock` is the home's lock.
    unsafe fn write_in_slab<'s>(
        slab: &'s Slab<S>,
        mixed: u64,
        _lock: LockGuard<'_, ()>,
        is_key: DynIsKey<'_, S>,
        rehash: DynHash<'_, S>,
        change: &Change<S>,
        is_made: &mut bool,
    ) -> Result<AfterUnlock<S>, Retry<'s, S>> {
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let state = first.state();
        // Acquire: pairs with the release of `begin_move` (raw/I2).
        if is_moved(state) && !sites::CHECK_MOVED.is_weak() || !slab.next.load(Ordering::Acquire).is_null() {
            let mut moving = MoveBatch::new(slab);
            if !is_moved(state) {
                // SAFETY: the caller; under the home's lock.
                unsafe { Self::move_home(home, LockMode::Wait, rehash, &mut moving) };
            }
            return Err(Retry::Moved(moving));
        }
        // SAFETY: the caller.
        let found = first.under(|| unsafe { slab.probe(home, state, mixed, is_key) });
        if found.as_ref().is_some_and(|location| location.bucket.is_exhausted()) {
            return Err(Retry::VersionsExhausted);
        }
        // SAFETY: found here, under the lock.
        Ok(unsafe { Self::apply(slab, first, mixed, change, found, is_made) })
    }

    /// Applies a change, if it is wanted, under the home's lock. `first` is the home's own bucket.
    ///
    /// # Safety
    /// In an operation; the found entry is still there.
    unsafe fn apply(
        slab: &Slab<S>,
        first: Bucket<'_, S>,
        mixed: u64,
        change: &Change<S>,
        found: Option<Location<'_, S>>,
        is_made: &mut bool,
    ) -> AfterUnlock<S> {
        let raw = found.as_ref().map(|location| location.raw);
        let mut done = AfterUnlock { written: Written { found: raw, check_size: false }, added: 0 };
        if !change.is_wanted(raw) {
            return done;
        }
        *is_made = true;
        match (change, found) {
            (Change::Put(new) | Change::Insert(new), None) => {
                let (bucket, slot, own) = slab.find_room(first, mixed);
                bucket.publish(slot, tag(mixed), *new);
                done.added = 1;
                // A sample of the insertions into chains checks the size. A fuller table has more of them.
                done.written.check_size =
                    !own && (slab.is_sampled(mixed, CROWDED_LOG2) || slab.chain_length(slab.home(mixed)) > 1);
            }
            (
                Change::Put(new) | Change::Insert(new) | Change::Replace { new, .. },
                Some(Location { bucket, slot, raw, .. }),
            ) => {
                // SAFETY: the caller.
                unsafe { bucket.replace(slot, raw, *new) };
            }
            (Change::Remove | Change::RemoveSeen(_), Some(Location { bucket, slot, .. })) => {
                bucket.remove(slot);
                // A removal from the home's own bucket leaves the chain as it is.
                if !bucket.is_same_bucket(first) {
                    slab.unchain_if_empty(slab.home(mixed), first);
                }
                done.added = -1;
                // In this order: few buckets are empty, and the sample is unpredictable.
                done.written.check_size = first.is_empty() && slab.is_sampled(mixed, EMPTIED_LOG2);
            }
            (Change::Replace { .. } | Change::Remove | Change::RemoveSeen(_), None) => {
                unreachable!("a change of an absent entry is not wanted")
            }
        }
        done
    }
}
