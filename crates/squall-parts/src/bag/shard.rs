//! A shard: the elements of one VP's clients, and the words that other clients read without its lock.

use super::sites;
use squall_lock::{VpLock, VpLockGuard};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// One client's part of a bag.
pub(super) struct Shard<T> {
    index: usize,
    own: CachePadded<Own<T>>,
    /// Number of elements. Written under the lock.
    len: AtomicUsize,
    /// Number of elements that came so far. Written under the lock (`bag/I2`).
    arrivals: AtomicU64,
    /// Number of transfers to this shard in progress (`bag/I3`).
    inbound: AtomicUsize,
    /// The size that was last told to other clients.
    pub(super) estimate: AtomicUsize,
}

/// The data that other clients do not read.
pub(super) struct Own<T> {
    elements: VpLock<Elements<T>>,
    pub(super) idle_events: AtomicUsize,
    /// The number of the peer where the next transfer begins.
    pub(super) next: AtomicUsize,
}

pub(super) struct Elements<T>(VecDeque<T>);

impl<T> Shard<T> {
    pub(super) fn new(index: usize, lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>) -> Shard<T> {
        Shard {
            index,
            own: CachePadded::new(Own {
                elements: lock(Elements(VecDeque::new())),
                idle_events: AtomicUsize::new(0),
                next: AtomicUsize::new(0),
            }),
            len: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            inbound: AtomicUsize::new(0),
            estimate: AtomicUsize::new(0),
        }
    }

    /// The number of elements. It may be out of date.
    pub(super) fn len(&self) -> usize {
        // Acquire: pairs with the Release of `publish` (`bag/I4`).
        self.len.load(sites::LEN.order(Ordering::Acquire))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn own(&self) -> &Own<T> {
        &self.own
    }

    pub(super) fn arrivals(&self) -> u64 {
        // Acquire: pairs with the Release of `arrived` (`bag/I4`).
        self.arrivals.load(Ordering::Acquire)
    }

    pub(super) fn has_inbound(&self) -> bool {
        // Acquire: pairs with the Release of a transfer's end (`bag/I4`).
        self.inbound.load(sites::INBOUND.order(Ordering::Acquire)) != 0
    }

    /// Counts a transfer to this shard until the result is dropped (`bag/I3`).
    pub(super) fn expect(&self) -> Inbound<'_> {
        // AcqRel: the removal that follows releases this count to each thread that sees the removal.
        self.inbound.fetch_add(usize::from(!sites::EXPECT.is_weak()), Ordering::AcqRel);
        Inbound(&self.inbound)
    }

    #[inline]
    pub(super) fn put(&self, value: T) {
        let mut elements = self.own.elements.lock();
        elements.0.push_back(value);
        self.arrived(&elements, 1);
    }

    /// Puts several elements. They are in a vector, so that no iterator of the program runs under the lock.
    pub(super) fn put_all(&self, values: Vec<T>) {
        let count = values.len();
        let mut elements = self.own.elements.lock();
        elements.0.extend(values);
        self.arrived(&elements, count);
    }

    /// Takes the element that came last.
    #[inline]
    pub(super) fn get(&self) -> Option<T> {
        let mut elements = self.own.elements.lock();
        let value = elements.0.pop_back()?;
        self.publish(&elements);
        Some(value)
    }

    /// Takes elements until `into` has no room left, the oldest ones first. Does not allocate.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        let room = into.capacity() - into.len();
        let mut elements = self.own.elements.lock();
        let count = room.min(elements.0.len());
        into.extend(elements.0.drain(..count));
        self.publish(&elements);
    }

    #[inline]
    fn publish(&self, elements: &VpLockGuard<'_, Elements<T>>) {
        // Release: pairs with the Acquire of `len`.
        self.len.store(elements.0.len(), Ordering::Release);
    }

    /// Makes `count` new elements known (`bag/I2`).
    #[inline]
    fn arrived(&self, elements: &VpLockGuard<'_, Elements<T>>, count: usize) {
        if sites::LATE.is_weak() {
            self.count(count);
            self.publish(elements);
            return;
        }
        self.publish(elements);
        self.count(count);
    }

    #[inline]
    fn count(&self, count: usize) {
        // Relaxed: the lock orders the writers.
        let arrivals = self.arrivals.load(Ordering::Relaxed).wrapping_add(count as u64);
        // Release: pairs with the Acquire of `arrivals` (`bag/I4`).
        self.arrivals.store(arrivals, sites::ARRIVE.order(Ordering::Release));
    }
}

/// A transfer to a shard in progress (`bag/I3`).
pub(super) struct Inbound<'a>(&'a AtomicUsize);

impl Drop for Inbound<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `has_inbound`, which then also sees the arrival (`bag/I4`).
        self.0.fetch_sub(usize::from(!sites::EXPECT.is_weak()), sites::ENDED.order(Ordering::Release));
    }
}
