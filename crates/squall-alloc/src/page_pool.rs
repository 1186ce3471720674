//! Page pools: memory in units of slabs, for each NUMA node.
//!
//! Problem: the first processor to touch a page gets it from its own node, so freed pages should be reused on
//! that node. Unused pages should go back to the system, but not at once: a page that comes back costs
//! thousands of instructions. Idea: the address space consists of segments of sixty-four units, each of one
//! node for good. Two words per segment say which units are free, and which free units still have memory
//! (*dirty*). Dirty units are given out first, and go back to the system beyond a bound.
//!
//! - I1. A segment belongs to the pool of one node, and its words are read and written under that pool's
//!   lock. The exception is its node, which any thread with a slab of it reads. So no code holds a reference
//!   to the whole segment.
//! - I2. A unit is free, or belongs to one slab. A dirty unit is free.
//! - I3. The bound of a pool is [`DIRTY_MIN`] units, or an eighth of the units in use if that is more. A
//!   thread that raises the dirty units above the bound first gives memory back to the system, until half of
//!   the bound is left. If the system refuses, this happens again only after the dirty units have doubled.
//! - I4. No system call is made under a pool's lock. Units on their way to the system are *leaving*: neither
//!   free nor of a slab.
//!
//! Cost: a lock for each slab. One system call, or two on several nodes, for 4 MiB of new memory, and one for
//! each run that goes back.
//! Source: Tornado §4: free memory is divided among NUMA clusters; jemalloc for dirty runs.

use crate::classes::SLAB_BYTES;
use crate::list::{Link, Links, List};
use crate::lock::Lock;
use crate::sites;
use squall_sys::sync::cell::UnsafeCell;

/// Units of a segment.
pub(crate) const SEGMENT_UNITS: usize = 64;
/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: usize = SEGMENT_UNITS * SLAB_BYTES;
/// Dirty units that a pool may always keep.
pub(crate) const DIRTY_MIN: usize = 64;
/// The most units that a pass gives to the system: 32 MiB, some milliseconds if freed page by page.
const DECAY_MAX: usize = 512;
/// The most segments that are searched for a run of units before a new segment is taken.
const SEARCH_MAX: usize = 64;

/// Metadata of a segment. All zeros before its first use.
#[repr(C)]
pub(crate) struct Segment {
    /// In `free` a set bit is a free unit. In `dirty` it is a free unit with memory.
    free: u64,
    dirty: u64,
    /// The neighbours in the pool's list, if the segment has a free unit.
    link: Link,
    /// The node of the pool that has the segment.
    node: u32,
}

impl Segment {
    /// Returns the words of free and of dirty units.
    ///
    /// # Safety
    /// The segment is in use, and the caller holds its pool's lock.
    unsafe fn words(this: *const Segment) -> (u64, u64) {
        // SAFETY: by this function's contract no other thread accesses them (I1).
        unsafe { ((&raw const (*this).free).read(), (&raw const (*this).dirty).read()) }
    }
}

/// The environment of page pools.
pub(crate) trait SegmentBackend {
    /// The metadata of the segment of this number.
    fn segment(&self, number: u32) -> *mut Segment;
    /// Makes a new segment usable, for this node.
    fn new_segment(&self, node: u32) -> Option<u32>;
    /// Gives the memory of these units to the system. Returns false if the system refuses.
    fn discard(&self, unit: u32, count: usize) -> bool;
}

/// The links of segments.
struct SegmentLinks<'a, F>(&'a F);

impl<F: SegmentBackend> Links for SegmentLinks<'_, F> {
    fn link(&self, number: u32) -> *mut Link {
        let segment = self.0.segment(number);
        // SAFETY: the metadata of a segment, all of which may be pointed to.
        unsafe { &raw mut (*segment).link }
    }
}

struct Inner {
    /// The segments with a dirty unit, and the others with a free unit. A search for dirty units passes no
    /// clean segments.
    dirty_list: List,
    clean_list: List,
    segments: usize,
    used: usize,
    dirty: usize,
    /// Units on their way to the system (I4).
    leaving: usize,
    /// Threads that ask the system for a new segment.
    coming: u32,
    /// The units that were dirty all the time since the previous [`PagePool::decay`].
    idle: usize,
    /// The number of dirty units when the system last refused memory (for example because it is locked); 0:
    /// it did not.
    refused_at: usize,
}

