//! Slabs: the buckets of one table size, and their chains.
//!
//! - I1. The topmost bits of a mixed hash select the home. So a range of mixed hashes is a range of homes in
//!   slabs of every size.
//! - I2. Until the slab is freed, a chain only grows, under its home's lock. So a thread that has reached a
//!   link may follow it. A chain without entries is skipped (bucket/I6), and reused.
//! - I3. `next` is set once, and only in a slab that was the table's current one then (raw/I1).

use crate::table::bucket::{Bucket, Head, Link, Probe, ROW, State};
use crate::table::sites;
use crate::table::slots::{DynIsKey, Slots};
use crate::table::tags::SLOTS;
#[cfg(not(loom))]
use squall_sys::prefetch::{self, LINE};
use squall_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::ptr::NonNull;

pub(crate) struct Slab<S: Slots> {
    heads: HomeArray<Head>,
    slots: HomeArray<[S::Slot; SLOTS]>,
    chains: HomeArray<AtomicPtr<Link<S>>>,
    /// The memory of these three arrays.
    #[cfg(not(loom))]
    _memory: Zeroed,
    /// [`SHIFT`] less the number of bits that select a home. Shifting a mixed hash by this gives the row of
    /// its home, in steps of [`STEP`].
    row_shift: u32,
    /// The slab to which all homes move; null while the homes stay.
    pub(crate) next: AtomicPtr<Slab<S>>,
    pub(crate) progress: MoveProgress,
}

/// Words written by threads that move homes. They have cache lines of their own, since all users of the table
/// read the other fields.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct MoveProgress {
    /// Whether a thread has claimed to give the slab a `next` one (raw/I1).
    pub(crate) is_claimed: AtomicBool,
    /// The next home to claim, modulo the number of homes (resize/I2).
    pub(crate) cursor: AtomicUsize,
    /// The number of moved homes.
    pub(crate) moved: AtomicUsize,
}

// SAFETY: it holds raw entries: words and pointers. Whoever makes keys and values of them, by unsafe code,
// answers for those: `Table` has the bounds.
unsafe impl<S: Slots> Send for Slab<S> {}
// SAFETY: as above.
unsafe impl<S: Slots> Sync for Slab<S> {}

/// One zeroed allocation, in huge pages where possible. A large table uses up physical pages only as it
/// fills.
#[cfg(not(loom))]
struct Zeroed {
    allocated: NonNull<u8>,
    layout: std::alloc::Layout,
}

#[cfg(not(loom))]
impl Zeroed {
    fn new(bytes: usize) -> Option<Zeroed> {
        // Aligned by hand (`Array::carve`): allocators have fresh zero pages for ordinary alignments, but
        // clear memory of larger ones.
        let layout = std::alloc::Layout::from_size_align(bytes, 16).ok()?;
        // SAFETY: the size is not zero: there is at least one array, with its alignment.
        let allocated = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: the pointer and the size of this allocation.
        unsafe { squall_sys::huge::prefer(allocated, layout.size()) };
        Some(Zeroed { allocated, layout })
    }
}

