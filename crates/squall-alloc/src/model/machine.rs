//! A modelled machine of two VPs, with threads that run sequences.
//!
//! The shipped sequences are assembly and cannot be model-checked. The modelled ones do the same loads in the
//! same order, and commit unless they were interrupted since they began. Three events interrupt: the thread
//! moves, another sequence commits on the VP, or the kernel (a lock in the model) restarts the sequences in
//! flight there.

use super::{CLASS, TestPages, put, take};

use crate::classes::SLAB_SHIFT;
use crate::heap::Heap;
use crate::magazine::{Batch, Magazine};
use crate::remote_free::{BlockHomes, send_home};
use crate::{drain, sites};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use squall_sys::sync::{Arc, Mutex};
use std::cell::Cell;
use std::ptr;

const VPS: usize = 2;
const THREADS: usize = 2;
const SLOTS: usize = 2;

/// The modelled kernel: the number of restarts of each VP, and the VP of each thread.
struct Kernel {
    restarts: [u32; VPS],
    at: [usize; THREADS],
}

/// A magazine with its slots.
#[repr(C)]
struct Room {
    head: Magazine,
    slots: [AtomicPtr<u8>; SLOTS],
}

impl Room {
    fn new(blocks: &[*mut u8], high: u32) -> Room {
        let slot = |index: usize| AtomicPtr::new(blocks.get(index).copied().unwrap_or(ptr::null_mut()));
        let count = AtomicU32::new(blocks.len() as u32);
        let head = Magazine { count, low: AtomicU32::new(0), high: AtomicU32::new(high) };
        Room { head, slots: [slot(0), slot(1)] }
    }

    fn slot(&self, index: usize) -> &AtomicPtr<u8> {
        // SAFETY: an address, without an access.
        let shipped = unsafe { Magazine::slot(&raw const self.head, 0) };
        assert_eq!(ptr::from_ref(&self.slots[0]).addr(), shipped.addr());
        &self.slots[index]
    }
}

struct Machine {
    kernel: Mutex<Kernel>,
    rooms: [Room; VPS],
    high: u32,
}

impl Machine {
    /// Makes a machine on which thread `i` runs on VP `at[i]`.
    fn new(rooms: [Room; VPS], high: u32, at: [usize; THREADS]) -> Machine {
        Machine { kernel: Mutex::new(Kernel { restarts: [0; VPS], at }), rooms, high }
    }

    /// Runs a sequence of this thread. `body` loads from the magazine of the current VP and returns the value
    /// of the last store, or `None` to leave without a commit.
    fn sequence(&self, thread: usize, body: impl Fn(&Room) -> Option<u32>) -> bool {
        let asked_before = self.kernel.lock().unwrap().at[thread];
        loop {
            let (at, began) = {
                let kernel = self.kernel.lock().unwrap();
                (kernel.at[thread], kernel.restarts[kernel.at[thread]])
            };
            let room = &self.rooms[if sites::ASKED_WITHIN.is_weak() { asked_before } else { at }];
            let Some(count) = body(room) else { return false };
            let mut kernel = self.kernel.lock().unwrap();
            if kernel.at[thread] == at && kernel.restarts[at] == began {
                room.head.count.store(count, Ordering::Relaxed);
                kernel.restarts[at] += 1;
                return true;
            }
        }
    }

    fn pop(&self, thread: usize) -> Option<*mut u8> {
        let block = Cell::new(ptr::null_mut());
        let committed = self.sequence(thread, |room| {
            let count = room.head.count.load(Ordering::Relaxed);
            if count <= room.head.low.load(Ordering::Relaxed) {
                return None;
            }
            block.set(room.slot(count as usize - 1).load(Ordering::Relaxed));
            Some(count - 1)
        });
        committed.then(|| block.get())
    }

    fn push(&self, thread: usize, block: *mut u8) -> bool {
        self.sequence(thread, |room| {
            let count = room.head.count.load(Ordering::Relaxed);
            if count >= room.head.high.load(Ordering::Relaxed) {
                return None;
            }
            room.slot(count as usize).store(block, Ordering::Relaxed);
            Some(count + 1)
        })
    }

