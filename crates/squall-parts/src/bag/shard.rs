//! A shard: the elements of one place's clients, and the words that other clients read without its lock.

use super::counts::OwnCounts;
use super::roster::Places;
use super::sites;
use super::store::{Elements, Needs, Spare, Standing};
use super::{Bag, Strategy};
use squall_lock::{VpLock, VpLockGuard};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use squall_sys::sync::recheck;

/// One place's part of a bag.
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
    /// The shard keeps its bit in the directory. Written under the lock; others read it as a hint.
    listed: AtomicBool,
}

/// The data that other clients do not read.
pub(super) struct Own<T> {
    elements: VpLock<Elements<T>>,
    pub(super) idle_events: AtomicUsize,
    /// The number of the peer where the next transfer begins.
    pub(super) next: AtomicUsize,
    /// The number of idle acts in a row that found the shard as the one before.
    pub(super) unused: AtomicUsize,
    /// The arrivals and the size at the latest idle act.
    pub(super) seen: (AtomicU64, AtomicUsize),
    pub(super) counts: OwnCounts,
}

/// A shard's elements, locked.
pub(super) type Locked<'a, T> = VpLockGuard<'a, Elements<T>>;

impl<T> Shard<T> {
    pub(super) fn new(index: usize, lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>) -> Shard<T> {
        Shard {
            index,
            own: CachePadded::new(Own {
                elements: lock(Elements::new()),
                idle_events: AtomicUsize::new(0),
                next: AtomicUsize::new(0),
                unused: AtomicUsize::new(0),
                seen: (AtomicU64::new(0), AtomicUsize::new(0)),
                counts: OwnCounts::default(),
            }),
            len: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            inbound: AtomicUsize::new(0),
            estimate: AtomicUsize::new(0),
            listed: AtomicBool::new(false),
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

    /// Returns a number that grows with each call: the turn among the peers.
    pub(super) fn turn(&self) -> usize {
        // Relaxed, not atomic together: any number is right.
        let next = self.own.next.load(Ordering::Relaxed);
        self.own.next.store(next.wrapping_add(1), Ordering::Relaxed);
        next
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

    pub(super) fn lock(&self) -> Locked<'_, T> {
        self.own.elements.lock()
    }

    /// Puts an element, if the top block has room and nothing else is to do.
    #[inline]
    pub(super) fn put(&self, value: T) -> Result<(), T> {
        let mut elements = self.own.elements.lock();
        if !elements.is_plain() {
            return Err(value);
        }
        elements.push(value)?;
        self.arrived(&elements, 1);
        Ok(())
    }

    /// Takes an element, usually that which came last.
    #[inline]
    pub(super) fn get(&self, bag: &Bag<T>) -> Option<T> {
        let mut elements = self.own.elements.lock();
        if elements.is_plain()
            && let Some(value) = elements.pop_top()
        {
            self.publish(&elements);
            return Some(value);
        }
        self.get_slowly(elements, bag)
    }

    #[cold]
    #[inline(never)]
    fn get_slowly(&self, mut elements: Locked<'_, T>, bag: &Bag<T>) -> Option<T> {
        let (value, old) = self.pop(&mut elements, bag);
        drop(elements);
        drop(old);
        value
    }

    /// Takes an element of a locked shard. The second result is memory for the caller to free.
    pub(super) fn pop(&self, elements: &mut Locked<'_, T>, bag: &Bag<T>) -> (Option<T>, Vec<T>) {
        let (value, old) = elements.pop();
        if value.is_some() {
            self.removed(elements, &bag.filled);
        }
        (value, old)
    }

    /// Puts an element. Joins the bag if the shard had left.
    pub(super) fn put_one(&self, value: T, bag: &Bag<T>) {
        let mut value = Some(value);
        self.put_with(1, bag, |elements, spare| {
            elements.make_room(1, spare)?;
            value.take().into_iter().for_each(|value| elements.push_with_room(value));
            Ok(())
        });
    }

    /// Puts a few elements, fewer than a block has. Joins the bag if the shard had left.
    pub(super) fn put_few(&self, values: &mut Vec<T>, bag: &Bag<T>) {
        let count = values.len();
        self.put_with(count, bag, |elements, spare| {
            elements.make_room(count, spare)?;
            elements.append(values);
            Ok(())
        });
    }

    /// Puts a block. Joins the bag if the shard had left.
    pub(super) fn put_block(&self, block: &mut Vec<T>, bag: &Bag<T>) {
        let count = block.len();
        if count > 0 {
            self.put_with(count, bag, |elements, spare| elements.put_block(block, spare));
        }
    }

    /// Makes `count` elements arrive by `put`, which is called again with the memory that it needs.
    fn put_with(
        &self,
        count: usize,
        bag: &Bag<T>,
        mut put: impl FnMut(&mut Elements<T>, &mut Spare<T>) -> Result<(), Needs>,
    ) {
        let mut spare = Spare::empty();
        loop {
            let mut elements = self.lock();
            match put(&mut elements, &mut spare) {
                Ok(()) => {
                    self.before_arrival(&mut elements, bag);
                    self.arrived(&elements, count);
                    return;
                }
                Err(needs) => {
                    drop(elements);
                    spare.prepare(needs);
                }
            }
        }
    }

    /// Takes up to `max` elements in exchange for the empty `block`, but leaves `keep`.
    pub(super) fn exchange(&self, block: &mut Vec<T>, max: usize, keep: usize, bag: &Bag<T>) {
        let mut free = Vec::new();
        loop {
            let mut elements = self.lock();
            // The caller has looked at the size without the lock.
            let keep = if sites::KEEP.is_weak() { 0 } else { keep };
            let max = max.min(elements.len().saturating_sub(keep));
            if max == 0 {
                return;
            }
            let Some(capacity) = elements.exchange(block, max, &mut free) else {
                if !block.is_empty() {
                    self.removed(&mut elements, &bag.filled);
                }
                return;
            };
            drop(elements);
            *block = Vec::with_capacity(capacity);
        }
    }

    /// Takes back the block that [`expect`](Shard::expect) has lent.
    pub(super) fn return_block(&self, block: Vec<T>) {
        if block.capacity() > 0 {
            let left = self.lock().take_back(block);
            drop(left);
        }
    }

    /// Counts a transfer to this shard until the result is dropped (`bag/I3`), and lends a block for it.
    /// Joins the bag if the shard had left.
    pub(super) fn expect(&self, bag: &Bag<T>) -> (Inbound<'_>, Vec<T>) {
        let mut elements = self.lock();
        self.join(&mut elements, bag);
        (self.count_in(), elements.lend())
    }

    /// Counts a transfer in like [`expect`](Shard::expect), unless the shard leaves or has left.
    pub(super) fn expect_as_member(&self) -> Option<(Inbound<'_>, Vec<T>)> {
        let mut elements = self.lock();
        (elements.standing() == Standing::Member).then(|| (self.count_in(), elements.lend()))
    }

    fn count_in(&self) -> Inbound<'_> {
        // AcqRel: the removal that follows releases this count to each thread that sees the removal.
        self.inbound.fetch_add(usize::from(!sites::EXPECT.is_weak()), Ordering::AcqRel);
        Inbound(&self.inbound)
    }

    /// Begins to leave, if the shard is a member (`bag/I5`, first phase).
    pub(super) fn begin_to_leave(&self) -> bool {
        let mut elements = self.lock();
        let is_member = elements.standing() == Standing::Member;
        if is_member {
            elements.set_standing(Standing::Leaving);
        }
        is_member
    }

    /// Returns whether the shard still leaves: no client has come back.
    pub(super) fn is_leaving(&self) -> bool {
        self.lock().standing() == Standing::Leaving
    }

    /// Stays, if the shard still leaves.
    pub(super) fn stay(&self) {
        let mut elements = self.lock();
        if elements.standing() == Standing::Leaving {
            elements.set_standing(Standing::Member);
        }
    }

    /// Ends the membership, if the shard still leaves and is empty (`bag/I5`, second phase).
    pub(super) fn end_to_leave(&self, bag: &Bag<T>) -> bool {
        let mut round = 0;
        loop {
            let mut elements = self.lock();
            if elements.standing() != Standing::Leaving {
                return false;
            }
            if self.has_inbound() && !sites::OUTSTANDING.is_weak() {
                // A transfer to this shard began before the first phase.
                drop(elements);
                super::transfer::refuse_forked();
                round += 1;
                recheck::wait(round);
                continue;
            }
            if elements.len() != 0 {
                return false;
            }
            elements.set_standing(Standing::Gone);
            bag.roster.leave(self.index);
            let memory = elements.release();
            drop(elements);
            drop(memory);
            self.estimate.store(0, Ordering::Relaxed);
            return true;
        }
    }

    /// Prepares an arrival: the shard is a member, and its bit is set.
    fn before_arrival(&self, elements: &mut Locked<'_, T>, bag: &Bag<T>) {
        self.join(elements, bag);
        let listing = bag.attributes.strategy() == Strategy::Directory;
        // The published size is still that before the arrival. Relaxed: the lock orders its writers.
        if listing && (!elements.is_listed() || self.len.load(Ordering::Relaxed) == 0) {
            bag.filled.add(self.index);
        } else if elements.is_listed() && !listing {
            bag.filled.remove(self.index);
        }
        self.set_listed(elements, listing);
    }

    /// Moves up to `max` elements into `into`, which has room for them.
    pub(super) fn take_into(&self, into: &mut Vec<T>, max: usize, bag: &Bag<T>) {
        let mut left = max;
        while left > 0 {
            let mut elements = self.lock();
            let (count, old) = elements.take_into(into, left);
            if count > 0 {
                self.removed(&mut elements, &bag.filled);
            }
            drop(elements);
            drop(old);
            if count == 0 {
                return;
            }
            left -= count;
        }
    }

    /// Lets the shard keep its bit in the directory from now on.
    pub(super) fn enlist(&self, bag: &Bag<T>) {
        // Relaxed: a hint. The directory may miss a shard.
        if self.listed.load(Ordering::Relaxed) {
            return;
        }
        let mut elements = self.lock();
        if !elements.is_listed() && elements.len() > 0 {
            bag.filled.add(self.index);
        }
        self.set_listed(&mut elements, true);
    }

    fn set_listed(&self, elements: &mut Locked<'_, T>, is: bool) {
        if elements.is_listed() != is {
            elements.set_listed(is);
            self.listed.store(is, Ordering::Relaxed);
        }
    }

    /// Makes a new shard a member.
    pub(super) fn enter(&self, bag: &Bag<T>) {
        self.join(&mut self.lock(), bag);
    }

    /// Makes the shard a member that stays.
    fn join(&self, elements: &mut Locked<'_, T>, bag: &Bag<T>) {
        if elements.standing() == Standing::Gone {
            bag.roster.join(self.index);
            self.set_listed(elements, bag.attributes.strategy() == Strategy::Directory);
        }
        elements.set_standing(Standing::Member);
    }

    /// Publishes the size after a removal.
    fn removed(&self, elements: &mut Locked<'_, T>, filled: &Places) {
        self.publish(elements);
        if elements.is_listed() && elements.len() == 0 {
            filled.remove(self.index);
        }
    }

    #[inline]
    fn publish(&self, elements: &Locked<'_, T>) {
        // Release: pairs with the Acquire of `len`.
        self.len.store(elements.len(), Ordering::Release);
    }

    /// Makes `count` new elements known (`bag/I2`).
    #[inline]
    fn arrived(&self, elements: &Locked<'_, T>, count: usize) {
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