#[cfg(not(loom))]
impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. Its contents need no drop (see the uses).
        unsafe { std::alloc::dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

/// An array in the slab's memory, initially zeros.
#[cfg(not(loom))]
struct Array<T> {
    start: NonNull<T>,
    count: usize,
}

#[cfg(not(loom))]
impl<T> Array<T> {
    /// Alignment of the arrays: two cache lines, since the processor fetches lines in pairs.
    const ALIGN: usize = 128;

    /// Returns the bytes of an array, including the padding for its alignment.
    fn bytes(count: usize) -> Option<usize> {
        count.checked_mul(size_of::<T>())?.checked_add(Self::ALIGN)
    }

    /// Returns the array that begins at the first aligned address from offset `from`, and the offset behind
    /// it.
    ///
    /// # Safety
    /// [`bytes`](Array::bytes) bytes from `from` are in the memory, unused otherwise, and live as long as the
    /// array. A `T` of zeros is valid.
    unsafe fn carve(memory: &Zeroed, from: usize, count: usize) -> (Array<T>, usize) {
        // SAFETY: the caller.
        let start = unsafe { memory.allocated.add(from) };
        let skip = start.as_ptr().align_offset(Self::ALIGN);
        // SAFETY: the caller; the skip is less than the alignment, which `bytes` includes.
        let start = unsafe { start.add(skip) }.cast();
        (Array { start, count }, from + skip + count * size_of::<T>())
    }

    #[inline(always)]
    fn at(&self, index: usize) -> &T {
        debug_assert!(index < self.count);
        // SAFETY: a home has as many bits as there are elements. The memory is valid zeros, or values written
        // over them.
        unsafe { self.start.add(index).as_ref() }
    }

    /// Returns the element that begins at this byte.
    ///
    /// # Safety
    /// An element begins there.
    #[inline(always)]
    unsafe fn at_byte(&self, byte: usize) -> &T {
        debug_assert!(byte.is_multiple_of(size_of::<T>()) && byte / size_of::<T>() < self.count);
        // SAFETY: the caller; as in `at`.
        unsafe { self.start.byte_add(byte).as_ref() }
    }
}

/// An array with one element per home, initially zeros.
#[cfg(not(loom))]
type HomeArray<T> = Array<T>;
#[cfg(loom)]
type HomeArray<T> = Box<[T]>;

const ROWS: usize = SLOTS / ROW;

/// Returns the row from the result of [`Slab::rows`].
#[inline(always)]
fn row_of(rows: usize) -> u32 {
    (rows / STEP % ROWS) as u32
}

/// The location of an entry, and the entry as it was loaded there.
pub(crate) struct Location<'a, S: Slots> {
    pub(crate) bucket: Bucket<'a, S>,
    pub(crate) slot: usize,
    pub(crate) raw: S::Raw,
    /// The bucket's state, loaded before the slot.
    pub(crate) state: State,
}

/// The distance of two rows of a home in row numbers: a row's part of a head. So a mixed hash, shifted once
/// and cut off, is the byte offset of its head. The slots are at a multiple of it, which an address can
/// contain.
const STEP: usize = 8;
/// The distance of two homes in row numbers.
const HOME: usize = ROWS * STEP;
#[cfg(not(loom))]
const _: () = assert!(size_of::<Head>() == HOME);
/// A mixed hash is shifted by this, less the number of bits that select a home.
const SHIFT: u32 = u64::BITS - HOME.trailing_zeros();

impl<S: Slots> Slab<S> {
    /// Bytes of slots for each byte of a head.
    #[cfg(not(loom))]
    const SLOTS_OF_HEAD: usize = {
        let size = size_of::<[S::Slot; SLOTS]>();
        assert!(size.is_multiple_of(size_of::<Head>()));
        size / size_of::<Head>()
    };

    /// Allocates a slab of `homes` homes, a power of two. Returns `None` if memory is exhausted.
    pub(crate) fn new(homes: usize) -> Option<Box<Slab<S>>> {
        debug_assert!(homes.is_power_of_two());
        #[cfg(not(loom))]
        let (heads, slots, chains, memory) = {
            let chains = HomeArray::<AtomicPtr<Link<S>>>::bytes(homes)?;
            let (heads, slots) =
                (HomeArray::<Head>::bytes(homes)?, HomeArray::<[S::Slot; SLOTS]>::bytes(homes)?);
            let memory = Zeroed::new(chains.checked_add(heads)?.checked_add(slots)?)?;
            // The chains first, since they are read least: where the memory begins within a huge page, they
            // take the rest of it.
            // SAFETY: the arrays lie one after the other in memory of that size, which the slab holds. Zeros
            // are valid: null pointers, heads without entries and with a free lock (checked below), and slots
            // that are filled before they are read.
            unsafe {
                let (chains, next) = HomeArray::carve(&memory, 0, homes);
                let (heads, next) = HomeArray::carve(&memory, next, homes);
                let (slots, _) = HomeArray::carve(&memory, next, homes);
                (heads, slots, chains, memory)
            }
        };
        #[cfg(loom)]
        let (heads, slots, chains) = (
            (0..homes).map(|_| Head::new()).collect(),
            (0..homes).map(|_| std::array::from_fn(|_| S::empty())).collect(),
            (0..homes).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
        );
        let slab = Slab {
            heads,
            slots,
            chains,
            #[cfg(not(loom))]
            _memory: memory,
            row_shift: SHIFT - homes.trailing_zeros(),
            next: AtomicPtr::new(std::ptr::null_mut()),
            progress: MoveProgress {
                is_claimed: AtomicBool::new(false),
                cursor: AtomicUsize::new(0),
                moved: AtomicUsize::new(0),
            },
        };
        #[cfg(not(loom))]
        if !squall_lock::zeros_are_free() {
            for home in 0..homes {
                // SAFETY: one of the heads; no other thread has the slab yet.
                unsafe { slab.heads.start.add(home).write(Head::new()) };
            }
        }
        Some(Box::new(slab))
    }