impl Inner {
    const NEW: Inner = Inner {
        dirty_list: List::EMPTY,
        clean_list: List::EMPTY,
        segments: 0,
        used: 0,
        dirty: 0,
        leaving: 0,
        coming: 0,
        idle: 0,
        refused_at: 0,
    };
}

/// The page pool of a node.
#[repr(C, align(128))]
pub(crate) struct PagePool {
    lock: Lock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: its content is read and written under its lock.
unsafe impl Sync for PagePool {}

/// The memory of one NUMA node, in units of 64 KiB.
///
/// # Example
/// ```
/// let stats = squall::alloc::stats().expect("there is memory");
/// for (node, units) in stats.nodes.iter().enumerate() {
///     println!("node {node}: {} of {} units in slabs", units.used, units.all);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUnits {
    /// Units of all segments of the node.
    pub all: usize,
    /// Units in slabs.
    pub used: usize,
    /// Free units that still have memory.
    pub dirty: usize,
}

impl PoolUnits {
    /// Returns the bytes of the units in slabs.
    ///
    /// # Example
    /// ```
    /// let units = squall::alloc::PoolUnits { all: 64, used: 2, dirty: 1 };
    /// assert_eq!(units.used_bytes(), 2 * 65_536);
    /// ```
    pub fn used_bytes(&self) -> usize {
        self.used * SLAB_BYTES
    }

    /// Returns the bytes of the free units that still have memory.
    ///
    /// # Example
    /// ```
    /// let units = squall::alloc::PoolUnits { all: 64, used: 2, dirty: 1 };
    /// assert_eq!(units.dirty_bytes(), 65_536);
    /// ```
    pub fn dirty_bytes(&self) -> usize {
        self.dirty * SLAB_BYTES
    }
}

impl PagePool {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> PagePool {
        PagePool { lock: Lock::new(), inner: UnsafeCell::new(Inner::NEW) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> PagePool {
        PagePool { lock: Lock::new(), inner: UnsafeCell::new(Inner::NEW) }
    }

    /// The lock, which a fork holds.
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// For the child of a fork, in which no other thread runs: forgets the units and segments that other
    /// threads had under way, so that no thread waits for them.
    ///
    /// # Safety
    /// The caller holds the lock.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) unsafe fn forget_others(&self) {
        self.inner.with_mut(|inner| {
            // SAFETY: by this function's contract no other thread accesses it (I1).
            unsafe { ((*inner).leaving, (*inner).coming) = (0, 0) };
        });
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        self.lock.with(|| {
            self.inner.with_mut(|inner| {
                // SAFETY: the lock is held, and all accesses are made here (I1).
                f(unsafe { &mut *inner })
            })
        })
    }

    /// Takes `count` units at a multiple of `count`, a power of two.
    pub(crate) fn take(&self, backend: &impl SegmentBackend, node: u32, count: usize) -> Option<u32> {
        let found = self.locked(|inner| {
            let number = inner.find(backend, count, SEARCH_MAX);
            inner.coming += u32::from(number.is_none());
            inner.take(backend, number?, count)
        });
        if found.is_some() {
            return found;
        }
        let new = backend.new_segment(node);
        let found = self.locked(|inner| {
            inner.coming -= 1;
            inner.add(backend, new?, node);
            inner.take(backend, new?, count)
        });
        if found.is_some() {
            return found;
        }
        // If the kernel supplies no new segment, only the rest of the list is left, and the units that other
        // threads are about to put into it.
        loop {
            let (found, more) = self.locked(|inner| {
                let number = inner.find(backend, count, usize::MAX);
                let found = number.and_then(|number| inner.take(backend, number, count));
                (found, inner.leaving > 0 || inner.coming > 0)
            });
            if found.is_some() || !more {
                return found;
            }
            squall_sys::sync::thread::yield_now();
        }
    }

