//! The activity of each thread: its wait, and its presence inside as one of several.
//!
//! - I1. A wait is one word: its place, its limit, and a number that no other wait of the slot has. The same
//!   word therefore means the same wait.
//! - I2. Only the worker's thread stores to its slot, with plain stores to cache lines of its own. The watch
//!   must not add the fence that a lock lacks. (A cancellable wait is the exception.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use squall::lock::Cancel;

use crate::run::lock;

/// The limit of a wait, besides the lock itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Unlimited.
    None,
    /// A near deadline.
    Deadline,
    /// A cancellation by another thread.
    Cancel,
}

const LIMITS: [Limit; 3] = [Limit::None, Limit::Deadline, Limit::Cancel];

/// | bits | meaning |
/// |---|---|
/// | 0 to 1 | the limit: its index in `LIMITS` |
/// | 2 to 15 | the place, plus one |
/// | 16 to 63 | the number of the wait |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait(u64);

const LIMIT_BITS: u32 = 2;
const SERIAL_SHIFT: u32 = 16;
const LIMIT_MASK: u64 = (1 << LIMIT_BITS) - 1;
const PLACE_MASK: u64 = (1 << (SERIAL_SHIFT - LIMIT_BITS)) - 1;

impl Wait {
    const NONE: Wait = Wait(0);

    fn new(serial: u64, place: usize, limit: Limit) -> Wait {
        Wait(serial << SERIAL_SHIFT | (place as u64 + 1) << LIMIT_BITS | limit as u64)
    }

    pub(super) fn limit(self) -> Limit {
        LIMITS[(self.0 & LIMIT_MASK) as usize]
    }

    pub(super) fn place(self) -> usize {
        (self.0 >> LIMIT_BITS & PLACE_MASK) as usize - 1
    }
}

/// The slot of one worker, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Slot {
    wait: AtomicU64,
    serial: AtomicU64,
    /// The place where the thread is inside ([`Inside::word`]).
    inside: AtomicU64,
    /// Number of finished sections per place.
    done: Vec<AtomicU64>,
    /// The last wait that was reported as cancelled.
    cancelled: AtomicU64,
    cancel: Mutex<Option<Arc<Cancel>>>,
}

/// The place and the role of a thread inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// One of several readers.
    Reader(usize),
    /// The only one. The holder of an exclusive lock is known by its `SectionCounts`.
    Alone(usize),
    /// A request in a counter of this generation.
    Request(usize, u64),
}

impl Inside {
    /// Encodes the place plus one in the low bits as in [`Wait`], the role above, and the generation above
    /// that.
    fn word(self) -> u64 {
        let (place, who) = match self {
            Inside::Reader(place) => (place, 0),
            Inside::Alone(place) => (place, 1),
            Inside::Request(place, generation) => (place, generation << 2 | 2),
        };
        (place as u64 + 1) | who << SERIAL_SHIFT
    }
}

impl Slot {
    /// Makes a slot for a world with so many places.
    pub(super) fn new(places: usize) -> Slot {
        Slot {
            wait: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            done: (0..places).map(|_| AtomicU64::new(0)).collect(),
            cancelled: AtomicU64::new(0),
            cancel: Mutex::new(None),
        }
    }

    /// Records that the thread begins to wait.
    pub(super) fn wait(&self, place: usize, limit: Limit) {
        let serial = self.serial.load(Ordering::Relaxed) + 1;
        self.serial.store(serial, Ordering::Relaxed);
        self.wait.store(Wait::new(serial, place, limit).0, Ordering::Relaxed);
    }

    /// Records that the thread begins to wait and can be cancelled.
    pub(super) fn wait_for_cancel(&self, place: usize, cancel: &Arc<Cancel>) {
        let mut shown = lock(&self.cancel);
        *shown = Some(Arc::clone(cancel));
        self.wait(place, Limit::Cancel);
    }

