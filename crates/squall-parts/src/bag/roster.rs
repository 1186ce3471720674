//! The shards that take part, and those that have elements: a bit for each place.

use super::sites;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// A set of places. Each word has a line of its own, apart from data that each call reads.
pub(super) struct Places(Box<[CachePadded<AtomicU64>]>);

impl Places {
    pub(super) fn new(places: usize) -> Places {
        Places((0..places.div_ceil(64)).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    pub(super) fn add(&self, place: usize) {
        // AcqRel: pairs with the Acquire of `iter`.
        self.0[place / 64].fetch_or(1 << (place % 64), Ordering::AcqRel);
    }

    pub(super) fn remove(&self, place: usize) {
        // AcqRel: pairs with the Acquire of `iter`.
        self.0[place / 64].fetch_and(!(1 << (place % 64)), Ordering::AcqRel);
    }

    /// Returns the members. Each word is read once.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            // Acquire: pairs with the AcqRel of `add` and `remove`.
            Bits(bits.load(Ordering::Acquire)).map(move |bit| word * 64 + bit)
        })
    }
}

#[derive(Clone)]
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        // The lowest bit is cleared.
        self.0 &= self.0.checked_sub(1)?;
        Some(bit)
    }
}

/// The members of a bag, and the changes. Both change under the lock of the shard that comes or leaves.
pub(super) struct Roster {
    members: Places,
    /// The number of changes, and in the low bits that of shards which are leaving now.
    changes: AtomicU64,
}

const CHANGE: u64 = 1 << 16;

/// The changes of a roster up to a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Changes(u64);

impl Roster {
    pub(super) fn new(places: usize) -> Roster {
        Roster { members: Places::new(places), changes: AtomicU64::new(0) }
    }

    /// Adds a member: first the bit, then the change (`bag/I5`).
    pub(super) fn join(&self, place: usize) {
        self.members.add(place);
        // AcqRel: pairs with the Acquire of `changes`.
        self.changes.fetch_add(CHANGE, Ordering::AcqRel);
    }

    /// Removes a member: first the change, then the bit (`bag/I5`).
    pub(super) fn leave(&self, place: usize) {
        let now = u64::from(!sites::LEAVING.is_weak());
        // AcqRel: pairs with the Acquire of `changes`.
        self.changes.fetch_add(CHANGE + now, Ordering::AcqRel);
        self.members.remove(place);
        // AcqRel: a thread that no longer sees the member as leaving sees that the bit is gone.
        self.changes.fetch_sub(now, Ordering::AcqRel);
    }

    pub(super) fn changes(&self) -> Changes {
        // Acquire: pairs with the AcqRel of `join` and `leave`.
        Changes(self.changes.load(Ordering::Acquire))
    }

    /// Returns whether the members were the same since `earlier`.
    pub(super) fn is_as(&self, earlier: Changes) -> bool {
        self.changes() == earlier && earlier.0.is_multiple_of(CHANGE)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.members.iter()
    }
}
