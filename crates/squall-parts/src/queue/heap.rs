//! A heap with a front: the first few entries are sorted, apart from the others.
//!
//! Problem: a get from a binary heap moves an entry through its whole depth, and a put of a good element too.
//! Idea: a sorted front takes the good elements, and a get takes its end. The other entries are in a binary
//! heap, the back, which is touched once the front is full or empty.
//!
//! - I1. Each key in the front is at most each key in the back.
//! - I2. The front is empty only if the back is.
//!
//! Cost: now and then a get moves half a front of entries from the back. A put moves at most a front of
//! entries, or puts one into the back. Source: the deletion buffers of Williams, Sanders, Dementiev,
//! "Engineering MultiQueues", ESA 2021. Here no entry waits in an insertion buffer.

use super::fragment::Entry;
use std::collections::BinaryHeap;

/// Capacity of the front: few entries, and few bytes.
const fn front_max<T>() -> usize {
    let fitting = 512 / size_of::<Entry<T>>();
    match fitting {
        _ if cfg!(loom) => 2,
        0..4 => 4,
        4..16 => fitting,
        _ => 16,
    }
}

/// A heap of entries. The lowest key comes first.
pub(super) struct FrontedHeap<T> {
    /// In the order of falling keys, so the first entry is the last one here.
    front: Vec<Entry<T>>,
    back: BinaryHeap<Entry<T>>,
}

/// Memory for a heap, to be swapped in under a lock.
pub(super) struct Memory<T> {
    front: Vec<Entry<T>>,
    back: Vec<Entry<T>>,
}

impl<T> FrontedHeap<T> {
    pub(super) fn new() -> FrontedHeap<T> {
        FrontedHeap { front: Vec::new(), back: BinaryHeap::new() }
    }

    /// Returns the first entry.
    #[inline]
    pub(super) fn peek(&self) -> Option<&Entry<T>> {
        self.front.last()
    }

    /// Adds an entry. Allocates if [`is_full`](FrontedHeap::is_full).
    #[inline]
    pub(super) fn push(&mut self, entry: Entry<T>) {
        match self.front.first() {
            Some(last) if entry.key >= last.key => self.push_behind(entry),
            Some(_) if self.front.len() == front_max::<T>() => {
                // The last one of the front comes before all of the back (I1).
                let last = self.front.remove(0);
                self.back.push(last);
                self.insert(entry);
            }
            _ => self.insert(entry),
        }
    }

    /// Adds an entry behind the front, or at its end if there is no back.
    fn push_behind(&mut self, entry: Entry<T>) {
        if self.back.is_empty() && self.front.len() < front_max::<T>() {
            self.front.insert(0, entry);
        } else {
            self.back.push(entry);
        }
    }

    /// Adds an entry to the front, which has room.
    #[inline]
    fn insert(&mut self, entry: Entry<T>) {
        let mut at = self.front.len();
        while at > 0 && self.front[at - 1].key < entry.key {
            at -= 1;
        }
        self.front.insert(at, entry);
    }

    /// Removes the first entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        let first = self.front.pop()?;
        if self.front.is_empty() {
            self.refill();
        }
        Some(first)
    }

    /// Fills half of the empty front (I2).
    fn refill(&mut self) {
        let some = std::iter::from_fn(|| self.back.pop()).take(front_max::<T>() / 2);
        self.front.extend(some);
        self.front.reverse();
    }

    /// Removes the second entry, if there is one.
    pub(super) fn pop_second(&mut self) -> Option<Entry<T>> {
        match self.front.len() {
            0 | 1 => self.back.pop(),
            more => Some(self.front.remove(more - 2)),
        }
    }

    /// Removes all entries, in no order.
    pub(super) fn drain_into(&mut self, into: &mut Vec<Entry<T>>) {
        into.append(&mut self.front);
        into.extend(self.back.drain());
    }

    /// Returns whether there is no entry (I2).
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    /// Returns whether a push may need memory.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.back.len() == self.back.capacity()
    }

    /// Returns the number of entries in the back.
    pub(super) fn back_len(&self) -> usize {
        self.back.len()
    }

    /// Allocates memory for so many entries in the back.
    pub(super) fn allocate(entries: usize) -> Memory<T> {
        Memory {
            front: Vec::with_capacity(front_max::<T>()),
            back: Vec::with_capacity(entries.next_power_of_two().max(16)),
        }
    }

    /// Moves into larger memory, unless it has room for `more` entries or the memory has become too small.
    /// Returns memory for the caller to free.
    pub(super) fn move_into(&mut self, mut larger: Memory<T>, more: usize) -> Memory<T> {
        let wanted = self.back.len() + more;
        if wanted <= self.back.capacity() || wanted > larger.back.capacity() {
            return larger;
        }
        larger.front.append(&mut self.front);
        let mut back = std::mem::take(&mut self.back).into_vec();
        larger.back.append(&mut back);
        self.back = BinaryHeap::from(larger.back);
        Memory { front: std::mem::replace(&mut self.front, larger.front), back }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn keys(heap: &mut FrontedHeap<u64>) -> Vec<u64> {
        std::iter::from_fn(|| heap.pop()).map(|entry| entry.key).collect()
    }

    #[test]
    fn it_sorts_like_a_vector() {
        let mut heap = FrontedHeap::new();
        let mut model = Vec::new();
        let mut random = 1u64;
        for step in 0..if cfg!(miri) { 300 } else { 20_000 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (choice, key) = ((random >> 60) as usize, (random >> 40) % 1000);
            // The heap grows and shrinks by turns.
            if choice < if step % 4000 < 2000 { 11 } else { 5 } {
                heap.push(Entry { key, value: key });
                model.push(key);
            } else if choice == 15 && model.len() > 1 {
                model.sort_unstable();
                assert_eq!(heap.pop_second().unwrap().key, model.remove(1));
            } else {
                model.sort_unstable();
                let first = (!model.is_empty()).then(|| model.remove(0));
                assert_eq!(heap.pop().map(|entry| entry.key), first);
            }
            assert_eq!(heap.peek().map(|entry| entry.key), model.iter().min().copied());
        }
        model.sort_unstable();
        assert_eq!(keys(&mut heap), model);
    }

    #[test]
    fn the_second_of_one_is_absent() {
        let mut heap = FrontedHeap::new();
        assert!(heap.pop_second().is_none());
        heap.push(Entry { key: 1, value: 1 });
        assert!(heap.pop_second().is_none());
        assert_eq!(keys(&mut heap), [1]);
    }

    #[test]
    fn a_push_into_a_heap_that_is_not_full_allocates_nothing() {
        let mut heap = FrontedHeap::new();
        assert!(heap.is_full());
        drop(heap.move_into(FrontedHeap::allocate(1), 1));
        let before = (heap.front.capacity(), heap.back.capacity());
        let mut key = 1000;
        while !heap.is_full() {
            key -= 1;
            heap.push(Entry { key, value: 0 });
            assert_eq!((heap.front.capacity(), heap.back.capacity()), before);
        }
        assert_eq!(heap.back_len(), before.1);
    }
}
