//! Unordered pools with one shard per processor, which balance themselves.
//!
#![doc = include_str!("README.md")]
//!
//! # Protocol
//! Problem: a pool that all processors share does not scale, and a pool per processor strands its elements:
//! one processor finds nothing while another has plenty.
//! Idea: a client puts into its own shard, and gets from it. A client that finds its shard empty takes some
//! elements of another shard (a *demand transfer*). Idle clients move elements before they are asked for. The
//! strategy says how.
//!
//! - I1. An element is in one shard, or held by one call. A transfer is such a call.
//! - I2. An *arrival* is the store that counts elements into a shard, under the shard's lock. It is the
//!   linearization point of `put`. Removals also hold the lock.
//! - I3. A transfer counts itself in `inbound` of the receiving shard before it removes elements, and
//!   counts itself out after their arrival.
//! - I4. `get` says empty only after two passes over all shards. In the first each shard's `len` was 0. In
//!   the second no shard had inbound elements, and the sum of all arrivals was that before the first.
//! - I5. The passes visit the members of the roster, which did not change from before the first pass until
//!   after the second, while no member was leaving. A shard joins before its first arrival, and counts a
//!   transfer in only as a member. It leaves in two phases: first it gives its elements away and does not
//!   receive. Then, under its lock, it is empty and no transfer to it is in progress. To join sets the bit
//!   and then counts the change; to leave counts the change, clears the bit, and then no longer counts as
//!   leaving. So a call that meets different members in its two passes sees a change, or a shard that is
//!   leaving.
//!
//! *I4 is exact: between the two passes the bag was empty.* Arrivals only grow. So equal sums mean that no
//! shard had an arrival between its first and its second read. A shard without an arrival that was empty in
//! the first pass stays empty. An element in transit between the passes was removed by a transfer that
//! counted itself in before. The second pass either sees that count, or a later state in which the transfer
//! has ended; then it also sees the arrival, because `inbound` is read before the arrivals. An element in a
//! shard that the passes did not visit came after a change of the roster, which the last step would have
//! seen.
//!
//! The passes see this order of other threads' steps since each of these stores releases and each load
//! acquires. A put by a thread counts for those that can know of it. A program that infers "no one puts any
//! more" from something that did not happen (a flag that was not yet set) must order that itself, with a
//! fence or a lock.
//!
//! Progress: `put` waits for the holder of its shard's lock. While clients wait, it also takes the lock of
//! the queue and gives elements to them. `get` waits for transfers in progress before it says empty. A `get`
//! that finds arrivals again and again locks all shards now and then. It has no bound while others move
//! elements all the time.
//! Cost: in balance, a lock of the VP's own and a few stores to the shard's line.
//! Source: fos (Wentzlaff et al.), "dPool": implementations 1 to 6 of the thesis, §4.4, and the leave of
//! §4.3. Our own: the proof of emptiness without messages to all servers; the directory.

mod attributes;
mod bounded;
mod counts;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod roster;
mod shard;
mod sites;
mod store;
mod transfer;
mod wait;

pub use attributes::{Attributes, Strategy};
pub use bounded::{Bounded, Get, Put};
pub use counts::Counts;
pub use wait::{Closed, Wait, WaitError};

use roster::{Places, Roster};
use shard::Shard;
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{OnceLock, StdArc};
use std::fmt;
use store::Elements;
use wait::Waiters;

/// An unordered pool with a shard for each client: usually for each VP.
///
/// An object embeds it in its root.
///
/// # Example
/// ```
/// use squall::parts::bag::Bag;
///
/// let buffers = Bag::new();
/// buffers.here().put(vec![0_u8; 4096]);
/// assert_eq!(buffers.len(), 1);
/// assert!(buffers.here().get().is_some() && buffers.here().get().is_none());
/// ```
///
/// Elements move between threads, so they must be `Send`:
/// ```compile_fail,E0277
/// let bag = squall::parts::bag::Bag::<std::rc::Rc<u8>>::new();
/// std::thread::scope(|threads| drop(threads.spawn(|| bag.len())));
/// ```
pub struct Bag<T> {
    shards: Box<[OnceLock<Chunk<T>>]>,
    places: usize,
    roster: Roster,
    /// The shards with elements, as far as they keep their bits.
    filled: Places,
    /// The place of the common shard: the first that was made, or the last at which elements were gathered.
    center: AtomicUsize,
    attributes: Attributes,
    waiters: Waiters<T>,
}

/// The shards of neighbouring places, so that a bag that few places use is small.
type Chunk<T> = Box<[OnceLock<StdArc<Shard<T>>>]>;
const CHUNK: usize = 16;
const NO_PLACE: usize = usize::MAX;

