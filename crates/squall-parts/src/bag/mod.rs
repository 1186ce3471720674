//! An unordered pool with one shard per processor, which balances itself.
//!
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
//!
//! *I4 is exact: between the two passes the bag was empty.* Arrivals only grow. So equal sums mean that no
//! shard had an arrival between its first and its second read. A shard without an arrival that was empty in
//! the first pass stays empty. An element in transit between the passes was removed by a transfer that
//! counted itself in before. The second pass either sees that count, or a later state in which the transfer
//! has ended; then it also sees the arrival, because `inbound` is read before the arrivals.
//!
//! The passes see this order of other threads' steps since each of these stores releases and each load
//! acquires. A put by a thread counts for those that can know of it. A program that infers "no one puts any
//! more" from something that did not happen (a flag that was not yet set) must order that itself, with a
//! fence or a lock.
//!
//! Progress: `put` waits only for the holder of its shard's lock. `get` also waits for transfers in
//! progress before it says empty. A `get` that repeats its passes saw an arrival in between.
//! Cost: in balance, a lock of the VP's own and a few stores to the shard's line.
//! Source: fos (Wentzlaff et al.), "dPool": implementations 1 to 6 of the thesis, §4.4. Our own: the proof of
//! emptiness without messages to all servers.

mod attributes;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod shard;
mod sites;
mod transfer;

pub use attributes::{Attributes, Strategy};

use shard::{Elements, Shard};
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::{Vp, machine};
use squall_sys::sync::OnceLock;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use std::fmt;

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
    shards: Box<[OnceLock<Box<Shard<T>>>]>,
    /// The places from here on are without shards.
    limit: AtomicUsize,
    /// The place of the first shard that was made.
    center: OnceLock<usize>,
    attributes: Attributes,
}

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
    /// works, at a higher cost.
    ///
    /// # Panics
    /// If the bag has no place of that number; one made by [`new`](Bag::new) has it.
    #[inline]
    pub fn here(&self) -> Client<'_, T> {
        self.client(Vp::current().index())
    }

    /// Returns the client of a place.
    ///
    /// # Panics
    /// If the bag has no such place.
    #[inline]
    pub fn client(&self, place: usize) -> Client<'_, T> {
        self.client_with(place, |elements| {
            VpLock::new(Vp::new((place % machine().vp_limit()) as u32), elements)
        })
    }
}

impl<T> Bag<T> {
    fn make(places: usize) -> Bag<T> {
        Bag {
            shards: (0..places).map(|_| OnceLock::new()).collect(),
            limit: AtomicUsize::new(0),
            center: OnceLock::new(),
            attributes: Attributes::new(),
        }
    }

    #[inline]
    fn client_with(
        &self,
        place: usize,
        lock: impl FnOnce(Elements<T>) -> VpLock<Elements<T>>,
    ) -> Client<'_, T> {
        let Some(slot) = self.shards.get(place) else { no_place(self.shards.len(), place) };
        let shard = match slot.get() {
            Some(shard) => shard,
            None => slot.get_or_init(|| Box::new(Shard::new(place, lock))),
        };
        // Relaxed: this thread added the place, or the first thread that found it missing did.
        if self.limit.load(Ordering::Relaxed) <= place {
            self.center.get_or_init(|| place);
            // AcqRel: pairs with the Acquire of `shards`, which sees the shard before its arrivals are known.
            self.limit.fetch_max(place + 1, Ordering::AcqRel);
        }
        Client { bag: self, shard }
    }

    /// Returns the attributes. They may be changed while the bag is used.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the sum of the shards' sizes, read one after the other: an estimate. Elements on their way
    /// between shards are not in it.
    pub fn len(&self) -> usize {
        self.shards().map(Shard::len).sum()
    }

    /// Returns whether [`len`](Bag::len) is 0. Only [`get`](Client::get) is exact.
    pub fn is_empty(&self) -> bool {
        self.shards().all(Shard::is_empty)
    }

    /// Returns the shards that exist, by their places.
    fn shards(&self) -> impl Iterator<Item = &Shard<T>> + Clone {
        // Acquire: pairs with the AcqRel of `client_with`.
        let limit = self.limit.load(Ordering::Acquire);
        self.shards[..limit].iter().filter_map(OnceLock::get).map(|shard| &**shard)
    }

    /// Returns all shards but this one. Each call begins with the next one, so that all are asked equally
    /// often.
    fn peers<'a>(&'a self, home: &Shard<T>) -> impl Iterator<Item = &'a Shard<T>> {
        let home_place = home.index();
        let peers = self.shards().filter(move |shard| shard.index() != home_place);
        let count = peers.clone().count();
        // Relaxed, not atomic together: any start is right.
        let next = home.own().next.load(Ordering::Relaxed);
        home.own().next.store(next.wrapping_add(1), Ordering::Relaxed);
        let start = next % count.max(1);
        peers.clone().skip(start).chain(peers.take(start))
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
    /// The lock of a VP and a few stores, if the caller is on the client's VP. Linearized at the store that
    /// counts the arrival. A shard that is full allocates under its lock.
    #[inline]
    pub fn put(&self, value: T) {
        self.home().put(value);
    }

    /// Puts several elements at once.
    pub fn put_batch(&self, values: impl IntoIterator<Item = T>) {
        let values: Vec<T> = values.into_iter().collect();
        if !values.is_empty() {
            self.home().put_all(values);
        }
    }

    /// Takes an element: of the client's shard if it has one, or else of another shard. Returns `None` only
    /// if at one moment of the call the bag was empty, and no element was on its way between shards;
    /// [`put`](Client::put) says for whom an element counts.
    ///
    /// # Cost
    /// As [`put`](Client::put) if the client's shard has an element. Otherwise a look at each shard's line
    /// until one has elements, and a transfer. To find the bag empty takes two looks at each. While others
    /// put and take in a bag that is empty at each look, the call goes on looking.
    #[inline]
    pub fn get(&self) -> Option<T> {
        let home = self.home();
        match home.get() {
            Some(value) => Some(value),
            None => self.bag.get_elsewhere(home),
        }
    }

    /// Takes up to `max` elements and appends them to `into`. Returns their number. It is less than `max`
    /// only if the bag was found empty as [`get`](Client::get) says.
    pub fn get_batch(&self, max: usize, into: &mut Vec<T>) -> usize {
        let before = into.len();
        let home = self.home();
        while into.len() - before < max {
            let mut some = Vec::with_capacity((max - (into.len() - before)).min(home.len()));
            home.take(&mut some);
            if some.is_empty() {
                let Some(value) = self.bag.get_elsewhere(home) else { break };
                into.push(value);
            }
            into.append(&mut some);
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
        match self.bag.attributes.strategy() {
            Strategy::Centralized => {
                self.bag.center.get().and_then(|&at| self.bag.shards[at].get()).map_or(self.shard, |it| it)
            }
            _ => self.shard,
        }
    }
}

#[cold]
fn no_place(places: usize, place: usize) -> ! {
    panic!("the bag has {places} places for clients; {place} is none of them")
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
