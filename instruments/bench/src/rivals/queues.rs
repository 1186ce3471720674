//! Priority queues of numbers: heaps under a lock, ordered maps used as queues, and a heap per thread.
//!
//! Crates of priority queues that are missing here: `cpq` 0.2 keeps the buckets of priorities that are gone,
//! and each get looks at all of them. `spragga` 1.0 never frees an element. `skippy-rs` has no licence.
//! `concurrent-pqueue` 0.4 has a map of maps under one lock.

use std::cmp;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use crossbeam_skiplist::SkipMap;
use crossbeam_utils::CachePadded;

use crate::case::{Missing, Setting};
use crate::rivals::bags::Direct;
use crate::work::queue::{Prioritized, QueueAccess, order};

const NO_PANIC: &str = "a thread panicked under the lock";

/// A number in a heap. The greatest one has the lowest priority.
pub(crate) struct Item {
    priority: u64,
    number: u64,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.priority == other.priority
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    #[inline]
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.priority.cmp(&self.priority)
    }
}

/// Implements the traits for a queue that all threads use alike.
macro_rules! direct {
    ($(#[$doc:meta])* $queue:ty: $new:expr,
     $put:expr, $get:expr) => {
        $(#[$doc])*
        impl Prioritized for $queue {
            fn new(_: &Setting) -> Result<Self, Missing> {
                Ok($new)
            }

            fn access(&self, _: usize) -> impl QueueAccess + '_ {
                Direct(self)
            }

            fn take_left(&self) -> Option<u64> {
                Direct(self).get()
            }
        }

        impl QueueAccess for Direct<'_, $queue> {
            #[inline(always)]
            fn put(&mut self, priority: u64, number: u64) {
                $put(self.0, priority, number);
            }

            #[inline(always)]
            fn get(&mut self) -> Option<u64> {
                $get(self.0)
            }
        }
    };
}

/// `std-mutex-heap`.
pub(crate) type StdHeap = Mutex<BinaryHeap<Item>>;
/// `parking-lot-heap`.
pub(crate) type ParkingLotHeap = parking_lot::Mutex<BinaryHeap<Item>>;
/// `crossbeam-skiplist`: the numbers make equal priorities different keys.
pub(crate) type SkipList = SkipMap<(u64, u64), ()>;
/// `scc-tree`: the first entry that the thread can remove.
pub(crate) type Tree = scc::TreeIndex<(u64, u64), ()>;

direct!(StdHeap: Mutex::default(),
    |heap: &StdHeap, priority, number| heap.lock().expect(NO_PANIC).push(Item { priority, number }),
    |heap: &StdHeap| heap.lock().expect(NO_PANIC).pop().map(|item| item.number));

direct!(ParkingLotHeap: parking_lot::Mutex::default(),
    |heap: &ParkingLotHeap, priority, number| heap.lock().push(Item { priority, number }),
    |heap: &ParkingLotHeap| heap.lock().pop().map(|item| item.number));

direct!(SkipList: SkipMap::new(),
    |list: &SkipList, priority, number| drop(list.insert((priority, number), ())),
    |list: &SkipList| list.pop_front().map(|entry| entry.key().1));

direct!(Tree: scc::TreeIndex::new(),
|tree: &Tree, priority, number| {
    tree.insert_sync((priority, number), ()).expect("the key is new");
},
|tree: &Tree| {
    let guard = scc::Guard::new();
    let mut entries = tree.iter(&guard);
    entries.find(|(key, ())| tree.remove_sync(*key)).map(|((_, number), ())| *number)
});

/// `heap-per-thread`: a plain heap of each thread, which no other thread can use. The floor of the local
/// order.
pub(crate) struct HeapPerThread(Box<[CachePadded<Mutex<BinaryHeap<Item>>>]>);

struct OwnHeap<'a> {
    place: &'a Mutex<BinaryHeap<Item>>,
    own: BinaryHeap<Item>,
}

impl Prioritized for HeapPerThread {
    fn new(setting: &Setting) -> Result<Self, Missing> {
        // The threads of a counted run never end, so they do not give their heaps back.
        if order(setting) != "local" || setting.counted {
            return Err(Missing::no_part());
        }
        Ok(HeapPerThread((0..setting.threads).map(|_| CachePadded::default()).collect()))
    }

    fn access(&self, thread: usize) -> impl QueueAccess + '_ {
        let place = &*self.0[thread];
        OwnHeap { own: std::mem::take(&mut *place.lock().expect(NO_PANIC)), place }
    }

    fn take_left(&self) -> Option<u64> {
        self.0.iter().find_map(|heap| heap.lock().expect(NO_PANIC).pop()).map(|item| item.number)
    }
}

impl QueueAccess for OwnHeap<'_> {
    #[inline(always)]
    fn put(&mut self, priority: u64, number: u64) {
        self.own.push(Item { priority, number });
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.own.pop().map(|item| item.number)
    }
}

impl Drop for OwnHeap<'_> {
    fn drop(&mut self) {
        *self.place.lock().expect(NO_PANIC) = std::mem::take(&mut self.own);
    }
}
