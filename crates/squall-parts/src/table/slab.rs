//! The buckets of one table, and the chains that hang from them.
//!
//! - I1. Homes are found by the topmost bits of a mixed hash, so that a range of mixed hashes is a range of homes in tables of every size.
//! - I2. A chain only grows, under its home's lock, until the slab is freed; so whoever reached a link may go on from it. One without
//!   entries is passed over (bucket/I6), and used again.
//! - I3. `next` is set once, only in a slab that was the map's current one then (raw/I1).

use crate::table::bucket::{Bucket, Head, Link, Look, SLOTS, State};
use crate::table::layout::{IsKey, Layout};
use crate::table::sites;
use squall_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
#[cfg(not(loom))]
use squall_sys::fetch::{self, LINE};
#[cfg(not(loom))]
use std::ptr::NonNull;

pub(crate) struct Slab<L: Layout> {
    heads: Many<Head>,
    slots: Many<[L::Slot; SLOTS]>,
    chains: Many<AtomicPtr<Link<L>>>,
    /// What these are in.
    #[cfg(not(loom))]
    _memory: Zeroed,
    /// [`SHIFT`] less the number of bits of a home: by so many a mixed hash is shifted to choose a row of a home, in steps of [`STEP`].
    row_shift: u32,
    /// Where everything goes; null while it stays here.
    pub(crate) next: AtomicPtr<Slab<L>>,
    pub(crate) movers: Movers,
}

/// What those write who move a slab's homes: on lines of its own, since all who use the table read those of the rest.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct Movers {
    /// Whether somebody is about to give the slab a `next` one, or has done it (raw/I1).
    pub(crate) is_taken: AtomicBool,
    /// The first home that nobody has gone for yet.
    pub(crate) cursor: AtomicUsize,
    /// Homes that moved.
    pub(crate) moved: AtomicUsize,
}

// SAFETY: it holds entries, which are `Send + Sync` by the layout's bounds, and shows `&` to them to every thread.
unsafe impl<L: Layout> Send for Slab<L> {}
// SAFETY: as above.
unsafe impl<L: Layout> Sync for Slab<L> {}

/// Makes neighbours of a hasher's far apart, and its topmost bits depend on all: Fibonacci hashing (Knuth 1973, section 6.4). One
/// multiplication, and not the two halves of one: the topmost bits are as good, which choose the home, and of those below less is
/// asked (see [`tag`]); a look has the fewer instructions, and thus the more looks are in a processor's window at once.
#[inline(always)]
pub(crate) fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The tag of a mixed hash: bits that do not choose the home, in tables of up to 2^32 homes. They depend on the lower half of what
/// the hasher made; where that is the same of all, all keys of a bucket are compared, and nothing else becomes worse.
#[inline(always)]
pub(crate) fn tag(mixed: u64) -> u8 {
    (tag_above(mixed) >> 24) as u8
}

/// The same where it lies, above three other bytes.
#[inline(always)]
pub(crate) fn tag_above(mixed: u64) -> u32 {
    mixed as u32
}

/// One allocation of zeros, so that a large table costs its pages when they are used; of huge pages, as far as it can be.
#[cfg(not(loom))]
struct Zeroed {
    allocated: NonNull<u8>,
    layout: std::alloc::Layout,
}

#[cfg(not(loom))]
impl Zeroed {
    fn new(bytes: usize) -> Option<Zeroed> {
        // Aligned by hand (`Part::of`): allocators have zeros at hand for memory that is aligned as usual, and write them where it is not.
        let layout = std::alloc::Layout::from_size_align(bytes, 16).ok()?;
        // SAFETY: of no zero size: there are the bytes of at least one part, with its alignment.
        let allocated = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: this allocation's.
        unsafe { squall_sys::huge::prefer(allocated, layout.size()) };
        Some(Zeroed { allocated, layout })
    }
}

