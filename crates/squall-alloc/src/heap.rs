//! The heap of a VP: the free blocks of its slabs.
//!
//! Problem: any thread on any VP may free a block, which must return to its slab. A free list through the
//! blocks would fetch the line of each block. Idea: one bit per block beside the slab, and a lock for each VP
//! that is taken once per hundred blocks. Sixty-four blocks of a slab are one word.
//!
//! - I1. A slab belongs to one heap and one class while any of its blocks is out. Its bits and all its
//!   metadata are read and written under the lock of that heap. Exceptions are its class, and the first unit
//!   that each unit names: any thread that has a block reads them. So no code holds a reference to the whole
//!   metadata.
//! - I2. A block is free (its bit is set) or out: in a magazine, or in use. It is taken once for each time
//!   that it was put back.
//! - I3. A slab without blocks that are out leaves its list at once, under the same lock. After that, its
//!   blocks can no longer be taken, and are in no magazine. The slab becomes a spare. If there are enough
//!   spares, the thread that took it out has it alone, and gives its pages back after it released the lock. A
//!   thread that takes a slab out of the spares for that purpose does the same.
//! - I4. A slab with a free block that is no spare is in the list of its class; other slabs are in no list.
//!   It enters the list complete: the path from its units to this heap was written before.
//! - I5. Under a heap's lock, no other lock is taken and no system call is made.
//! - I6. Spares are slabs of [`SPARE_UNITS`] units, of any former class, and at most as many as the heap was
//!   made for. A VP that alternately takes and frees many blocks then neither contends for the page pool nor
//!   gets memory with lines in the cache of another processor.
//!
//! Not promised: blocks in address order, or from the fullest slab. Two threads that find no free block at
//! the same time both get a slab.
//! Cache lines: if another processor handled the previous batch, the lines to
//! write are about five. The line of the lock holds the counters of every batch; one line belongs to the
//! class, and three to the slab. To avoid waiting for them one by one, the lines of the class and, for a put,
//! of the slab are prefetched before the lock.
//! Cost: for blocks that lie side by side, some five instructions per block taken and six per block put back;
//! for a block that lies alone, some twenty.
//! Source: McKenney and Slingwine, "Efficient Kernel Memory Allocation" (1993): a layer that gathers blocks
//! into pages; Tornado §4: the check of a block's home on every free.

#[cfg(not(loom))]
use crate::classes::LINE_BYTES;
use crate::classes::{COUNT, COUNTS, SIZES, SLAB_SHIFT, SPARE_UNITS, block_at, units};
use crate::list::{Link, Links, List};
use crate::lock::Lock;
use crate::sites;
use squall_sys::sync::cell::UnsafeCell;

/// The number of words of bits: the most blocks of a slab, by 64.
const WORDS: usize = (1 << SLAB_SHIFT) / 16 / 64;

/// Metadata of a slab, beside it. All zeros if there is no slab.
#[repr(C, align(64))]
pub(crate) struct Slab {
    /// The neighbours in the list of its class.
    link: Link,
    /// The number of free blocks.
    free: u32,
    class: u32,
    /// The VP of the heap that owns the slab.
    home: u32,
    /// All words of `bits` below this index are zero.
    hint: u32,
    /// The first unit of the slab that contains this unit. Valid for each unit; the other fields are valid
    /// for first units.
    first: u32,
    /// A set bit is a free block.
    bits: [u64; WORDS],
}

impl Slab {
    /// Prefetches the first lines of the slab's metadata, with the bits of most classes, so that they arrive
    /// together and not one by one.
    #[cfg(not(loom))]
    #[inline]
    fn prefetch(this: *mut Slab) {
        (0..3).for_each(|line| {
            squall_sys::prefetch::line_to_write(this.cast::<u8>().wrapping_add(line * LINE_BYTES))
        });
    }