    /// Records the end of the wait.
    pub(super) fn wait_no_more(&self) {
        self.wait.store(Wait::NONE.0, Ordering::Relaxed);
    }

    /// Returns the current wait, if any.
    pub(super) fn waits(&self) -> Option<Wait> {
        let wait = Wait(self.wait.load(Ordering::Relaxed));
        (wait != Wait::NONE).then_some(wait)
    }

    /// Cancels the wait, if it is still the same. With `deaf`, only reports the cancellation.
    pub(super) fn cancel(&self, wait: Wait, deaf: bool) {
        let shown = lock(&self.cancel);
        if let Some(cancel) = shown.as_ref()
            && self.waits() == Some(wait)
        {
            // Recorded before the cancellation, because the thread may wait again at once.
            self.cancelled.store(wait.0, Ordering::Relaxed);
            if !deaf {
                cancel.cancel();
            }
        }
    }

    pub(super) fn is_cancelled(&self, wait: Wait) -> bool {
        self.cancelled.load(Ordering::Relaxed) == wait.0
    }

    pub(super) fn go_inside(&self, inside: Inside) {
        self.inside.store(inside.word(), Ordering::Relaxed);
    }

    /// Records that the thread has left the place after a section.
    pub(super) fn come_out(&self, place: usize) {
        self.stay_out();
        let done = self.done[place].load(Ordering::Relaxed);
        self.done[place].store(done + 1, Ordering::Relaxed);
    }

    pub(super) fn stay_out(&self) {
        self.inside.store(0, Ordering::Relaxed);
    }

    /// Returns whether the thread is inside in this role.
    pub(super) fn is(&self, inside: Inside) -> bool {
        self.inside.load(Ordering::Relaxed) == inside.word()
    }

    /// Returns whether the thread is inside the place in any role.
    pub(super) fn is_inside(&self, place: usize) -> bool {
        self.inside.load(Ordering::Relaxed) & ((1 << SERIAL_SHIFT) - 1) == place as u64 + 1
    }

    /// Returns the number of sections that the thread finished at the place.
    pub(super) fn done(&self, place: usize) -> u64 {
        self.done[place].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_known_by_its_word() {
        let slot = Slot::new(1);
        assert_eq!(slot.waits(), None);
        for (place, limit) in [(0, Limit::None), (7, Limit::Deadline), (300, Limit::Cancel)] {
            slot.wait(place, limit);
            let wait = slot.waits().expect("it waits");
            assert_eq!((wait.place(), wait.limit()), (place, limit));
            slot.wait_no_more();
            slot.wait(place, limit);
            assert_ne!(slot.waits(), Some(wait), "another wait for the same");
        }
    }

    #[test]
    fn only_the_wait_that_is_meant_is_cancelled() {
        let (slot, cancel) = (Slot::new(1), Arc::new(Cancel::new()));
        slot.wait_for_cancel(3, &cancel);
        let wait = slot.waits().expect("it waits");
        slot.wait_for_cancel(3, &cancel);
        slot.cancel(wait, false);
        assert!(!cancel.is_cancelled() && !slot.is_cancelled(wait));
        let wait = slot.waits().expect("it waits");
        slot.cancel(wait, true);
        assert!(!cancel.is_cancelled() && slot.is_cancelled(wait));
        slot.cancel(wait, false);
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn where_it_is_inside_is_known_with_the_generation() {
        let slot = Slot::new(5);
        let all = [Inside::Reader(4), Inside::Alone(4), Inside::Request(4, 0), Inside::Request(4, 1)];
        for inside in all {
            slot.go_inside(inside);
            assert!(slot.is_inside(4) && !slot.is_inside(3), "{inside:?}");
            assert!(all.iter().all(|other| slot.is(*other) == (*other == inside)), "{inside:?}");
        }
        slot.come_out(4);
        assert!(!slot.is_inside(4) && slot.done(4) == 1 && slot.done(3) == 0);
    }
}