    /// Takes units of the segments that the pool has already.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn reuse(&self, backend: &impl SegmentBackend, count: usize) -> Option<u32> {
        self.locked(|inner| {
            let number = inner.find(backend, count, usize::MAX)?;
            inner.take(backend, number, count)
        })
    }

    /// Returns whether other threads are about to bring units or a segment to this pool.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_moving(&self) -> bool {
        self.locked(|inner| inner.leaving > 0 || inner.coming > 0)
    }

    /// Gives units without users back.
    pub(crate) fn give(&self, backend: &impl SegmentBackend, unit: u32, count: usize) {
        let keep = self.locked(|inner| {
            inner.put(backend, unit, count, true);
            inner.used -= count;
            let bound = DIRTY_MIN.max(inner.used / 8);
            // Half of the bound stays, so that the system is not called for each slab. After a refusal, the
            // number of dirty units must double first.
            (inner.dirty > bound.max(2 * inner.refused_at)).then_some(bound / 2)
        });
        if let Some(keep) = keep {
            self.purge(backend, keep, usize::MAX);
        }
    }

    /// Gives dirty units to the system until at most `keep` are left, `most` were given, or the system
    /// refuses.
    pub(crate) fn purge(&self, backend: &impl SegmentBackend, keep: usize, mut most: usize) {
        while let Some((unit, count)) = self.locked(|inner| inner.send_off(backend, keep, most)) {
            let gone = backend.discard(unit, count);
            if sites::LEAVING.is_weak() {
                continue;
            }
            self.locked(|inner| {
                inner.leaving -= count;
                inner.put(backend, unit, count, !gone);
                inner.refused_at = if gone { 0 } else { inner.dirty };
            });
            if !gone {
                return;
            }
            most -= count;
        }
    }

    /// Gives the system half of the units that were dirty all the time since the previous call of `decay`. If
    /// they are few, all of them go. At most [`DECAY_MAX`] units go. Returns whether units stay that may go
    /// later: false if the system refused the last ones.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn decay(&self, backend: &impl SegmentBackend) -> bool {
        const ALL_OF: usize = 8;
        let going = self.locked(|inner| {
            let idle = inner.idle.min(inner.dirty);
            let gone = if idle <= ALL_OF { idle } else { idle.div_ceil(2).min(DECAY_MAX) };
            inner.idle = inner.dirty - gone;
            (inner.refused_at == 0).then_some((inner.dirty - gone, gone))
        });
        let Some((keep, gone)) = going else { return false };
        self.purge(backend, keep, gone);
        keep > 0
    }

    /// The figures of the pool.
    pub(crate) fn units(&self) -> PoolUnits {
        self.locked(|inner| PoolUnits {
            all: inner.segments * SEGMENT_UNITS,
            used: inner.used,
            dirty: inner.dirty,
        })
    }
}

/// Ends the program over units that are free already. An unwind would leave two locks held.
#[cold]
fn double_give(unit: u32) -> ! {
    #[cfg(not(loom))]
    crate::fatal::die(format_args!("unit {unit} was given back twice"));
    #[cfg(loom)]
    panic!("unit {unit} was given back twice");
}

fn mask(at: u32, count: usize) -> u64 {
    if count == SEGMENT_UNITS { u64::MAX } else { ((1 << count) - 1) << at }
}

/// Returns the first run of `count` set bits at a multiple of `count`, a power of two.
fn run(mut bits: u64, count: usize) -> Option<u32> {
    const AT_MULTIPLES: [u64; 7] = [
        u64::MAX,
        0x5555_5555_5555_5555,
        0x1111_1111_1111_1111,
        0x0101_0101_0101_0101,
        0x0001_0001_0001_0001,
        0x0000_0001_0000_0001,
        1,
    ];
    let mut width = 1;
    while width < count {
        bits &= bits >> width;
        width *= 2;
    }
    let found = bits & AT_MULTIPLES[count.ilog2() as usize];
    (found != 0).then(|| found.trailing_zeros())
}