    /// Returns the first unit of the slab that contains this unit.
    ///
    /// # Safety
    /// The unit is of a slab, and the caller has one of its blocks.
    #[inline]
    pub(crate) unsafe fn first(this: *const Slab) -> u32 {
        // SAFETY: written before the first block of the slab was given out, and not again before its last
        // block is back.
        unsafe { (&raw const (*this).first).read() }
    }

    /// Sets the first unit.
    ///
    /// # Safety
    /// The unit was given to the caller alone.
    pub(crate) unsafe fn set_first(this: *mut Slab, first: u32) {
        // SAFETY: by this function's contract.
        unsafe { (&raw mut (*this).first).write(first) };
    }

    /// Begins a slab of this class, with all blocks free, in no list.
    ///
    /// # Safety
    /// The units were given to the caller alone.
    unsafe fn begin(this: *mut Slab, class: usize, home: u32) {
        // SAFETY: by this function's contract.
        unsafe {
            ((*this).link, (*this).hint) = (Link::NONE, 0);
            ((*this).class, (*this).home, (*this).free) = (class as u32, home, COUNTS[class]);
            let (whole, rest) = (COUNTS[class] as usize / 64, COUNTS[class] % 64);
            let bits = &mut (*this).bits;
            bits[..whole].fill(u64::MAX);
            if rest > 0 {
                bits[whole] = (1 << rest) - 1;
            }
        }
    }

    /// Returns the class.
    ///
    /// # Safety
    /// `this` is a slab, and the caller has one of its blocks.
    #[inline]
    pub(crate) unsafe fn class(this: *const Slab) -> usize {
        // SAFETY: as in `first`.
        unsafe { (&raw const (*this).class).read() as usize }
    }
}

/// The environment of heaps: the metadata of slabs, and the pages.
pub(crate) trait SlabBackend {
    /// The metadata of the slab that begins with this unit.
    fn slab(&self, unit: u32) -> *mut Slab;
    /// Takes `count` adjacent units, near the VP `home`. The number of the first is a multiple of `count`.
    fn take_units(&self, count: usize, home: u32) -> Option<u32>;
    /// Gives `count` units back to the pool. Their content is no longer needed.
    fn give_units(&self, unit: u32, count: usize);
    /// Enters this heap and class in the map for these units. From now on their blocks are freed to this
    /// heap.
    fn set_home(&self, unit: u32, count: usize, home: u32, class: usize);
}

/// The links of slabs, by first unit.
struct SlabLinks<'a, L>(&'a L);

impl<L: SlabBackend> Links for SlabLinks<'_, L> {
    #[inline]
    fn link(&self, number: u32) -> *mut Link {
        let slab = self.0.slab(number);
        // SAFETY: the metadata of a unit, all of which may be pointed to.
        unsafe { &raw mut (*slab).link }
    }
}

/// The counters of a class in a heap. All but `slabs` and `out` only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Slabs of the class.
    pub(crate) slabs: u64,
    /// Blocks that are not in a slab: used or in a magazine.
    pub(crate) out: u64,
    /// The number of takes, and the number of blocks put back.
    pub(crate) takes: u64,
    pub(crate) puts: u64,
    /// Blocks that other VPs sent home.
    pub(crate) sent_home: u64,
}

/// One class of a heap, on a line of its own, so that a batch touches one line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Class {
    /// The slabs with a free block.
    list: List,
    counts: Counts,
}

/// The data under the lock, except the classes.
struct Inner {
    /// Counts takes and puts; it wraps around.
    events: u32,
    /// The slabs with all their blocks in them (I6).
    spares: List,
    spares_count: u32,
    /// Lowest number of spares since spares were last given back.
    spares_least: u32,
}

/// The data under the lock.
struct Locked<'a> {
    inner: &'a mut Inner,
    classes: &'a mut [Class; COUNT],
}

/// The heap of one VP. The line of the lock also holds the data that every batch writes.
#[repr(C, align(128))]
pub(crate) struct Heap {
    lock: Lock,
    home: u32,
    spares_max: u32,
    inner: UnsafeCell<Inner>,
    classes: UnsafeCell<[Class; COUNT]>,
}

