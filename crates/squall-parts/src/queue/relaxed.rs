//! The relaxed form: puts and gets choose heaps at random, and keep a choice for some calls.
//!
//! Source: Williams, Sanders, Dementiev, "Engineering MultiQueues: fast relaxed concurrent priority queues",
//! ESA 2021. Two heaps per client; a get takes the better of two; stickiness.

use super::fragment::{Fragment, Heap, NO_KEY, Removal};
use super::{Client, Form};

/// Choices that a get tries before it looks at all heaps.
const TRIES: usize = if cfg!(loom) { 1 } else { 4 };

impl<T> Client<'_, T> {
    /// Returns the fragment of a number below twice the number of places that joined.
    #[inline]
    fn numbered(&self, number: usize) -> &Fragment<T> {
        let place = self.queue.joined_place(number / 2).unwrap_or(self.place);
        &place.fragments[number % 2]
    }

    /// Locks a random fragment, that of the latest puts for some calls.
    #[inline]
    pub(super) fn lock_for_put(&self) -> (&Fragment<T>, Heap<'_, T>) {
        let own = &self.place.own;
        loop {
            let choice = own.put_at.choice(self.queue.attributes.stickiness(), || {
                own.random_below(2 * self.queue.joined()) as u64
            });
            let fragment = self.numbered(choice as usize);
            if let Some(heap) = fragment.try_lock() {
                return (fragment, heap);
            }
            own.put_at.drop_choice();
            own.counts.busy.add(1);
            if self.queue.joined() == 1 {
                // Threads of one place contend for its two heaps.
                return (fragment, fragment.lock());
            }
        }
    }

    /// Removes the better first element of two random heaps. Fails if each try finds them empty or busy.
    #[inline]
    pub(super) fn get_relaxed(&self, removal: Removal) -> Option<(u64, T)> {
        let own = &self.place.own;
        let before = self.queue.state();
        for _ in 0..TRIES {
            let choice = own.get_at.choice(self.queue.attributes.stickiness(), || {
                let count = 2 * self.queue.joined();
                let one = own.random_below(count);
                // Another one than the first.
                let step = 1 + own.random_below(count - 1);
                (one as u64) << 32 | ((one + step) % count) as u64
            });
            let (one, two) = (self.numbered((choice >> 32) as usize), self.numbered(choice as u32 as usize));
            let (first, second) = (one.first(), two.first());
            if first == NO_KEY && second == NO_KEY {
                own.get_at.drop_choice();
                continue;
            }
            let fragment = if first <= second { one } else { two };
            let Some(mut heap) = fragment.try_lock() else {
                own.get_at.drop_choice();
                own.counts.busy.add(1);
                continue;
            };
            let state = self.queue.state_locked(&heap, before);
            if !state.has_form(Form::Relaxed) {
                return None;
            }
            if let Some(entry) = fragment.pop(&mut heap, removal) {
                return Some((state.key(entry.key), entry.value));
            }
        }
        None
    }
}
