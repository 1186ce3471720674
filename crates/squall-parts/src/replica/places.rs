//! Sets of places: the places that have copies of an object, kept in a word beside it.
//!
//! Problem: a thread that changes or ends an object must reach every place with a copy, and no other, while
//! places make copies of it.
//! Idea: a word beside the object has a bit for each place. There are two uses, with different orders.
//!
//! [`Holders`], beside a master, has the replicas that hold its value.
//!
//! - I1. `Holders` changes only under the master's lock. A replica is noted in the step that gives it the
//!   value ([`Replica::load_noting`](crate::replica::Replica::load_noting)). An update that empties replicas
//!   takes the notes during its walk. So a replica that holds a value is noted.
//!
//! [`Presence`], beside an object that ends once, has the places that may have an entry of it. So no entry is
//! left when it has ended.
//!
//! - I2. The maker of an entry announces the place, makes the entry, and then checks whether the object has
//!   ended; if so, the maker removes the entry. The thread that ends the object marks it as ended, then loads
//!   the places and removes their entries. Each has a fence between its two steps, so that at least one sees
//!   the other (`CONFIRM`, `END`): no entry is left.
//!
//! Not promised: places with numbers that differ by a multiple of 64 share a bit. So both sets may contain
//! extra places.
//! Cost: a read-modify-write of the word for each copy made, and no cost for its use.
//! Source: HU-15 (Hurricane, §4.3), the page directory: the set of clusters with copies.

use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::fmt;

use crate::replica::sites;

/// A set of places, which are small numbers. Places that differ by a multiple of 64 share a bit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Places(u64);

impl Places {
    const BITS: usize = u64::BITS as usize;

    fn bit(place: usize) -> u64 {
        1 << (place % Places::BITS)
    }

    /// Whether the set may contain this place.
    pub fn may_have(self, place: usize) -> bool {
        self.0 & Places::bit(place) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the places below `count` that the set may contain.
    ///
    /// ```
    /// use squall::parts::replica::Holders;
    /// let holders = Holders::new();
    /// holders.note(3);
    /// assert_eq!(holders.all().below(128).collect::<Vec<_>>(), [3, 67], "67 shares the bit of 3");
    /// ```
    pub fn below(self, count: usize) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        let classes = std::iter::from_fn(move || {
            let class = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (class < Places::BITS).then_some(class)
        });
        classes.flat_map(move |class| (class..count).step_by(Places::BITS))
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.below(Places::BITS)).finish()
    }
}

/// The replicas of a master that hold its value. See the module header.
///
/// ```
/// use squall::parts::replica::{Holders, Master};
/// let (master, holders) = (Master::fetched(1), Holders::new());
/// let replicas = [master.replica(), master.replica()];
/// squall::rcu::pin(|guard| assert_eq!(**replicas[1].load_noting(&master, guard, || holders.note(1)), 1));
/// // Only replica 1 holds the value, so the update visits no other.
/// master.set(2, |reach| holders.take().below(2).for_each(|place| reach(&replicas[place])));
/// assert!(holders.all().is_empty());
/// ```
#[derive(Debug)]
pub struct Holders(AtomicU64);

impl Holders {
    /// Returns an empty set.
    pub fn new() -> Holders {
        Holders(AtomicU64::new(0))
    }

    /// Notes that the replica of this place has been given the value. Called from the closure of
    /// [`Replica::load_noting`](crate::replica::Replica::load_noting) (I1).
    pub fn note(&self, place: usize) {
        // Relaxed: readers hold the lock that this is called under.
        self.0.fetch_or(Places::bit(place), Ordering::Relaxed);
    }

    /// Returns the places. Called by the walk of an update that gives their replicas the new value, so they
    /// stay in the set (I1).
    pub fn all(&self) -> Places {
        // Relaxed: as in `note`.
        Places(self.0.load(Ordering::Relaxed))
    }

    /// Takes all places out of the set. Called by the walk of an update that empties their replicas (I1).
    pub fn take(&self) -> Places {
        // Relaxed: as in `note`.
        Places(self.0.swap(0, Ordering::Relaxed))
    }
}

impl Default for Holders {
    fn default() -> Holders {
        Holders::new()
    }
}