/// Error of putting back a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeError {
    /// The block is free already.
    DoubleFree,
    /// No block begins at this address.
    NotABlock,
}

impl Heap {
    /// Makes the heap of the VP `home`, without slabs, with room for `spares_max` spares.
    pub(crate) fn new(home: u32, spares_max: u32) -> Heap {
        let class = Class { list: List::EMPTY, counts: Counts::default() };
        let (spares, spares_count, spares_least) = (List::EMPTY, 0, 0);
        let inner = Inner { events: 0, spares, spares_count, spares_least };
        let (inner, classes) = (UnsafeCell::new(inner), UnsafeCell::new([class; COUNT]));
        Heap { lock: Lock::new(), home, spares_max, inner, classes }
    }

    /// The lock, which a fork holds.
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    fn locked<R>(&self, f: impl FnOnce(Locked<'_>) -> R) -> R {
        self.lock.with(|| {
            self.inner.with_mut(|inner| {
                self.classes.with_mut(|classes| {
                    // SAFETY: the lock is held, and all accesses are made here (I1).
                    let (inner, classes) = unsafe { (&mut *inner, &mut *classes) };
                    f(Locked { inner, classes })
                })
            })
        })
    }

    /// Prefetches the line with the counters of this class, before the lock is acquired.
    #[cfg(not(loom))]
    #[inline]
    fn prefetch_class(&self, class: usize) {
        self.classes.with(|classes| {
            squall_sys::prefetch::line_to_write(classes.cast::<Class>().wrapping_add(class).cast_mut().cast())
        });
    }

    /// Takes up to `most` blocks of `class`. Calls `f` with an offset and a number of blocks that lie side by
    /// side from there on. Returns the number of blocks: fewer than `most` only if there are no pages.
    pub(crate) fn take(
        &self,
        backend: &impl SlabBackend,
        class: usize,
        most: usize,
        mut f: impl FnMut(usize, usize),
    ) -> usize {
        let (mut taken, mut new) = (0, None);
        #[cfg(not(loom))]
        self.prefetch_class(class);
        loop {
            let late = new.filter(|_| sites::DIRECT.is_weak());
            self.locked(|Locked { inner, classes }| {
                inner.events = inner.events.wrapping_add(1);
                if let Some(unit) = new.take() {
                    // SAFETY: a new slab, in no list yet.
                    unsafe { classes[class].enter(backend, unit) };
                }
                taken += classes[class].take(backend, class, most - taken, &mut f);
                while taken < most
                    && let Some(unit) = inner.spare(backend, class, self.home)
                {
                    // SAFETY: it was just taken out of the spares.
                    unsafe { classes[class].enter(backend, unit) };
                    taken += classes[class].take(backend, class, most - taken, &mut f);
                }
                classes[class].counts.takes += u64::from(taken == most);
            });
            if let Some(unit) = late {
                backend.set_home(unit, units(class), self.home, class);
            }
            if taken == most {
                return taken;
            }
            let Some(unit) = backend.take_units(units(class), self.home) else { break };
            // SAFETY: the units were just given to us alone (I1).
            unsafe { Slab::begin(backend.slab(unit), class, self.home) };
            // This happens before any thread can have a block of them and free it (I4).
            if !sites::DIRECT.is_weak() {
                backend.set_home(unit, units(class), self.home, class);
            }
            new = Some(unit);
        }
        self.locked(|Locked { classes, .. }| classes[class].counts.takes += 1);
        taken
    }

    /// Takes one block of the slabs that the heap has already.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn reuse(&self, backend: &impl SlabBackend, class: usize) -> Option<usize> {
        let mut found = None;
        self.locked(|Locked { inner, classes }| {
            let of = &mut classes[class];
            if of.take(backend, class, 1, &mut |offset, _| found = Some(offset)) > 0 {
                of.counts.takes += 1;
                inner.events = inner.events.wrapping_add(1);
            }
        });
        found
    }