impl Inner {
    /// Returns a segment with such a run among the first `looks` of each list, preferably one with memory.
    fn find(&self, backend: &impl SegmentBackend, count: usize, looks: usize) -> Option<u32> {
        let (mut at, mut partly) = (self.dirty_list.first(), None);
        for _ in 0..looks {
            let Some(number) = at else { break };
            // SAFETY: a segment of a list; the caller holds the lock of its pool (I1).
            let (free, dirty) = unsafe { Segment::words(backend.segment(number)) };
            if run(free & dirty, count).is_some() {
                return Some(number);
            }
            if partly.is_none() && run(free, count).is_some() {
                partly = Some(number);
                if self.dirty < count {
                    break;
                }
            }
            // SAFETY: as above.
            at = unsafe { List::next(&SegmentLinks(backend), number) };
        }
        let clean = || {
            // SAFETY: as above.
            let next = |number: &u32| unsafe { List::next(&SegmentLinks(backend), *number) };
            // SAFETY: as above.
            let words = |number: &u32| unsafe { Segment::words(backend.segment(*number)) };
            let has_run = |number: &u32| run(words(number).0, count).is_some();
            std::iter::successors(self.clean_list.first(), next).take(looks).find(has_run)
        };
        partly.or_else(clean)
    }

    /// Takes `count` adjacent free units from this segment, which has them.
    fn take(&mut self, backend: &impl SegmentBackend, number: u32, count: usize) -> Option<u32> {
        // SAFETY: a segment of this pool; we hold its lock (I1).
        let (free, dirty) = unsafe { Segment::words(backend.segment(number)) };
        let at = run(free & dirty, count).or_else(|| run(free, count))?;
        self.used += count;
        Some(self.take_out(backend, number, at, count))
    }

    /// Takes these free units out of this segment.
    fn take_out(&mut self, backend: &impl SegmentBackend, number: u32, at: u32, count: usize) -> u32 {
        let mask = mask(at, count);
        self.change(backend, number, |free, dirty| (free & !mask, dirty & !mask));
        self.idle = self.idle.min(self.dirty);
        number * SEGMENT_UNITS as u32 + at
    }

    /// Puts units back that are neither free nor in use.
    fn put(&mut self, backend: &impl SegmentBackend, unit: u32, count: usize, is_dirty: bool) {
        let (number, at) = (unit / SEGMENT_UNITS as u32, unit % SEGMENT_UNITS as u32);
        let mask = mask(at, count);
        self.change(backend, number, |free, dirty| {
            if free & mask != 0 {
                double_give(unit);
            }
            (free | mask, dirty | if is_dirty { mask } else { 0 })
        });
    }

    /// Changes the words of a segment, and puts it into the list where it belongs.
    fn change(&mut self, backend: &impl SegmentBackend, number: u32, f: impl FnOnce(u64, u64) -> (u64, u64)) {
        let segment = backend.segment(number);
        // SAFETY: a segment of this pool; we hold its lock (I1); its words tell the list that it is in.
        unsafe {
            let (old_free, old_dirty) = Segment::words(segment);
            let (free, dirty) = f(old_free, old_dirty);
            ((*segment).free, (*segment).dirty) = (free, dirty);
            self.dirty = self.dirty + dirty.count_ones() as usize - old_dirty.count_ones() as usize;
            if (old_free != 0, old_dirty != 0) == (free != 0, dirty != 0) {
                return;
            }
            if let Some(list) = self.list(old_free, old_dirty) {
                list.remove(&SegmentLinks(backend), number);
            }
            if let Some(list) = self.list(free, dirty) {
                list.push(&SegmentLinks(backend), number);
            }
        }
    }

    /// Returns the list for a segment with these words. A segment without a free unit is in no list.
    fn list(&mut self, free: u64, dirty: u64) -> Option<&mut List> {
        match (free, dirty) {
            (0, _) => None,
            (_, 0) => Some(&mut self.clean_list),
            _ => Some(&mut self.dirty_list),
        }
    }

    fn add(&mut self, backend: &impl SegmentBackend, number: u32, node: u32) {
        // SAFETY: it was just given to us alone, and is in no list.
        unsafe {
            *backend.segment(number) = Segment { free: u64::MAX, dirty: 0, link: Link::NONE, node };
            self.clean_list.push(&SegmentLinks(backend), number);
        }
        self.segments += 1;
    }

