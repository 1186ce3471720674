//! The relaxed form: a client works on its own two heaps, and leaves them if others are better for a while.
//!
//! Problem: the multi-queues of the literature choose heaps at random for each call, or for a few. So the
//! lines of a heap travel from processor to processor.
//! Idea: the better of the client's own two heaps is near
//! the front of all, as long as all clients get alike. Once per [`stickiness`](super::Attributes::stickiness)
//! gets, the client compares it with a random heap of another client. If that is better, the client looks
//! again at its next get. After [`PATIENCE`] better ones in a row it takes from the latest of them, until its
//! own heap is better or the next look is due.
//!
//! Cost: the lock of a heap in the client's own lines; one look in about seven gets, and few removals
//! elsewhere.
//! Order: measured by the test `the_relaxed_form_returns_one_of_the_first_elements`, and by
//! `squall bench queue`. A client with much worse elements than another one returns some of them before it
//! notices.
//! Source: two heaps per client and stickiness come from Williams, Sanders, Dementiev, "Engineering
//! MultiQueues: fast relaxed concurrent priority queues", ESA 2021. The stay at home is our own.

use super::fragment::{Fragment, Heap, NO_KEY, Removal};
use super::{Client, Form};

/// Looks in a row that find a better heap elsewhere before a client takes from it.
const PATIENCE: usize = 2;

/// Choices that a get tries before it looks at all heaps.
const TRIES: usize = if cfg!(loom) { 1 } else { 4 };

impl<T> Client<'_, T> {
    /// Locks one of the client's own two heaps.
    #[inline]
    pub(super) fn lock_for_put(&self) -> (&Fragment<T>, Heap<'_, T>) {
        let choice = self.place.own.random_below(2);
        let fragment = &self.place.fragments[choice];
        if let Some(heap) = fragment.try_lock() {
            return (fragment, heap);
        }
        self.place.own.counts.busy.add(1);
        let other = &self.place.fragments[1 - choice];
        (other, other.lock())
    }

    /// Removes the first element of the client's own heaps, or of a better heap of another client. Fails if
    /// each try finds the heaps empty or busy.
    #[inline]
    pub(super) fn get_relaxed(&self, removal: Removal) -> Option<(u64, T)> {
        let before = self.queue.state();
        for _ in 0..TRIES {
            let [one, two] = &self.place.fragments;
            let home = if one.first() <= two.first() { one } else { two };
            let key = home.first();
            let other = self.other_heap(key).filter(|other| other.first() < key);
            let fragment = other.unwrap_or(home);
            if fragment.first() == NO_KEY {
                continue;
            }
            let heap = if other.is_some() { fragment.try_lock() } else { Some(fragment.lock()) };
            let Some(mut heap) = heap else {
                self.place.own.elsewhere.leave();
                self.place.own.counts.busy.add(1);
                continue;
            };
            let state = self.queue.state_locked(&heap, before);
            if !state.has_form(Form::Relaxed) {
                return None;
            }
            if let Some(entry) = fragment.pop(&mut heap, removal) {
                drop(heap);
                if other.is_some() {
                    self.place.own.counts.remote_gets.add(1);
                }
                return Some((state.key(entry.key), entry.value));
            }
        }
        None
    }

    /// Returns the heap of another client from which this client takes now, if any. `key` is the first key of
    /// the client's own heaps.
    #[inline]
    fn other_heap(&self, key: u64) -> Option<&Fragment<T>> {
        let own = &self.place.own;
        match own.elsewhere.present(key != NO_KEY) {
            Some(number) => number.map(|number| self.numbered(number)),
            None => self.look_elsewhere(key),
        }
    }

    /// Compares the client's own heaps with a random one of another client.
    fn look_elsewhere(&self, key: u64) -> Option<&Fragment<T>> {
        let (own, number) = (&self.place.own, self.number());
        let joined = self.queue.joined();
        if joined < 2 {
            return None;
        }
        let number = (2 * number + 2 + own.random_below(2 * (joined - 1))) % (2 * joined);
        let other = self.numbered(number);
        let patience = if key == NO_KEY { 1 } else { PATIENCE };
        let stays =
            own.elsewhere.looked(number, other.first() < key, patience, self.queue.attributes.stickiness());
        stays.then_some(other)
    }

    /// Returns the fragment of a number below twice the number of places that joined.
    #[inline]
    fn numbered(&self, number: usize) -> &Fragment<T> {
        let place = self.queue.joined_place(number / 2).unwrap_or(self.place);
        &place.fragments[number % 2]
    }
}
