//! Where copies are: sets of places, and what is kept of them beside something that is copied.
//!
//! Problem: whoever changes or ends something must reach every place that has a copy, and no other, while places make copies of it.
//! Idea: a word beside it has a bit for each place. Two uses, with two orders.
//!
//! [`Holders`], beside a master, says which replicas hold its value.
//!
//! - I1. `Holders` changes under the master's lock alone: a replica is noted by the step that gives it the value
//!   ([`Replica::load_noting`](crate::replica::Replica::load_noting)), and whoever empties replicas takes the notes in the walk of that update. So a
//!   replica that holds a value is noted.
//!
//! [`Presence`], beside something that ends once, says where there may be an entry of it, so that none is left when it is gone.
//!
//! - I2. Who makes an entry announces the place, makes it, and then asks whether the thing is gone; if so, it takes the entry out again. Who
//!   ends the thing marks it as gone, then asks for the places, and takes the entries out there. Each has a fence between its two
//!   steps, so that one of them sees what the other did (`CONFIRM`, `END`): nothing is left.
//!
//! Not promised: that a place is told from those whose number differs from its own by a multiple of 64. Both sets may say more than is so.
//! Cost: a read-modify-write of the word for each copy that is made, and none for its use.
//! Source: HU-15, the page directory: which clusters hold copies.

use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::fmt;

use crate::replica::sites;

/// A set of places, each a small number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Places(u64);

impl Places {
    const BITS: usize = u64::BITS as usize;

    fn bit(place: usize) -> u64 {
        1 << (place % Places::BITS)
    }

    /// Whether this place may be in it.
    pub fn may_have(self, place: usize) -> bool {
        self.0 & Places::bit(place) != 0
    }

    /// Whether no place is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The places below `count` that may be in it.
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

/// Which replicas of a master hold its value: see the module.
#[derive(Debug)]
pub struct Holders(AtomicU64);

impl Holders {
    /// None.
    pub fn new() -> Holders {
        Holders(AtomicU64::new(0))
    }

    /// The replica of this place has been given the value. Called by [`Replica::load_noting`](crate::replica::Replica::load_noting)'s closure (I1).
    pub fn note(&self, place: usize) {
        // Relaxed: whoever reads it holds the lock that this is called under.
        self.0.fetch_or(Places::bit(place), Ordering::Relaxed);
    }

    /// The places, in the walk of an update that gives them the new value: they stay holders (I1).
    pub fn all(&self) -> Places {
        // Relaxed: as in `note`.
        Places(self.0.load(Ordering::Relaxed))
    }

    /// The places, in the walk of an update that empties the replicas there: they hold nothing after it (I1).
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

/// Where there may be entries of something that ends once: see the module.
#[derive(Debug)]
pub struct Presence {
    gone: AtomicBool,
    places: AtomicU64,
}

impl Presence {
    /// There, with no entry anywhere.
    pub fn new() -> Presence {
        Presence { gone: AtomicBool::new(false), places: AtomicU64::new(0) }
    }

    /// An entry is about to be made at this place.
    pub fn announce(&self, place: usize) {
        // Relaxed: the fence in `is_here_still` comes after it.
        self.places.fetch_or(Places::bit(place), Ordering::Relaxed);
    }

    /// Whether an entry that was made after it was announced may stay: if not, its maker takes it out again.
    #[must_use = "an entry of something that is gone has to be taken out"]
    pub fn is_here_still(&self) -> bool {
        // Pairs with the fence in `end`: this sees that it is gone, or that one sees the place and the entry.
        if !sites::CONFIRM.is_weak() {
            fence(Ordering::SeqCst);
        }
        !self.is_gone()
    }

    /// Whether it has ended.
    #[inline(always)]
    pub fn is_gone(&self) -> bool {
        // Acquire: pairs with the release in `end`: who sees that it is gone sees what was done before.
        self.gone.load(Ordering::Acquire)
    }

    /// Ends it. Of several who do so one gets the places in which it has to take entries out.
    #[must_use = "entries have to be taken out there"]
    pub fn end(&self) -> Option<Places> {
        // AcqRel: pairs with the acquire in `is_gone`, and with itself.
        if self.gone.swap(true, Ordering::AcqRel) {
            return None;
        }
        // Pairs with the fence in `is_here_still`.
        if !sites::END.is_weak() {
            fence(Ordering::SeqCst);
        }
        // Relaxed: the fence is before it.
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
    fn hu_15_a_set_has_each_place_that_was_noted_and_up_to_64_no_other() {
        assert_eq!(of(&[]).below(1000).count(), 0);
        assert!(of(&[]).is_empty());
        let places = of(&[0, 5, 63]);
        assert_eq!(places.below(64).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(places.below(63).collect::<Vec<_>>(), [0, 5]);
        assert!(places.may_have(5) && !places.may_have(6) && !places.is_empty());
        // Beyond, those of the same remainder.
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
    fn what_is_taken_is_held_no_more() {
        let holders = Holders::new();
        holders.note(1);
        assert!(holders.all().may_have(1));
        assert!(holders.take().may_have(1));
        assert!(holders.all().is_empty());
    }
}
