//! Model checks of the allocator: one heap used by several threads, pages that come and go, and the growth of
//! segments. Module `machine` checks sequences, the drain beside them, and remote frees. The twins weaken one
//! site each and must fail.
//!
//! The heap, the page pools, the growth, the lock, the drain and the remote frees are the shipped code.

mod machine;

use crate::classes::{COUNT, SIZES, SLAB_SHIFT, units};
use crate::growth::Growth;
use crate::heap::{Heap, Slab, SlabBackend};
use crate::page_pool::{PagePool, SEGMENT_UNITS, Segment, SegmentBackend};
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use squall_sys::sync::{Arc, Mutex};

/// The class with four blocks per slab.
const CLASS: usize = 55;
const _: () = assert!(units(CLASS) << SLAB_SHIFT == 4 * SIZES[CLASS] && CLASS < COUNT);

/// One segment, which is given out once.
struct TestPages {
    slabs: Box<[UnsafeCell<Slab>]>,
    segment: UnsafeCell<Segment>,
    pool: PagePool,
    given: AtomicU32,
    /// The data that the users of the blocks write.
    blocks: Box<[UnsafeCell<u32>]>,
    /// By slab: whether the pool has it.
    free: Box<[Mutex<bool>]>,
    /// By slab: the VP of its heap plus one; 0: no home.
    map: Box<[AtomicU32]>,
}

// SAFETY: the locks of the heap and the pool protect its content; the model checks this. Loom checks the
// blocks.
unsafe impl Send for TestPages {}
// SAFETY: as above.
unsafe impl Sync for TestPages {}

const SLABS: usize = SEGMENT_UNITS / units(CLASS);

impl TestPages {
    fn new() -> TestPages {
        // SAFETY: all zeros are a valid slab and segment.
        unsafe {
            TestPages {
                slabs: (0..SEGMENT_UNITS).map(|_| UnsafeCell::new(std::mem::zeroed())).collect(),
                segment: UnsafeCell::new(std::mem::zeroed()),
                pool: PagePool::new(),
                given: AtomicU32::new(0),
                blocks: (0..4 * SLABS).map(|_| UnsafeCell::new(0)).collect(),
                free: (0..SLABS).map(|_| Mutex::new(true)).collect(),
                map: (0..SLABS).map(|_| AtomicU32::new(0)).collect(),
            }
        }
    }

    /// Returns the home of a block that the caller has.
    fn home_of(&self, offset: usize) -> Option<u32> {
        self.map[(offset >> SLAB_SHIFT) / units(CLASS)].load(Ordering::Relaxed).checked_sub(1)
    }

    /// Acts as the user of the block.
    fn use_block(&self, offset: usize) {
        assert!(
            !*self.free[(offset >> SLAB_SHIFT) / units(CLASS)].lock().unwrap(),
            "the pages of the block were given back"
        );
        self.blocks[offset / SIZES[CLASS]].with_mut(|block| {
            // SAFETY: loom rejects the model if another thread accesses it.
            unsafe { *block += 1 };
        });
    }
}

impl SlabBackend for TestPages {
    fn slab(&self, unit: u32) -> *mut Slab {
        self.slabs[unit as usize].with_mut(|slab| slab)
    }

    fn take_units(&self, count: usize, home: u32) -> Option<u32> {
        let unit = self.pool.take(self, home, count)?;
        *self.free[unit as usize / count].lock().unwrap() = false;
        Some(unit)
    }

    fn give_units(&self, unit: u32, count: usize) {
        self.map[unit as usize / count].store(0, Ordering::Relaxed);
        *self.free[unit as usize / count].lock().unwrap() = true;
        self.pool.give(self, unit, count);
    }

    fn set_home(&self, unit: u32, count: usize, home: u32, _class: usize) {
        self.map[unit as usize / count].store(home + 1, Ordering::Relaxed);
    }
}

impl SegmentBackend for TestPages {
    fn segment(&self, _number: u32) -> *mut Segment {
        self.segment.with_mut(|segment| segment)
    }

    fn new_segment(&self, _node: u32) -> Option<u32> {
        (self.given.fetch_add(1, Ordering::Relaxed) == 0).then_some(0)
    }

    fn discard(&self, unit: u32, count: usize) -> bool {
        for block in (unit as usize..unit as usize + count).step_by(SIZES[CLASS] >> SLAB_SHIFT) {
            self.blocks[block / (SIZES[CLASS] >> SLAB_SHIFT)].with_mut(|block| {
                // SAFETY: loom rejects the model if another thread accesses it.
                unsafe { *block = 0 };
            });
        }
        true
    }
}