    /// Whether this operation, one that hints at a resize, should check the size. Samples one of `1 << log2`
    /// at random, independent of common bits in the hashes. Larger tables check less often, since one
    /// operation says less. A check loads one word per VP.
    pub(crate) fn is_sampled(&self, mixed: u64, log2: u32) -> bool {
        mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (u64::BITS - log2 - self.homes().ilog2() / 4) == 0
    }

    pub(crate) fn homes(&self) -> usize {
        1 << (SHIFT - self.row_shift)
    }

    /// The number of slots without chains.
    pub(crate) fn slots(&self) -> usize {
        self.homes() * SLOTS
    }

    /// Returns home and row of a mixed hash, in steps of [`STEP`]. The bits below are left over from the
    /// hash.
    #[inline(always)]
    fn rows(&self, mixed: u64) -> usize {
        (mixed >> self.row_shift) as usize
    }

    #[inline(always)]
    pub(crate) fn home(&self, mixed: u64) -> usize {
        self.rows(mixed) / HOME
    }

    /// Returns the preferred row for an entry of this mixed hash, so that a lookup need not fetch all lines
    /// of slots. The row comes from the bits below those that select the home.
    #[inline(always)]
    pub(crate) fn row(&self, mixed: u64) -> u32 {
        row_of(self.rows(mixed))
    }

    /// Returns the home's bucket and the row of a mixed hash, and prefetches the lines of slots that most
    /// likely have the entry.
    #[inline(always)]
    pub(crate) fn prefetch(&self, mixed: u64) -> (Bucket<'_, S>, u32) {
        let rows = self.rows(mixed);
        #[cfg(loom)]
        return (self.bucket(rows / HOME), row_of(rows));
        #[cfg(not(loom))]
        {
            let home = rows & !(HOME - 1);
            let slots = self.slots.start.as_ptr().cast::<u8>();
            match size_of::<[S::Slot; ROW]>() {
                // The bits below a row lead to another byte of the same line, so they need not be cut off.
                size if size <= LINE => prefetch::line(slots.wrapping_add(rows * Self::SLOTS_OF_HEAD)),
                _ => {
                    let from = slots.wrapping_add((rows & !(STEP - 1)) * Self::SLOTS_OF_HEAD);
                    prefetch::line(from);
                    prefetch::line(from.wrapping_add(LINE));
                }
            }
            // SAFETY: the offset of the home's head, and by the constant ratio of sizes that of its first
            // slot.
            let bucket = unsafe {
                Bucket {
                    head: self.heads.at_byte(home),
                    slots: self.slots.at_byte(home * Self::SLOTS_OF_HEAD),
                }
            };
            (bucket, row_of(rows))
        }
    }

