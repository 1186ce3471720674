//! Priority queues whose form, order and balancing are attributes.
//!
#![doc = include_str!("README.md")]
//!
//! # Protocol
//! Problem: one heap under one lock does not scale. Heaps per processor scale, but good elements stay where
//! they were put, and no client knows when all heaps are empty.
//! Idea: each place has two small heaps, each under a lock in its own lines. The form says which heaps a call
//! uses. Counts of arrivals and removals tell emptiness and the end, so elements may move at any time.
//!
//! - I1. An element is in one heap, or held by one call. Moves of elements hold the locks of both heaps. The
//!   second lock is only tried, so no two moves wait for each other.
//! - I2. The state (form, order, closed) changes only while its changer holds the locks of all heaps and that
//!   of the list of places. Each call reads the state under the lock of its heap. So a put after the change
//!   sees the new state.
//! - I3. Under the lock of a heap, a put counts an arrival, and a get counts a removal. Moves count nothing.
//! - I4. *The queue was empty if all removals, read first, equal all arrivals, read later.* Each removal
//!   comes after the arrival of its element, and both counts only grow. Let t be a moment between the two
//!   reads. The removals read are at most those at t. Those are at most the arrivals at t, which are at most
//!   the arrivals read. If the outer numbers are equal, so are the inner ones. This holds while elements move
//!   and while places join.
//! - I5. *The work was done if all finished elements, read first, equal all arrivals, read later.* A plain
//!   get finishes its element at once. An element that was [taken](Client::take) is finished when its client
//!   says so. The argument is that of I4. Being done is stable if only clients with an unfinished element
//!   put.
//!
//! Places join under a lock and never leave. A client that no object keeps joins when it is made. That of a
//! [`Member`] joins before its place's heaps get their first memory, before it looks through the heaps of
//! others, and before it finishes an element. Until then its heaps are empty and full at once, so a call
//! takes the slow path, which joins. A reader that misses a place reads a removal count of 0 for it, and then
//! its arrivals: the sums differ, or the place had no arrival at t.
//!
//! A put by a thread counts for those that can know of it. A program that infers the end of a put only from a
//! store that it did not see must order that itself, with a fence or a lock.
//!
//! Progress: calls wait for the holders of heaps' locks. A get that finds arrivals again and again locks all
//! heaps now and then.
//! Cost: strict: one lock for all. Local and relaxed: the lock of a heap in lines of the client's own, as
//! long as that heap has elements.
//! Source: KTK §3 and §4: the fragments, attributes and ring balancing of its queue (KT-11 to KT-13). For the
//! relaxed form see `relaxed.rs`.

mod attributes;
mod balance;
mod fragment;
mod heap;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod place;
mod records;
mod relaxed;
mod sites;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

pub use attributes::{Attributes, Form, Insertion, Topology, WhichPriority};
pub use place::Counts;
pub use wait::{Closed, End, Taken, Wait, WaitError, WaitTaken};

use fragment::{Entry, Fragment, Heap, NO_KEY, Removal};
use place::Place;
#[cfg(not(loom))]
use squall_machine::{Vp, machine};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use squall_sys::sync::one_writer::ReadOwn;
use squall_sys::sync::{Mutex, OnceLock, StdArc, lock, recheck};
use state::State;
use std::fmt;
use wait::Sleepers;

/// A priority queue with two heaps for each client: usually for each VP.
///
/// Elements with equal priorities have no order.
///
/// # Example
/// ```
/// use squall::parts::queue::{Form, Queue};
///
/// let jobs = Queue::new(Form::Strict);
/// jobs.here().put(7, "later")?;
/// jobs.here().put(3, "soon")?;
/// assert_eq!(jobs.here().get(), Some((3, "soon")));
/// assert_eq!(jobs.len(), 1);
/// # Ok::<(), squall::parts::queue::Rejected<&str>>(())
/// ```
///
/// Elements move between threads, so they must be `Send`:
/// ```compile_fail,E0277
/// use squall::parts::queue::{Form, Queue};
///
/// let queue = Queue::<std::rc::Rc<u8>>::new(Form::Strict);
/// std::thread::scope(|threads| drop(threads.spawn(|| queue.len())));
/// ```
pub struct Queue<T> {
    /// A [`State`]. Read by each call, written rarely.
    state: AtomicU32,
    /// Number of places that joined.
    joined: AtomicUsize,
    places: Box<[OnceLock<StdArc<Place<T>>>]>,
    /// The indices of the places in the order in which they joined.
    order: Box<[AtomicUsize]>,
    attributes: Attributes,
    sleepers: Sleepers,
    /// The heap of the strict form.
    center: CachePadded<Fragment<T>>,
    /// Held while a place joins and while the state changes (I2).
    growth: Mutex<()>,
}