fn take(heap: &Heap, test_pages: &TestPages) -> usize {
    let mut block = None;
    heap.take(test_pages, CLASS, 1, |offset, _| block = Some(offset));
    block.expect("the pool has enough units")
}

fn put(heap: &Heap, test_pages: &TestPages, block: usize, from_elsewhere: bool) {
    let first = |offset: usize| ((offset >> SLAB_SHIFT) / units(CLASS) * units(CLASS)) as u32;
    let block = std::ptr::without_provenance_mut(block);
    heap.put(test_pages, 0, &[block], from_elsewhere, first, |_, wrong| panic!("{wrong:?}"));
}

/// Two threads use one block each. The second one also frees a block that the first one took before.
fn freed_elsewhere() {
    let (heap, test_pages) = (Arc::new(Heap::new(0, 0)), Arc::new(TestPages::new()));
    let kept = take(&heap, &test_pages);
    test_pages.use_block(kept);
    let other = {
        let (heap, test_pages) = (heap.clone(), test_pages.clone());
        thread::spawn(move || {
            test_pages.use_block(kept);
            put(&heap, &test_pages, kept, true);
        })
    };
    let block = take(&heap, &test_pages);
    test_pages.use_block(block);
    put(&heap, &test_pages, block, false);
    let again = take(&heap, &test_pages);
    test_pages.use_block(again);
    put(&heap, &test_pages, again, false);
    other.join().unwrap();
}

/// The thread that frees the last block gives the slab back, while another thread allocates.
fn pages_go_back() {
    let (heap, test_pages) = (Arc::new(Heap::new(0, 0)), Arc::new(TestPages::new()));
    let kept = take(&heap, &test_pages);
    let other = {
        let (heap, test_pages) = (heap.clone(), test_pages.clone());
        thread::spawn(move || put(&heap, &test_pages, kept, true))
    };
    let block = take(&heap, &test_pages);
    test_pages.use_block(block);
    other.join().unwrap();
    test_pages.use_block(block);
    put(&heap, &test_pages, block, false);
}

/// Two threads find no free block, and one of them takes from the slab that the other one brings. The
/// map has the heap of the block.
fn a_new_slab_is_whole() {
    let (heap, test_pages) = (Arc::new(Heap::new(0, 0)), Arc::new(TestPages::new()));
    let other = {
        let (heap, test_pages) = (heap.clone(), test_pages.clone());
        thread::spawn(move || {
            let block = take(&heap, &test_pages);
            test_pages.use_block(block);
            assert_eq!(test_pages.home_of(block), Some(0));
        })
    };
    let block = take(&heap, &test_pages);
    test_pages.use_block(block);
    assert_eq!(test_pages.home_of(block), Some(0));
    other.join().unwrap();
}

/// A slab without blocks in use is kept as a spare. One thread gives it back while another takes a block.
fn a_spare_is_given_back() {
    let (heap, test_pages) = (Arc::new(Heap::new(0, 1)), Arc::new(TestPages::new()));
    let block = take(&heap, &test_pages);
    put(&heap, &test_pages, block, false);
    assert_eq!(heap.spares(), 1);
    let other = {
        let (heap, test_pages) = (heap.clone(), test_pages.clone());
        thread::spawn(move || heap.give_spares(&*test_pages, true))
    };
    let block = take(&heap, &test_pages);
    test_pages.use_block(block);
    assert!(!other.join().unwrap());
    test_pages.use_block(block);
    assert_eq!((heap.spares(), test_pages.home_of(block)), (0, Some(0)));
    put(&heap, &test_pages, block, false);
}

/// Pages go to the system while another thread takes all units.
fn pages_leave() {
    let test_pages = Arc::new(TestPages::new());
    let half = SEGMENT_UNITS / 2;
    let unit = test_pages.pool.take(&*test_pages, 0, half).unwrap();
    test_pages.pool.give(&*test_pages, unit, half);
    let other = {
        let test_pages = test_pages.clone();
        thread::spawn(move || test_pages.pool.purge(&*test_pages, 0, usize::MAX))
    };
    for _ in 0..2 {
        let unit = test_pages.pool.take(&*test_pages, 0, half).expect("no unit is lost");
        *test_pages.free[unit as usize / half].lock().unwrap() = false;
        test_pages.use_block((unit as usize) << SLAB_SHIFT);
    }
    other.join().unwrap();
    assert_eq!(test_pages.pool.units().used, SEGMENT_UNITS);
}

