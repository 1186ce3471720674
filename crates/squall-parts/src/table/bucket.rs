//! A bucket: a lock for writers, a state word with the occupied slots, and eight hash bits of each entry
//! (`tags`).
//!
//! Readers take no lock and write no memory. They load `state`, then `tags`, then the slots with an equal
//! tag.
//!
//! - I1. Once a bucket is reachable, all words of it and of its chain are written under the lock of the first
//!   bucket, the *home*.
//! - I2. A writer fills a slot, then sets its tag, then sets its bit in `state` with Release. A reader that
//!   loads the bit with Acquire sees all of that. While an entry stays, its slot, its tag and its bit stay.
//! - I3. A removal clears the bit and advances the state's version before the slot is used again. Slot
//!   contents are stored with Release and loaded with Acquire. So a reader that loads any part of a slot's
//!   new content sees the removal when it loads the state again. Layouts of words compare the version: the
//!   same version means the same entry. Layouts of pointers check the bit. A set bit means that the loaded
//!   pointer names a published entry. A clear bit means that the entry is removed, or not yet published.
//! - I4. `MOVED` of a home is set once all its entries are in the next slab. After that, the home never
//!   changes and no bit of it is cleared. A lookup that restarts after its home has moved finds the same
//!   entries in the next slab.
//! - I5. Versions of a bucket never repeat: `write` replaces the slab first.
//! - I6. `CHAINED` of a home is set while a chained bucket has an entry, and before that entry can be seen.
//!   So a reader that loads a state without `CHAINED` and finds no entry here has missed no entry that was
//!   present at that moment.

use crate::reentry;
use crate::table::hash::tag_above;
use crate::table::platform::store_with_barrier;
use crate::table::sites;
use crate::table::slots::{DynIsKey, IsKey, Slots};
use crate::table::tags::{SLOTS, Tags};
use squall_lock::{Lock, LockGuard};
use squall_sys::prefetch::LINE;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::num::NonZero;
use std::ptr;

/// Slots of a row: a row fills a line or two if a bucket has several lines.
pub(crate) const ROW: usize = 4;

/// The state word of a bucket: a bit for each slot, two flags, and the version above them.
pub(crate) type State = u64;

/// One bit for each slot.
const OCCUPIED: State = (1 << SLOTS) - 1;
/// The home's entries are in the next slab.
const MOVED: State = 1 << SLOTS;
/// A chained bucket has entries, or may have (I6).
const CHAINED: State = 2 << SLOTS;
/// One step of the version, which takes the bits from here upwards.
const VERSION: State = 4 << SLOTS;
/// The last version: then the slab must be replaced (I5). Tests use a small one.
const LAST_VERSION: State = if cfg!(loom) {
    1
} else if cfg!(test) {
    200
} else {
    State::MAX / VERSION
};

/// The metadata of a bucket. Slots lie elsewhere: two heads share a line, and a lookup of an absent key
/// seldom needs the slots.
#[repr(C)]
#[cfg_attr(not(loom), repr(align(32)))]
pub(crate) struct Head {
    lock: Lock<()>,
    state: AtomicU64,
    tags: Tags,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Head>() == 32);

impl Head {
    pub(crate) fn new() -> Head {
        Head { lock: Lock::new(()), state: AtomicU64::new(0), tags: Tags::new() }
    }
}

/// A chained bucket, and the pointer to the next one.
pub(crate) struct Link<S: Slots> {
    head: Head,
    slots: [S::Slot; SLOTS],
    pub(crate) next: AtomicPtr<Link<S>>,
}

impl<S: Slots> Link<S> {
    pub(crate) fn new() -> Box<Link<S>> {
        Box::new(Link {
            head: Head::new(),
            slots: std::array::from_fn(|_| S::empty()),
            next: AtomicPtr::new(ptr::null_mut()),
        })
    }

    pub(crate) fn bucket(&self) -> Bucket<'_, S> {
        Bucket { head: &self.head, slots: &self.slots }
    }
}

