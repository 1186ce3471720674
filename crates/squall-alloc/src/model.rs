//! Model checks of what several threads do to one heap, and of emptying a VP's magazine beside its sequences; and the tests of those
//! tests.
//!
//! The heap, the pools of pages, the lock and the emptying are those that ship. A sequence cannot be: it is assembly. What stands
//! for it does the same loads in the same order, and commits unless the kernel, a lock here, has restarted its VP since it began.

use crate::classes::{COUNT, SIZES, SLAB_SHIFT, units};
use crate::drain;
use crate::heap::{Heap, Land, Slab};
use crate::magazine::Magazine;
use crate::units::{Field, Pool, SEGMENT_UNITS, Segment};
use squall_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use squall_sync::cell::UnsafeCell;
use squall_sync::sync::{Arc, Mutex};
use squall_sync::thread;
use std::ptr;

/// The class of four blocks to a slab.
const CLASS: usize = 55;
const _: () = assert!(units(CLASS) << SLAB_SHIFT == 4 * SIZES[CLASS] && CLASS < COUNT);

/// One segment, which is given out once.
struct Plot {
    slabs: Box<[UnsafeCell<Slab>]>,
    segment: UnsafeCell<Segment>,
    pool: Pool,
    given: AtomicU32,
    /// What the users of the blocks write to.
    blocks: Box<[UnsafeCell<u32>]>,
    /// For each slab, whether the pool has it.
    free: Box<[Mutex<bool>]>,
}

// SAFETY: what is in it is under the locks of the heap and the pool, which is what is checked; blocks are checked by loom.
unsafe impl Send for Plot {}
// SAFETY: as above.
unsafe impl Sync for Plot {}

const SLABS: usize = SEGMENT_UNITS / units(CLASS);

impl Plot {
    fn new() -> Plot {
        // SAFETY: all zeros are a good slab and segment.
        unsafe {
            Plot {
                slabs: (0..SEGMENT_UNITS).map(|_| UnsafeCell::new(std::mem::zeroed())).collect(),
                segment: UnsafeCell::new(std::mem::zeroed()),
                pool: Pool::new(),
                given: AtomicU32::new(0),
                blocks: (0..4 * SLABS).map(|_| UnsafeCell::new(0)).collect(),
                free: (0..SLABS).map(|_| Mutex::new(true)).collect(),
            }
        }
    }

    /// Does what the block's user does.
    fn use_block(&self, offset: usize) {
        assert!(
            !*self.free[(offset >> SLAB_SHIFT) / units(CLASS)].lock().unwrap(),
            "its pages were given back"
        );
        self.blocks[offset / SIZES[CLASS]].with_mut(|block| {
            // SAFETY: loom refuses the model if another thread is at it.
            unsafe { *block += 1 };
        });
    }
}

impl Land for Plot {
    fn slab(&self, unit: u32) -> *mut Slab {
        self.slabs[unit as usize].with_mut(|slab| slab)
    }

    fn take_units(&self, count: usize, home: u32) -> Option<u32> {
        let unit = self.pool.take(self, home, count)?;
        *self.free[unit as usize / count].lock().unwrap() = false;
        Some(unit)
    }

    fn give_units(&self, unit: u32, count: usize) {
        *self.free[unit as usize / count].lock().unwrap() = true;
        self.pool.give(self, unit, count);
    }

    fn direct(&self, _unit: u32, _count: usize, _home: u32, _class: usize) {}
}

impl Field for Plot {
    fn segment(&self, _number: u32) -> *mut Segment {
        self.segment.with_mut(|segment| segment)
    }

    fn new_segment(&self) -> Option<u32> {
        (self.given.fetch_add(1, Ordering::Relaxed) == 0).then_some(0)
    }

    fn discard(&self, _unit: u32, _count: usize) -> bool {
        true
    }
}

fn take(heap: &Heap, plot: &Plot) -> usize {
    let mut block = None;
    heap.take(plot, CLASS, 1, |offset| block = Some(offset));
    block.expect("there are enough")
}

fn put(heap: &Heap, plot: &Plot, block: usize, from_elsewhere: bool) {
    let first = |offset: usize| ((offset >> SLAB_SHIFT) / units(CLASS) * units(CLASS)) as u32;
    heap.put(plot, [block].into_iter(), from_elsewhere, first, |_, wrong| panic!("{wrong:?}"));
}

/// Two threads, each of which uses a block of the heap; the second frees what the first took before, too.
fn freed_elsewhere() {
    let (heap, plot) = (Arc::new(Heap::new(0)), Arc::new(Plot::new()));
    let kept = take(&heap, &plot);
    plot.use_block(kept);
    let other = {
        let (heap, plot) = (heap.clone(), plot.clone());
        thread::spawn(move || {
            plot.use_block(kept);
            put(&heap, &plot, kept, true);
        })
    };
    let block = take(&heap, &plot);
    plot.use_block(block);
    put(&heap, &plot, block, false);
    let again = take(&heap, &plot);
    plot.use_block(again);
    put(&heap, &plot, again, false);
    other.join().unwrap();
}

/// A slab is given back by whoever frees its last block, while another thread allocates.
fn pages_go_back() {
    let (heap, plot) = (Arc::new(Heap::new(0)), Arc::new(Plot::new()));
    let kept = take(&heap, &plot);
    let other = {
        let (heap, plot) = (heap.clone(), plot.clone());
        thread::spawn(move || put(&heap, &plot, kept, true))
    };
    let block = take(&heap, &plot);
    plot.use_block(block);
    other.join().unwrap();
    plot.use_block(block);
    put(&heap, &plot, block, false);
}

/// What stands for the kernel: how often it has restarted the VP.
struct Kernel(Mutex<u32>);