/// A client of a queue: the queue, seen from one of its places.
pub struct Client<'a, T> {
    queue: &'a Queue<T>,
    place: &'a Place<T>,
}

impl<T> Clone for Client<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Client<'_, T> {}

/// An element that was put into a closed queue, given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rejected<T> {
    /// Priority of the element.
    pub priority: u64,
    /// The element.
    pub value: T,
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("priority", &self.priority).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue is closed; it rejected an element of priority {}", self.priority)
    }
}

impl<T> std::error::Error for Rejected<T> {}

#[cfg(not(loom))]
impl<T> Queue<T> {
    /// Makes an empty queue with a place for each VP. A place's heaps are made at its first use.
    pub fn new(form: Form) -> Queue<T> {
        Queue::with_places(form, machine().vp_limit())
    }

    /// Makes an empty queue with this number of places, for clients that have numbers of their own.
    ///
    /// # Panics
    /// If the number is 0.
    pub fn with_places(form: Form, places: usize) -> Queue<T> {
        squall_sys::fork::arm();
        Queue::make(form, places)
    }

    /// Returns the client of the VP where the calling thread is. If the thread moves, the client still works,
    /// at a higher cost. A queue with fewer places than VPs shares each among several VPs.
    #[inline]
    pub fn here(&self) -> Client<'_, T> {
        let place = Vp::current().index();
        self.client(if place < self.places.len() { place } else { place % self.places.len() })
    }

    /// Returns the client of a place, for an object that keeps both. The place joins when its client first
    /// puts into, gets from or looks through its heaps, or finishes an element. So a client that only reads
    /// lengths is no neighbour of others.
    ///
    /// # Panics
    /// If the queue has no such place.
    pub fn member(self: &StdArc<Self>, place: usize) -> Member<T> {
        Member { queue: self.clone(), place: self.make_place(place).clone() }
    }

    /// Returns the client of a place, or that of the calling thread's VP.
    fn client_at(&self, place: Option<usize>) -> Client<'_, T> {
        place.map_or_else(|| self.here(), |place| self.client(place))
    }
}

#[cfg(loom)]
impl<T> Queue<T> {
    /// Returns the client of a place, or the first one.
    fn client_at(&self, place: Option<usize>) -> Client<'_, T> {
        self.client(place.unwrap_or(0))
    }
}

impl<T> Queue<T> {
    fn make(form: Form, places: usize) -> Queue<T> {
        assert!(places > 0, "a queue needs at least one place");
        Queue {
            state: AtomicU32::new(State::new(form).bits()),
            joined: AtomicUsize::new(0),
            places: (0..places).map(|_| OnceLock::new()).collect(),
            order: (0..places).map(|_| AtomicUsize::new(0)).collect(),
            attributes: Attributes::new(),
            sleepers: Sleepers::new(),
            center: CachePadded::new(Fragment::new()),
            growth: Mutex::new(()),
        }
    }