    fn move_to(&self, thread: usize, vp: usize) {
        self.kernel.lock().unwrap().at[thread] = vp;
    }

    fn empty(&self, vp: usize) -> Vec<*mut u8> {
        let (mut taken, head) = (Vec::new(), &self.rooms[vp].head);
        drain::empty_magazines(
            || [head].into_iter(),
            || {
                self.kernel.lock().unwrap().restarts[vp] += 1;
                true
            },
            |block| taken.push(block),
            || {
                head.low.store(0, Ordering::Relaxed);
                // Release: pairs with the sequences' load, as in `Part::open`.
                head.high.store(self.high, Ordering::Release);
            },
        );
        taken
    }
}

/// The block of this number, as a pointer that is never dereferenced.
fn pointer(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(number + 1)
}

/// A machine, and the data of two blocks.
struct Used {
    machine: Machine,
    blocks: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks the blocks.
unsafe impl Sync for Used {}
// SAFETY: as above.
unsafe impl Send for Used {}

impl Used {
    /// Makes a machine with both blocks and both threads on VP 0.
    fn new() -> Arc<Used> {
        let rooms = [Room::new(&[pointer(0), pointer(1)], 2), Room::new(&[], 2)];
        let machine = Machine::new(rooms, 2, [0, 0]);
        Arc::new(Used { machine, blocks: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn use_block(&self, block: *mut u8) {
        self.blocks[block.addr() - 1].with_mut(|block| {
            // SAFETY: loom rejects the model if another thread accesses it.
            unsafe { *block += 1 };
        });
    }

    /// Checks that the blocks left on both VPs, together with those in `had`, are both blocks, once each.
    fn nothing_is_lost(&self, had: impl Iterator<Item = *mut u8>) {
        self.machine.move_to(0, 0);
        let first = std::iter::from_fn(|| self.machine.pop(0)).collect::<Vec<_>>();
        self.machine.move_to(0, 1);
        let second = std::iter::from_fn(|| self.machine.pop(0)).collect::<Vec<_>>();
        let mut all: Vec<usize> = had.chain(first).chain(second).map(|block| block.addr()).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2], "each block is in one place");
    }
}

/// A thread pops the blocks it finds and pushes one back, while another drains the magazine. Each block has
/// one owner.
pub(super) fn emptied_beside_sequences() {
    let used = Used::new();
    let other = {
        let used = used.clone();
        thread::spawn(move || {
            let mut mine = Vec::new();
            if let Some(block) = used.machine.pop(0) {
                used.use_block(block);
                if !used.machine.push(0, block) {
                    mine.push(block);
                }
            }
            if let Some(block) = used.machine.pop(0) {
                mine.push(block);
            }
            mine.iter().for_each(|block| used.use_block(*block));
            mine
        })
    };
    let taken = used.machine.empty(0);
    taken.iter().for_each(|block| used.use_block(*block));
    let theirs = other.join().unwrap();
    used.nothing_is_lost(taken.into_iter().chain(theirs));
}

/// Two threads of one VP pop a block each. Meanwhile one of them moves to the other VP, and pushes its block
/// there.
pub(super) fn moved_in_the_middle() {
    let used = Used::new();
    let other = {
        let used = used.clone();
        thread::spawn(move || {
            let block = used.machine.pop(0)?;
            used.use_block(block);
            (!used.machine.push(0, block)).then_some(block)
        })
    };
    // The kernel does this, on its own processor's time.
    used.machine.move_to(0, 1);
    let mine = used.machine.pop(1);
    mine.iter().for_each(|block| used.use_block(*block));
    let theirs = other.join().unwrap();
    used.nothing_is_lost(mine.into_iter().chain(theirs));
}

/// Two heaps, and a VP with an outbox of one slot.
struct TwoHeaps {
    machine: Machine,
    /// Boxed separately, because the stacks of loom's threads are small.
    heaps: [Arc<Heap>; 2],
    test_pages: TestPages,
}

// SAFETY: loom checks the heaps and the pages.
unsafe impl Sync for TwoHeaps {}
// SAFETY: as above.
unsafe impl Send for TwoHeaps {}

impl BlockHomes for TwoHeaps {
    fn home_of(&self, block: *mut u8) -> Option<u32> {
        self.test_pages.home_of(block.addr() - 1)
    }

