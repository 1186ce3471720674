//! The local form: a heap for each client, and moves of good elements to the neighbours.
//!
//! Source: KTK §4, note 3 (KT-13): after every second get, the second-best element moves to the next fragment
//! of the ring. The paper ties balancing to gets in one place and to insertion in another, so both
//! exist: [`Insertion`].

use super::fragment::{Fragment, Removal};
use super::place::Place;
use super::{Client, Form, Insertion, Topology, sites};

impl<T> Client<'_, T> {
    /// Returns the fragment for a put of the local form.
    #[inline]
    pub(super) fn fragment_for_put(&self, insertion: Insertion) -> &Fragment<T> {
        if insertion == Insertion::LoadBalance
            && self.place.own.is_due(self.queue.attributes.balance_every())
            && let Some(neighbour) = self.neighbour()
        {
            self.place.own.counts.moved.add(1);
            return neighbour.local();
        }
        self.place.local()
    }

    /// Removes the first element of the client's own heap, and balances now and then.
    #[inline]
    pub(super) fn get_local(&self, removal: Removal) -> Option<(u64, T)> {
        let fragment = self.place.local();
        let before = self.queue.state();
        let mut heap = fragment.lock();
        let state = self.queue.state_locked(&heap, before);
        if !state.has_form(Form::Local) {
            return None;
        }
        let entry = fragment.pop(&mut heap, removal)?;
        drop(heap);
        let attributes = &self.queue.attributes;
        if attributes.insertion() == Insertion::LocalFragment
            && self.place.own.is_due(attributes.balance_every())
        {
            self.balance();
        }
        Some((state.key(entry.key), entry.value))
    }

    /// Moves the second element of the client's heap to a neighbour's, unless that is busy.
    #[cold]
    fn balance(&self) {
        if let Some(neighbour) = self.neighbour()
            && !self.balance_to(neighbour)
        {
            // Once more, with memory. The move is left out if the neighbour's heap is full again.
            neighbour.local().grow(1);
            self.balance_to(neighbour);
        }
    }

    /// Moves the second element to a neighbour's heap. Returns false if that is full.
    fn balance_to(&self, neighbour: &Place<T>) -> bool {
        let (from, to) = (self.place.local(), neighbour.local());
        let before = self.queue.state();
        let mut home = from.lock();
        let state = self.queue.state_locked(&home, before);
        if !state.has_form(Form::Local) {
            return true;
        }
        if sites::MOVE.is_weak() {
            let moved = Fragment::take_second(&mut home);
            drop(home);
            let mut other = to.lock();
            moved.into_iter().for_each(|entry| other.push(entry));
            to.publish_first(&other);
            return true;
        }
        let Some(mut other) = to.try_lock() else { return true };
        if Fragment::is_full(&other) {
            // Memory is allocated without locks.
            return false;
        }
        if let Some(entry) = Fragment::take_second(&mut home) {
            other.push(entry);
            to.publish_first(&other);
            self.place.own.counts.moved.add(1);
        }
        true
    }

    /// Returns the next neighbour in turn.
    fn neighbour(&self) -> Option<&Place<T>> {
        let number = self.number();
        let joined = self.queue.joined();
        let turn = || self.place.own.next_turn();
        let next = match self.queue.attributes.topology() {
            _ if joined < 2 => return None,
            Topology::Ring => (number + 1) % joined,
            Topology::Star if number != 0 => 0,
            Topology::Star | Topology::All => (number + 1 + turn() % (joined - 1)) % joined,
            Topology::Tree => {
                let parent = number.checked_sub(1).map(|number| number / 2);
                let children = [2 * number + 1, 2 * number + 2].into_iter().filter(|child| *child < joined);
                let around = parent.into_iter().chain(children);
                let count = around.clone().count().max(1);
                around.clone().nth(turn() % count)?
            }
        };
        self.queue.joined_place(next)
    }
}