    /// Returns the client of a place.
    ///
    /// # Panics
    /// If the queue has no such place.
    #[inline]
    pub fn client(&self, place: usize) -> Client<'_, T> {
        Client { queue: self, place: self.place(place) }
    }

    /// Returns a place that has joined.
    #[inline]
    fn place(&self, index: usize) -> &StdArc<Place<T>> {
        match self.places.get(index).and_then(OnceLock::get) {
            Some(place) if place.number().is_some() => place,
            _ => {
                let place = self.make_place(index);
                self.join(place);
                place
            }
        }
    }

    /// Returns a place that may join later.
    #[cold]
    fn make_place(&self, index: usize) -> &StdArc<Place<T>> {
        let places = self.places.len();
        assert!(index < places, "the queue has {places} places for clients; {index} is none of them");
        self.places[index].get_or_init(|| StdArc::new(Place::new(index)))
    }

    /// Has a place join, unless it did, and returns its number.
    #[cold]
    fn join(&self, place: &Place<T>) -> usize {
        let growth = lock(&self.growth, "the list of a queue's places");
        let number = place.number().unwrap_or_else(|| {
            let number = self.joined.read_own();
            self.order[number].store(place.index, Ordering::Relaxed);
            // Release: pairs with the Acquire of `joined`. The number counts before a client can use the
            // heaps of the place: an element there is in the sums of each client that can know of it. No
            // model shows this, because loom does not see the steps of a `OnceLock`.
            self.joined.store(number + 1, Ordering::Release);
            place.set_number(number);
            number
        });
        drop(growth);
        number
    }

    /// Returns the number of places that joined: those that clients have used.
    #[inline]
    pub fn joined(&self) -> usize {
        // Acquire: pairs with the Release of `join`.
        self.joined.load(Ordering::Acquire)
    }

    /// Returns the place that joined as the one of this number. A place that joins now may be missing.
    #[inline]
    fn joined_place(&self, number: usize) -> Option<&Place<T>> {
        // Relaxed: the number of places, which the caller has read, orders it.
        let index = self.order[number].load(Ordering::Relaxed);
        self.places[index].get().map(|place| &**place)
    }

    /// Returns the places that joined, in this order.
    fn joined_places(&self) -> impl Iterator<Item = &Place<T>> {
        (0..self.joined()).filter_map(|number| self.joined_place(number))
    }

    /// Returns all fragments.
    fn fragments(&self) -> impl Iterator<Item = &Fragment<T>> {
        std::iter::once(&*self.center).chain(self.joined_places().flat_map(|place| &place.fragments))
    }

    #[inline]
    fn state(&self) -> State {
        // Relaxed: calls read it again under the lock of a heap, which orders it (I2).
        State::from_bits(self.state.load(Ordering::Relaxed))
    }

    /// Returns the state under the lock of a heap (I2).
    #[inline]
    fn state_locked(&self, _: &Heap<'_, T>, before: State) -> State {
        if sites::STATE.is_weak() { before } else { self.state() }
    }

    /// Returns the form.
    pub fn form(&self) -> Form {
        self.state().form()
    }

    /// Changes the form. Elements move to the heaps of the new form before any call sees it.
    ///
    /// # Cost
    /// All heaps are locked meanwhile: time in proportion to the number of elements, and memory for all of
    /// them.
    pub fn set_form(&self, form: Form) {
        self.change(|state| state.with_form(form));
    }

    /// Returns the priorities that come first. The default is [`WhichPriority::Lowest`].
    pub fn which_priority(&self) -> WhichPriority {
        self.state().which()
    }

    /// Changes the priorities that come first, for all elements, at the cost of
    /// [`set_form`](Queue::set_form).
    pub fn set_which_priority(&self, which: WhichPriority) {
        self.change(|state| state.with_which(which));
    }

    /// Closes the queue: it rejects puts from now on. Gets take the elements that are left. A wait ends once
    /// it finds the queue empty.
    pub fn close(&self) {
        let old = self.change(State::closed);
        self.after_close();
        if !old.is_closed() {
            records::closed(self, || self.len());
        }
    }

    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release of `change`. A thread that knows of the close also sees the
        // arrivals before it, without a lock.
        State::from_bits(self.state.load(sites::CLOSED.order(Ordering::Acquire))).is_closed()
    }

    /// Locks all heaps. The caller holds `growth`, so no place joins meanwhile.
    fn lock_all(&self) -> Vec<(&Fragment<T>, Heap<'_, T>)> {
        let fragments: Vec<&Fragment<T>> = self.fragments().collect();
        let mut all = Vec::with_capacity(fragments.len());
        // In one order for all callers. Moves only try their second lock (I1).
        all.extend(fragments.into_iter().map(|fragment| (fragment, fragment.lock())));
        all
    }

    /// Changes the state under all locks (I2), and returns the old one.
    fn change(&self, to: impl FnOnce(State) -> State) -> State {
        let growth = lock(&self.growth, "the list of a queue's places");
        let mut all = if sites::ALL.is_weak() { Vec::new() } else { self.lock_all() };
        let old = State::from_bits(self.state.read_own());
        let new = to(old);
        let mut memory = Vec::new();
        if (old.form(), old.which()) != (new.form(), new.which()) {
            let mut entries = Vec::new();
            all.iter_mut().for_each(|(fragment, heap)| fragment.take_all(heap, &mut entries));
            entries.iter_mut().for_each(|entry| entry.key = new.key(old.key(entry.key)));
            memory = self.place_all(&mut all, entries, new.form());
        }
        // Release: pairs with the Acquire of `is_closed`. For other readers the locks order it.
        self.state.store(new.bits(), sites::CLOSE.order(Ordering::Release));
        drop(all);
        drop(growth);
        drop(memory);
        old
    }

    /// Puts entries into the heaps of a form. Returns memory for the caller to free.
    fn place_all(
        &self,
        all: &mut [(&Fragment<T>, Heap<'_, T>)],
        entries: Vec<Entry<T>>,
        form: Form,
    ) -> Vec<Entry<T>> {
        // The first is the center, and then come two for each place.
        let targets: Vec<usize> = match form {
            Form::Relaxed if all.len() > 1 => (1..all.len()).collect(),
            Form::Local if all.len() > 1 => (1..all.len()).step_by(2).collect(),
            _ => vec![0],
        };
        let mut sorted = entries;
        // Neighbouring ranks go to different heaps.
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        for (entry, target) in sorted.drain(..).zip(targets.iter().cycle()) {
            if let Some((_, heap)) = all.get_mut(*target) {
                heap.push(entry);
            }
        }
        all.iter().for_each(|(fragment, heap)| fragment.publish_first(heap));
        sorted
    }

    /// Returns the attributes. They may be changed while the queue is used.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the arrivals and the removals so far. The queue was empty if they are equal (I4).
    fn totals(&self) -> (u64, u64) {
        let sum = |of: fn(&Fragment<T>) -> u64| self.fragments().map(of).fold(0, u64::wrapping_add);
        if sites::BEFORE.is_weak() {
            let arrived = sum(Fragment::arrived);
            return (arrived, sum(Fragment::removed));
        }
        let removed = sum(Fragment::removed);
        (sum(Fragment::arrived), removed)
    }

    /// Returns the number of elements: an estimate while others put and get.
    pub fn len(&self) -> usize {
        let (arrived, removed) = self.totals();
        arrived.wrapping_sub(removed) as usize
    }

    /// Returns whether the queue was empty at one moment of the call. Exact.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the work was done at one moment of the call: each element that was put has been
    /// removed, and each one that was [taken](Client::take) is finished. Exact, and stable if only clients
    /// with an unfinished element put.
    pub fn is_done(&self) -> bool {
        let finished = self.joined_places().map(|place| place.own.finished()).fold(0, u64::wrapping_add);
        let plain = self.fragments().map(Fragment::plain).fold(0, u64::wrapping_add);
        let arrived = self.fragments().map(Fragment::arrived).fold(0, u64::wrapping_add);
        finished.wrapping_add(plain) == arrived
    }

    /// Returns the priority of the first element, as the heaps' holders published it: an estimate.
    pub fn first_priority(&self) -> Option<u64> {
        let state = self.state();
        let first = self.fragments().map(Fragment::first).min().unwrap_or(NO_KEY);
        if first == NO_KEY && self.is_empty() { None } else { Some(state.key(first)) }
    }

    /// Returns the counts of rare steps so far.
    pub fn counts(&self) -> Counts {
        let mut sums = Counts::default();
        // A place that has not joined has counts, too: of gets from the heap of the strict form.
        let places = self.places.iter().filter_map(OnceLock::get);
        places.for_each(|place| place.own.counts.add_to(&mut sums));
        sums
    }

    /// Removes all elements at one moment, and returns them with their priorities, the first one first.
    ///
    /// # Cost
    /// All heaps are locked meanwhile.
    pub fn drain(&self) -> Vec<(u64, T)> {
        let growth = lock(&self.growth, "the list of a queue's places");
        let mut all = self.lock_all();
        let state = self.state();
        let mut entries = Vec::new();
        for (fragment, heap) in &mut all {
            while let Some(entry) = fragment.pop(heap, Removal::Plain) {
                entries.push(entry);
            }
        }
        drop(all);
        drop(growth);
        self.after_end();
        entries.sort_by(|a, b| b.cmp(a));
        entries.into_iter().map(|entry| (state.key(entry.key), entry.value)).collect()
    }
}

/// A client that keeps its queue: for an object's representative.
#[cfg(not(loom))]
pub struct Member<T> {
    queue: StdArc<Queue<T>>,
    place: StdArc<Place<T>>,
}

#[cfg(not(loom))]
impl<T> Member<T> {
    /// Returns the client.
    #[inline]
    pub fn client(&self) -> Client<'_, T> {
        Client { queue: &self.queue, place: &self.place }
    }

    /// Returns the queue.
    pub fn queue(&self) -> &StdArc<Queue<T>> {
        &self.queue
    }
}