    /// Returns the first and the last mixed hash of a home.
    pub(crate) fn range(&self, home: usize) -> (u64, u64) {
        let bits = SHIFT - self.row_shift;
        let first = (home as u64) << 1 << (u64::BITS - 1 - bits);
        (first, first | u64::MAX.checked_shr(bits).unwrap_or(0))
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, home: usize) -> Bucket<'_, S> {
        #[cfg(not(loom))]
        return Bucket { head: self.heads.at(home), slots: self.slots.at(home) };
        #[cfg(loom)]
        Bucket { head: &self.heads[home], slots: &self.slots[home] }
    }

    fn chain(&self, home: usize) -> &AtomicPtr<Link<S>> {
        #[cfg(not(loom))]
        return self.chains.at(home);
        #[cfg(loom)]
        &self.chains[home]
    }

    /// Iterates over the chained buckets of a home.
    fn links(&self, home: usize) -> impl Iterator<Item = &Link<S>> {
        let mut at = self.chain(home);
        std::iter::from_fn(move || {
            // Acquire: pairs with the release of `find_room_in_chain`.
            // SAFETY: a link lives as long as the slab (I2), and only its atomics are written.
            let link = unsafe { at.load(Ordering::Acquire).as_ref() }?;
            at = &link.next;
            Some(link)
        })
    }

    /// Searches a home for a key. `state` was loaded from the home's bucket.
    ///
    /// # Safety
    /// The contract of [`Bucket::probe`].
    pub(crate) unsafe fn probe(
        &self,
        home: usize,
        state: State,
        mixed: u64,
        is_key: DynIsKey<'_, S>,
    ) -> Option<Location<'_, S>> {
        let bucket = self.bucket(home);
        // SAFETY: the caller.
        match unsafe { bucket.probe(state, mixed, is_key) } {
            Probe::Found { slot, raw, state } => Some(Location { bucket, slot, raw, state }),
            Probe::Absent { chained: false } => None,
            // SAFETY: the caller.
            Probe::Absent { chained: true } => unsafe { self.probe_chain(home, mixed, is_key) },
        }
    }

    // Not inlined: chains are rare.
    #[inline(never)]
    unsafe fn probe_chain(
        &self,
        home: usize,
        mixed: u64,
        is_key: DynIsKey<'_, S>,
    ) -> Option<Location<'_, S>> {
        for link in self.links(home) {
            let bucket = link.bucket();
            // SAFETY: the caller, as in `probe`.
            let probe = unsafe { bucket.probe(bucket.state(), mixed, is_key) };
            if let Probe::Found { slot, raw, state } = probe {
                return Some(Location { bucket, slot, raw, state });
            }
        }
        None
    }

    /// Copies the entries of a home to `entries`.
    ///
    /// # Safety
    /// The contract of [`Bucket::probe`].
    pub(crate) unsafe fn collect(&self, home: usize, entries: &mut Vec<S::Raw>) {
        // SAFETY: the caller.
        unsafe {
            if self.bucket(home).collect(entries) {
                self.links(home).for_each(|link| _ = link.bucket().collect(entries));
            }
        }
    }

    /// Calls `f` with each entry of a home.
    ///
    /// # Safety
    /// Under the home's lock; the home has not moved.
    pub(crate) unsafe fn each_locked(&self, home: usize, mut f: impl FnMut(S::Raw)) {
        // SAFETY: the caller.
        unsafe {
            if self.bucket(home).each_locked(&mut f) {
                self.links(home).for_each(|link| _ = link.bucket().each_locked(&mut f));
            }
        }
    }

    /// Finds a free slot for an entry in the home of this mixed hash. Also returns whether the slot is in the
    /// home's own bucket `first`. The caller holds the home's lock.
    #[inline(always)]
    pub(crate) fn find_room<'a>(&'a self, first: Bucket<'a, S>, mixed: u64) -> (Bucket<'a, S>, usize, bool) {
        match first.free_slot(self.row(mixed)) {
            Some(slot) => (first, slot, true),
            None => self.find_room_in_chain(first, mixed),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_room_in_chain<'a>(&'a self, first: Bucket<'a, S>, mixed: u64) -> (Bucket<'a, S>, usize, bool) {
        let mut at = self.chain(self.home(mixed));
        // Acquire: pairs with the release below.
        // SAFETY: as in `links`.
        while let Some(link) = unsafe { at.load(Ordering::Acquire).as_ref() } {
            if let Some(slot) = link.bucket().free_slot(self.row(mixed)) {
                first.set_chained();
                return (link.bucket(), slot, false);
            }
            at = &link.next;
        }
        let link = Box::into_raw(Link::new());
        // Release: pairs with the acquire of `links`. Only the lock's holder writes here (I2).
        at.store(link, Ordering::Release);
        first.set_chained();
        // SAFETY: as in `links`.
        (unsafe { &*link }.bucket(), 0, false)
    }

    /// Handles the removal of an entry from a chained bucket of this home, under the lock of its own bucket
    /// `first`. An emptied chain is skipped from now on: a single overfull moment must not make every later
    /// lookup longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn unchain_if_empty(&self, home: usize, first: Bucket<'_, S>) {
        if sites::CHAIN_EMPTY.is_weak() || self.links(home).all(|link| link.bucket().is_empty()) {
            first.clear_chained();
        }
    }

    /// Bytes of the slab, without chained buckets.
    pub(crate) fn bytes(&self) -> usize {
        self.homes() * (size_of::<Head>() + size_of::<[S::Slot; SLOTS]>() + size_of::<AtomicPtr<Link<S>>>())
    }

    /// The number of chained buckets of a home.
    pub(crate) fn chain_length(&self, home: usize) -> usize {
        self.links(home).count()
    }
}