    /// Puts blocks of this heap back. Offsets count from the address `begin`. `sent_home`: another VP sends
    /// them.
    pub(crate) fn put(
        &self,
        backend: &impl SlabBackend,
        begin: usize,
        blocks: &[*mut u8],
        sent_home: bool,
        first_unit: impl Fn(usize) -> u32,
        mut wrong: impl FnMut(*mut u8, FreeError),
    ) {
        let mut empty = List::EMPTY;
        #[cfg(not(loom))]
        if let [first, _, ..] = blocks {
            let slab = backend.slab(first_unit(first.addr() - begin));
            Slab::prefetch(slab);
            // SAFETY: the caller has a block of it.
            self.prefetch_class(unsafe { Slab::class(slab) });
        }
        let still_in = self.locked(|Locked { inner, classes }| {
            inner.events = inner.events.wrapping_add(1);
            let mut still_in = None;
            let mut rest = blocks;
            while let Some(block) = rest.first() {
                let unit = first_unit(block.addr() - begin);
                let slab = backend.slab(unit);
                // SAFETY: the block is out, so its slab is of this heap (I1); we hold its lock.
                let (class, before) = unsafe { ((*slab).class as usize, (*slab).free) };
                // Blocks of one batch are often of one slab. Its counters are then updated once.
                // SAFETY: as above.
                rest = unsafe {
                    Slab::put(slab, class, begin + ((unit as usize) << SLAB_SHIFT), rest, &mut wrong)
                };
                // SAFETY: as above.
                let free = unsafe { (*slab).free };
                let put = free - before;
                let of = &mut classes[class];
                of.counts.out -= u64::from(put);
                of.counts.puts += u64::from(put);
                of.counts.sent_home += if sent_home { u64::from(put) } else { 0 };
                if put == 0 {
                    continue;
                }
                // SAFETY: a slab with a free block is in the list (I4), and in no list after its removal.
                unsafe {
                    if before == 0 {
                        of.list.push(&SlabLinks(backend), unit);
                    }
                    if free == COUNTS[class] {
                        of.counts.slabs -= 1;
                        if sites::TAKEN_OUT.is_weak() {
                            still_in = Some((unit, class));
                            continue;
                        }
                        of.list.remove(&SlabLinks(backend), unit);
                        if units(class) == SPARE_UNITS && inner.spares_count < self.spares_max {
                            inner.spares.push(&SlabLinks(backend), unit);
                            inner.spares_count += 1;
                        } else {
                            empty.push(&SlabLinks(backend), unit);
                        }
                    }
                }
            }
            still_in
        });
        // SAFETY: they were taken out of their lists under the lock, and are in no other list.
        unsafe { give(backend, empty) };
        if let Some((unit, class)) = still_in {
            backend.give_units(unit, units(class));
        }
    }

    /// Gives spares back: all of them, or as many as were unneeded since the previous call. Returns whether
    /// any are left.
    pub(crate) fn give_spares(&self, backend: &impl SlabBackend, all: bool) -> bool {
        let mut spares = List::EMPTY;
        let left = self.locked(|Locked { inner, .. }| {
            for _ in 0..if all { inner.spares_count } else { inner.spares_least } {
                // SAFETY: the heap's own list; its lock is held.
                let first = match sites::SPARE_TAKEN_OUT.is_weak() {
                    true => inner.spares.first(),
                    // SAFETY: as above.
                    false => unsafe { inner.spares.pop(&SlabLinks(backend)) },
                };
                if let Some(unit) = first {
                    inner.spares_count -= 1;
                    // SAFETY: it was just taken out of the other list.
                    unsafe { spares.push(&SlabLinks(backend), unit) };
                }
            }
            inner.spares_least = inner.spares_count;
            inner.spares_count
        });
        // SAFETY: they were taken out of the spares under the lock, and are in no other list.
        unsafe { give(backend, spares) };
        left > 0
    }