#[cfg(not(loom))]
impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. What is in it needs no drop (see the uses).
        unsafe { std::alloc::dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

/// So many of something, zeros at first: a part of the slab's memory.
#[cfg(not(loom))]
struct Part<T> {
    start: NonNull<T>,
    count: usize,
}

#[cfg(not(loom))]
impl<T> Part<T> {
    /// Two lines: the elements lie in pairs of them, as the processor fetches them.
    const ALIGN: usize = 128;

    /// Bytes of a part, with what its alignment may take.
    fn bytes(count: usize) -> Option<usize> {
        count.checked_mul(size_of::<T>())?.checked_add(Self::ALIGN)
    }

    /// The part that begins so many bytes from the beginning, or at the next aligned place; and how far the next one is then.
    ///
    /// # Safety
    /// [`bytes`](Part::bytes) from there on are in the memory, which lives as long as the part, and are nobody else's. A `T` of zeros is
    /// valid.
    unsafe fn of(memory: &Zeroed, from: usize, count: usize) -> (Part<T>, usize) {
        // SAFETY: the caller.
        let start = unsafe { memory.allocated.add(from) };
        let skip = start.as_ptr().align_offset(Self::ALIGN);
        // SAFETY: the caller; less than the alignment, which the bytes count.
        let start = unsafe { start.add(skip) }.cast();
        (Part { start, count }, from + skip + count * size_of::<T>())
    }

    #[inline(always)]
    fn at(&self, index: usize) -> &T {
        debug_assert!(index < self.count);
        // SAFETY: homes are of as many bits as there are elements; the memory is valid zeros or what was made of them.
        unsafe { self.start.add(index).as_ref() }
    }

    /// The element that begins at this byte.
    ///
    /// # Safety
    /// One does.
    #[inline(always)]
    unsafe fn at_byte(&self, byte: usize) -> &T {
        debug_assert!(byte.is_multiple_of(size_of::<T>()) && byte / size_of::<T>() < self.count);
        // SAFETY: the caller; as in `at`.
        unsafe { self.start.byte_add(byte).as_ref() }
    }
}

/// So many of something, zeros at first.
#[cfg(not(loom))]
type Many<T> = Part<T>;
#[cfg(loom)]
type Many<T> = Box<[T]>;

/// Slots of a row: those of a line or two, where a bucket has several.
pub(crate) const ROW: usize = 4;
const ROWS: usize = SLOTS / ROW;

/// The row of [`Slab::rows`].
#[inline(always)]
fn row_of(rows: usize) -> u32 {
    (rows / STEP % ROWS) as u32
}

/// Where an entry is, or was.
pub(crate) struct Place<'a, L: Layout> {
    pub(crate) bucket: Bucket<'a, L>,
    pub(crate) slot: usize,
    pub(crate) raw: L::Raw,
    /// The bucket's state, after which the slot was loaded.
    pub(crate) state: State,
}

/// From one row of a home to the next, as they are counted to find a bucket: a row's part of a head. So the bits of a mixed hash, shifted once and
/// cut off, are where the head is, and a multiple that is in an address anyway is where the slots are.
const STEP: usize = 8;
/// From one home to the next.
const HOME: usize = ROWS * STEP;
#[cfg(not(loom))]
const _: () = assert!(size_of::<Head>() == HOME);
/// A mixed hash is shifted by so many bits less those that choose one of the homes.
const SHIFT: u32 = u64::BITS - HOME.trailing_zeros();

impl<L: Layout> Slab<L> {
    /// What lies in the slots of a home for each byte of its head.
    #[cfg(not(loom))]
    const SLOTS_OF_HEAD: usize = {
        let size = size_of::<[L::Slot; SLOTS]>();
        assert!(size.is_multiple_of(size_of::<Head>()));
        size / size_of::<Head>()
    };

    /// A slab of `homes` homes, a power of two; nothing if there is no memory.
    pub(crate) fn new(homes: usize) -> Option<Box<Slab<L>>> {
        debug_assert!(homes.is_power_of_two());
        #[cfg(not(loom))]
        let (heads, slots, chains, memory) = {
            let chains = Many::<AtomicPtr<Link<L>>>::bytes(homes)?;
            let (heads, slots) = (Many::<Head>::bytes(homes)?, Many::<[L::Slot; SLOTS]>::bytes(homes)?);
            let memory = Zeroed::new(chains.checked_add(heads)?.checked_add(slots)?)?;
            // The chains first, of which fewest are looked at: where the memory begins within a huge page, they are what is in the rest of it.
            // SAFETY: one after the other in memory of that many bytes, which the slab holds. Zeros are null pointers, a head of no entries
            // whose lock is free (asked below), and slots that are never read before they are filled.
            unsafe {
                let (chains, next) = Many::of(&memory, 0, homes);
                let (heads, next) = Many::of(&memory, next, homes);
                let (slots, _) = Many::of(&memory, next, homes);
                (heads, slots, chains, memory)
            }
        };
        #[cfg(loom)]
        let (heads, slots, chains) = (
            (0..homes).map(|_| Head::new()).collect(),
            (0..homes).map(|_| std::array::from_fn(|_| L::empty())).collect(),
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
            movers: Movers {
                is_taken: AtomicBool::new(false),
                cursor: AtomicUsize::new(0),
                moved: AtomicUsize::new(0),
            },
        };
        #[cfg(not(loom))]
        if !squall_lock::zeros_are_free() {
            for home in 0..homes {
                // SAFETY: one of the heads; nobody else has the slab yet.
                unsafe { slab.heads.start.add(home).write(Head::new()) };
            }
        }
        Some(Box::new(slab))
    }