/// A magazine with its room.
#[repr(C)]
struct Room {
    head: Magazine,
    slots: [AtomicPtr<u8>; 2],
}

struct Processor {
    kernel: Kernel,
    room: Room,
    /// What the users of the two blocks write to.
    blocks: [UnsafeCell<u32>; 2],
}

// SAFETY: the blocks are checked by loom.
unsafe impl Sync for Processor {}
// SAFETY: as above.
unsafe impl Send for Processor {}

/// The block of this number, as a pointer that nobody follows.
fn pointer(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(number + 1)
}

impl Processor {
    fn new() -> Processor {
        let head = Magazine {
            count: AtomicU32::new(2),
            low: AtomicU32::new(0),
            high: AtomicU32::new(2),
            vp: AtomicU32::new(0),
        };
        let slots = [AtomicPtr::new(pointer(0)), AtomicPtr::new(pointer(1))];
        let blocks = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Processor { kernel: Kernel(Mutex::new(0)), room: Room { head, slots }, blocks }
    }

    fn slot(&self, index: usize) -> &AtomicPtr<u8> {
        assert_eq!(
            ptr::from_ref(&self.room.slots[0]).addr(),
            unsafe { Magazine::slot(&self.room.head, 0) }.addr()
        );
        &self.room.slots[index]
    }

    /// A sequence: `body` loads, and says what the last store is to be; nothing where it leaves.
    fn sequence(&self, body: impl Fn() -> Option<u32>) -> bool {
        loop {
            let began = *self.kernel.0.lock().unwrap();
            let Some(count) = body() else { return false };
            let restarts = self.kernel.0.lock().unwrap();
            if *restarts == began {
                self.room.head.count.store(count, Ordering::Relaxed);
                return true;
            }
        }
    }

    fn pop(&self) -> Option<*mut u8> {
        let block = std::cell::Cell::new(ptr::null_mut());
        let head = &self.room.head;
        let committed = self.sequence(|| {
            let count = head.count.load(Ordering::Relaxed);
            if count <= head.low.load(Ordering::Relaxed) {
                return None;
            }
            block.set(self.slot(count as usize - 1).load(Ordering::Relaxed));
            Some(count - 1)
        });
        committed.then(|| block.get())
    }

    fn push(&self, block: *mut u8) -> bool {
        let head = &self.room.head;
        self.sequence(|| {
            let count = head.count.load(Ordering::Relaxed);
            if count >= head.high.load(Ordering::Relaxed) {
                return None;
            }
            self.slot(count as usize).store(block, Ordering::Relaxed);
            Some(count + 1)
        })
    }

    fn use_block(&self, block: *mut u8) {
        self.blocks[block.addr() - 1].with_mut(|block| {
            // SAFETY: loom refuses the model if another thread is at it.
            unsafe { *block += 1 };
        });
    }

    fn empty(&self) -> Vec<*mut u8> {
        let mut taken = Vec::new();
        drain::empty_magazines(
            || [&self.room.head].into_iter(),
            || {
                *self.kernel.0.lock().unwrap() += 1;
                true
            },
            |block| taken.push(block),
            || {
                self.room.head.low.store(0, Ordering::Relaxed);
                self.room.head.high.store(2, Ordering::Release);
            },
        );
        taken
    }
}

/// A thread takes what it finds, and puts one back, while another empties the magazine; each block is one thread's.
fn emptied_beside_sequences() {
    let processor = Arc::new(Processor::new());
    let other = {
        let processor = processor.clone();
        thread::spawn(move || {
            let mut mine = Vec::new();
            if let Some(block) = processor.pop() {
                processor.use_block(block);
                if !processor.push(block) {
                    mine.push(block);
                }
            }
            if let Some(block) = processor.pop() {
                mine.push(block);
            }
            mine.iter().for_each(|block| processor.use_block(*block));
            mine
        })
    };
    let taken = processor.empty();
    taken.iter().for_each(|block| processor.use_block(*block));
    let theirs = other.join().unwrap();
    let left = std::iter::from_fn(|| processor.pop());
    let mut all: Vec<usize> =
        taken.iter().chain(&theirs).copied().chain(left).map(|block| block.addr()).collect();
    all.sort_unstable();
    assert_eq!(all, [1, 2], "each block is somewhere, and once");
}

mod checks {
    use squall_sync::weaken::check;

    #[test]
    fn freed_elsewhere() {
        check(super::freed_elsewhere);
    }

    #[test]
    fn pages_go_back() {
        check(super::pages_go_back);
    }

    #[test]
    fn emptied_beside_sequences() {
        check(super::emptied_beside_sequences);
    }
}

mod twins {
    use crate::sites;
    use squall_sync::weaken::twin;

    #[test]
    fn who_gets_a_lock_has_to_see_what_its_holders_did() {
        twin(sites::ACQUIRE, &[], "model::checks::freed_elsewhere");
    }

    #[test]
    fn who_gives_it_back_has_to_show_it() {
        twin(sites::RELEASE, &[], "model::checks::freed_elsewhere");
    }

    #[test]
    fn a_slab_has_to_be_given_back_under_the_lock() {
        twin(sites::UNDER_LOCK, &[], "model::checks::pages_go_back");
    }

    #[test]
    fn a_magazine_has_to_be_closed() {
        twin(sites::CLOSE, &[], "model::checks::emptied_beside_sequences");
    }

    #[test]
    fn sequences_have_to_be_restarted() {
        twin(sites::RESTART, &[], "model::checks::emptied_beside_sequences");
    }

    #[test]
    fn and_once_more() {
        twin(sites::AGAIN, &[], "model::checks::emptied_beside_sequences");
    }
}