    /// The number of spares.
    pub(crate) fn spares(&self) -> u32 {
        self.locked(|Locked { inner, .. }| inner.spares_count)
    }

    /// A number that changes with every take and put.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn events(&self) -> u32 {
        self.locked(|Locked { inner, .. }| inner.events)
    }

    /// The counters of each class.
    pub(crate) fn counts(&self) -> [Counts; COUNT] {
        self.locked(|Locked { classes, .. }| classes.map(|class| class.counts))
    }
}

/// Gives the pages of these slabs back.
///
/// # Safety
/// The slabs and their list belong to the caller alone (I3).
unsafe fn give(backend: &impl SlabBackend, mut slabs: List) {
    // SAFETY: by this function's contract.
    while let Some(unit) = unsafe { slabs.pop(&SlabLinks(backend)) } {
        // SAFETY: as above.
        let class = unsafe { Slab::class(backend.slab(unit)) };
        backend.give_units(unit, units(class));
    }
}

impl Inner {
    /// Takes a spare and makes it a slab of `class` with all blocks free, in no list. The caller holds the
    /// lock of the heap of `home`.
    fn spare(&mut self, backend: &impl SlabBackend, class: usize, home: u32) -> Option<u32> {
        if units(class) != SPARE_UNITS {
            return None;
        }
        // SAFETY: the heap's own list; the caller holds its lock.
        let unit = unsafe { self.spares.pop(&SlabLinks(backend)) }?;
        self.spares_count -= 1;
        self.spares_least = self.spares_least.min(self.spares_count);
        // SAFETY: a spare is of the heap, and all its blocks are free (I3).
        if unsafe { Slab::class(backend.slab(unit)) } != class {
            // SAFETY: as above.
            unsafe { Slab::begin(backend.slab(unit), class, home) };
            backend.set_home(unit, SPARE_UNITS, home, class);
        }
        Some(unit)
    }
}

impl Class {
    /// Puts a slab into the list.
    ///
    /// # Safety
    /// The slab is of the heap, and in no list (I4). The caller holds the lock of the heap.
    unsafe fn enter(&mut self, backend: &impl SlabBackend, unit: u32) {
        self.counts.slabs += 1;
        // SAFETY: by this function's contract.
        unsafe { self.list.push(&SlabLinks(backend), unit) };
    }

    /// Takes up to `most` blocks from the slabs in the list, all of `class`. The caller holds the lock of the
    /// heap. Returns their number.
    #[inline]
    fn take(
        &mut self,
        backend: &impl SlabBackend,
        class: usize,
        most: usize,
        f: &mut impl FnMut(usize, usize),
    ) -> usize {
        let mut taken = 0;
        while taken < most
            && let Some(unit) = self.list.first()
        {
            let slab = backend.slab(unit);
            #[cfg(not(loom))]
            Slab::prefetch(slab);
            // SAFETY: a slab in the list is of this heap, and the caller holds its lock (I1, I4).
            unsafe {
                debug_assert_eq!((*slab).class as usize, class);
                taken += Slab::take(slab, unit, most - taken, f);
                if (*slab).free == 0 {
                    self.list.remove(&SlabLinks(backend), unit);
                }
            }
        }
        self.counts.out += taken as u64;
        taken
    }
}

