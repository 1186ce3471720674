//! A fragment: a heap under a lock, and the words that other clients read without the lock.

use super::heap::FrontedHeap;
use super::sites;
use squall_lock::{Lock, LockGuard};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::one_writer::ReadOwn;
use std::cmp;

/// An element. The greatest entry is the one with the lowest key.
pub(super) struct Entry<T> {
    pub(super) key: u64,
    pub(super) value: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.key.cmp(&self.key)
    }
}

/// Value of [`Fragment::first`] for an empty heap. The worst key has this value too.
pub(super) const NO_KEY: u64 = u64::MAX;

/// Elements that a get took: [`Plain`](Removal::Plain), or unfinished until the caller says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Plain,
    Unfinished,
}

/// A heap in a pair of cache lines of 64 bytes.
#[repr(align(128))]
pub(super) struct Fragment<T> {
    heap: Lock<FrontedHeap<T>>,
    /// The first key: a hint for clients without the lock.
    first: AtomicU64,
    /// Number of elements that were put here so far.
    arrived: AtomicU64,
    /// Number of elements that plain gets removed here so far.
    plain: AtomicU64,
    /// Number of elements that were removed here to be finished later.
    unfinished: AtomicU64,
}

/// A fragment's heap, locked.
pub(super) type Heap<'a, T> = LockGuard<'a, FrontedHeap<T>>;

impl<T> Fragment<T> {
    pub(super) fn new() -> Fragment<T> {
        Fragment {
            heap: Lock::new(FrontedHeap::new()),
            first: AtomicU64::new(NO_KEY),
            arrived: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Heap<'_, T> {
        self.heap.lock()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Heap<'_, T>> {
        self.heap.try_lock()
    }

    /// Returns the first key, or [`NO_KEY`]. It may be out of date.
    #[inline]
    pub(super) fn first(&self) -> u64 {
        // Relaxed: a hint. Emptiness is found by the counts (`queue/I4`).
        self.first.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn publish_first(&self, heap: &Heap<'_, T>) {
        // Relaxed: a hint.
        self.first.store(heap.peek().map_or(NO_KEY, |entry| entry.key), Ordering::Relaxed);
    }

    pub(super) fn arrived(&self) -> u64 {
        // Relaxed: the caller has read the removals before. They release the arrivals that must be seen.
        self.arrived.load(Ordering::Relaxed)
    }

    pub(super) fn plain(&self) -> u64 {
        // Acquire: pairs with the Release of `pop` (`queue/I4`).
        self.plain.load(sites::REMOVED.order(Ordering::Acquire))
    }

    pub(super) fn removed(&self) -> u64 {
        // Acquire: pairs with the Release of `pop` (`queue/I4`).
        self.plain().wrapping_add(self.unfinished.load(sites::REMOVED.order(Ordering::Acquire)))
    }

    /// Puts an element and counts it (`queue/I3`). The heap has room.
    #[inline]
    pub(super) fn push(&self, heap: &mut Heap<'_, T>, entry: Entry<T>) {
        let key = entry.key;
        heap.push(entry);
        // Relaxed: a hint, which only the holder of the lock writes.
        if key < self.first.read_own() {
            self.first.store(key, Ordering::Relaxed);
        }
        let arrived = self.arrived.read_own().wrapping_add(1);
        // Relaxed: the lock orders it before the removal's count, which releases it (`queue/I4`).
        self.arrived.store(arrived, Ordering::Relaxed);
    }

    /// Removes the first element and counts it (`queue/I3`).
    #[inline]
    pub(super) fn pop(&self, heap: &mut Heap<'_, T>, removal: Removal) -> Option<Entry<T>> {
        let entry = heap.pop()?;
        self.publish_first(heap);
        let count = match removal {
            Removal::Plain => &self.plain,
            Removal::Unfinished => &self.unfinished,
        };
        // Release: pairs with the Acquire of `plain` and `removed`. It also releases the arrival, which came
        // earlier under this lock or under that of an earlier place.
        count.store(count.read_own().wrapping_add(1), sites::COUNT.order(Ordering::Release));
        Some(entry)
    }

    /// Takes the second element, to move it. It stays counted where it arrived.
    pub(super) fn take_second(heap: &mut Heap<'_, T>) -> Option<Entry<T>> {
        heap.pop_second()
    }

    /// Returns whether the next push needs memory.
    #[inline]
    pub(super) fn is_full(heap: &Heap<'_, T>) -> bool {
        heap.is_full()
    }

    /// Makes room for more elements. Allocates and frees without the lock, which the caller does not hold.
    #[cold]
    pub(super) fn grow(&self, more: usize) {
        let len = self.lock().back_len();
        let larger = FrontedHeap::allocate(len + more);
        // If another thread has done it, or has put many elements, the caller looks again.
        let mut heap = self.lock();
        let memory = heap.move_into(larger, more);
        drop(heap);
        drop(memory);
    }

    /// Takes all elements of a locked heap, in no order.
    pub(super) fn take_all(&self, heap: &mut Heap<'_, T>, into: &mut Vec<Entry<T>>) {
        heap.drain_into(into);
        self.publish_first(heap);
    }
}
