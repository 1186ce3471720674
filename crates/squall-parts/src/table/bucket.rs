//! A bucket: a lock for writers, which slots are occupied, and eight bits of each entry's hash (`tags`).
//!
//! Readers take nothing and write nothing. They load `state`, then `tags`, then the slots whose tag is right.
//!
//! - I1. All words of a bucket and of the buckets chained to it are written under the lock of the first, its *home*, once anybody
//!   can come to it.
//! - I2. A slot is filled, then its tag is set, then its bit in `state` with Release; a reader that loads the bit with Acquire
//!   sees all of that. While an entry stays, its slot, its tag and its bit stay.
//! - I3. A removal clears the bit and makes the state's version another, before the slot is used again. What a slot holds is stored
//!   with Release and loaded with Acquire; so who loads anything of a slot's new content sees the removal, when it loads the state
//!   again. Where entries are words: same version, same entry. Where they are pointers: the bit is set, so the entry that the
//!   pointer names was shown; it is not set, so it is gone, or not shown yet.
//! - I4. `MOVED` of a home is set once all its entries are in the next slab; nothing of the home changes after, and nothing is cleared: a look
//!   that begins anew when its home has moved finds there what it would have found before.
//! - I5. Versions of a bucket do not come again: before they would, the slab is replaced (`write`).
//! - I6. `CHAINED` of a home is set while a bucket that is chained to it has an entry, and before that can be seen there. So who loads a
//!   state without it, and finds nothing here, missed nothing that was there at that moment.

use crate::table::ground::show;
use crate::table::layout::{IsKey, Layout};
use crate::table::sites;
use crate::table::slab::{ROW, tag_above};
use crate::table::tags::Tags;
use squall_lock::{Lock, LockGuard};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use squall_sys::fetch::LINE;
use std::num::NonZero;
use std::ptr;

/// Slots of a bucket: as many as tags are compared at once. The more, the fewer insertions find all of them taken: by Poisson's law 8 of a thousand
/// in a table that is half full, and 51 where buckets have eight slots; who comes to a chain waits for two more lines.
pub(crate) const SLOTS: usize = if cfg!(loom) { 8 } else { 16 };

/// What is known of a bucket, in one word: a bit for each slot, two flags, and the version above them.
pub(crate) type State = u64;

/// A bit for each slot.
const OCCUPIED: State = (1 << SLOTS) - 1;
/// The home's entries are in the next slab.
const MOVED: State = 1 << SLOTS;
/// Another bucket follows that has entries, or may have (I6).
const CHAINED: State = 2 << SLOTS;
/// One step of the version, in the bits from here on.
const VERSION: State = 4 << SLOTS;
/// The version after which the slab must be replaced (I5). Small where that is tested.
const LAST: State = if cfg!(loom) {
    1
} else if cfg!(test) {
    200
} else {
    State::MAX / VERSION
};

/// What is known of a bucket's slots. They lie elsewhere: a look at two heads is one line, and what is not there is seen without
/// a look at the slots.
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

/// A bucket that follows another, and the one that follows it.
pub(crate) struct Link<L: Layout> {
    head: Head,
    slots: [L::Slot; SLOTS],
    pub(crate) next: AtomicPtr<Link<L>>,
}

impl<L: Layout> Link<L> {
    pub(crate) fn new() -> Box<Link<L>> {
        Box::new(Link {
            head: Head::new(),
            slots: std::array::from_fn(|_| L::empty()),
            next: AtomicPtr::new(ptr::null_mut()),
        })
    }

    pub(crate) fn bucket(&self) -> Bucket<'_, L> {
        Bucket { head: &self.head, slots: &self.slots }
    }
}

/// The slots before a row, if there are several lines of them: a bit for each slot.
#[inline(always)]
fn before<L: Layout>(row: u32) -> State {
    if size_of::<[L::Slot; SLOTS]>() > LINE { (1 << (row * ROW as u32)) - 1 } else { 0 }
}

/// A bucket.
pub(crate) struct Bucket<'a, L: Layout> {
    pub(crate) head: &'a Head,
    pub(crate) slots: &'a [L::Slot; SLOTS],
}

impl<L: Layout> Clone for Bucket<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for Bucket<'_, L> {}