impl Slab {
    /// Takes up to `most` free blocks and passes them to `f`, like [`Heap::take`].
    ///
    /// # Safety
    /// The caller holds the lock of the heap that owns the slab.
    unsafe fn take(this: *mut Slab, unit: u32, most: usize, f: &mut impl FnMut(usize, usize)) -> usize {
        // SAFETY: by this function's contract, for all accesses below (I1); references are made to the bits
        // and the two numbers only.
        let (class, bits, hint, free) =
            unsafe { ((*this).class as usize, &mut (*this).bits, &mut (*this).hint, &mut (*this).free) };
        let (base, size, words) =
            ((unit as usize) << SLAB_SHIFT, SIZES[class], (COUNTS[class] as usize).div_ceil(64));
        let most = most.min(*free as usize);
        let mut taken = 0;
        let mut at = *hint as usize;
        while taken < most && at < words {
            let word = bits[at];
            if word != 0 {
                // Free blocks usually lie side by side.
                let first = word.trailing_zeros() as usize;
                let run = ((!(word >> first)).trailing_zeros() as usize).min(most - taken);
                bits[at] = word & !run_of(first, run);
                f(base + (at * 64 + first) * size, run);
                taken += run;
            }
            if bits[at] == 0 {
                at += 1;
            }
        }
        *hint = at as u32;
        *free -= taken as u32;
        taken
    }

    /// Marks the leading blocks that are of this slab as free. `base` is the address of its first block.
    /// Returns the rest, from the first block of another slab on.
    ///
    /// # Safety
    /// The contract of `take`.
    #[inline]
    unsafe fn put<'a>(
        this: *mut Slab,
        class: usize,
        base: usize,
        blocks: &'a [*mut u8],
        wrong: &mut impl FnMut(*mut u8, FreeError),
    ) -> &'a [*mut u8] {
        // SAFETY: as in `take`.
        let (bits, hint, free) = unsafe { (&mut (*this).bits, &mut (*this).hint, &mut (*this).free) };
        let (span, size) = (units(class) << SLAB_SHIFT, SIZES[class]);
        let (mut rest, mut put, mut least) = (blocks, 0, *hint);
        while let Some(first) = rest.first()
            && let at = first.addr().wrapping_sub(base)
            && at < span
        {
            let Some(block) = block_at(class, at) else {
                wrong(*first, FreeError::NotABlock);
                rest = &rest[1..];
                continue;
            };
            // Blocks that are put back together were often taken together and lie side by side. Their bits
            // are set at once.
            let most = rest.len().min(64 - block % 64).min(COUNTS[class] as usize - block);
            let follows = |run: &usize| rest[*run].addr() == first.addr() + *run * size;
            let run = (1..most).take_while(follows).count() + 1;
            let (word, mask) = (&mut bits[block / 64], run_of(block % 64, run));
            if *word & mask == 0 {
                *word |= mask;
                put += run as u32;
            } else {
                for (index, again) in rest[..run].iter().enumerate() {
                    let bit = run_of(block % 64 + index, 1);
                    if *word & bit != 0 {
                        wrong(*again, FreeError::DoubleFree);
                        continue;
                    }
                    *word |= bit;
                    put += 1;
                }
            }
            least = least.min((block / 64) as u32);
            rest = &rest[run..];
        }
        *hint = least;
        *free += put;
        rest
    }
}