/// Returns a bit for each slot before a row, or zero if all slots share one line.
#[inline(always)]
fn slots_before<S: Slots>(row: u32) -> State {
    if size_of::<[S::Slot; SLOTS]>() > LINE { (1 << (row * ROW as u32)) - 1 } else { 0 }
}

/// A reference to a bucket: its head and its slots.
pub(crate) struct Bucket<'a, S: Slots> {
    pub(crate) head: &'a Head,
    pub(crate) slots: &'a [S::Slot; SLOTS],
}

impl<S: Slots> Clone for Bucket<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Slots> Copy for Bucket<'_, S> {}

/// The result of a full probe of one bucket.
pub(crate) enum Probe<R> {
    Found {
        slot: usize,
        raw: R,
        /// The state that was loaded before the slot.
        state: State,
    },
    /// The key is absent here; a chained bucket may have it if `chained`.
    Absent { chained: bool },
}

/// The result of a probe of the first slot with an equal tag.
pub(crate) enum FirstProbe<R> {
    Found {
        slot: usize,
        raw: R,
    },
    Absent,
    /// The key may be in another slot or in a chained bucket, or its entry changed during the probe.
    Unknown,
}

/// Returns the first slot of [`Bucket::tag_hits`]. Without hits, the error says whether the key is absent.
#[inline(always)]
fn first_slot<R>(state: State, hits: u32) -> Result<usize, FirstProbe<R>> {
    if hits == 0 {
        return Err(if state & CHAINED == 0 { FirstProbe::Absent } else { FirstProbe::Unknown });
    }
    Ok(hits.trailing_zeros() as usize)
}

