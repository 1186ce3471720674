//! Resizing: when a table gets another size, and how its homes move to the next slab.
//!
//! The invariants are those of `raw.rs` (raw/I1 to raw/I3). One thread claims and makes the next slab. Each
//! home moves under its lock, and the thread that finds all homes moved makes the next slab the current one.
//!
//! - I1. Each writer that meets a slab with a next one moves the home that it needs. Then it claims the next
//!   few homes by one addition to the slab's cursor, and moves those. So the writers share the work.
//! - I2. A writer waits only for the home that it needs. It skips claimed homes that another thread has
//!   locked. When all homes are claimed, the claims start again. So other writers move the homes of a thread
//!   that was stopped or has panicked, except a home that it has locked. After two passes such homes remain,
//!   and few others. Then each thread claims homes in a few of its writes only, since claims are shared.
//! - I3. A thread marks a home as moved under the home's lock, once, and then counts it. So the count is the
//!   number of homes when all have moved, in any order and by any threads.

use crate::table::bucket::{Bucket, is_moved};
use crate::table::hash::{mix, tag};
use crate::table::platform;
use crate::table::raw::{GROW_PERCENT, MIN_HOMES, Raw, homes_for};
use crate::table::sites;
use crate::table::slab::Slab;
use crate::table::slots::{DynHash, Slots};
use crate::table::tags::SLOTS;
use squall_lock::LockGuard;
use squall_sys::sync::atomic::Ordering;

/// Homes that one writer moves for others. With more, the cursor and the count move less often from processor
/// to processor, and that one write takes longer: some microseconds.
const HOMES_PER_HELP: usize = if cfg!(loom) { 1 } else { 16 };
/// Passes over all homes in which each writer claims homes.
const PASSES: usize = 2;
/// Sampling rates ([`Slab::is_sampled`]) of the two operations that may check the table's size: an insertion
/// into a chain, and a removal that empties a bucket.
pub(crate) const CROWDED_LOG2: u32 = 3;
pub(crate) const EMPTIED_LOG2: u32 = 2;
/// The table shrinks when it has fewer entries per 100 slots than this.
const SHRINK_PERCENT: usize = 15;

/// The result of starting a move.
#[derive(PartialEq, Eq)]
enum MoveStart {
    Ready,
    /// Another thread is about to make the next slab, or this slab is no longer the current one.
    Busy,
    NoMemory,
}

/// Whether a thread that moves a home waits for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    Wait,
    Try,
}

impl LockMode {
    fn lock<S: Slots>(self, bucket: Bucket<'_, S>) -> Option<LockGuard<'_, ()>> {
        if self == LockMode::Wait { Some(bucket.lock()) } else { bucket.try_lock() }
    }
}

/// The homes of one slab that one thread is moving: a buffer reused from home to home, and the number of
/// homes moved. The drop adds that number to the slab's counter, once, since all movers share that word.
pub(crate) struct MoveBatch<'s, S: Slots> {
    slab: &'s Slab<S>,
    /// The entries of a home with their mixed hashes.
    entries: Vec<(u64, S::Raw)>,
    homes: usize,
}

impl<S: Slots> MoveBatch<'_, S> {
    /// Returns an empty batch, without a buffer: many writers find nothing to move.
    pub(crate) fn new(slab: &Slab<S>) -> MoveBatch<'_, S> {
        MoveBatch { slab, entries: Vec::new(), homes: 0 }
    }
}

impl<S: Slots> Drop for MoveBatch<'_, S> {
    fn drop(&mut self) {
        if self.homes != 0 {
            // Release: pairs with the acquire of `finish_move`.
            self.slab.progress.moved.fetch_add(self.homes, sites::COUNT_MOVED.order(Ordering::AcqRel));
        }
    }
}

impl<S: Slots> Raw<S> {
    // --- moving ---