    /// Whether this key's operation, of those at which it may show that it is time for another size, asks whether it is: at random one of
    /// `1 << log2`, whatever the hashes have in common, and fewer in larger tables, in which each says less. Who asks loads a word of each VP.
    pub(crate) fn is_sampled(&self, mixed: u64, log2: u32) -> bool {
        mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (u64::BITS - log2 - self.homes().ilog2() / 4) == 0
    }

    pub(crate) fn homes(&self) -> usize {
        1 << (SHIFT - self.row_shift)
    }

    /// Entries for which there is room without chains.
    pub(crate) fn slots(&self) -> usize {
        self.homes() * SLOTS
    }

    /// The home of a mixed hash and its row, in steps of [`STEP`]; what is left of the hash is in the bits below.
    #[inline(always)]
    fn rows(&self, mixed: u64) -> usize {
        (mixed >> self.row_shift) as usize
    }

    #[inline(always)]
    pub(crate) fn home(&self, mixed: u64) -> usize {
        self.rows(mixed) / HOME
    }

    /// In which row of its home's slots an entry of this mixed hash is put while there is room: so that who looks for it need not fetch
    /// all lines. The bits below those that choose the home.
    #[inline(always)]
    pub(crate) fn row(&self, mixed: u64) -> u32 {
        row_of(self.rows(mixed))
    }

    /// The bucket of a mixed hash's home, and its row. The lines of slots in which such an entry most likely is are on their way.
    #[inline(always)]
    pub(crate) fn fetch(&self, mixed: u64) -> (Bucket<'_, L>, u32) {
        let rows = self.rows(mixed);
        #[cfg(loom)]
        return (self.bucket(rows / HOME), row_of(rows));
        #[cfg(not(loom))]
        {
            let home = rows & !(HOME - 1);
            let slots = self.slots.start.as_ptr().cast::<u8>();
            match size_of::<[L::Slot; ROW]>() {
                // What is below a row leads to another place in the same line: it need not be cut off.
                size if size <= LINE => fetch::line(slots.wrapping_add(rows * Self::SLOTS_OF_HEAD)),
                _ => {
                    let from = slots.wrapping_add((rows & !(STEP - 1)) * Self::SLOTS_OF_HEAD);
                    fetch::line(from);
                    fetch::line(from.wrapping_add(LINE));
                }
            }
            // SAFETY: the first byte of the home's head, and so many times as far the first of its slots.
            let bucket = unsafe {
                Bucket {
                    head: self.heads.at_byte(home),
                    slots: self.slots.at_byte(home * Self::SLOTS_OF_HEAD),
                }
            };
            (bucket, row_of(rows))
        }
    }