/// A mask of `count` bits from `first` on. `count` is at least 1, and the bits are within the word.
#[inline(always)]
const fn run_of(first: usize, count: usize) -> u64 {
    (u64::MAX >> (64 - count)) << first
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BEGIN: usize = 1 << 20;

    /// Makes a slab of this class, with all blocks out.
    fn all_out(class: usize) -> Slab {
        // SAFETY: all zeros are a valid slab, and it is ours.
        let mut slab: Slab = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        unsafe { Slab::begin(&raw mut slab, class, 0) };
        let mut expected = 0;
        let all = |offset, count| {
            assert_eq!(offset, expected * SIZES[class]);
            expected += count;
        };
        // SAFETY: as above.
        let taken = unsafe { Slab::take(&raw mut slab, 0, usize::MAX, &mut { all }) };
        assert_eq!((taken, slab.free), (COUNTS[class] as usize, 0));
        assert!(slab.bits.iter().all(|word| *word == 0));
        slab
    }

    fn block(class: usize, number: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(BEGIN + number * SIZES[class])
    }

    /// Puts blocks back. Returns the errors, and the number of blocks that are left.
    fn put(slab: &mut Slab, class: usize, blocks: &[*mut u8]) -> (Vec<(*mut u8, FreeError)>, usize) {
        let mut wrongs = Vec::new();
        // SAFETY: the slab is ours.
        let rest = unsafe {
            Slab::put(std::ptr::from_mut(slab), class, BEGIN, blocks, &mut |block, wrong| {
                wrongs.push((block, wrong))
            })
        };
        let set: u32 = slab.bits.iter().map(|word| word.count_ones()).sum();
        assert_eq!(slab.free, set);
        assert!(slab.bits[..slab.hint as usize].iter().all(|word| *word == 0));
        (wrongs, rest.len())
    }

    #[test]
    fn every_block_comes_back_once() {
        for class in [0, 3, 5, 12, 25, 40, COUNT - 1] {
            let count = COUNTS[class] as usize;
            let (mut random, mut slab) = (0x9E37_79B9_7F4A_7C15u64 ^ class as u64, all_out(class));
            let mut out: BTreeSet<usize> = (0..count).collect();
            let mut next = |below: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % below
            };
            for _ in 0..if cfg!(miri) { 30 } else { 2_000 } {
                // Runs of blocks, upwards and downwards, and single blocks.
                let mut blocks = Vec::new();
                for _ in 0..next(4) {
                    let (from, long) = (next(count), 1 + next(100));
                    let mut run: Vec<usize> =
                        (from..count.min(from + long)).filter(|block| out.remove(block)).collect();
                    if next(3) == 0 {
                        run.reverse();
                    }
                    blocks.extend(run.iter().map(|number| block(class, *number)));
                }
                assert_eq!(put(&mut slab, class, &blocks), (Vec::new(), 0));
                assert_eq!(slab.free as usize, count - out.len());
                let (most, mut last) = (next(150), None);
                // SAFETY: the slab is ours.
                let taken = unsafe {
                    Slab::take(&raw mut slab, 0, most, &mut |offset, run| {
                        assert!(last < Some(offset), "blocks are taken in address order");
                        last = Some(offset);
                        let first = offset / SIZES[class];
                        assert!(
                            (first..first + run).all(|block| out.insert(block)),
                            "a taken block was free before"
                        );
                    })
                };
                assert!(taken == most || slab.free == 0);
            }
        }
    }

    #[test]
    fn put_reports_free_and_foreign_blocks() {
        for class in [0, 3, 10] {
            let (count, mut slab) = (COUNTS[class] as usize, all_out(class));
            assert!(count > 70);
            assert_eq!(put(&mut slab, class, &[block(class, 66)]), (Vec::new(), 0));
            // A run across the end of a word, with one free block. A block twice. An address within a block.
            // An address behind the last block. A block of another slab, at which the put stops.
            let within = block(class, 2).wrapping_add(8);
            let behind = block(class, count);
            let is_in_slab = count * SIZES[class] < units(class) << SLAB_SHIFT;
            let mut blocks: Vec<_> = (60..70).map(|number| block(class, number)).collect();
            blocks.extend([block(class, 1), block(class, 1), within]);
            if is_in_slab {
                blocks.push(behind);
            }
            let beyond = std::ptr::without_provenance_mut(BEGIN + (units(class) << SLAB_SHIFT));
            let before = std::ptr::without_provenance_mut(BEGIN - SIZES[class]);
            for other in [beyond, before] {
                let mut slab = all_out(class);
                assert_eq!(put(&mut slab, class, &[block(class, 66)]), (Vec::new(), 0));
                let mut blocks = blocks.clone();
                blocks.extend([other, block(class, 5)]);
                let mut expected = vec![
                    (block(class, 66), FreeError::DoubleFree),
                    (block(class, 1), FreeError::DoubleFree),
                    (within, FreeError::NotABlock),
                ];
                if is_in_slab {
                    expected.push((behind, FreeError::NotABlock));
                }
                assert_eq!(put(&mut slab, class, &blocks), (expected, 2));
                assert_eq!(slab.free, 1 + 9 + 1);
            }
        }
    }
}