    /// Moves a home to the next slab, and counts it. The caller calls [`finish_move`](Raw::finish_move)
    /// afterwards. With [`LockMode::Try`], skips the home if it needs a lock that another thread holds.
    ///
    /// # Safety
    /// In an operation, under the home's lock; there is a next slab, and the home has not moved.
    pub(crate) unsafe fn move_home(
        home: usize,
        mode: LockMode,
        rehash: DynHash<'_, S>,
        moving: &mut MoveBatch<'_, S>,
    ) {
        let slab = moving.slab;
        let next = Self::next(slab);
        let entries = &mut moving.entries;
        entries.clear();
        // Room for a home with one chained bucket. Without effect from the second home on.
        entries.reserve(2 * SLOTS);
        // All hashes are computed before the first entry moves: they run user code, which may panic.
        // SAFETY: the caller.
        let hash = || unsafe { slab.each_locked(home, |raw| entries.push((mix(rehash(raw)), raw))) };
        slab.bucket(home).under(hash);
        // In a larger slab, this home's entries go to homes that no other thread reaches before this home is
        // marked as moved.
        let shared = next.homes() < slab.homes();
        // A hasher that contradicts its earlier result must not lead into a home of other keys.
        let (first, last) = slab.range(home);
        // In a smaller slab, all entries go into one home, which has a larger range. Locks are taken in the
        // order of slabs. The next slab's homes are not moving yet (raw/I1).
        let _lock = if shared {
            let Some(lock) = mode.lock(next.bucket(next.home(first))) else { return };
            Some(lock)
        } else {
            None
        };
        for &(mixed, raw) in &moving.entries {
            let mixed = mixed.clamp(first, last);
            let (bucket, slot, _) = next.find_room(next.bucket(next.home(mixed)), mixed);
            bucket.publish_moved(slot, tag(mixed), raw);
        }
        slab.bucket(home).set_moved();
        moving.homes += 1;
    }

