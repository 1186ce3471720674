//! What is soon done with a key: in its home's own bucket, where most keys are.
//!
//! Nine of ten operations find their key there, in the first slot that has its tag, or that it is nowhere, and nobody else at it. They are written
//! apart from the rest, so that what is compiled into a caller calls no function but in the rest, has all that it needs in registers, and no loop.
//! Whatever is otherwise is left to [`raw`](crate::table::raw), which begins anew: nothing was done then. What must hold is said there.

use crate::table::bucket::{Glance, is_moved};
use crate::table::layout::{IsKey, Layout};
use crate::table::raw::{EMPTIED, Found, Raw};
use crate::table::sites;
use crate::table::slab::{Place, mix, tag};
use squall_sys::sync::atomic::Ordering;

/// What a look into a key's home alone finds.
pub(crate) enum Here<'a, L: Layout> {
    Found(Found<'a, L>),
    Absent,
    /// It may be in a bucket that follows, or in another slab.
    Perhaps,
}

/// It may be in a bucket that follows, or in another slab, or somebody is at it.
pub(crate) struct Perhaps;

impl<L: Layout> Raw<L> {
    /// Finds a key, if it is in its home's own bucket, as most are: the rest is for [`find`](Raw::find).
    ///
    /// # Safety
    /// As [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_here(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Here<'_, L> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (bucket, _) = slab.fetch(mixed);
        let state = bucket.state();
        if is_moved(state) {
            return Here::Perhaps;
        }
        // SAFETY: the caller; this home's state is not moved.
        match unsafe { bucket.glance(state, mixed, is_key) } {
            Glance::Found { slot, raw } => {
                Here::Found(Found { place: Place { bucket, slot, raw, state }, slab, mixed })
            }
            Glance::Absent => Here::Absent,
            Glance::Perhaps => Here::Perhaps,
        }
    }

    /// As [`change`](Raw::change), of the value, if nobody holds the home's lock and nothing moves. Returns whether it was done; if not, nothing was.
    ///
    /// # Safety
    /// In the operation in which it was found, by [`find_here`](Raw::find_here).
    #[inline(always)]
    pub(crate) unsafe fn change_value(&self, found: Found<'_, L>, value: L::NewValue) -> bool {
        // Found in its home's own bucket, which has the lock.
        let Found { slab, place: Place { bucket, slot, raw, state }, .. } = found;
        let Some(lock) = bucket.try_lock() else { return false };
        // Acquire: pairs with the release of `begin` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        if moves && !sites::ASK.is_weak()
            || !bucket.is_still_since(state, slot, raw) && !sites::STILL.is_weak()
        {
            return false;
        }
        // SAFETY: found, and still there, under the lock; another value is in its place when the old one is retired.
        unsafe {
            bucket.change(slot, |slot| L::replace_value(slot, raw, value));
            drop(lock);
            L::retire_value(raw);
        }
        true
    }

    /// Puts an entry in the place of its key's, or where there is none, if that is soon done: nobody holds the home's lock, nothing moves, and
    /// the home's own bucket has the key, or room for it. What was there comes back, retired.
    ///
    /// # Errors
    /// It is not soon done: that is for [`write`](Raw::write). Nothing was done, and the entry comes back.
    /// # Safety
    /// In an operation.
    #[inline(always)]
    pub(crate) unsafe fn put_here(
        &self,
        hash: u64,
        fresh: L::Fresh,
        is_key: impl IsKey<L::Key>,
    ) -> Result<Option<L::Raw>, L::Fresh> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Before the lock, as in `write`.
        let (bucket, row) = slab.fetch(mixed);
        let Some(lock) = bucket.try_lock() else { return Err(fresh) };
        // Acquire: pairs with the release of `begin` (raw/I2).
        if !slab.next.load(Ordering::Acquire).is_null() && !sites::ASK.is_weak() {
            return Err(fresh);
        }
        let state = bucket.state();
        // SAFETY: under the lock.
        match unsafe { bucket.glance_held(state, mixed, is_key) } {
            Glance::Found { slot, raw } => {
                let spare = bucket.change(slot, |slot| L::replace(slot, raw, fresh));
                drop(lock);
                // SAFETY: the slot has another, which is before this; who changed it has it alone.
                unsafe { if L::KEEPS_KEY { L::retire_value(raw) } else { L::retire(raw) } };
                drop(spare);
                Ok(Some(raw))
            }
            Glance::Perhaps => Err(fresh),
            Glance::Absent => {
                let Some(slot) = bucket.free_slot_in(state, row) else { return Err(fresh) };
                bucket.publish_in(state, slot, tag(mixed), |slot| _ = L::store(slot, fresh));
                drop(lock);
                self.count.add(1);
                Ok(None)
            }
        }
    }

    /// Takes a key out, if that is soon done: nobody holds the home's lock, nothing moves, no version is used up, and the home's own bucket has the
    /// key, or no bucket has it. What was there comes back, retired.
    ///
    /// # Errors
    /// It is not soon done: that is for [`write`](Raw::write). Nothing was done.
    /// # Safety
    /// In an operation.
    #[inline(always)]
    pub(crate) unsafe fn remove_here(
        &self,
        hash: u64,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
    ) -> Result<Option<L::Raw>, Perhaps> {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Before the lock, as in `write`.
        let (bucket, _) = slab.fetch(mixed);
        let Some(lock) = bucket.try_lock() else { return Err(Perhaps) };
        let state = bucket.state();
        // Acquire: pairs with the release of `begin` (raw/I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null() && !sites::ASK.is_weak();
        if moves || bucket.is_worn_in(state) {
            return Err(Perhaps);
        }
        // SAFETY: under the lock.
        match unsafe { bucket.glance_held(state, mixed, is_key) } {
            Glance::Found { slot, raw } => {
                let was_last = bucket.remove_in(state, slot);
                drop(lock);
                self.count.add(u64::MAX);
                // SAFETY: the slot has none, which is before this; who took it out has it alone.
                unsafe { L::retire(raw) };
                if was_last {
                    // SAFETY: the caller.
                    unsafe { self.resize_perhaps(mixed, rehash) };
                }
                Ok(Some(raw))
            }
            Glance::Absent => Ok(None),
            Glance::Perhaps => Err(Perhaps),
        }
    }

    /// What a removal does that emptied a bucket.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    unsafe fn resize_perhaps(&self, mixed: u64, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: the caller.
        if unsafe { self.current() }.is_sampled(mixed, EMPTIED) {
            // SAFETY: the caller.
            unsafe { self.resize(rehash) };
        }
    }
}