#[cfg(not(loom))]
impl<T> fmt::Debug for Member<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client().fmt(f)
    }
}

/// Rounds of a get in vain after which it locks all heaps.
const ROUNDS: u32 = if cfg!(loom) { 2 } else { 16 };

impl<'a, T> Client<'a, T> {
    /// Puts an element.
    ///
    /// # Errors
    /// [`Rejected`], with the element, if the queue is closed.
    ///
    /// # Cost
    /// A lock, in the strict form that of all clients. A put that finds its heap full allocates, without the
    /// lock. While clients wait, a put also wakes one.
    #[inline]
    pub fn put(&self, priority: u64, value: T) -> Result<(), Rejected<T>> {
        self.put_by(|| self.queue.attributes.insertion(), priority, value)
    }

    /// Puts an element like [`put`](Client::put), with an [`Insertion`] of its own: in the local form it
    /// applies to this call in place of the queue's attribute.
    ///
    /// # Errors
    /// [`Rejected`], with the element, if the queue is closed.
    #[inline]
    pub fn put_with(&self, insertion: Insertion, priority: u64, value: T) -> Result<(), Rejected<T>> {
        self.put_by(|| insertion, priority, value)
    }

    #[inline]
    fn put_by(&self, insertion: impl Fn() -> Insertion, priority: u64, value: T) -> Result<(), Rejected<T>> {
        let queue = self.queue;
        let mut value = value;
        loop {
            let before = queue.state();
            let (fragment, mut heap) = match before.form() {
                Form::Strict => {
                    let center = &*queue.center;
                    (center, center.lock())
                }
                Form::Relaxed => self.lock_for_put(),
                Form::Local => {
                    let fragment = self.fragment_for_put(insertion());
                    (fragment, fragment.lock())
                }
            };
            let state = queue.state_locked(&heap, before);
            if state.is_closed() {
                drop(heap);
                return Err(Rejected { priority, value });
            }
            if state.form() != before.form() {
                continue;
            }
            if Fragment::is_full(&heap) {
                drop(heap);
                if state.form() != Form::Strict {
                    self.number();
                }
                fragment.grow(1);
                // Another thread may have closed the queue, or filled the heap.
                value = match self.put_again(fragment, before.form(), priority, value) {
                    Ok(()) => break,
                    Err(value) => value,
                };
                continue;
            }
            fragment.push(&mut heap, Entry { key: state.key(priority), value });
            break;
        }
        queue.after_arrival(1);
        Ok(())
    }