/// What a look at one bucket found.
pub(crate) enum Look<R> {
    Found {
        slot: usize,
        raw: R,
        /// The state after which the slot was loaded.
        state: State,
    },
    /// Not here; whether another bucket follows.
    Absent { chained: bool },
}

/// What a look at one slot of a bucket found.
pub(crate) enum Glance<R> {
    Found {
        slot: usize,
        raw: R,
    },
    Absent,
    /// It may be in another slot, or in a bucket that follows; or it came or went just now.
    Perhaps,
}

/// The first of the slots of [`Bucket::hits`]; if there is none, what that says of the key.
#[inline(always)]
fn first_slot<R>(state: State, hits: u32) -> Result<usize, Glance<R>> {
    if hits == 0 {
        return Err(if state & CHAINED == 0 { Glance::Absent } else { Glance::Perhaps });
    }
    Ok(hits.trailing_zeros() as usize)
}

impl<'a, L: Layout> Bucket<'a, L> {
    /// Takes the lock of a home.
    #[inline(always)]
    pub(crate) fn lock(self) -> LockGuard<'a, ()> {
        self.head.lock.lock()
    }

    /// The same, if nobody has it.
    #[inline(always)]
    pub(crate) fn try_lock(self) -> Option<LockGuard<'a, ()>> {
        // Without a look: of the many homes another's is seldom held, and it would be waited for after the same line.
        self.head.lock.__try_lock_unseen()
    }

    /// Whether it is this one.
    #[inline(always)]
    pub(crate) fn is(self, other: Bucket<'_, L>) -> bool {
        ptr::eq(self.head, other.head)
    }

    #[inline(always)]
    fn slot(self, slot: usize) -> &'a L::Slot {
        debug_assert!(slot < SLOTS);
        // SAFETY: the number of a bit among those of slots, of which there is one.
        unsafe { self.slots.get_unchecked(slot) }
    }

    /// The slots that are occupied by this state and have the tag of this mixed hash, a bit for each; perhaps others of them, which the comparison of
    /// keys finds out. Relaxed: after the acquire of the state (I2), or under the lock.
    #[inline(always)]
    fn hits(self, state: State, mixed: u64) -> u32 {
        // SAFETY: a head's.
        let tagged = unsafe {
            Tags::find::<{ std::mem::offset_of!(Head, tags) }>(
                ptr::from_ref(self.head).cast(),
                tag_above(mixed),
            )
        };
        tagged & state as u32 & OCCUPIED as u32
    }

    // --- readers ---

    /// The state, for [`look`](Bucket::look) and [`is_moved`].
    #[inline(always)]
    pub(crate) fn state(self) -> State {
        // Acquire: pairs with the release of `publish` and of `set_moved` (I2, I4).
        self.head.state.load(sites::LOOK.order(Ordering::Acquire))
    }

    /// The state after a load of a slot.
    #[inline(always)]
    fn state_now(self) -> State {
        // Relaxed: after the slot's acquire (I3).
        self.head.state.load(Ordering::Relaxed)
    }

    /// Whether an entry was removed since that state.
    #[inline(always)]
    fn has_lost(self, state: State) -> bool {
        (self.state_now() ^ state) / VERSION != 0 && !sites::VERSION.is_weak()
    }

    /// Looks for a key of this mixed hash, from a state of this bucket.
    ///
    /// # Safety
    /// In an operation in which the bucket was reached, or under its home's lock.
    #[inline(always)]
    pub(crate) unsafe fn look(
        self,
        mut state: State,
        mixed: u64,
        is_key: impl IsKey<L::Key>,
    ) -> Look<L::Raw> {
        'again: loop {
            let mut hits = self.hits(state, mixed);
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                // SAFETY: in the operation that the caller says; the slot was occupied.
                let raw = unsafe { L::load(self.slot(slot)) };
                if L::VALIDATE_FIRST && self.has_lost(state) {
                    state = self.state();
                    continue 'again;
                }
                // SAFETY: read in the operation that the caller says; the slot was occupied.
                if unsafe { L::key(raw, is_key) } {
                    if L::VALIDATE {
                        if !L::VALIDATE_FIRST && self.has_lost(state) {
                            state = self.state();
                            continue 'again;
                        }
                        return Look::Found { slot, raw, state };
                    }
                    if self.state_now() >> slot & 1 != 0 || sites::OCCUPIED.is_weak() {
                        return Look::Found { slot, raw, state };
                    }
                    // Gone since the state was loaded, or not shown yet.
                }
                hits &= hits - 1;
            }
            return Look::Absent { chained: state & CHAINED != 0 };
        }
    }

    /// The same, which looks at the first slot with that tag alone, and only while nothing at all changes: it is nearly always the one.
    ///
    /// # Safety
    /// As [`look`](Bucket::look).
    #[inline(always)]
    pub(crate) unsafe fn glance(
        self,
        state: State,
        mixed: u64,
        is_key: impl IsKey<L::Key>,
    ) -> Glance<L::Raw> {
        let slot = match first_slot(state, self.hits(state, mixed)) {
            Ok(slot) => slot,
            Err(none) => return none,
        };
        // SAFETY: in the operation that the caller says; the slot was occupied. The same state is the same version, and has the same slots
        // occupied: so what was loaded is of one entry, if the layout asks for that first.
        unsafe {
            let raw = L::load(self.slot(slot));
            let site = if L::VALIDATE { sites::VERSION } else { sites::OCCUPIED };
            let stays = || self.state_now() == state || site.is_weak();
            if (!L::VALIDATE_FIRST || stays()) && L::key(raw, is_key) && (L::VALIDATE_FIRST || stays()) {
                Glance::Found { slot, raw }
            } else {
                Glance::Perhaps
            }
        }
    }

    /// Copies what is here to `entries`; says whether another bucket follows.
    ///
    /// # Safety
    /// As [`look`](Bucket::look).
    pub(crate) unsafe fn collect(self, entries: &mut Vec<L::Raw>) -> bool {
        let before = entries.len();
        loop {
            let state = self.state();
            let mut left = state & OCCUPIED;
            while left != 0 {
                let slot = left.trailing_zeros() as usize;
                left &= left - 1;
                // SAFETY: in the operation that the caller says; the slot was occupied.
                let raw = unsafe { L::load(self.slot(slot)) };
                if L::VALIDATE || self.state_now() >> slot & 1 != 0 {
                    entries.push(raw);
                }
            }
            let now = self.state_now();
            if !L::VALIDATE || (now ^ state) / VERSION == 0 {
                return state & CHAINED != 0;
            }
            entries.truncate(before);
        }
    }

    // --- writers, under the home's lock ---

    /// As [`glance`](Bucket::glance), from the state of this bucket, of which nothing goes while the lock is held.
    ///
    /// # Safety
    /// Under the home's lock.
    #[inline(always)]
    pub(crate) unsafe fn glance_held(
        self,
        state: State,
        mixed: u64,
        is_key: impl IsKey<L::Key>,
    ) -> Glance<L::Raw> {
        let slot = match first_slot(state, self.hits(state, mixed)) {
            Ok(slot) => slot,
            Err(none) => return none,
        };
        // SAFETY: under the lock, so nothing that is here is retired; the slot is occupied.
        unsafe {
            let raw = L::load(self.slot(slot));
            if L::key(raw, is_key) { Glance::Found { slot, raw } } else { Glance::Perhaps }
        }
    }

    /// A slot that is free: for an entry of this row the best of them.
    #[inline]
    pub(crate) fn free_slot(self, row: u32) -> Option<usize> {
        self.free_slot_in(self.head.state.load(Ordering::Relaxed), row)
    }

    /// The same, by the state.
    #[inline(always)]
    pub(crate) fn free_slot_in(self, state: State, row: u32) -> Option<usize> {
        let free = !state & OCCUPIED;
        // Those before the row only if there is none from there on.
        let near = free & !before::<L>(row);
        // Which it will be cannot be foretold: chosen, and not jumped to.
        let slots = NonZero::new(std::hint::select_unpredictable(near != 0, near, free))?;
        Some(slots.trailing_zeros() as usize)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.head.state.load(Ordering::Relaxed) & OCCUPIED == 0
    }

    /// Fills a free slot by `fill` and shows it.
    #[inline]
    pub(crate) fn publish(self, slot: usize, tag: u8, fill: impl FnOnce(&L::Slot)) {
        self.publish_in(self.head.state.load(Ordering::Relaxed), slot, tag, fill);
    }

    /// The same, by the state.
    #[inline(always)]
    pub(crate) fn publish_in(self, state: State, slot: usize, tag: u8, fill: impl FnOnce(&L::Slot)) {
        fill(self.slot(slot));
        self.head.tags.set(slot, tag);
        // Release: pairs with the acquire of `state` (I2).
        show!(self.head.state, state | 1 << slot, sites::PUBLISH.order(Ordering::Release));
    }

    /// Fills a free slot with an entry that is in another slab, and was shown there: what shows that it is here now is that its home has moved,
    /// so that no processor need see it before ([`show`] says what that costs).
    #[inline]
    pub(crate) fn publish_again(self, slot: usize, tag: u8, fill: impl FnOnce(&L::Slot)) {
        fill(self.slot(slot));
        let state = self.head.state.load(Ordering::Relaxed);
        self.head.tags.set(slot, tag);
        // Release: pairs with the acquire of `state` (I2).
        self.head.state.store(state | 1 << slot, sites::PUBLISH.order(Ordering::Release));
    }

    /// Whether one more removal would use the last version up.
    #[inline]
    pub(crate) fn is_worn(self) -> bool {
        self.is_worn_in(self.head.state.load(Ordering::Relaxed))
    }

    /// The same, by a state of it.
    #[inline(always)]
    pub(crate) fn is_worn_in(self, state: State) -> bool {
        L::VALIDATE && state / VERSION >= LAST
    }

    /// Takes the entry of a slot away. Not if [`is_worn`](Bucket::is_worn).
    #[inline]
    pub(crate) fn remove(self, slot: usize) {
        self.remove_in(self.head.state.load(Ordering::Relaxed), slot);
    }

    /// The same, by the state; whether it was the bucket's last entry.
    #[inline(always)]
    pub(crate) fn remove_in(self, state: State, slot: usize) -> bool {
        let left = state & !(1 << slot);
        // Release: so that whoever learns of it by the state sees what the remover did before.
        show!(self.head.state, left.wrapping_add(VERSION), Ordering::Release);
        left & OCCUPIED == 0
    }

    #[inline]
    pub(crate) fn change<R>(self, slot: usize, change: impl FnOnce(&L::Slot) -> R) -> R {
        change(self.slot(slot))
    }

    /// Whether the slot holds this entry, which was found there. It may have been taken out and put in again meanwhile: it is the same.
    #[inline]
    pub(crate) fn is_still(self, slot: usize, raw: L::Raw) -> bool {
        // Not the version: that tells of removals of other keys, too, and a function that makes one would be asked for ever.
        let stays = self.head.state.load(Ordering::Relaxed) >> slot & 1 != 0;
        // SAFETY: in the operation in which `raw` was read, and occupied.
        stays && L::is_same(unsafe { L::load(self.slot(slot)) }, raw)
    }

    /// The same, by the state after which it was found, too: where that is the bucket's still, no entry has gone, and the key need not be
    /// compared. Where versions come again, which is where keys are not in the slot, what it holds is compared.
    #[inline(always)]
    pub(crate) fn is_still_since(self, state: State, slot: usize, raw: L::Raw) -> bool {
        // Relaxed: under the lock, as all that is written to a state.
        if L::VALIDATE && self.state_now() == state {
            L::has_value(self.slot(slot), raw)
        } else {
            self.is_still(slot, raw)
        }
    }

    /// Says that another bucket follows, in which there is, or will be before the lock is free, an entry; the link to it is there.
    pub(crate) fn set_chained(self) {
        let state = self.head.state.load(Ordering::Relaxed) | CHAINED;
        // Release: pairs with the acquire of `state`; the link is before it.
        self.head.state.store(state, Ordering::Release);
    }

    /// Says that none of those that follow has an entry. They stay for whoever is on the way there.
    pub(crate) fn set_alone(self) {
        let state = self.head.state.load(Ordering::Relaxed) & !CHAINED;
        // Release: as in `remove`, which is what made it so.
        self.head.state.store(state, Ordering::Release);
    }

    pub(crate) fn set_moved(self) {
        let kept = if sites::KEPT.is_weak() { !OCCUPIED } else { State::MAX };
        let state = self.head.state.load(Ordering::Relaxed) & kept | MOVED;
        // Release: pairs with the acquire of `state` (I4).
        self.head.state.store(state, sites::MOVE.order(Ordering::Release));
    }
}

/// Whether a state of a home says that its entries are in the next slab.
#[inline(always)]
pub(crate) fn is_moved(state: State) -> bool {
    state & MOVED != 0
}
