//! The marks of readers: two cache lines for each thread, shared by all locks.
//!
//! Problem: a reader must say "I am inside" where a writer finds it, on a line that no other thread writes.
//! Counts on each VP would need two restartable additions, and memory per lock and VP. The additions take
//! 1.7 ns together; an operation's enter and leave take 0.7 ns.
//! Idea: a guard never leaves its thread, so the thread itself is the cluster. The thread has a record of a
//! few *slots*. A slot that contains the address of a lock is a mark: this thread is inside, or about to
//! check whether it may go in. A writer reads the records of all threads.
//!
//! - I1. A slot is 0 (free), [`RESERVED`], or the key of a lock. Only the slot's owner changes it from 0. A
//!   *stray* is a thread that has given back its record. All strays share one record without an owner, and
//!   claim its slots by compare-exchange.
//! - I2. Records are never freed while their registry lives, and a pushed record stays in the list.
//! - I3. A record is given to a thread only when all its slots are 0. No guard is left that could clear one
//!   of them later.
//!
//! Not promised: that a forgotten guard (`mem::forget`) is ever considered gone. Its slot stays a mark.
//! Cost: 128 bytes per record. There are as many records as reading threads were ever alive at once. The
//! first read of a thread searches the list. A thread that reads many locks at once has a chain of records.
//! The chain grows by a quarter, and at least one, after a search of the whole chain failed. So the searches
//! cost a constant number of steps per lock.
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019 (readers publish
//! the lock's address, but in one hash table for all threads); hazard pointers (Michael, 2004) for the
//! records.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::ptr;

/// Slots per record: the number of locks a thread can read at once before it needs a second record.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

/// A chain of records grows by one record, plus one per `GROWTH` records that it has.
const GROWTH: usize = 4;

/// A slot that has an owner but is not a mark.
pub(crate) const RESERVED: usize = 1;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// The thread has ended, but left a guard. The record becomes free once the guard is gone.
const ABANDONED: u8 = 2;

/// A thread's slots.
#[repr(align(128))]
pub(crate) struct Record {
    slots: [AtomicUsize; SLOTS],
    state: AtomicU8,
    /// The next record in the registry; fixed once pushed.
    next: AtomicPtr<Record>,
    /// The next record of the same owner.
    more: AtomicPtr<Record>,
    /// In an owner's first record: the record of the chain where a slot was last found free. Null means this
    /// one.
    room: AtomicPtr<Record>,
}

impl Record {
    /// Makes a taken record with `slot` in every slot.
    #[cfg(not(loom))]
    pub(crate) const fn new(slot: usize) -> Record {
        let mut slots = [const { AtomicUsize::new(0) }; SLOTS];
        let mut at = 0;
        while at < SLOTS {
            slots[at] = AtomicUsize::new(slot);
            at += 1;
        }
        Record {
            slots,
            state: AtomicU8::new(TAKEN),
            next: AtomicPtr::new(ptr::null_mut()),
            more: AtomicPtr::new(ptr::null_mut()),
            room: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Makes a taken record with `slot` in every slot.
    #[cfg(loom)]
    pub(crate) fn new(slot: usize) -> Record {
        Record {
            slots: std::array::from_fn(|_| AtomicUsize::new(slot)),
            state: AtomicU8::new(TAKEN),
            next: AtomicPtr::new(ptr::null_mut()),
            more: AtomicPtr::new(ptr::null_mut()),
            room: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the slot that is tried first.
    #[inline(always)]
    pub(crate) fn first(&self) -> &AtomicUsize {
        &self.slots[0]
    }

    fn is_unmarked(&self) -> bool {
        // Acquire: pairs with the Release of the thread that last cleared a slot (`raw.rs`), perhaps by a
        // guard left behind. The next owner's marks pass on the writes released there.
        self.slots.iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }

    fn more(&self) -> Option<&Record> {
        // SAFETY: the pointer is null or a record of the registry, which outlives this borrow (I2).
        // Acquire: pairs with the Release in `extend`, so the record is initialized.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    /// Iterates over this record and the later ones of its owner.
    fn chain(&self) -> impl Iterator<Item = &Record> {
        std::iter::successors(Some(self), |record| record.more())
    }

    /// Claims a free slot of this record, which becomes [`RESERVED`].
    fn claim_here(&self) -> Option<&AtomicUsize> {
        // Acquire: pairs with the Release of the thread that last cleared the slot (`raw.rs`); for a stray's
        // slot, another thread. The next mark passes on the writes released there. Relaxed: the load only
        // avoids a useless exchange.
        self.slots.iter().find(|slot| {
            slot.load(Ordering::Relaxed) == 0
                && slot.compare_exchange(0, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Claims a free slot of this owner, which becomes [`RESERVED`]. `self` must be the owner's first record.
    #[cold]
    pub(crate) fn claim<'a>(&'a self, registry: &'a Registry) -> &'a AtomicUsize {
        let claimed = |from: &'a Record| {
            let (record, slot) = from.chain().find_map(|record| Some((record, record.claim_here()?)))?;
            // Release: pairs with the Acquire below, of another stray.
            self.room.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
            Some(slot)
        };
        // Acquire: pairs with the Release above, so the record is initialized.
        // SAFETY: the pointer is null or a record of this chain, because `give_back` clears it. So it is a
        // record of the registry, which outlives this borrow (I2).
        let room = unsafe { self.room.load(Ordering::Acquire).as_ref() };
        if let Some(slot) = room.and_then(&claimed) {
            return slot;
        }
        loop {
            if let Some(slot) = claimed(self) {
                return slot;
            }
            let (count, last) = self.chain().fold((0, self), |(count, _), record| (count + 1, record));
            registry.extend(last, 1 + count / GROWTH);
        }
    }

    /// Returns whether this owner has a mark of `key`.
    pub(crate) fn marks(&self, key: usize) -> bool {
        self.chain().any(|record| record.slots.iter().any(|slot| slot.load(Ordering::Relaxed) == key))
    }
}

/// All records.
pub(crate) struct Registry {
    /// The record for threads that have given back their own: a thread-local destructor that reads.
    strays: Record,
    head: AtomicPtr<Record>,
}

impl Registry {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Registry {
        Registry { strays: Record::new(0), head: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Registry {
        Registry { strays: Record::new(0), head: AtomicPtr::new(ptr::null_mut()) }
    }

    pub(crate) fn strays(&self) -> &Record {
        &self.strays
    }

    /// Iterates over the records pushed so far.
    fn pushed(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: the pointer is null or a record of this registry (I2).
        // Acquire: pairs with the Release in `push`.
        let first = unsafe { self.head.load(Ordering::Acquire).as_ref() };
        // SAFETY: the pointer is null or a record of this registry (I2). `next` was stored before the record
        // was pushed.
        std::iter::successors(first, |record| unsafe { record.next.load(Ordering::Relaxed).as_ref() })
    }

    /// Iterates over all slots of all records pushed so far.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &AtomicUsize> {
        std::iter::once(&self.strays).chain(self.pushed()).flat_map(|record| &record.slots)
    }

    /// Returns the number of records.
    pub(crate) fn len(&self) -> usize {
        self.pushed().count()
    }

    /// Returns a record for the calling thread.
    pub(crate) fn take(&self) -> &Record {
        self.free().next().unwrap_or_else(|| self.push())
    }

    /// Iterates over records without an owner, and takes each when it reaches it.
    fn free(&self) -> impl Iterator<Item = &Record> {
        self.pushed().filter(|record| {
            let state = record.state.load(Ordering::Relaxed);
            // No thread marks the slots of an abandoned record any more, so cleared slots stay clear (I3).
            // Acquire: pairs with the Release in `give_back`.
            state != TAKEN
                && record.is_unmarked()
                && record.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Makes and pushes a new record, already taken.
    fn push(&self) -> &Record {
        let new = Box::into_raw(Box::new(Record::new(0)));
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the record is ours until it is pushed, and then kept (I2).
            unsafe { (*new).next.store(head, Ordering::Relaxed) };
            // Release: pairs with the Acquire in `pushed`.
            match self.head.compare_exchange(head, new, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: the record lives as long as the registry (I2).
                Ok(_) => return unsafe { &*new },
                Err(now) => head = now,
            }
        }
    }

    /// Takes back a thread's records.
    pub(crate) fn give_back(&self, record: &Record) {
        let mut next = Some(record);
        while let Some(record) = next {
            // Acquire: pairs with the Release in `extend`.
            // SAFETY: the pointer is null or a record of the registry (I2), of the same owner.
            next = unsafe { record.more.swap(ptr::null_mut(), Ordering::Acquire).as_ref() };
            record.room.store(ptr::null_mut(), Ordering::Relaxed);
            let state = if record.is_unmarked() { FREE } else { ABANDONED };
            // Release: pairs with the Acquire in `free`.
            record.state.store(state, Ordering::Release);
        }
    }

    /// Appends `records` records to the chain that ends with `last`.
    fn extend(&self, last: &Record, records: usize) {
        let pointer = |record| ptr::from_ref::<Record>(record).cast_mut();
        let mut free = self.free();
        let mut take = || free.next().unwrap_or_else(|| self.push());
        let first = take();
        let mut end = first;
        for _ in 1..records {
            let next = take();
            // Release: pairs with the Acquire in `more`.
            end.more.store(pointer(next), Ordering::Release);
            end = next;
        }
        // Release: pairs with the Acquire in `more`.
        let linked =
            last.more.compare_exchange(ptr::null_mut(), pointer(first), Ordering::Release, Ordering::Relaxed);
        if linked.is_err() {
            // Another stray extended the chain first.
            self.give_back(first);
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut next = self.head.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: the pointer comes from `Box::into_raw` in `push` and is in the list once. The registry
            // is no longer borrowed.
            let record = unsafe { Box::from_raw(next) };
            next = record.next.load(Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_from_thread_to_thread() {
        let registry = Registry::new();
        let first = ptr::from_ref(registry.take());
        let second = registry.take();
        assert!(!ptr::eq(first, second));
        registry.give_back(second);
        assert!(ptr::eq(second, registry.take()));
        assert_eq!(registry.len(), 2);
    }

    #[test]
    fn a_record_with_a_guard_left_waits_for_it() {
        let registry = Registry::new();
        let record = registry.take();
        let slot = record.claim(&registry);
        slot.store(640, Ordering::Relaxed);
        registry.give_back(record);
        assert!(!ptr::eq(record, registry.take()), "a guard is still inside");
        slot.store(0, Ordering::Relaxed);
        assert!(ptr::eq(record, registry.take()));
    }

    #[test]
    fn slots_are_distinct_and_all_are_seen() {
        let registry = Registry::new();
        let record = registry.take();
        for key in 2..2 + 3 * SLOTS {
            record.claim(&registry).store(key, Ordering::Relaxed);
        }
        let mut seen: Vec<usize> = registry.slots().map(|slot| slot.load(Ordering::Relaxed)).collect();
        seen.retain(|&key| key > RESERVED);
        seen.sort_unstable();
        assert_eq!(seen, (2..2 + 3 * SLOTS).collect::<Vec<_>>());
        assert!(record.marks(2) && record.marks(1 + 3 * SLOTS) && !record.marks(2 + 3 * SLOTS));
        registry.slots().for_each(|slot| slot.store(0, Ordering::Relaxed));
        registry.give_back(record);
        for _ in 0..3 {
            registry.take();
        }
        assert_eq!(registry.len(), 3, "all three records were given back");
    }

    /// The number of locks is so large that a search of the whole chain per lock, or a recursion per record,
    /// would show.
    #[test]
    fn a_chain_grows_by_a_quarter_and_its_free_slots_are_found() {
        let (registry, locks) = (Registry::new(), if cfg!(miri) { 20 } else { 50_000 } * SLOTS);
        let record = registry.take();
        let slots: Vec<_> = (0..locks).map(|_| record.claim(&registry)).collect();
        let records = registry.len();
        assert!(records * SLOTS <= locks + locks / GROWTH + SLOTS, "{records} records for {locks} locks");
        // Claim the slots that are still free.
        for _ in locks..records * SLOTS {
            record.claim(&registry);
        }
        assert_eq!(registry.len(), records);
        // One slot in the middle, one before the last record with room, and one in the first record.
        for at in [locks / 2, locks / 3, 1] {
            slots[at].store(0, Ordering::Relaxed);
            assert!(ptr::eq(record.claim(&registry), slots[at]), "a free slot was passed over");
        }
        assert_eq!(registry.len(), records);
        registry.slots().for_each(|slot| slot.store(0, Ordering::Relaxed));
        registry.give_back(record);
        let first = registry.take();
        assert!(ptr::eq(first.claim(&registry), first.first()), "give_back must clear the room of a chain");
        assert_eq!(registry.free().count(), records - 1, "all records were given back");
    }
}