    /// Claims and moves some homes of a slab that has a next one, and finishes the move if they were the
    /// last. `moving` may have the home that the caller has moved.
    ///
    /// # Safety
    /// In an operation; there is a next slab.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn help(&self, mut moving: MoveBatch<'_, S>, rehash: DynHash<'_, S>) {
        let slab = moving.slab;
        let cursor = &slab.progress.cursor;
        // Relaxed, both: a ticket. Tickets wrap around (I2).
        if cursor.load(Ordering::Relaxed) < PASSES * slab.homes() || platform::is_late_turn() {
            let claimed = HOMES_PER_HELP.min(slab.homes());
            let first = cursor.fetch_add(claimed, Ordering::Relaxed);
            for home in (0..claimed).map(|step| first.wrapping_add(step) & (slab.homes() - 1)) {
                // SAFETY: the caller.
                unsafe { Self::move_if_here(home, LockMode::Try, rehash, &mut moving) };
            }
        } else if moving.homes == 0 {
            return;
        }
        drop(moving);
        self.finish_move(slab);
    }

    /// Moves a home unless it has moved.
    ///
    /// # Safety
    /// In an operation; there is a next slab.
    unsafe fn move_if_here(
        home: usize,
        mode: LockMode,
        rehash: DynHash<'_, S>,
        moving: &mut MoveBatch<'_, S>,
    ) {
        let bucket = moving.slab.bucket(home);
        // Checked before locking: towards the end, most homes have moved.
        if is_moved(bucket.state()) {
            return;
        }
        let Some(_lock) = mode.lock(bucket) else { return };
        if !is_moved(bucket.state()) || sites::MOVE_ONCE.is_weak() {
            // SAFETY: the caller; under the lock.
            unsafe { Self::move_home(home, mode, rehash, moving) };
        }
    }

    /// Makes the next slab the current one, once all homes of this one have moved. Only the first call does
    /// so.
    fn finish_move(&self, slab: &Slab<S>) {
        // Acquire: pairs with the release of each `MoveBatch`: all its entries are in the next slab.
        if slab.progress.moved.load(Ordering::Acquire) < slab.homes() && !sites::ALL_MOVED.is_weak() {
            return;
        }
        let old = std::ptr::from_ref(slab).cast_mut();
        let next = slab.next.load(Ordering::Acquire);
        // AcqRel: the release pairs with the acquire of `current`; the acquire with the release that made
        // `slab` current.
        if let Ok(old) = self.current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw`. The exchange cut the only path to it (raw/I5). Only one exchange
            // succeeds: a slab becomes the current one once.
            unsafe { platform::retire_sized(old, slab.bytes()) };
        }
    }

    /// Moves all homes that have not moved. Returns whether there was a next slab.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn move_all(&self, slab: &Slab<S>, rehash: DynHash<'_, S>) -> bool {
        // Acquire: pairs with the release of `begin_move`.
        if slab.next.load(Ordering::Acquire).is_null() {
            return false;
        }
        let mut moving = MoveBatch::new(slab);
        for home in 0..slab.homes() {
            // SAFETY: the caller.
            unsafe { Self::move_if_here(home, LockMode::Wait, rehash, &mut moving) };
        }
        drop(moving);
        // Acquire: as in `finish_move`.
        if slab.progress.moved.load(Ordering::Acquire) < slab.homes() {
            // Another thread has moved a home and is about to count it. Yield, since the caller will retry
            // until then.
            platform::yield_to_writer();
        }
        self.finish_move(slab);
        true
    }

    // --- another size ---

    /// Starts a move to another size if the number of entries asks for it.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn resize(&self, rehash: DynHash<'_, S>) {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Relaxed: a hint. Many insertions come here while another thread makes the next slab. The number of
        // entries, one word per VP, is then not worth its cost.
        if slab.progress.is_claimed.load(Ordering::Relaxed) {
            return;
        }
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
                unsafe { self.help(MoveBatch::new(slab), rehash) };
            }
        }
    }

    /// Checks, for some of the removals that empty a bucket, whether the table should shrink.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn resize_if_sampled(&self, mixed: u64, rehash: DynHash<'_, S>) {
        // SAFETY: the caller.
        if unsafe { self.current() }.is_sampled(mixed, EMPTIED_LOG2) {
            // SAFETY: the caller.
            unsafe { self.resize(rehash) };
        }
    }

    /// Gives a slab its next slab, unless the slab is no longer current or another thread gives it one.
    fn begin_move(&self, slab: &Slab<S>, homes: usize) -> MoveStart {
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
    pub(crate) unsafe fn replace_exhausted(&self, slab: &Slab<S>, rehash: DynHash<'_, S>) {
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
            MoveStart::Busy => platform::yield_to_writer(),
            // A repeated version could be mistaken for the earlier one.
            MoveStart::NoMemory => std::alloc::handle_alloc_error(std::alloc::Layout::new::<Slab<S>>()),
        }
    }

    /// Makes room for this many entries in all. With `less`, shrinks to the entries there are. Returns
    /// `false` if memory is exhausted.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn resize_to(&self, entries: usize, less: bool, rehash: DynHash<'_, S>) -> bool {
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
                    MoveStart::Busy => platform::yield_to_writer(),
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

    // --- for models ---

    /// Starts to move to a slab of twice as many homes.
    #[cfg(all(test, loom))]
    pub(crate) fn grow(&self) {
        // SAFETY: no memory is freed in a model.
        let slab = unsafe { self.current() };
        assert!(self.begin_move(slab, 2 * slab.homes()) == MoveStart::Ready);
    }

    /// Moves this home.
    #[cfg(all(test, loom))]
    pub(crate) fn move_only(&self, home: usize, rehash: DynHash<'_, S>) {
        // SAFETY: no memory is freed in a model.
        let slab = unsafe { self.current() };
        let mut moving = MoveBatch::new(slab);
        // SAFETY: as above; the model has called `grow`.
        unsafe { Self::move_if_here(home, LockMode::Try, rehash, &mut moving) };
        drop(moving);
        self.finish_move(slab);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_moving(&self) -> bool {
        // SAFETY: no memory is freed in a model.
        !unsafe { self.current() }.next.load(Ordering::Acquire).is_null()
    }

    /// Moves all homes to a slab of twice as many, unless another thread has started a move.
    #[cfg(all(test, loom))]
    pub(crate) fn try_grow(&self, rehash: DynHash<'_, S>) {
        // SAFETY: no memory is freed in a model.
        let slab = unsafe { self.current() };
        if self.begin_move(slab, 2 * slab.homes()) == MoveStart::Ready {
            self.complete_move(rehash);
        }
    }

    /// Moves all homes that have not moved.
    #[cfg(all(test, loom))]
    pub(crate) fn complete_move(&self, rehash: DynHash<'_, S>) {
        // SAFETY: no memory is freed in a model.
        unsafe { self.move_all(self.current(), rehash) };
    }
}