    /// The first and the last mixed hash of a home.
    pub(crate) fn range(&self, home: usize) -> (u64, u64) {
        let bits = SHIFT - self.row_shift;
        let first = (home as u64) << 1 << (u64::BITS - 1 - bits);
        (first, first | u64::MAX.checked_shr(bits).unwrap_or(0))
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, home: usize) -> Bucket<'_, L> {
        #[cfg(not(loom))]
        return Bucket { head: self.heads.at(home), slots: self.slots.at(home) };
        #[cfg(loom)]
        Bucket { head: &self.heads[home], slots: &self.slots[home] }
    }

    fn chain(&self, home: usize) -> &AtomicPtr<Link<L>> {
        #[cfg(not(loom))]
        return self.chains.at(home);
        #[cfg(loom)]
        &self.chains[home]
    }

    /// The links of a home.
    fn links(&self, home: usize) -> impl Iterator<Item = &Link<L>> {
        let mut at = self.chain(home);
        std::iter::from_fn(move || {
            // Acquire: pairs with the release of `extend`.
            // SAFETY: a link lives as long as the slab (I2), and is never written but by its atomics.
            let link = unsafe { at.load(Ordering::Acquire).as_ref() }?;
            at = &link.next;
            Some(link)
        })
    }

    /// Looks for a key among the entries of a home, from a state of the home's bucket.
    ///
    /// # Safety
    /// As [`Bucket::look`].
    #[inline(always)]
    pub(crate) unsafe fn look(
        &self,
        home: usize,
        state: State,
        mixed: u64,
        is_key: impl IsKey<L::Key>,
    ) -> Option<Place<'_, L>> {
        let bucket = self.bucket(home);
        // SAFETY: the caller.
        match unsafe { bucket.look(state, mixed, is_key) } {
            Look::Found { slot, raw, state } => Some(Place { bucket, slot, raw, state }),
            Look::Absent { chained: false } => None,
            // SAFETY: the caller.
            Look::Absent { chained: true } => unsafe { self.look_along(home, mixed, is_key) },
        }
    }

    // Not inlined: chains are rare.
    #[inline(never)]
    unsafe fn look_along(&self, home: usize, mixed: u64, is_key: impl IsKey<L::Key>) -> Option<Place<'_, L>> {
        for link in self.links(home) {
            let bucket = link.bucket();
            // SAFETY: the caller, as in `look`.
            let look = unsafe { bucket.look(bucket.state(), mixed, is_key) };
            if let Look::Found { slot, raw, state } = look {
                return Some(Place { bucket, slot, raw, state });
            }
        }
        None
    }

    /// Copies the entries of a home.
    ///
    /// # Safety
    /// As [`Bucket::look`].
    pub(crate) unsafe fn collect(&self, home: usize, entries: &mut Vec<L::Raw>) {
        // SAFETY: the caller.
        unsafe {
            if self.bucket(home).collect(entries) {
                self.links(home).for_each(|link| _ = link.bucket().collect(entries));
            }
        }
    }

    /// Finds room for an entry of this mixed hash in its home, whose bucket is `first`, under its lock, and says whether it is there.
    #[inline(always)]
    pub(crate) fn room<'a>(&'a self, first: Bucket<'a, L>, mixed: u64) -> (Bucket<'a, L>, usize, bool) {
        match first.free_slot(self.row(mixed)) {
            Some(slot) => (first, slot, true),
            None => self.room_along(first, mixed),
        }
    }

    #[cold]
    #[inline(never)]
    fn room_along<'a>(&'a self, first: Bucket<'a, L>, mixed: u64) -> (Bucket<'a, L>, usize, bool) {
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
        // Release: pairs with the acquire of `links`. Nobody else writes here (I2).
        at.store(link, Ordering::Release);
        first.set_chained();
        // SAFETY: as in `links`.
        (unsafe { &*link }.bucket(), 0, false)
    }

    /// An entry went from a bucket that follows this home's own, `first`, under its lock. What is left of a chain whose entries have all gone is
    /// passed over from now on: one insertion too many, once, shall not make every later look at the home a longer one.
    #[cold]
    #[inline(never)]
    pub(crate) fn has_lost(&self, home: usize, first: Bucket<'_, L>) {
        if sites::EMPTY.is_weak() || self.links(home).all(|link| link.bucket().is_empty()) {
            first.set_alone();
        }
    }

    /// Bytes of the slab, chains apart.
    pub(crate) fn bytes(&self) -> usize {
        self.homes() * (size_of::<Head>() + size_of::<[L::Slot; SLOTS]>() + size_of::<AtomicPtr<Link<L>>>())
    }

    /// Links of a home.
    pub(crate) fn chain_length(&self, home: usize) -> usize {
        self.links(home).count()
    }
}

impl<L: Layout> Drop for Slab<L> {
    fn drop(&mut self) {
        // The entries are the map's to free. Buckets need no drop: atomics and a lock.
        for home in 0..self.homes() {
            // Relaxed: nobody else has the slab.
            let mut link = self.chain(home).load(Ordering::Relaxed);
            while !link.is_null() {
                // SAFETY: made by `Box::into_raw` in `room_along`, and named by this chain alone.
                let whole = unsafe { Box::from_raw(link) };
                link = whole.next.load(Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::layout::{Boxed, Flat, Wide};

    fn lie_apart<L: Layout>() {
        for homes in [1, 2, 4, 64, 1024] {
            let slab = Slab::<L>::new(homes).expect("there is memory");
            let begins = slab._memory.allocated.addr().get();
            let ends = begins + slab._memory.layout.size();
            let lies = |start: usize, of: usize| (start, start + homes * of);
            let parts = [
                lies(slab.chains.start.addr().get(), size_of::<AtomicPtr<Link<L>>>()),
                lies(slab.heads.start.addr().get(), size_of::<Head>()),
                lies(slab.slots.start.addr().get(), size_of::<[L::Slot; SLOTS]>()),
            ];
            assert!(parts.is_sorted(), "the chains first: what is looked at most is in whole huge pages");
            assert!(parts.iter().all(|(start, _)| start % Part::<()>::ALIGN == 0), "{homes}: {parts:x?}");
            let edges = [begins].into_iter().chain(parts.into_iter().flat_map(|(from, to)| [from, to]));
            assert!(edges.chain([ends]).is_sorted(), "{homes}: {parts:x?} in {begins:x}..{ends:x}");
        }
    }

    #[test]
    fn the_parts_of_a_slab_lie_apart_in_its_memory_on_pairs_of_lines() {
        lie_apart::<Flat<u64, u64>>();
        lie_apart::<Wide<[u64; 2], u64>>();
        lie_apart::<Boxed<String, u64>>();
    }

    #[test]
    fn a_slab_too_large_for_any_memory_is_none() {
        assert!(Slab::<Flat<u64, u64>>::new(1 << 62).is_none(), "the bytes of its parts overflow");
        // Not one that could be asked for: a checker ends who does.
        assert!(Slab::<Flat<u64, u64>>::new(1 << 56).is_none(), "their sum is more than a layout may have");
    }
}
