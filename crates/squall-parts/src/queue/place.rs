//! A place: two fragments, and the data of its clients.

use super::fragment::Fragment;
use super::sites;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One place's part of a queue.
pub(super) struct Place<T> {
    pub(super) index: usize,
    /// Number in the order in which the places joined, plus 1; 0 before.
    number: AtomicUsize,
    pub(super) fragments: [Fragment<T>; 2],
    pub(super) own: CachePadded<Own>,
}

/// The data of a place's clients. Threads that use it at once may lose a step; any value is right.
pub(super) struct Own {
    /// Number of elements that were finished here so far.
    finished: AtomicU64,
    random: AtomicU64,
    pub(super) elsewhere: Elsewhere,
    /// Gets and puts since the latest balancing.
    pub(super) calls: AtomicUsize,
    /// Turn among the neighbours.
    pub(super) turn: AtomicUsize,
    pub(super) counts: OwnCounts,
}

/// The heap of another client that a client of the relaxed form takes from, and its looks.
pub(super) struct Elsewhere {
    /// Number of the fragment plus 1; 0 is at home.
    fragment: AtomicUsize,
    /// Gets before the next look.
    left: AtomicUsize,
    /// Looks in a row that found a better heap.
    better: AtomicUsize,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        Elsewhere { fragment: AtomicUsize::new(0), left: AtomicUsize::new(0), better: AtomicUsize::new(0) }
    }

    /// Returns the present choice, or `None` if a look is due: after the gets of the last one, or at once if
    /// the client is at home without elements.
    #[inline]
    pub(super) fn present(&self, has_elements: bool) -> Option<Option<usize>> {
        // Relaxed, not atomic together, here and below: any choice is right.
        let left = self.left.load(Ordering::Relaxed);
        let number = self.fragment.load(Ordering::Relaxed).checked_sub(1);
        if left == 0 || (number.is_none() && !has_elements) {
            return None;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        Some(number)
    }

    /// Records a look at a fragment. Returns true if the client takes from it now: it was better in
    /// `patience` looks in a row. The choice holds for `gets`.
    pub(super) fn looked(&self, number: usize, is_better: bool, patience: usize, gets: usize) -> bool {
        let better = if is_better { self.better.load(Ordering::Relaxed) + 1 } else { 0 };
        let goes = better >= patience;
        self.fragment.store(if goes { number + 1 } else { 0 }, Ordering::Relaxed);
        // A client in doubt looks again at once.
        let waits = better == 0 || goes;
        self.left.store(if waits { gets.saturating_sub(1) } else { 0 }, Ordering::Relaxed);
        self.better.store(if goes { 0 } else { better }, Ordering::Relaxed);
        goes
    }

    /// Returns home, and looks at the next get.
    pub(super) fn leave(&self) {
        self.fragment.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
    }
}

impl<T> Place<T> {
    pub(super) fn new(index: usize) -> Place<T> {
        Place {
            index,
            number: AtomicUsize::new(0),
            fragments: [Fragment::new(), Fragment::new()],
            own: CachePadded::new(Own {
                finished: AtomicU64::new(0),
                random: AtomicU64::new((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                elsewhere: Elsewhere::new(),
                calls: AtomicUsize::new(0),
                turn: AtomicUsize::new(0),
                counts: OwnCounts::default(),
            }),
        }
    }

    /// Returns the number in the order in which the places joined, if this one has.
    #[inline]
    pub(super) fn number(&self) -> Option<usize> {
        // Acquire: pairs with the Release of `set_number`. A client that uses the number finds it below the
        // number of places that joined.
        self.number.load(Ordering::Acquire).checked_sub(1)
    }

    /// Stores the number, after the place has joined. The caller holds the lock of the list of places.
    pub(super) fn set_number(&self, number: usize) {
        // Release: pairs with the Acquire of `number`.
        self.number.store(number + 1, Ordering::Release);
    }

    /// Returns the fragment of the local form.
    #[inline]
    pub(super) fn local(&self) -> &Fragment<T> {
        &self.fragments[0]
    }
}

impl Own {
    /// Counts finished elements.
    pub(super) fn finish(&self, count: u64) {
        // Release: pairs with the Acquire of `finished` (`queue/I5`).
        self.finished.fetch_add(count, sites::FINISH.order(Ordering::Release));
    }

    pub(super) fn finished(&self) -> u64 {
        // Acquire: pairs with the Release of `finish` (`queue/I5`).
        self.finished.load(sites::FINISHED.order(Ordering::Acquire))
    }

    /// Returns a random number below `limit`: xorshift64*, and a multiplication in place of a division.
    #[inline]
    pub(super) fn random_below(&self, limit: usize) -> usize {
        // Relaxed, not atomic together: any number is right.
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.store(x, Ordering::Relaxed);
        let high = (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize;
        (high * limit) >> 32
    }

    pub(super) fn next_turn(&self) -> usize {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        turn
    }

    /// Counts a call of the local form. Returns true once per `every` calls; 0 is never.
    #[inline]
    pub(super) fn is_due(&self, every: usize) -> bool {
        if every == 0 {
            return false;
        }
        let calls = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(if calls >= every { 0 } else { calls }, Ordering::Relaxed);
        calls >= every
    }
}

/// Counts of a queue's rare steps. Clients of one place that count at once may lose some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Gets of an element from the heap of another client: of the local form, or when its own heaps were
    /// empty.
    pub remote_gets: u64,
    /// Elements that balancing moved.
    pub moved: u64,
    /// Gets that found the queue empty.
    pub dry: u64,
    /// Locks that were busy, so that a client of the relaxed form chose another heap.
    pub busy: u64,
    /// Waits that slept.
    pub sleeps: u64,
}

/// The counts of a place.
#[derive(Default)]
pub(super) struct OwnCounts {
    pub(super) remote_gets: Count,
    pub(super) moved: Count,
    pub(super) dry: Count,
    pub(super) busy: Count,
    pub(super) sleeps: Count,
}

impl OwnCounts {
    pub(super) fn add_to(&self, sums: &mut Counts) {
        sums.remote_gets += self.remote_gets.get();
        sums.moved += self.moved.get();
        sums.dry += self.dry.get();
        sums.busy += self.busy.get();
        sums.sleeps += self.sleeps.get();
    }
}

/// A count without atomic steps: threads that count at once may lose one.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        // A model has enough steps without them.
        if cfg!(loom) {
            return;
        }
        // Relaxed, not atomic together: statistics.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