/// A client of a bag: the bag, seen from one of its shards.
pub struct Client<'a, T> {
    bag: &'a Bag<T>,
    shard: &'a Shard<T>,
}

#[cfg(not(loom))]
impl<T> Bag<T> {
    /// Makes an empty bag with a place for each VP. A shard is made at the first use of its place.
    pub fn new() -> Bag<T> {
        Bag::with_places(machine().vp_limit())
    }

    /// Makes an empty bag with this number of places, for clients that have numbers of their own. The shard
    /// of a place is the cheapest for threads on the VP of that number.
    pub fn with_places(places: usize) -> Bag<T> {
        squall_sys::fork::arm();
        Bag::make(places)
    }

    /// Returns the client of the VP where the calling thread is. If the thread moves, the client still
    /// works, at a higher cost. A bag with fewer places than VPs shares each among several VPs.
    #[inline]
    pub fn here(&self) -> Client<'_, T> {
        let place = Vp::current().index();
        self.client(if place < self.places { place } else { place % self.places })
    }

    /// Returns the client of a place.
    ///
    /// # Panics
    /// If the bag has no such place.
    #[inline]
    pub fn client(&self, place: usize) -> Client<'_, T> {
        self.client_with(place, |elements| Self::lock_for(place, elements))
    }

    /// Makes the lock of a place, biased to the VP of that number.
    fn lock_for(place: usize, elements: Elements<T>) -> VpLock<Elements<T>> {
        VpLock::new(Vp::new((place % machine().vp_limit()) as u32), elements)
    }

    /// Returns the client of a place, or that of the calling thread's VP.
    fn local_at(&self, place: Option<usize>) -> Client<'_, T> {
        place.map_or_else(|| self.here(), |place| self.client(place))
    }

    /// Moves the elements of all other shards to that of a place, but not those that clients put meanwhile.
    /// From now on that is the common shard: of [`Strategy::Centralized`], and for shards that hold too
    /// much.
    ///
    /// # Panics
    /// If the bag has no such place.
    pub fn gather(&self, place: usize) {
        let shard = self.client(place).shard;
        // Relaxed: any shard is right.
        self.center.store(place, Ordering::Relaxed);
        self.gather_at(shard);
    }

    /// Returns the client of a place, for an object that keeps both.
    ///
    /// # Panics
    /// If the bag has no such place.
    pub fn member(self: &StdArc<Self>, place: usize) -> Member<T> {
        let shard = self.shard_with(place, |elements| Self::lock_for(place, elements));
        Member { bag: self.clone(), shard: shard.clone() }
    }
}

#[cfg(loom)]
impl<T> Bag<T> {
    /// Returns the client of a place, or the first one.
    fn local_at(&self, place: Option<usize>) -> Client<'_, T> {
        let place = place.unwrap_or(0);
        self.client_with(place, |elements| VpLock::new(squall_lock::ModelVp::new(place as u32), elements))
    }
}