    /// Puts an element into a heap that has grown, if the form is still that for which it was chosen.
    #[cold]
    fn put_again(&self, fragment: &Fragment<T>, form: Form, priority: u64, value: T) -> Result<(), T> {
        let before = self.queue.state();
        let mut heap = fragment.lock();
        let state = self.queue.state_locked(&heap, before);
        if state.is_closed() || !state.has_form(form) || Fragment::is_full(&heap) {
            return Err(value);
        }
        fragment.push(&mut heap, Entry { key: state.key(priority), value });
        Ok(())
    }

    /// Removes an element: the first one in the strict form, and one of the first in the relaxed form. In the
    /// local form it is the first one of the client's own heap. Returns `None` only if at one moment of the
    /// call the queue was empty.
    ///
    /// # Cost
    /// A lock. To find the queue empty takes a look at each heap, apart from the strict form.
    #[inline]
    pub fn get(&self) -> Option<(u64, T)> {
        let found = self.remove(Removal::Plain)?;
        // The element is finished, which may be the end for others that wait.
        self.queue.after_end();
        Some(found)
    }

    /// Removes an element like [`get`](Client::get), but it counts as unfinished until the result is dropped,
    /// so that the end of the work can be known: see [`Queue::is_done`].
    #[inline]
    pub fn take(&self) -> Option<Taken<'a, T>> {
        self.take_raw().map(|(priority, value)| Taken::new(*self, priority, value))
    }

    /// Removes an element that counts as unfinished until [`finish`](Client::finish), for callers that keep
    /// the account.
    #[inline]
    pub fn take_raw(&self) -> Option<(u64, T)> {
        self.remove(Removal::Unfinished)
    }

    /// Finishes `count` elements that this or another client took by [`take_raw`](Client::take_raw). All that
    /// follows from them has been put before.
    ///
    /// # Cost
    /// A locked instruction on a line of the place. While clients wait, also a look at all counts.
    #[inline]
    pub fn finish(&self, count: usize) {
        // The sum of finished elements is that of the places that joined.
        self.number();
        self.place.own.finish(count as u64);
        self.queue.after_end();
    }

    #[inline]
    fn remove(&self, removal: Removal) -> Option<(u64, T)> {
        let queue = self.queue;
        loop {
            let before = queue.state();
            match before.form() {
                Form::Strict => {
                    let mut heap = queue.center.lock();
                    let state = queue.state_locked(&heap, before);
                    if !state.has_form(Form::Strict) {
                        continue;
                    }
                    // All elements are here, so the answer is exact under the lock.
                    return match queue.center.pop(&mut heap, removal) {
                        Some(entry) => Some((state.key(entry.key), entry.value)),
                        None => {
                            self.place.own.counts.dry.add(1);
                            None
                        }
                    };
                }
                Form::Relaxed => {
                    if let Some(found) = self.get_relaxed(removal) {
                        return Some(found);
                    }
                }
                Form::Local => {
                    if let Some(found) = self.get_local(removal) {
                        return Some(found);
                    }
                }
            }
            return self.get_anywhere(removal);
        }
    }

    /// Removes an element of any heap, or finds the queue empty (I4). The slow path.
    #[cold]
    #[inline(never)]
    fn get_anywhere(&self, removal: Removal) -> Option<(u64, T)> {
        self.number();
        let mut round = 0;
        loop {
            let (arrived, removed) = self.queue.totals();
            if arrived == removed {
                self.place.own.counts.dry.add(1);
                return None;
            }
            if self.queue.state().has_form(Form::Relaxed)
                && let Some(best) = self.fragments_from_here().min_by_key(|fragment| fragment.first())
                && let Some(found) = self.pop(best, removal)
            {
                return Some(found);
            }
            // A heap whose first key looks like none is looked at in the second round.
            for fragment in self.fragments_from_here() {
                if (fragment.first() != NO_KEY || round > 0)
                    && let Some(found) = self.pop(fragment, removal)
                {
                    return Some(found);
                }
            }
            round += 1;
            if round % ROUNDS == 0 {
                // Seldom, since it stops all clients.
                return self.get_locked(removal);
            }
            recheck::wait(round);
        }
    }

    /// Locks all heaps and removes the first element of all.
    fn get_locked(&self, removal: Removal) -> Option<(u64, T)> {
        let growth = lock(&self.queue.growth, "the list of a queue's places");
        let mut all = self.queue.lock_all();
        let state = self.queue.state();
        let key = |heap: &Heap<'_, T>| heap.peek().map(|entry| entry.key);
        let first = all.iter().filter_map(|(_, heap)| key(heap)).min();
        let found = all.iter_mut().find(|(_, heap)| key(heap).is_some() && key(heap) == first);
        let found = found.and_then(|(fragment, heap)| fragment.pop(heap, removal));
        drop(all);
        drop(growth);
        found.map(|entry| (state.key(entry.key), entry.value))
    }

    /// Removes the first element of a heap.
    fn pop(&self, fragment: &Fragment<T>, removal: Removal) -> Option<(u64, T)> {
        let before = self.queue.state();
        let mut heap = fragment.lock();
        let state = self.queue.state_locked(&heap, before);
        let entry = fragment.pop(&mut heap, removal)?;
        drop(heap);
        if !self.place.fragments.iter().any(|own| std::ptr::eq(own, fragment)) {
            self.place.own.counts.remote_gets.add(1);
        }
        Some((state.key(entry.key), entry.value))
    }

    /// Returns all fragments, beginning with those of the client's place.
    fn fragments_from_here(&self) -> impl Iterator<Item = &Fragment<T>> {
        let (queue, number) = (self.queue, self.number());
        let joined = queue.joined();
        let places = (0..joined).filter_map(move |step| queue.joined_place((number + step) % joined));
        places.flat_map(|place| &place.fragments).chain(std::iter::once(&*queue.center))
    }

    /// Returns the number of the client's place, which joins if it has not yet.
    #[inline]
    fn number(&self) -> usize {
        self.place.number().unwrap_or_else(|| self.queue.join(self.place))
    }

    /// Returns the queue.
    pub fn queue(&self) -> &'a Queue<T> {
        self.queue
    }

    /// Returns the index of the client's place.
    pub fn index(&self) -> usize {
        self.place.index
    }

    /// Returns whether the client's own heaps looked empty. It may be out of date.
    pub fn is_empty(&self) -> bool {
        // The key of the worst priority looks like an empty heap.
        let is_empty = |fragment: &Fragment<T>| fragment.try_lock().is_none_or(|heap| heap.is_empty());
        self.place.fragments.iter().all(|fragment| fragment.first() == NO_KEY && is_empty(fragment))
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("form", &self.form())
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Client<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.place.index).field("queue", self.queue).finish()
    }
}