impl<'a, S: Slots> Bucket<'a, S> {
    /// Takes the lock. The bucket is a home.
    #[inline(always)]
    pub(crate) fn lock(self) -> LockGuard<'a, ()> {
        match self.head.lock.try_lock() {
            Some(lock) => lock,
            None => self.wait_for_lock(),
        }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If this thread runs users' code [under the lock](Bucket::under).
    #[cold]
    #[inline(never)]
    fn wait_for_lock(self) -> LockGuard<'a, ()> {
        reentry::check(&self.head.lock);
        self.head.lock.lock()
    }

    /// Runs users' code under the lock. The bucket is a home, and this thread holds its lock.
    #[inline(always)]
    pub(crate) fn under<R>(self, f: impl FnOnce() -> R) -> R {
        reentry::under(&self.head.lock, f)
    }

    /// Takes the lock if it is free. The bucket is a home.
    #[inline(always)]
    pub(crate) fn try_lock(self) -> Option<LockGuard<'a, ()>> {
        // Without loading the lock first: another thread seldom holds one of the many homes, and the load
        // would wait for the same line.
        self.head.lock.__try_lock_without_read()
    }

    /// Whether both refer to the same bucket.
    #[inline(always)]
    pub(crate) fn is_same_bucket(self, other: Bucket<'_, S>) -> bool {
        ptr::eq(self.head, other.head)
    }

    #[inline(always)]
    fn slot(self, slot: usize) -> &'a S::Slot {
        debug_assert!(slot < SLOTS);
        // SAFETY: a bit number among those of slots, each of which has a slot.
        unsafe { self.slots.get_unchecked(slot) }
    }

    /// Returns a bit for each occupied slot with the tag of this mixed hash, perhaps with false positives,
    /// which the key comparison filters. The load is relaxed: it comes after the acquire load of the state
    /// (I2), or runs under the lock.
    #[inline(always)]
    fn tag_hits(self, state: State, mixed: u64) -> u32 {
        // SAFETY: the tags of a head.
        let tagged = unsafe {
            Tags::find::<{ std::mem::offset_of!(Head, tags) }>(
                ptr::from_ref(self.head).cast(),
                tag_above(mixed),
            )
        };
        tagged & state as u32 & OCCUPIED as u32
    }

    // --- readers ---

    /// Loads the state, for [`probe`](Bucket::probe) and [`is_moved`].
    #[inline(always)]
    pub(crate) fn state(self) -> State {
        // Acquire: pairs with the release of `publish` and of `set_moved` (I2, I4).
        self.head.state.load(sites::PROBE.order(Ordering::Acquire))
    }

    /// Loads the state again after a slot was loaded.
    #[inline(always)]
    fn reload_state(self) -> State {
        // Relaxed: it comes after the acquire load of the slot (I3).
        self.head.state.load(Ordering::Relaxed)
    }

    /// Whether an entry was removed since this state was loaded.
    #[inline(always)]
    fn removed_since(self, state: State) -> bool {
        (self.reload_state() ^ state) / VERSION != 0 && !sites::VERSION.is_weak()
    }

    /// Searches the bucket for a key with this mixed hash. `state` was loaded from this bucket.
    ///
    /// # Safety
    /// In an operation in which the bucket was reached, or under its home's lock.
    pub(crate) unsafe fn probe(self, mut state: State, mixed: u64, is_key: DynIsKey<'_, S>) -> Probe<S::Raw> {
        'again: loop {
            let mut hits = self.tag_hits(state, mixed);
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                // SAFETY: in the caller's operation; the slot was occupied.
                let raw = unsafe { S::load(self.slot(slot)) };
                if S::VALIDATE_FIRST && self.removed_since(state) {
                    state = self.state();
                    continue 'again;
                }
                if is_key(raw) {
                    if S::VALIDATE {
                        if !S::VALIDATE_FIRST && self.removed_since(state) {
                            state = self.state();
                            continue 'again;
                        }
                        return Probe::Found { slot, raw, state };
                    }
                    if self.reload_state() >> slot & 1 != 0 || sites::OCCUPIED.is_weak() {
                        return Probe::Found { slot, raw, state };
                    }
                    // The entry was removed since the state was loaded, or is not yet published.
                }
                hits &= hits - 1;
            }
            return Probe::Absent { chained: state & CHAINED != 0 };
        }
    }

    /// Probes only the first slot with an equal tag, and accepts it only if the state is unchanged. That slot
    /// nearly always has the key.
    ///
    /// # Safety
    /// The contract of [`probe`](Bucket::probe).
    #[inline(always)]
    pub(crate) unsafe fn probe_first(
        self,
        state: State,
        mixed: u64,
        is_key: impl IsKey<S::Raw>,
    ) -> FirstProbe<S::Raw> {
        let slot = match first_slot(state, self.tag_hits(state, mixed)) {
            Ok(slot) => slot,
            Err(none) => return none,
        };
        // SAFETY: in the caller's operation; the slot was occupied.
        let raw = unsafe { S::load(self.slot(slot)) };
        // The same state has the same version and occupied slots. So the loaded words are of one entry, which
        // is checked first if the layout asks for that.
        let site = if S::VALIDATE { sites::VERSION } else { sites::OCCUPIED };
        let unchanged = || self.reload_state() == state || site.is_weak();
        if (!S::VALIDATE_FIRST || unchanged()) && is_key(raw) && (S::VALIDATE_FIRST || unchanged()) {
            FirstProbe::Found { slot, raw }
        } else {
            FirstProbe::Unknown
        }
    }

    /// Copies the entries of this bucket to `entries`. Returns whether a chained bucket follows.
    ///
    /// # Safety
    /// The contract of [`probe`](Bucket::probe).
    pub(crate) unsafe fn collect(self, entries: &mut Vec<S::Raw>) -> bool {
        let before = entries.len();
        loop {
            let state = self.state();
            let mut left = state & OCCUPIED;
            while left != 0 {
                let slot = left.trailing_zeros() as usize;
                left &= left - 1;
                // SAFETY: in the caller's operation; the slot was occupied.
                let raw = unsafe { S::load(self.slot(slot)) };
                if S::VALIDATE || self.reload_state() >> slot & 1 != 0 {
                    entries.push(raw);
                }
            }
            let now = self.reload_state();
            if !S::VALIDATE || (now ^ state) / VERSION == 0 {
                return state & CHAINED != 0;
            }
            entries.truncate(before);
        }
    }

    // --- writers, under the home's lock ---

    /// Like [`probe_first`](Bucket::probe_first), under the lock, so that no entry is removed meanwhile.
    /// `state` is the bucket's current state.
    ///
    /// # Safety
    /// Under the home's lock.
    #[inline(always)]
    pub(crate) unsafe fn probe_first_locked(
        self,
        state: State,
        mixed: u64,
        is_key: impl IsKey<S::Raw>,
    ) -> FirstProbe<S::Raw> {
        let slot = match first_slot(state, self.tag_hits(state, mixed)) {
            Ok(slot) => slot,
            Err(none) => return none,
        };
        // SAFETY: under the lock, so no entry here is retired; the slot is occupied.
        let raw = unsafe { S::load(self.slot(slot)) };
        if is_key(raw) { FirstProbe::Found { slot, raw } } else { FirstProbe::Unknown }
    }

    /// Calls `f` with each entry of this bucket. Returns whether a chained bucket follows.
    ///
    /// # Safety
    /// Under the home's lock; the home has not moved.
    #[inline(always)]
    pub(crate) unsafe fn each_locked(self, f: &mut impl FnMut(S::Raw)) -> bool {
        // Relaxed: under the lock, like all stores to a state.
        let state = self.head.state.load(Ordering::Relaxed);
        let mut left = state & OCCUPIED;
        while left != 0 {
            // SAFETY: under the lock, so no entry here is retired; the slot is occupied.
            f(unsafe { S::load(self.slot(left.trailing_zeros() as usize)) });
            left &= left - 1;
        }
        state & CHAINED != 0
    }

    /// Returns a free slot, preferably one in this row.
    #[inline]
    pub(crate) fn free_slot(self, row: u32) -> Option<usize> {
        self.free_slot_in(self.head.state.load(Ordering::Relaxed), row)
    }

    /// Returns a free slot, preferably one in this row. `state` is the current state.
    #[inline(always)]
    pub(crate) fn free_slot_in(self, state: State, row: u32) -> Option<usize> {
        let free = !state & OCCUPIED;
        // Slots before the row only if all others are taken.
        let near = free & !slots_before::<S>(row);
        // The outcome is unpredictable, so it is selected without a branch.
        let slots = NonZero::new(std::hint::select_unpredictable(near != 0, near, free))?;
        Some(slots.trailing_zeros() as usize)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.head.state.load(Ordering::Relaxed) & OCCUPIED == 0
    }

    /// Stores an entry in a free slot and publishes it.
    #[inline]
    pub(crate) fn publish(self, slot: usize, tag: u8, new: S::Raw) {
        self.publish_in(self.head.state.load(Ordering::Relaxed), slot, tag, new);
    }

    /// Stores an entry in a free slot and publishes it. `state` is the current state.
    #[inline(always)]
    pub(crate) fn publish_in(self, state: State, slot: usize, tag: u8, new: S::Raw) {
        S::store(self.slot(slot), new);
        self.head.tags.set(slot, tag);
        // Release: pairs with the acquire of `state` (I2).
        store_with_barrier!(self.head.state, state | 1 << slot, sites::PUBLISH.order(Ordering::Release));
    }

    /// Stores an entry that moves here from another slab, where it was published, in a free slot. Readers
    /// come here only after the old home is marked as moved. So no barrier is needed here
    /// ([`store_with_barrier`] has its cost).
    #[inline]
    pub(crate) fn publish_moved(self, slot: usize, tag: u8, raw: S::Raw) {
        S::store(self.slot(slot), raw);
        let state = self.head.state.load(Ordering::Relaxed);
        self.head.tags.set(slot, tag);
        // Release: pairs with the acquire of `state` (I2).
        self.head.state.store(state | 1 << slot, sites::PUBLISH.order(Ordering::Release));
    }

    /// Whether one more removal would use up the last version.
    #[inline]
    pub(crate) fn is_exhausted(self) -> bool {
        self.is_exhausted_in(self.head.state.load(Ordering::Relaxed))
    }

    /// Whether one more removal would use up the last version. `state` is the current state.
    #[inline(always)]
    pub(crate) fn is_exhausted_in(self, state: State) -> bool {
        S::VALIDATE && state / VERSION >= LAST_VERSION
    }

    /// Removes the entry of a slot. The versions must not be [exhausted](Bucket::is_exhausted).
    #[inline]
    pub(crate) fn remove(self, slot: usize) {
        self.remove_in(self.head.state.load(Ordering::Relaxed), slot);
    }

    /// Removes the entry of a slot, and returns whether it was the bucket's last one. `state` is the current
    /// state.
    #[inline(always)]
    pub(crate) fn remove_in(self, state: State, slot: usize) -> bool {
        let left = state & !(1 << slot);
        // Release: a thread that learns of the removal by the state sees the remover's earlier writes.
        store_with_barrier!(self.head.state, left.wrapping_add(VERSION), Ordering::Release);
        left & OCCUPIED == 0
    }

    /// Replaces the entry `old` of a slot by `new`, an entry of the same key.
    ///
    /// # Safety
    /// Under the home's lock; `old` is in the slot.
    #[inline(always)]
    pub(crate) unsafe fn replace(self, slot: usize, old: S::Raw, new: S::Raw) {
        // SAFETY: the caller.
        unsafe { S::replace(self.slot(slot), old, new) };
    }

    /// Whether the slot still holds this entry, which was found there. An entry that was removed and inserted
    /// again meanwhile counts as the same.
    #[inline]
    pub(crate) fn holds(self, slot: usize, raw: S::Raw) -> bool {
        // The version is not compared: removals of other keys change it, and a closure that removes one would
        // be called again for ever.
        let unchanged = self.head.state.load(Ordering::Relaxed) >> slot & 1 != 0;
        // SAFETY: in the operation in which `raw` was loaded, and the slot is occupied.
        unchanged && S::is_same(unsafe { S::load(self.slot(slot)) }, raw)
    }

    /// Like [`holds`](Bucket::holds), for an entry that was found after `state` was loaded. If the state is
    /// unchanged, no entry was removed, and the key need not be compared. Layouts without a key in the slot
    /// have no versions, so the slot's content is compared.
    #[inline(always)]
    pub(crate) fn holds_since(self, state: State, slot: usize, raw: S::Raw) -> bool {
        // Relaxed: under the lock, like all stores to a state.
        if S::VALIDATE && self.reload_state() == state {
            S::has_value(self.slot(slot), raw)
        } else {
            self.holds(slot, raw)
        }
    }

    /// Marks that a chained bucket has an entry, or will have one before the lock is released. The link to it
    /// is already there.
    pub(crate) fn set_chained(self) {
        let state = self.head.state.load(Ordering::Relaxed) | CHAINED;
        // Release: pairs with the acquire of `state`; the link was stored before.
        self.head.state.store(state, Ordering::Release);
    }

    /// Marks that all chained buckets are empty. They stay allocated, because readers may be about to load
    /// them.
    pub(crate) fn clear_chained(self) {
        let state = self.head.state.load(Ordering::Relaxed) & !CHAINED;
        // Release: as in `remove`, which emptied the chain.
        self.head.state.store(state, Ordering::Release);
    }

    pub(crate) fn set_moved(self) {
        let kept = if sites::KEEP_BITS.is_weak() { !OCCUPIED } else { State::MAX };
        let state = self.head.state.load(Ordering::Relaxed) & kept | MOVED;
        // Release: pairs with the acquire of `state` (I4).
        self.head.state.store(state, sites::MOVE.order(Ordering::Release));
    }
}

/// Whether a home with this state has moved its entries to the next slab.
#[inline(always)]
pub(crate) fn is_moved(state: State) -> bool {
    state & MOVED != 0
}