    /// Takes a run of at most `most` dirty units out, to be given to the system, while there are more than
    /// `keep`.
    fn send_off(&mut self, backend: &impl SegmentBackend, keep: usize, most: usize) -> Option<(u32, usize)> {
        let most = self.dirty.saturating_sub(keep).min(most);
        if most == 0 {
            return None;
        }
        let number = self.dirty_list.first()?;
        // SAFETY: as in `find`.
        let (_, dirty) = unsafe { Segment::words(backend.segment(number)) };
        let from = dirty.trailing_zeros();
        let count = ((dirty >> from).trailing_ones() as usize).min(most);
        if sites::LEAVING.is_weak() {
            // The units stay free; only their dirty bits change.
            self.change(backend, number, |free, dirty| (free, dirty & !mask(from, count)));
            return Some((number * SEGMENT_UNITS as u32 + from, count));
        }
        self.leaving += count;
        Some((self.take_out(backend, number, from, count), count))
    }
}

/// Returns the node of this unit's segment.
///
/// # Safety
/// The segment is in use: one of its units is of a slab that stays while the caller runs.
pub(crate) unsafe fn node_of(backend: &impl SegmentBackend, unit: u32) -> u32 {
    // SAFETY: written before the first of its units was given out, and never again.
    unsafe { (&raw const (*backend.segment(unit / SEGMENT_UNITS as u32)).node).read() }
}