impl<T> Bag<T> {
    fn local(&self) -> Client<'_, T> {
        self.local_at(None)
    }

    fn make(places: usize) -> Bag<T> {
        assert!(places > 0, "a bag needs at least one place");
        Bag {
            shards: (0..places.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            places,
            roster: Roster::new(places),
            filled: Places::new(places),
            center: AtomicUsize::new(NO_PLACE),
            attributes: Attributes::new(),
            waiters: Waiters::new(),
        }
    }

    #[inline]
    fn client_with(
        &self,
        place: usize,
        lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>,
    ) -> Client<'_, T> {
        Client { bag: self, shard: self.shard_with(place, lock) }
    }

    #[inline]
    fn shard_with(
        &self,
        place: usize,
        lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>,
    ) -> &StdArc<Shard<T>> {
        match self.shards.get(place / CHUNK).and_then(OnceLock::get).and_then(|it| it[place % CHUNK].get()) {
            Some(shard) => shard,
            None => self.make_shard(place, lock),
        }
    }

    #[cold]
    fn make_shard(
        &self,
        place: usize,
        lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>,
    ) -> &StdArc<Shard<T>> {
        assert!(
            place < self.places,
            "the bag has {} places for clients; {place} is none of them",
            self.places
        );
        let chunk = self.shards[place / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let shard = chunk[place % CHUNK].get_or_init(|| StdArc::new(Shard::new(place, lock)));
        // Relaxed: any shard is right.
        _ = self.center.compare_exchange(NO_PLACE, place, Ordering::Relaxed, Ordering::Relaxed);
        shard.enter(self);
        shard
    }

    /// Returns the common shard.
    fn common_shard(&self) -> Option<&Shard<T>> {
        // Relaxed: any shard is right.
        match self.center.load(Ordering::Relaxed) {
            NO_PLACE => None,
            place => self.shard(place),
        }
    }

    /// Returns the shard of a place, if it was made.
    fn shard(&self, place: usize) -> Option<&Shard<T>> {
        self.shards[place / CHUNK].get()?[place % CHUNK].get().map(|shard| &**shard)
    }

    /// Returns the attributes. They may be changed while the bag is used.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the sum of the shards' sizes, read one after the other: an estimate. Elements on their way
    /// between shards are not in it.
    pub fn len(&self) -> usize {
        self.shards().map(Shard::len).sum::<usize>() + self.given()
    }

    /// Returns whether [`len`](Bag::len) is 0. Only [`get`](Client::get) is exact.
    pub fn is_empty(&self) -> bool {
        self.shards().all(Shard::is_empty) && !self.has_given()
    }

    /// Returns what the bag has done so far.
    pub fn counts(&self) -> Counts {
        let mut sums = Counts::default();
        self.all_shards().for_each(|shard| shard.own().counts.add_to(&mut sums));
        sums
    }

    /// Returns all shards that were made, also those that left.
    fn all_shards(&self) -> impl Iterator<Item = &Shard<T>> {
        let chunks = self.shards.iter().filter_map(OnceLock::get);
        chunks.flat_map(|chunk| chunk.iter().filter_map(OnceLock::get)).map(|shard| &**shard)
    }

    /// Returns the members.
    fn shards(&self) -> impl Iterator<Item = &Shard<T>> + Clone {
        self.roster.iter().filter_map(|place| self.shard(place))
    }

    /// Returns all members but this one.
    fn others<'a>(&'a self, home: &Shard<T>) -> impl Iterator<Item = &'a Shard<T>> + Clone {
        let place = home.index();
        self.shards().filter(move |shard| shard.index() != place)
    }

    /// Returns all members but this one. Each call begins with the next one, so that all are asked equally
    /// often.
    fn peers<'a>(&'a self, home: &Shard<T>) -> impl Iterator<Item = &'a Shard<T>> {
        in_turn(home, self.others(home))
    }

    #[cold]
    #[inline(never)]
    fn put_slowly(&self, home: &Shard<T>, value: T) {
        home.put_one(value, self);
        self.spill(home);
    }
}

/// Returns the shards, beginning with the one whose turn it is for `home`.
fn in_turn<'a, T: 'a>(
    home: &Shard<T>,
    shards: impl Iterator<Item = &'a Shard<T>> + Clone,
) -> impl Iterator<Item = &'a Shard<T>> {
    let start = home.turn() % shards.clone().count().max(1);
    shards.clone().skip(start).chain(shards.take(start))
}

/// A client that keeps its bag: for an object's representative.
#[cfg(not(loom))]
pub struct Member<T> {
    bag: StdArc<Bag<T>>,
    shard: StdArc<Shard<T>>,
}

#[cfg(not(loom))]
impl<T> Member<T> {
    /// Returns the client.
    #[inline]
    pub fn client(&self) -> Client<'_, T> {
        Client { bag: &self.bag, shard: &self.shard }
    }

    /// Returns the bag.
    pub fn bag(&self) -> &StdArc<Bag<T>> {
        &self.bag
    }
}

#[cfg(not(loom))]
impl<T> fmt::Debug for Member<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client().fmt(f)
    }
}

