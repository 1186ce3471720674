//! Where readers leave their marks: a line for each thread, for all locks.
//!
//! Problem: a reader must say "I am inside" where a writer finds it, and nobody else may write there. Counts on each VP
//! would do, but take two restartable additions (1.7 ns together where an operation's enter and leave take 0.7) and memory per
//! lock and VP. Idea: a guard never leaves its thread, so the thread itself is the cluster. It has a record of a few *slots*;
//! one that holds the address of a lock is a mark: this thread is inside, or about to look whether it may be. A writer looks
//! through the records of all threads.
//!
//! - I1. A slot is 0 (free), [`RESERVED`], or the key of a lock. It leaves 0 by its owner's hand alone; in the record of
//!   strays, which has no owner, by a compare-exchange.
//! - I2. Records are never freed while their registry lives, and a record that was pushed stays in the list.
//! - I3. A record is given to a thread only when all its slots are 0 and no guard is left that could clear one of them later.
//!
//! Not promised: that a guard that was forgotten (`mem::forget`) is ever taken for gone. Its slot stays a mark.
//! Cost: 128 bytes for each thread that ever read at the same time as others; a search of the list when a thread reads first.
//! A thread that reads many locks at once has a chain of records, which grows by a quarter, one at least, when all of it was
//! searched in vain; so that the searches are a constant number of looks for each lock.
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019 (readers publish the lock's
//! address; there in one table that all threads hash into); hazard pointers (Michael, 2004) for the records.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::ptr;

/// Slots of a record: locks that a thread reads at once before it needs a second record.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

/// A chain of records grows by one, and by one for each so many that it has.
const GROWTH: usize = 4;

/// A slot that belongs to somebody, and is no mark.
pub(crate) const RESERVED: usize = 1;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Its thread has ended, but left a guard: free as soon as that is gone.
const ABANDONED: u8 = 2;

/// A thread's slots.
#[repr(align(128))]
pub(crate) struct Record {
    slots: [AtomicUsize; SLOTS],
    state: AtomicU8,
    /// The next in the registry; fixed once pushed.
    next: AtomicPtr<Record>,
    /// More slots of the same owner.
    more: AtomicPtr<Record>,
    /// Of an owner's first record: the one of the chain where a slot was free last; null for this one.
    room: AtomicPtr<Record>,
}

impl Record {
    /// A taken record of which every slot holds `slot`.
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

    /// A taken record of which every slot holds `slot`.
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

    /// The slot that is tried first.
    #[inline(always)]
    pub(crate) fn first(&self) -> &AtomicUsize {
        &self.slots[0]
    }

    fn is_unmarked(&self) -> bool {
        // Acquire: pairs with the Release of who cleared a slot last (`raw.rs`): perhaps a guard that its thread left behind. The
        // next owner's marks carry on what that released.
        self.slots.iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }

    fn more(&self) -> Option<&Record> {
        // SAFETY: null or a record of the registry, which outlives this borrow (I2). Acquire: pairs with the Release in
        // `extend`, behind which the record was filled.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    /// This record and what its owner has behind it.
    fn chain(&self) -> impl Iterator<Item = &Record> {
        std::iter::successors(Some(self), |record| record.more())
    }

    /// A slot of this record that was free, now [`RESERVED`].
    fn claim_here(&self) -> Option<&AtomicUsize> {
        // Acquire: pairs with the Release of who cleared the slot last (`raw.rs`): of a stray's, another thread. The mark that
        // follows carries on what that released. Relaxed: only a look, to spare the exchange.
        self.slots.iter().find(|slot| {
            slot.load(Ordering::Relaxed) == 0
                && slot.compare_exchange(0, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// A slot of this owner that was free, now [`RESERVED`]. `self` is the owner's first record.
    #[cold]
    pub(crate) fn claim<'a>(&'a self, registry: &'a Registry) -> &'a AtomicUsize {
        let claimed = |from: &'a Record| {
            let (record, slot) = from.chain().find_map(|record| Some((record, record.claim_here()?)))?;
            // Release: pairs with the Acquire below, of another stray.
            self.room.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
            Some(slot)
        };
        // Acquire: pairs with the Release above, behind which the record was filled.
        // SAFETY: null or a record of this chain: `give_back` forgets it. So of the registry, which outlives this borrow (I2).
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

    /// Whether this owner has a mark of `key`.
    pub(crate) fn marks(&self, key: usize) -> bool {
        self.chain().any(|record| record.slots.iter().any(|slot| slot.load(Ordering::Relaxed) == key))
    }
}

/// All records.
pub(crate) struct Registry {
    /// For threads that are past the end of their own record: a destructor of a thread-local value that reads.
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

    /// The records that were pushed by now.
    fn pushed(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: null, or a record of this registry (I2). Acquire: pairs with the Release in `push`.
        let first = unsafe { self.head.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above; `next` was stored before the record was pushed.
        std::iter::successors(first, |record| unsafe { record.next.load(Ordering::Relaxed).as_ref() })
    }

    /// All slots of all records there are by now.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &AtomicUsize> {
        std::iter::once(&self.strays).chain(self.pushed()).flat_map(|record| &record.slots)
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.pushed().count()
    }

    /// A record for the calling thread.
    pub(crate) fn take(&self) -> &Record {
        self.free().next().unwrap_or_else(|| self.push())
    }

    /// Records that nobody has, each taken when it is come to.
    fn free(&self) -> impl Iterator<Item = &Record> {
        self.pushed().filter(|record| {
            let state = record.state.load(Ordering::Relaxed);
            // Of one that is abandoned: nobody marks its slots any more, so that once clear they stay clear (I3).
            // Acquire: pairs with the Release in `give_back`.
            state != TAKEN
                && record.is_unmarked()
                && record.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// A new record, taken.
    fn push(&self) -> &Record {
        let new = Box::into_raw(Box::new(Record::new(0)));
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: ours until it is pushed, and then kept (I2).
            unsafe { (*new).next.store(head, Ordering::Relaxed) };
            // Release: pairs with the Acquire in `pushed`.
            match self.head.compare_exchange(head, new, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: kept as long as the registry (I2).
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
            // SAFETY: null or a record of the registry (I2), of the same owner.
            next = unsafe { record.more.swap(ptr::null_mut(), Ordering::Acquire).as_ref() };
            record.room.store(ptr::null_mut(), Ordering::Relaxed);
            let state = if record.is_unmarked() { FREE } else { ABANDONED };
            // Release: pairs with the Acquire in `free`.
            record.state.store(state, Ordering::Release);
        }
    }

    /// Gives the owner of `last` more slots: so many records.
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
            // Another stray was faster.
            self.give_back(first);
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut next = self.head.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: from `Box::into_raw` in `push`, in the list once, and nobody borrows from the registry any more.
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
        assert!(!ptr::eq(record, registry.take()), "somebody is still inside");
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

    /// So many that a search of all for each, or a call for each that is given back, would be noticed.
    #[test]
    fn a_chain_grows_by_a_quarter_and_its_free_slots_are_found() {
        let (registry, locks) = (Registry::new(), if cfg!(miri) { 20 } else { 50_000 } * SLOTS);
        let record = registry.take();
        let slots: Vec<_> = (0..locks).map(|_| record.claim(&registry)).collect();
        let records = registry.len();
        assert!(records * SLOTS <= locks + locks / GROWTH + SLOTS, "{records} records for {locks} locks");
        // What is still free.
        for _ in locks..records * SLOTS {
            record.claim(&registry);
        }
        assert_eq!(registry.len(), records);
        // One in the middle, one before the last record with room, and one in the first record.
        for at in [locks / 2, locks / 3, 1] {
            slots[at].store(0, Ordering::Relaxed);
            assert!(ptr::eq(record.claim(&registry), slots[at]), "a free slot was passed over");
        }
        assert_eq!(registry.len(), records);
        registry.slots().for_each(|slot| slot.store(0, Ordering::Relaxed));
        registry.give_back(record);
        let first = registry.take();
        assert!(
            ptr::eq(first.claim(&registry), first.first()),
            "what was known of a chain is forgotten with it"
        );
        assert_eq!(registry.free().count(), records - 1, "all were given back");
    }
}