    fn are_together(&self, block: *mut u8, other: *mut u8) -> bool {
        ((block.addr() - 1) ^ (other.addr() - 1)) >> SLAB_SHIFT == 0
    }

    fn put_on(&self, home: u32, blocks: &[*mut u8], _sent_home: bool) {
        for block in blocks {
            assert_eq!(self.home_of(*block), Some(home), "a block is put into the heap of its home");
            put(&self.heaps[home as usize], &self.test_pages, block.addr() - 1, true);
        }
    }

    fn foreign(&self, _block: *mut u8) {
        panic!("a block in use leads to its home");
    }
}

impl TwoHeaps {
    /// Frees blocks of other VPs on VP 0, like `raw::put_block`.
    fn free(&self, block: *mut u8) {
        let mut batch = Batch::new();
        if self.machine.push(0, block) {
            return;
        }
        let popped = self.machine.pop(0);
        for block in popped.into_iter().chain([block]) {
            batch.push(block);
        }
        send_home(self, 0, &mut batch);
    }

    fn empty(&self) {
        let mut batch = Batch::new();
        for block in self.machine.empty(0) {
            batch.push(block);
        }
        send_home(self, 0, &mut batch);
    }
}

#[inline(never)]
fn heap(home: u32) -> Arc<Heap> {
    Arc::new(Heap::new(home, 0))
}

#[inline(never)]
fn out(heap: &Heap) -> u64 {
    heap.counts()[CLASS].out
}

/// A thread frees a block of each heap through an outbox, while another drains the outbox and allocates. All
/// blocks come home.
pub(super) fn sent_home() {
    let rooms = [Room::new(&[], 1), Room::new(&[], 1)];
    let two = Arc::new(TwoHeaps {
        machine: Machine::new(rooms, 1, [0, 0]),
        heaps: [heap(0), heap(1)],
        test_pages: TestPages::new(),
    });
    // The kept blocks hold their slabs; another model covers slabs that go back.
    let kept = [0, 1].map(|home: usize| take(&two.heaps[home], &two.test_pages));
    let blocks = [1, 0].map(|home: usize| {
        let block = take(&two.heaps[home], &two.test_pages);
        two.test_pages.use_block(block);
        pointer(block)
    });
    let other = {
        let two = two.clone();
        // The model uses pointers as numbers.
        let blocks = blocks.map(|block| block.addr());
        thread::spawn(move || {
            blocks.into_iter().for_each(|block| two.free(ptr::without_provenance_mut(block)))
        })
    };
    let block = take(&two.heaps[0], &two.test_pages);
    two.test_pages.use_block(block);
    two.empty();
    other.join().unwrap();
    two.empty();
    let left = (out(&two.heaps[0]), out(&two.heaps[1]));
    assert_eq!(left, (2, 1), "all blocks but the kept ones came home");
    assert!(!kept.contains(&block));
}

/// A thread keeps a block of another VP's heap. Another thread of its VP takes, uses and frees it there,
/// unless it was sent home before. The block comes home.
pub(super) fn kept() {
    let rooms = [Room::new(&[], 1), Room::new(&[], 1)];
    let two = Arc::new(TwoHeaps {
        machine: Machine::new(rooms, 1, [0, 0]),
        heaps: [heap(0), heap(1)],
        test_pages: TestPages::new(),
    });
    let kept = take(&two.heaps[1], &two.test_pages);
    let block = take(&two.heaps[1], &two.test_pages);
    two.test_pages.use_block(block);
    let other = {
        let two = two.clone();
        thread::spawn(move || {
            two.test_pages.use_block(block);
            two.free(pointer(block));
            two.empty();
        })
    };
    if let Some(found) = two.machine.pop(0) {
        two.test_pages.use_block(found.addr() - 1);
        two.free(found);
    }
    other.join().unwrap();
    two.empty();
    assert_eq!(out(&two.heaps[1]), 1, "the block came home");
    two.test_pages.use_block(kept);
}