impl<T> Client<'_, T> {
    /// Puts an element.
    ///
    /// It counts for [`get`](Client::get) of each thread that can know of it. A thread that concludes only
    /// from the absence of a store that the put has ended must order that itself, for instance by `SeqCst`
    /// fences.
    ///
    /// # Cost
    /// The lock of a VP and a few stores, if the caller is on the client's VP; without `membarrier` also a
    /// full fence. One put of 50 may allocate, under no lock. Linearized at the store that counts the
    /// arrival. While clients [wait](Wait), a put also gives them elements.
    #[inline]
    pub fn put(&self, value: T) {
        let home = self.home();
        if let Err(value) = home.put(value) {
            self.bag.put_slowly(home, value);
        }
        self.bag.serve_waiters(home);
    }

    /// Puts several elements, in blocks.
    pub fn put_batch(&self, values: impl IntoIterator<Item = T>) {
        let mut values: Vec<T> = values.into_iter().collect();
        let home = self.home();
        if values.is_empty() {
            return;
        }
        let len = store::block_len::<T>();
        // In blocks of the usual size, so that a large batch leaves no large memory behind.
        while values.len() > len {
            home.put_block(&mut values.split_off(values.len() - len), self.bag);
        }
        if values.len() < len {
            home.put_few(&mut values, self.bag);
        } else {
            home.put_block(&mut values, self.bag);
        }
        self.bag.spill(home);
        self.bag.serve_waiters(home);
    }

    /// Takes an element: of the client's shard if it has one, or else of another shard. Returns `None` only
    /// if at one moment of the call the bag was empty, and no element was on its way between shards;
    /// [`put`](Client::put) says for whom an element counts.
    ///
    /// # Cost
    /// As [`put`](Client::put) if the client's shard has an element. Otherwise a look at each shard's line
    /// until one has elements, and a transfer. To find the bag empty takes two looks at each, or more while
    /// others move elements.
    #[inline]
    pub fn get(&self) -> Option<T> {
        self.take(false)
    }

    /// Like [`get`](Client::get), but overtakes no wait: returns `None` also if others wait
    /// ([`Bag::waiting`]).
    ///
    /// # Example
    /// ```
    /// use squall::parts::bag::{Bag, Wait};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let bag = Bag::new();
    /// let mut waits = pin!(Wait::new(&bag));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(waits.as_mut().poll(&mut context).is_pending());
    /// bag.here().put(1);
    /// assert_eq!(bag.here().get_in_turn(), None);
    /// assert_eq!(waits.poll(&mut context), Poll::Ready(Ok(1)));
    /// ```
    #[inline]
    pub fn get_in_turn(&self) -> Option<T> {
        if self.bag.has_waits() {
            return None;
        }
        self.take(true)
    }

    /// Like [`get_in_turn`](Client::get_in_turn), but leaves at least one element in each other shard. So it
    /// returns `None` also if no other shard has two.
    ///
    /// A program that can make elements makes one then. If each client has an element of its own, they no
    /// longer take them from each other.
    ///
    /// # Example
    /// ```
    /// use squall::parts::bag::Bag;
    ///
    /// let bag = Bag::with_places(2);
    /// bag.client(0).put_batch([1, 2]);
    /// assert!(bag.client(1).get_spare().is_some());
    /// assert_eq!((bag.client(1).get_spare(), bag.len()), (None, 1));
    /// assert!(bag.client(0).get_spare().is_some());
    /// ```
    #[inline]
    pub fn get_spare(&self) -> Option<T> {
        if self.bag.has_waits() {
            return None;
        }
        let home = self.home();
        home.get(self.bag).or_else(|| self.bag.get_spare_elsewhere(home))
    }

    /// Takes an element; with `in_turn` not one that a waiter was given.
    #[inline]
    fn take(&self, in_turn: bool) -> Option<T> {
        let home = self.home();
        match home.get(self.bag) {
            Some(value) => Some(value),
            None => self.bag.get_elsewhere(home, in_turn),
        }
    }

    /// Takes up to `max` elements and appends them to `into`. Returns their number. It is less than `max`
    /// only if the bag was found empty as [`get`](Client::get) says.
    pub fn get_batch(&self, max: usize, into: &mut Vec<T>) -> usize {
        let before = into.len();
        let home = self.home();
        loop {
            let wanted = max - (into.len() - before);
            let at_home = wanted.min(home.len());
            if at_home > 0 {
                // Under no lock.
                into.reserve(at_home);
                home.take_into(into, at_home, self.bag);
            }
            if into.len() - before >= max {
                break;
            }
            let Some(value) = self.bag.get_elsewhere(home, false) else { break };
            into.push(value);
        }
        into.len() - before
    }

    /// Returns the number of elements in the client's shard. It may be out of date.
    pub fn len(&self) -> usize {
        self.shard.len()
    }

    /// Returns whether the client's shard had no element a moment ago.
    pub fn is_empty(&self) -> bool {
        self.shard.is_empty()
    }

    /// Returns the shard that this client uses.
    #[inline]
    fn home(&self) -> &Shard<T> {
        if self.bag.attributes.is_centralized() {
            return self.bag.common_shard().unwrap_or(self.shard);
        }
        self.shard
    }
}

impl<T> Clone for Client<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Client<'_, T> {}

#[cfg(not(loom))]
impl<T> Default for Bag<T> {
    fn default() -> Bag<T> {
        Bag::new()
    }
}

impl<T> fmt::Debug for Bag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bag")
            .field("len", &self.len())
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Client<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("place", &self.shard.index())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
