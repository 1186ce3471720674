//! A machine of two VPs, and threads that run sequences on it.
//!
//! A sequence that ships cannot be checked: it is assembly. What stands for it does the same loads in the same order, and commits
//! unless it was disturbed since it began: its thread was moved, another one committed on its VP, or the kernel, a lock here, was asked
//! to restart what is in flight there.

use super::{CLASS, Plot, put, take};

use crate::classes::SLAB_SHIFT;
use crate::heap::Heap;
use crate::home::{Homes, send_home};
use crate::magazine::{Batch, Magazine};
use crate::{drain, sites};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::{Arc, Mutex};
use squall_sys::sync::thread;
use std::cell::Cell;
use std::ptr;

const VPS: usize = 2;
const THREADS: usize = 2;
const SLOTS: usize = 2;

/// What stands for the kernel: how often it has restarted each VP, and where each thread is.
struct Kernel {
    restarts: [u32; VPS],
    at: [usize; THREADS],
}

/// A magazine with its room.
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
        // SAFETY: an address, and no access.
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
    /// Each thread is on the VP that `at` says.
    fn new(rooms: [Room; VPS], high: u32, at: [usize; THREADS]) -> Machine {
        Machine { kernel: Mutex::new(Kernel { restarts: [0; VPS], at }), rooms, high }
    }

    /// A sequence of this thread: `body` loads, of the magazine of the VP where it is, and says what the last store is to be; nothing
    /// where it leaves.
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

/// The block of this number, as a pointer that nobody follows.
fn pointer(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(number + 1)
}

/// A machine, and what the users of two blocks write to.
struct Used {
    machine: Machine,
    blocks: [UnsafeCell<u32>; 2],
}

// SAFETY: the blocks are checked by loom.
unsafe impl Sync for Used {}
// SAFETY: as above.
unsafe impl Send for Used {}

impl Used {
    /// With both blocks on VP 0, where both threads are.
    fn new() -> Arc<Used> {
        let rooms = [Room::new(&[pointer(0), pointer(1)], 2), Room::new(&[], 2)];
        let machine = Machine::new(rooms, 2, [0, 0]);
        Arc::new(Used { machine, blocks: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn use_block(&self, block: *mut u8) {
        self.blocks[block.addr() - 1].with_mut(|block| {
            // SAFETY: loom refuses the model if another thread is at it.
            unsafe { *block += 1 };
        });
    }

    /// All that is left on the VPs where threads 0 and 1 are, and what `had` has, is both blocks, once each.
    fn nothing_is_lost(&self, had: impl Iterator<Item = *mut u8>) {
        self.machine.move_to(0, 0);
        let first = std::iter::from_fn(|| self.machine.pop(0)).collect::<Vec<_>>();
        self.machine.move_to(0, 1);
        let second = std::iter::from_fn(|| self.machine.pop(0)).collect::<Vec<_>>();
        let mut all: Vec<usize> = had.chain(first).chain(second).map(|block| block.addr()).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2], "each block is somewhere, and once");
    }
}

/// A thread takes what it finds, and puts one back, while another empties the magazine; each block is one thread's.
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

/// Two threads of one VP take a block each, and one of them is moved to the other VP meanwhile, where it puts its block.
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
struct Town {
    machine: Machine,
    /// Each apart: the stacks of loom's threads are small.
    heaps: [Arc<Heap>; 2],
    plot: Plot,
}

// SAFETY: the heaps and the plot are checked by loom.
unsafe impl Sync for Town {}
// SAFETY: as above.
unsafe impl Send for Town {}

impl Homes for Town {
    fn home_of(&self, block: *mut u8) -> Option<u32> {
        self.plot.home_of(block.addr() - 1)
    }

    fn are_together(&self, block: *mut u8, other: *mut u8) -> bool {
        ((block.addr() - 1) ^ (other.addr() - 1)) >> SLAB_SHIFT == 0
    }

    fn put_on(&self, home: u32, blocks: &[*mut u8], _sent_home: bool) {
        for block in blocks {
            assert_eq!(self.home_of(*block), Some(home), "a block is put where it is at home");
            put(&self.heaps[home as usize], &self.plot, block.addr() - 1, true);
        }
    }

    fn foreign(&self, _block: *mut u8) {
        panic!("a block leads home as long as somebody has it");
    }
}

impl Town {
    /// Frees others' blocks on VP 0, as `raw::put_block` does.
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

/// A thread frees a block of each heap by way of an outbox, while another empties that, and allocates. All blocks come home.
pub(super) fn sent_home() {
    let rooms = [Room::new(&[], 1), Room::new(&[], 1)];
    let town = Arc::new(Town {
        machine: Machine::new(rooms, 1, [0, 0]),
        heaps: [heap(0), heap(1)],
        plot: Plot::new(),
    });
    // So that no slab goes, which is another model's matter.
    let kept = [0, 1].map(|home: usize| take(&town.heaps[home], &town.plot));
    let blocks = [1, 0].map(|home: usize| {
        let block = take(&town.heaps[home], &town.plot);
        town.plot.use_block(block);
        pointer(block)
    });
    let other = {
        let town = town.clone();
        // Pointers are no more than numbers here.
        let blocks = blocks.map(|block| block.addr());
        thread::spawn(move || {
            blocks.into_iter().for_each(|block| town.free(ptr::without_provenance_mut(block)))
        })
    };
    let block = take(&town.heaps[0], &town.plot);
    town.plot.use_block(block);
    town.empty();
    other.join().unwrap();
    town.empty();
    let left = (out(&town.heaps[0]), out(&town.heaps[1]));
    assert_eq!(left, (2, 1), "all came home but those that were kept");
    assert!(!kept.contains(&block));
}

/// A thread keeps a block of another VP's heap, which another thread of its VP takes, uses and frees there unless it was sent home by
/// then. It comes home.
pub(super) fn kept() {
    let rooms = [Room::new(&[], 1), Room::new(&[], 1)];
    let town = Arc::new(Town {
        machine: Machine::new(rooms, 1, [0, 0]),
        heaps: [heap(0), heap(1)],
        plot: Plot::new(),
    });
    let kept = take(&town.heaps[1], &town.plot);
    let block = take(&town.heaps[1], &town.plot);
    town.plot.use_block(block);
    let other = {
        let town = town.clone();
        thread::spawn(move || {
            town.plot.use_block(block);
            town.free(pointer(block));
            town.empty();
        })
    };
    if let Some(found) = town.machine.pop(0) {
        town.plot.use_block(found.addr() - 1);
        town.free(found);
    }
    other.join().unwrap();
    town.empty();
    assert_eq!(out(&town.heaps[1]), 1, "it came home");
    town.plot.use_block(kept);
}