impl<S: Slots> Drop for Slab<S> {
    fn drop(&mut self) {
        // The table frees the entries. Buckets need no drop: they are atomics and a lock.
        for home in 0..self.homes() {
            // Relaxed: no other thread has the slab.
            let mut link = self.chain(home).load(Ordering::Relaxed);
            while !link.is_null() {
                // SAFETY: made by `Box::into_raw` in `find_room_in_chain`, and only this chain has a pointer
                // to it.
                let whole = unsafe { Box::from_raw(link) };
                link = whole.next.load(Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::slots::{FlatSlots, NodeSlots, WideSlots};

    fn assert_disjoint<S: Slots>() {
        for homes in [1, 2, 4, 64, 1024] {
            let slab = Slab::<S>::new(homes).expect("memory suffices");
            let begins = slab._memory.allocated.addr().get();
            let ends = begins + slab._memory.layout.size();
            let lies = |start: usize, of: usize| (start, start + homes * of);
            let parts = [
                lies(slab.chains.start.addr().get(), size_of::<AtomicPtr<Link<S>>>()),
                lies(slab.heads.start.addr().get(), size_of::<Head>()),
                lies(slab.slots.start.addr().get(), size_of::<[S::Slot; SLOTS]>()),
            ];
            assert!(
                parts.is_sorted(),
                "the chains come first, so that heads and slots are in whole huge pages"
            );
            assert!(parts.iter().all(|(start, _)| start % Array::<()>::ALIGN == 0), "{homes}: {parts:x?}");
            let edges = [begins].into_iter().chain(parts.into_iter().flat_map(|(from, to)| [from, to]));
            assert!(edges.chain([ends]).is_sorted(), "{homes}: {parts:x?} in {begins:x}..{ends:x}");
        }
    }

    #[test]
    fn the_arrays_of_a_slab_are_disjoint_and_aligned() {
        assert_disjoint::<FlatSlots>();
        assert_disjoint::<WideSlots>();
        assert_disjoint::<NodeSlots>();
    }

    #[test]
    fn a_slab_larger_than_memory_is_rejected() {
        assert!(Slab::<FlatSlots>::new(1 << 62).is_none(), "the sizes of its arrays overflow");
        // A size that no allocator is asked for: sanitizers abort on huge requests.
        assert!(Slab::<FlatSlots>::new(1 << 56).is_none(), "their sum exceeds the largest layout");
    }
}