/// The system refuses a segment to one thread while another asks for the next one.
fn a_segment_is_refused() {
    const END: usize = 2;
    /// Refuses the first segment once.
    fn grow(growth: &Growth, refused: &AtomicU32, given: &[AtomicU32; END]) -> bool {
        let make = |number| number != 0 || refused.fetch_add(1, Ordering::Relaxed) > 0;
        let number = growth.grow(END, make);
        number.inspect(|number| assert_eq!(given[*number].fetch_add(1, Ordering::Relaxed), 0)).is_some()
    }
    let growth = Arc::new((Growth::new(), AtomicU32::new(0), [0, 0].map(AtomicU32::new)));
    let other = {
        let growth = growth.clone();
        thread::spawn(move || u32::from(grow(&growth.0, &growth.1, &growth.2)))
    };
    let mut count = u32::from(grow(&growth.0, &growth.1, &growth.2)) + other.join().unwrap();
    while grow(&growth.0, &growth.1, &growth.2) {
        count += 1;
    }
    assert_eq!(count, END as u32, "no unit is lost");
}

mod checks {
    use squall_sys::sync::weaken::{check, check_within};

    #[test]
    fn freed_elsewhere() {
        check(super::freed_elsewhere);
    }

    #[test]
    fn pages_go_back() {
        check(super::pages_go_back);
    }

    #[test]
    fn a_spare_is_given_back() {
        check(super::a_spare_is_given_back);
    }

    #[test]
    fn a_new_slab_is_whole() {
        check(super::a_new_slab_is_whole);
    }

    #[test]
    fn pages_leave() {
        check(super::pages_leave);
    }

    #[test]
    fn a_segment_is_refused() {
        check(super::a_segment_is_refused);
    }

    #[test]
    fn emptied_beside_sequences() {
        check(super::machine::emptied_beside_sequences);
    }

    #[test]
    fn moved_in_the_middle() {
        check(super::machine::moved_in_the_middle);
    }

    #[test]
    fn sent_home() {
        check_within(2, super::machine::sent_home);
    }

    #[test]
    fn kept() {
        check_within(2, super::machine::kept);
    }
}

mod twins {
    use crate::sites;
    use squall_sys::sync::weaken::twin;

    #[test]
    fn a_lock_needs_its_acquire() {
        twin(sites::ACQUIRE, &[], "model::checks::freed_elsewhere");
    }

    #[test]
    fn an_unlock_needs_its_release() {
        twin(sites::RELEASE, &[], "model::checks::freed_elsewhere");
    }

    #[test]
    fn a_slab_must_leave_its_list_before_it_is_given_back() {
        twin(sites::TAKEN_OUT, &[], "model::checks::pages_go_back");
    }

    #[test]
    fn a_spare_must_leave_the_spares_before_it_is_given_back() {
        twin(sites::SPARE_TAKEN_OUT, &[], "model::checks::a_spare_is_given_back");
    }

    #[test]
    fn a_slab_must_lead_home_before_it_enters_a_list() {
        twin(sites::DIRECT, &[], "model::checks::a_new_slab_is_whole");
    }

    #[test]
    fn leaving_pages_must_not_be_free() {
        twin(sites::LEAVING, &[], "model::checks::pages_leave");
    }

    #[test]
    fn segments_must_be_made_usable_one_at_a_time() {
        twin(sites::GROWS_ALONE, &[], "model::checks::a_segment_is_refused");
    }

    #[test]
    fn a_sequence_must_read_its_vp_after_it_began() {
        twin(sites::ASKED_WITHIN, &[], "model::checks::moved_in_the_middle");
    }

    #[test]
    fn a_batch_must_be_sorted_by_home() {
        twin(sites::BY_HOME, &[], "model::checks::sent_home");
    }

    #[test]
    fn a_drained_outbox_must_be_closed() {
        twin(sites::CLOSE, &[], "model::checks::sent_home");
    }

    #[test]
    fn a_magazine_with_kept_blocks_must_be_closed() {
        twin(sites::CLOSE, &[], "model::checks::kept");
    }

    #[test]
    fn a_drained_magazine_must_be_closed() {
        twin(sites::CLOSE, &[], "model::checks::emptied_beside_sequences");
    }

    #[test]
    fn a_drain_must_restart_the_sequences() {
        twin(sites::RESTART, &[], "model::checks::emptied_beside_sequences");
    }

    #[test]
    fn a_drain_must_restart_the_sequences_twice() {
        twin(sites::AGAIN, &[], "model::checks::emptied_beside_sequences");
    }
}
