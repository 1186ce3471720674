//! Allocation of the slots of one region, in private memory of the caller's process.
//!
//! - I1. A call that sets the bit of a slot owns the slot, and the number of its last call, until it clears
//!   the bit.
//! - I2. A call that gives up leaves its bit set, and marks the slot as given up: the server may still
//!   write to the slot. Once the reply is there, the next caller that looks for a slot frees it.
//!
//! Only callers on this region's processor write these words, and callers that have just left it.

use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::weaken::Site;

use crate::layout::REGION_SLOTS;
use crate::slot::Number;

/// Sites of this protocol. Each model twin weakens one of them and must fail.
mod sites {
    use super::Site;
    /// The Acquire in [`Region::take`](super::Region::take). Partner: [`GIVE`].
    pub(super) const TAKE: Site = Site(233);
    /// The Release in [`Region::give`](super::Region::give). Partner: [`TAKE`].
    pub(super) const GIVE: Site = Site(234);
    /// The `fetch_and` in [`Region::take_back`](super::Region::take_back): one thread alone clears a mark
    /// (I2).
    pub(super) const TAKE_BACK: Site = Site(235);
    /// The look for the reply after [`TAKE_BACK`].
    pub(super) const LOOK_AGAIN: Site = Site(238);
}

const SLOTS: usize = REGION_SLOTS as usize;

/// The slots of one region. The bits of both words stand for slots.
#[derive(Debug, Default)]
pub(crate) struct Region {
    used: AtomicU32,
    given_up: AtomicU32,
    numbers: [AtomicU32; SLOTS],
}

const ALL: u32 = (1 << SLOTS) - 1;

impl Region {
    /// Takes a free slot, if there is one. `replied` returns whether the reply to the call with this number
    /// is in the slot.
    pub(crate) fn take(&self, replied: impl Fn(usize, Number) -> bool) -> Option<usize> {
        // Relaxed: `take_back` reads the marks again.
        if self.given_up.load(Ordering::Relaxed) != 0 {
            self.take_back(replied);
        }
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let at = (!used & ALL).trailing_zeros();
            if at >= SLOTS as u32 {
                return None;
            }
            // Acquire: pairs with the Release in `give`, so that this call sees the number of the last one.
            let order = sites::TAKE.order(Ordering::Acquire);
            match self.used.compare_exchange_weak(used, used | 1 << at, order, Ordering::Relaxed) {
                Ok(_) => return Some(at as usize),
                Err(now) => used = now,
            }
        }
    }

    /// Frees the slots that were given up, and whose reply has come since.
    #[cold]
    fn take_back(&self, replied: impl Fn(usize, Number) -> bool) {
        let given_up = self.given_up.load(Ordering::Relaxed);
        for at in (0..SLOTS).filter(|at| given_up & 1 << at != 0) {
            // One thread clears the mark, and has the slot then (I2). Acquire: pairs with the Release in
            // `give_up`.
            let marks = self.given_up.fetch_and(!(1 << at), Ordering::Acquire);
            if marks & 1 << at == 0 && !sites::TAKE_BACK.is_weak() {
                continue;
            }
            // Since the first look, another call may have used the slot, and given it up again.
            if replied(at, self.number(at)) || sites::LOOK_AGAIN.is_weak() {
                self.give(at);
            } else {
                self.give_up(at);
            }
        }
    }

    /// Gives a slot back.
    pub(crate) fn give(&self, at: usize) {
        // Release: pairs with the Acquire in `take`, which sees the number of this call.
        self.used.fetch_and(!(1 << at), sites::GIVE.order(Ordering::Release));
    }

    /// Marks a slot as given up, since its reply has not come (I2).
    #[cold]
    pub(crate) fn give_up(&self, at: usize) {
        // Release: pairs with the Acquire in `take_back`, which sees the number of this call.
        self.given_up.fetch_or(1 << at, Ordering::Release);
    }

    /// Number of the last call of a slot.
    pub(crate) fn number(&self, at: usize) -> Number {
        Number::from(self.numbers[at].load(Ordering::Relaxed))
    }

    /// Sets the number of the last call of a slot. For the call that has the slot.
    pub(crate) fn set_number(&self, at: usize, number: Number) {
        self.numbers[at].store(number.get(), Ordering::Relaxed);
    }

    /// The slots in use, as bits.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// The slots that were given up, as bits.
    pub(crate) fn given_up(&self) -> u32 {
        self.given_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod model {
    use super::*;
    use squall_sys::sync::{Arc, thread};

    /// Takes a slot, counts in its number, and gives it back. Returns whether a slot was free.
    fn uses(region: &Region) -> bool {
        let Some(at) = region.take(|_, _| false) else { return false };
        region.set_number(at, region.number(at).next());
        region.give(at);
        true
    }

    /// Two threads use the only free slot. Each use counts.
    fn in_turn() {
        let region = Arc::new(Region::default());
        region.used.store(ALL & !1, Ordering::Relaxed);
        let other = {
            let region = region.clone();
            thread::spawn(move || uses(&region))
        };
        let uses = u32::from(uses(&region)) + u32::from(other.join().unwrap());
        assert_eq!(region.number(0).get(), uses, "a call does not know the last one of its slot");
    }

    /// The reply of a slot that was given up has come. Two threads look for a slot.
    fn taken_back() {
        let region = Arc::new(Region::default());
        region.used.store(ALL, Ordering::Relaxed);
        region.give_up(0);
        let other = {
            let region = region.clone();
            thread::spawn(move || region.take(|_, _| true))
        };
        let mine = region.take(|_, _| true);
        let other = other.join().unwrap();
        assert!(mine.is_none() || other.is_none(), "one slot was taken twice");
    }

    /// Two threads look for a slot. Only the reply to the first call of the slot that was given up has
    /// come. A thread that gets the slot gives it up again.
    fn given_up_again() {
        let region = Arc::new(Region::default());
        region.used.store(ALL, Ordering::Relaxed);
        region.give_up(0);
        let uses = |region: &Region| {
            let taken = region.take(|_, number| number == Number::from(0));
            if let Some(at) = taken {
                region.set_number(at, region.number(at).next());
                region.give_up(at);
            }
            taken.is_some()
        };
        let other = {
            let region = region.clone();
            thread::spawn(move || uses(&region))
        };
        let mine = uses(&region);
        assert!(!(mine && other.join().unwrap()), "a slot was taken before its reply came");
    }

    use squall_sys::models;
    models! { "region::model":
        in_turn: TAKE, GIVE;
        taken_back: TAKE_BACK;
        given_up_again: LOOK_AGAIN;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_taken_once() {
        let region = Region::default();
        let never = |_, _| false;
        let all: Vec<_> = std::iter::from_fn(|| region.take(never)).collect();
        assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
        region.give(3);
        assert_eq!((region.take(never), region.take(never)), (Some(3), None));
    }

    #[test]
    fn a_slot_given_up_is_free_again_after_its_reply() {
        let region = Region::default();
        let at = region.take(|_, _| false).unwrap();
        region.set_number(at, Number::FIRST.next());
        region.give_up(at);
        assert_eq!(region.take(|_, _| false), Some(1));
        assert_eq!(region.take(|at, number| (at, number) == (0, Number::FIRST.next())), Some(0));
        assert_eq!(region.given_up(), 0);
    }
}