#[cfg(all(test, not(loom), not(miri)))]
#[path = "../tests/main/support.rs"]
pub(crate) mod support;

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments for tests, of which `left` may be used.
    #[cfg(not(loom))]
    struct TestPages {
        segments: UnsafeCell<[Segment; 80]>,
        left: std::cell::Cell<u32>,
        /// The units that the system took, the number of requests, and whether it takes any.
        gone: std::cell::Cell<usize>,
        asked: std::cell::Cell<usize>,
        /// The number of accesses to a segment.
        looks: std::cell::Cell<usize>,
        takes: std::cell::Cell<bool>,
    }

    #[cfg(not(loom))]
    impl SegmentBackend for TestPages {
        fn segment(&self, number: u32) -> *mut Segment {
            self.looks.set(self.looks.get() + 1);
            self.segments.with_mut(|segments| segments.cast::<Segment>().wrapping_add(number as usize))
        }

        fn new_segment(&self, _node: u32) -> Option<u32> {
            let left = self.left.get().checked_sub(1)?;
            self.left.set(left);
            Some(left)
        }

        fn discard(&self, _unit: u32, count: usize) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.gone.set(self.gone.get() + if self.takes.get() { count } else { 0 });
            self.takes.get()
        }
    }

    #[cfg(not(loom))]
    fn test_pages() -> TestPages {
        use std::cell::Cell;
        TestPages {
            // SAFETY: all zeros are valid segments.
            segments: UnsafeCell::new(unsafe { std::mem::zeroed() }),
            left: Cell::new(80),
            gone: Cell::new(0),
            asked: Cell::new(0),
            looks: Cell::new(0),
            takes: Cell::new(true),
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn a_run_at_the_end_of_a_long_list_is_found() {
        let (test_pages, pool) = (test_pages(), PagePool::new());
        let all: Vec<u32> = (0..80 * 64).map(|_| pool.take(&test_pages, 0, 1).unwrap()).collect();
        assert_eq!(pool.take(&test_pages, 0, 1), None);
        // Two neighbours in the last segment of the list, and a single unit in every other.
        pool.give(&test_pages, all[0], 1);
        pool.give(&test_pages, all[0] ^ 1, 1);
        all.iter().skip(64).step_by(64).for_each(|unit| pool.give(&test_pages, *unit, 1));
        assert_eq!(pool.take(&test_pages, 0, 2), Some(all[0] & !1));
        assert_eq!(pool.take(&test_pages, 0, 2), None);
        assert_eq!(pool.units().used, 79 * 63 + 64);
    }

    #[test]
    #[cfg(all(not(loom), not(miri)))]
    fn a_decay_pass_is_bounded_and_respects_refusals() {
        let (test_pages, pool) = (test_pages(), PagePool::new());
        let all: Vec<u32> = (0..80 * 64).map(|_| pool.take(&test_pages, 0, 1).unwrap()).collect();
        test_pages.takes.set(false);
        all.iter().for_each(|unit| pool.give(&test_pages, *unit, 1));
        assert_eq!(pool.units(), PoolUnits { all: 80 * 64, used: 0, dirty: 80 * 64 });
        let asked = test_pages.asked.get();
        assert!(asked < 8, "the system was asked {asked} times although it refused");
        assert!(!pool.decay(&test_pages) && !pool.decay(&test_pages));
        assert_eq!(test_pages.asked.get(), asked);
        // An explicit purge finds that memory is taken again.
        test_pages.takes.set(true);
        pool.purge(&test_pages, 80 * 64 - 1, usize::MAX);
        assert_eq!(test_pages.gone.get(), 1);
        for turn in 0..3 {
            assert!(pool.decay(&test_pages));
            assert_eq!(test_pages.gone.get(), 1 + turn * DECAY_MAX + DECAY_MAX);
        }
        while pool.decay(&test_pages) {}
        assert_eq!((pool.units().dirty, test_pages.gone.get()), (0, 80 * 64));
    }

    #[test]
    #[cfg(all(not(loom), not(miri)))]
    fn a_purge_reads_no_clean_segment() {
        let (test_pages, pool) = (test_pages(), PagePool::new());
        let all: Vec<u32> = (0..80 * 64).map(|_| pool.take(&test_pages, 0, 1).unwrap()).collect();
        // One unit of each segment; the others have no memory any more.
        all.iter().step_by(64).for_each(|unit| pool.give(&test_pages, *unit, 1));
        pool.purge(&test_pages, 0, usize::MAX);
        pool.give(&test_pages, all[40 * 64 + 1], 1);
        test_pages.looks.set(0);
        pool.purge(&test_pages, 0, usize::MAX);
        assert!(test_pages.looks.get() < 10, "{} accesses to segments", test_pages.looks.get());
        // A unit with memory is taken first, even if the other list is longer.
        pool.give(&test_pages, all[7 * 64 + 3], 1);
        assert_eq!(pool.take(&test_pages, 0, 1), Some(all[7 * 64 + 3]));
        assert_eq!(pool.units(), PoolUnits { all: 80 * 64, used: 80 * 64 - 81, dirty: 0 });
    }

    #[test]
    #[cfg(not(loom))]
    fn the_child_of_a_fork_waits_for_no_other_thread() {
        let (test_pages, pool) = (test_pages(), PagePool::new());
        test_pages.left.set(0);
        // Units and segments of other threads, in the middle of their system calls.
        pool.locked(|inner| (inner.leaving, inner.coming) = (3, 2));
        pool.lock().lock();
        // SAFETY: the lock is held.
        unsafe { pool.forget_others() };
        pool.lock().unlock();
        assert_eq!(pool.take(&test_pages, 0, 1), None);
    }

    #[test]
    #[cfg(all(not(loom), not(miri)))]
    fn a_double_give_ends_the_program() {
        const TEST: &str = "page_pool::tests::a_double_give_ends_the_program";
        if support::is_child() {
            let (test_pages, pool) = (test_pages(), PagePool::new());
            let unit = pool.take(&test_pages, 0, 1).unwrap();
            pool.give(&test_pages, unit, 1);
            let _ =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.give(&test_pages, unit, 1)));
            return;
        }
        let output = support::again(TEST, &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("given back twice"), "{text}");
    }

    #[test]
    fn run_finds_the_first_aligned_run() {
        assert_eq!(run(0b1000, 1), Some(3));
        assert_eq!(run(0b0110, 2), None);
        assert_eq!(run(0b1100, 2), Some(2));
        assert_eq!(run(u64::MAX << 1, 32), Some(32));
        assert_eq!(run(u64::MAX, 64), Some(0));
        assert_eq!(run(u64::MAX >> 1, 64), None);
        for count in [1usize, 2, 4, 8, 16, 32, 64] {
            for at in (0..64).step_by(count) {
                assert_eq!(run(mask(at as u32, count), count), Some(at as u32));
                assert_eq!(run(mask(at as u32, count) & !(1 << at), count), None);
            }
        }
    }
}