/// The places that may have entries of an object that ends once. See the module header.
///
/// ```
/// use squall::parts::replica::Presence;
/// let presence = Presence::new();
/// presence.announce(3);
/// // Make the entry at place 3, then check that it may stay.
/// assert!(presence.is_here_still());
/// let places = presence.end().expect("the first call ends it");
/// assert!(places.may_have(3) && presence.end().is_none());
/// ```
#[derive(Debug)]
pub struct Presence {
    gone: AtomicBool,
    places: AtomicU64,
}

impl Presence {
    /// Returns a presence that has not ended and has no places.
    pub fn new() -> Presence {
        Presence { gone: AtomicBool::new(false), places: AtomicU64::new(0) }
    }

    /// Announces that an entry is about to be made at this place.
    pub fn announce(&self, place: usize) {
        // Relaxed: the fence in `is_here_still` comes after it.
        self.places.fetch_or(Places::bit(place), Ordering::Relaxed);
    }

    /// Whether an entry made after [`announce`](Presence::announce) may stay. If not, its maker must remove
    /// it.
    #[must_use = "if false, the object has ended, and the caller must remove its entry"]
    pub fn is_here_still(&self) -> bool {
        // Pairs with the fence in `end`: either this load sees the end, or the ending thread sees the place
        // and the entry.
        if !sites::CONFIRM.is_weak() {
            fence(Ordering::SeqCst);
        }
        !self.is_gone()
    }

    /// Whether the object has ended.
    #[inline(always)]
    pub fn is_gone(&self) -> bool {
        // Acquire: pairs with the release in `end`: a thread that sees the end sees the writes before it.
        self.gone.load(Ordering::Acquire)
    }

    /// Returns the places.
    pub fn all(&self) -> Places {
        // Relaxed: a caller that needs all entries excludes their makers by a lock.
        Places(self.places.load(Ordering::Relaxed))
    }

    /// Takes all places out of the set. The caller has made their entries useless, and excludes makers of
    /// others by a lock.
    pub fn clear(&self) {
        // Relaxed: a thread that ends the object, and misses a place that this takes out, misses a useless
        // entry.
        self.places.store(0, Ordering::Relaxed);
    }

    /// Ends the object. Of several callers, one gets the places from which it must remove entries.
    #[must_use = "the caller must remove the entries at these places"]
    pub fn end(&self) -> Option<Places> {
        // AcqRel: pairs with the acquire in `is_gone`, and with itself.
        if self.gone.swap(true, Ordering::AcqRel) {
            return None;
        }
        // Pairs with the fence in `is_here_still`.
        if !sites::END.is_weak() {
            fence(Ordering::SeqCst);
        }
        // Relaxed: the fence comes before it.
        Some(Places(self.places.load(Ordering::Relaxed)))
    }
}

impl Default for Presence {
    fn default() -> Presence {
        Presence::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn of(places: &[usize]) -> Places {
        let holders = Holders::new();
        places.iter().for_each(|place| holders.note(*place));
        holders.all()
    }

    #[test]
    fn hu_15_a_set_has_the_noted_places() {
        assert_eq!(of(&[]).below(1000).count(), 0);
        assert!(of(&[]).is_empty());
        let places = of(&[0, 5, 63]);
        assert_eq!(places.below(64).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(places.below(63).collect::<Vec<_>>(), [0, 5]);
        assert!(places.may_have(5) && !places.may_have(6) && !places.is_empty());
        // Beyond 63, places with the same remainder.
        assert_eq!(of(&[70]).below(200).collect::<Vec<_>>(), [6, 70, 134, 198]);
        assert!(of(&[70]).may_have(70));
    }

    #[test]
    fn it_ends_once() {
        let presence = Presence::new();
        presence.announce(3);
        assert!(presence.is_here_still());
        assert_eq!(presence.end().map(|places| places.below(64).collect()), Some(vec![3]));
        assert!(presence.is_gone() && !presence.is_here_still());
        assert_eq!(presence.end(), None);
    }

    #[test]
    fn taken_places_are_no_longer_held() {
        let holders = Holders::new();
        holders.note(1);
        assert!(holders.all().may_have(1));
        assert!(holders.take().may_have(1));
        assert!(holders.all().is_empty());
    }
}
