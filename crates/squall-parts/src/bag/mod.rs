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
pub use shard::Shard;

use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::Vp;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{OnceLock, StdArc};
use std::fmt;

/// An unordered pool: the shards' common part.
///
/// An object embeds it in its root, and each representative has a [`Shard`].
///
/// # Example
/// ```
/// use squall::{Vp, parts::bag::Bag};
///
/// let buffers = Bag::new();
/// let near = buffers.shard(Vp::current());
/// buffers.put(&near, vec![0_u8; 4096]);
/// assert_eq!(buffers.len(), 1);
/// assert!(buffers.get(&near).is_some() && buffers.get(&near).is_none());
/// ```
pub struct Bag<T> {
    shards: Box<[OnceLock<StdArc<Shard<T>>>]>,
    /// The places above are without shards.
    limit: AtomicUsize,
    attributes: Attributes,
}

#[cfg(not(loom))]
impl<T> Bag<T> {
    /// Makes an empty bag without shards.
    pub fn new() -> Bag<T> {
        Bag::with_places(squall_machine::machine().vp_limit())
    }

    /// Returns the shard of `vp`, and makes it if this is the first call for that VP.
    ///
    /// # Panics
    /// If `vp` is not below `Machine::vp_limit`.
    pub fn shard(&self, vp: Vp) -> StdArc<Shard<T>> {
        self.shard_at(vp.index(), |elements| VpLock::new(vp, elements))
    }
}

impl<T> Bag<T> {
    fn with_places(places: usize) -> Bag<T> {
        let shards = (0..places).map(|_| OnceLock::new()).collect();
        Bag { shards, limit: AtomicUsize::new(0), attributes: Attributes::new() }
    }

    fn shard_at(
        &self,
        index: usize,
        lock: impl FnOnce(shard::Elements<T>) -> VpLock<shard::Elements<T>>,
    ) -> StdArc<Shard<T>> {
        assert!(
            index < self.shards.len(),
            "the bag has {} places for shards; {index} is none",
            self.shards.len()
        );
        let shard = self.shards[index].get_or_init(|| StdArc::new(Shard::new(index, lock)));
        // AcqRel: pairs with the Acquire of `shards`, which must see the shard before its first arrival is
        // known.
        self.limit.fetch_max(index + 1, Ordering::AcqRel);
        shard.clone()
    }

    /// Returns the attributes. They may be changed while the bag is used.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Puts an element into `shard`, the caller's own.
    ///
    /// # Cost
    /// The lock of a VP and a few stores, if the caller is on the shard's VP. Linearized at the store that
    /// counts the arrival.
    #[inline]
    pub fn put(&self, shard: &Shard<T>, value: T) {
        self.home(shard).put(value);
    }

    /// Puts several elements at once.
    pub fn put_batch(&self, shard: &Shard<T>, values: impl IntoIterator<Item = T>) {
        let values: Vec<T> = values.into_iter().collect();
        if !values.is_empty() {
            self.home(shard).put_all(values);
        }
    }

    /// Takes an element: of `shard`, the caller's own, if it has one, or else of another shard. Returns
    /// `None` only if at one moment of the call the bag was empty, and no element was on its way between
    /// shards.
    ///
    /// # Cost
    /// As [`put`](Bag::put) if the caller's shard has an element. Otherwise a look at each shard's line
    /// until one has elements, and a transfer. To find the bag empty takes two looks at each.
    #[inline]
    pub fn get(&self, shard: &Shard<T>) -> Option<T> {
        let home = self.home(shard);
        match home.get() {
            Some(value) => Some(value),
            None => self.get_elsewhere(home),
        }
    }

    /// Takes up to `max` elements and appends them to `into`. Returns their number. It is 0 only if `max`
    /// is, or as [`get`](Bag::get) says.
    pub fn get_batch(&self, shard: &Shard<T>, max: usize, into: &mut Vec<T>) -> usize {
        let before = into.len();
        let home = self.home(shard);
        if max > 0 {
            // No allocation under the lock.
            into.reserve(max.min(home.len()));
            home.take(max.min(into.capacity() - before), into);
        }
        if into.len() == before && max > 0 {
            into.extend(self.get_elsewhere(home));
        }
        into.len() - before
    }

    /// Returns the sum of the shards' sizes, read one after the other: an estimate. Elements on their way
    /// between shards are not in it.
    pub fn len(&self) -> usize {
        self.shards().map(Shard::len).sum()
    }

    /// Returns whether [`len`](Bag::len) is 0. Only [`get`](Bag::get) is exact.
    pub fn is_empty(&self) -> bool {
        self.shards().all(Shard::is_empty)
    }

    /// Returns the shard that a client of `shard` uses.
    #[inline]
    fn home<'a>(&'a self, shard: &'a Shard<T>) -> &'a Shard<T> {
        match self.attributes.strategy() {
            Strategy::Centralized => self.shards().next().unwrap_or(shard),
            _ => shard,
        }
    }

    /// Returns the shards that exist, by their places.
    fn shards(&self) -> impl Iterator<Item = &Shard<T>> {
        // Acquire: pairs with the AcqRel of `shard_at`.
        let limit = self.limit.load(Ordering::Acquire);
        self.shards[..limit].iter().filter_map(OnceLock::get).map(|shard| &**shard)
    }

    /// Returns all shards, beginning at the place that is next for clients of `home`.
    fn from<'a>(&'a self, home: &Shard<T>) -> impl Iterator<Item = &'a Shard<T>> {
        // Acquire: as in `shards`, pairs with the AcqRel of `shard_at`.
        let limit = self.limit.load(Ordering::Acquire);
        let start = self.next(home, limit);
        let places = self.shards[..limit].iter();
        let rotated = places.clone().skip(start).chain(places.take(start));
        rotated.filter_map(OnceLock::get).map(|shard| &**shard)
    }

    /// Returns the next shard of another place, if there is one.
    fn next_peer(&self, home: &Shard<T>) -> Option<&Shard<T>> {
        self.from(home).find(|shard| shard.index() != home.index())
    }

    /// Returns the place where a transfer for `home` begins: each time the next one, so that all peers are
    /// asked equally often.
    fn next(&self, home: &Shard<T>, limit: usize) -> usize {
        // Relaxed: any place is right.
        home.next.fetch_add(1, Ordering::Relaxed).wrapping_add(home.index()) % limit.max(1)
    }
}

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
