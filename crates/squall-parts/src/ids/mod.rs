//! Ids below a limit, with one shard per processor. No id is given out twice in a round.
//!
//! Problem: a program numbers its connections, sessions or slots by small ids. An id that is used again at
//! once lets a late message reach the wrong owner. A list of free ids under one lock does not scale.
//! Idea: each shard has ids to draw and, apart from them, ids that came back. A round ends when no id is
//! left to draw. Then all returned ids become ids to draw. Ids that were never given out come from a common
//! counter, in batches. If there are many ids, a round ends before the last ones are drawn. Otherwise shards
//! that run dry at about the same time would take each other's last ids.
//!
//! - I1. An id is in one shard, in the common rest of fresh ids, in use, or held by one call.
//! - I2. A return goes to the returned ids of its shard, under the lock and marked with a round. That round
//!   is at least the round in which the id was given out, because a thread never reads an older round after
//!   a newer one. The id can be drawn in later rounds only.
//! - I3. A shard's word says whether it has ids to draw and returned ids, and of which round. It is stored
//!   under the lock. A new round changes no shard: the next thread that locks one moves its ids. Until then
//!   the word's older round says that its returned ids can be drawn.
//! - I4. Fresh ids, transfers between shards and new rounds hold the search lock, until all ids concerned
//!   have arrived. A new round begins in two cases. No fresh id is left, and one pass found no shard with ids
//!   to draw. Or many ids came back, and at most half as many are left; these come first in the next round.
//! - I5. `get` fails after two passes over the words, which hold the search lock. In the
//!   first, no shard had an id of any kind. In the second, the sum of the words was the same.
//!
//! *I5 is exact: between the two passes no id was free.* Without a transfer or a new round, only a return
//! makes a shard that is empty non-empty. It makes the word greater: it sets the bit of returned ids. If
//! the shard did not know the present round yet, its next lock may move the ids and clear that bit, but then
//! the round in the word has grown. So equal sums mean that no shard changed between its two looks. The
//! stores release and the looks acquire. So the second pass sees each return that happened before a removal
//! that the first pass saw.
//!
//! A shard gives out its ids in the order in which they came back, whenever a round ends. So an id that comes
//! back at the end of a round is among the last of its shard in the next one. Not promised: an order between
//! shards.
//! Progress: `put`, and `get` from a shard with ids to draw, wait only for the holder of the shard's lock. A
//! `get` that finds its shard dry waits for the search lock.
//! Cost: the lock of the VP's own, and a store to the word if the shard becomes empty or non-empty.
//! Source: fos (Wentzlaff et al.), "dPool" §5.2, with the two pools that the thesis proposes as future work.
//! Our own: lazy fresh ids, the change of roles by a round number, and the proof that all are in use.

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod shard;
mod sites;

use shard::{Inner, Shard};
#[cfg(loom)]
use squall_lock::ModelVp as Vp;
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::{Vp, machine};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock, lock, recheck};
use std::collections::VecDeque;
use std::fmt;

/// The largest batch of fresh ids by default.
const BATCH_MAX: u32 = 1 << 14;

/// Returned ids per shard from which on a round may end with ids left to draw.
const MANY: usize = 512;

/// The ids from 0 up to a limit, with a shard of free ids for each place: usually for each VP.
///
/// An object embeds it in its root. Callers must return only ids that are in use, and each one once.
/// [`lend`](Ids::lend) and [`redeem`](Ids::redeem) check that for ids that leave the program's own code.
///
/// # Example
/// ```
/// use squall::parts::ids::Ids;
///
/// let ids = Ids::new(3);
/// let (a, b) = (ids.get(0).unwrap(), ids.get(0).unwrap());
/// ids.put(0, a);
/// let c = ids.get(0).unwrap(); // the third one, although `a` is free
/// assert!(a != b && c != a && c != b);
/// assert_eq!(ids.get(0), Some(a)); // none was left, so a new round began
/// assert_eq!(ids.get(0), None);
/// ```
pub struct Ids {
    shards: Box<[OnceLock<Box<Shard>>]>,
    /// The places from here on are without shards.
    used: AtomicUsize,
    /// Number of the present round. Written under the search lock.
    round: AtomicU64,
    /// The search lock. Its value is the first fresh id that no shard has. On lines of its own, since all
    /// calls read the neighbours.
    search: CachePadded<Mutex<u32>>,
    limit: u32,
    batch: AtomicU32,
    /// A bit for each id, set while the id is lent. Made at the first loan.
    lent: OnceLock<Box<[AtomicU64]>>,
    /// Whether rounds end as soon as an id came back. Models have no counts for an estimate.
    #[cfg(any(loom, squall_model))]
    ends_early: bool,
}

/// The ids, seen from one of their places.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    ids: &'a Ids,
    home: &'a Shard,
}

impl Client<'_> {
    /// Takes an id that is free, like [`Ids::get`].
    #[inline]
    pub fn get(self) -> Option<u32> {
        match self.home.get(&self.ids.round) {
            Some(id) => Some(id),
            None => self.ids.get_elsewhere(self.home),
        }
    }

    /// Returns an id, like [`Ids::put`].
    ///
    /// # Panics
    /// If the id is not below the limit.
    #[inline]
    pub fn put(self, id: u32) {
        if id >= self.ids.limit {
            no_id(self.ids.limit, id);
        }
        self.home.put(&self.ids.round, id);
    }
}

impl fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(self.ids).finish()
    }
}

/// The error of [`Ids::redeem`]: the id is not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLent {
    /// The id is not below the limit.
    OutOfRange,
    /// The id is free, was never given out, or is in use but was not lent.
    NotLent,
}

#[cfg(not(loom))]
impl Ids {
    /// Makes the ids below `limit`, all free, with a place for each VP.
    pub fn new(limit: u32) -> Ids {
        Ids::with_places(limit, machine().vp_limit())
    }

    /// Makes the ids below `limit`, all free, with this number of places. The shard of a place is the
    /// cheapest for threads on the VP of that number.
    pub fn with_places(limit: u32, places: usize) -> Ids {
        squall_sys::fork::arm();
        Ids::make(limit, places)
    }
}

/// An estimate of where ids are.
enum Estimate<'a> {
    /// Many came back, and at most half as many are left to draw.
    FewLeft,
    /// The shard with the most ids to draw.
    Most(&'a Shard),
    /// No shard has ids to draw.
    None,
}

/// Makes the lock of a place.
fn lock_at(place: usize, inner: Inner) -> VpLock<Inner> {
    #[cfg(not(loom))]
    let place = place % machine().vp_limit();
    VpLock::new(Vp::new(place as u32), inner)
}

impl Ids {
    fn make(limit: u32, places: usize) -> Ids {
        Ids {
            shards: (0..places).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            round: AtomicU64::new(0),
            search: CachePadded::new(Mutex::new(0)),
            limit,
            batch: AtomicU32::new((limit / places.max(1) as u32).clamp(1, BATCH_MAX)),
            lent: OnceLock::new(),
            #[cfg(any(loom, squall_model))]
            ends_early: false,
        }
    }

    /// Returns the limit. All ids are below it.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of fresh ids that a dry shard takes at once. The default is the limit divided by
    /// the number of places, from 1 to 16,384.
    pub fn batch(&self) -> u32 {
        // Relaxed: no order is promised.
        self.batch.load(Ordering::Relaxed)
    }

    /// Sets the number of fresh ids that a dry shard takes at once; 0 counts as 1.
    pub fn set_batch(&self, batch: u32) {
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Returns the number of the present round, from 0.
    pub fn round(&self) -> u64 {
        // Relaxed: the number only grows, and no order is promised.
        self.round.load(Ordering::Relaxed)
    }

    #[inline]
    fn shard(&self, place: usize) -> &Shard {
        let Some(slot) = self.shards.get(place) else { no_place(self.shards.len(), place) };
        let shard = match slot.get() {
            Some(shard) => shard,
            None => slot.get_or_init(|| Box::new(Shard::new(|inner| lock_at(place, inner)))),
        };
        // Relaxed: this thread added the place, or the first thread that found it missing did.
        if self.used.load(Ordering::Relaxed) <= place {
            // AcqRel: pairs with the Acquire of `shards`, which sees the shard before its ids are known.
            self.used.fetch_max(place + 1, Ordering::AcqRel);
        }
        shard
    }

    /// Returns the shards that exist, by their places.
    fn shards(&self) -> impl Iterator<Item = &Shard> {
        // Acquire: pairs with the AcqRel of `shard`.
        let used = self.used.load(Ordering::Acquire);
        self.shards[..used].iter().filter_map(OnceLock::get).map(|shard| &**shard)
    }

    /// Takes an id that is free: of the shard of `place`, or else of another one. Returns `None` only if at
    /// one moment of the call all ids were in use.
    ///
    /// An id that another thread returned counts as free for each thread that can know of the return.
    ///
    /// # Panics
    /// If there is no such place.
    /// # Cost
    /// The lock of the place's VP. Once per batch of fresh ids, a mutex. Near the end of a round, a search:
    /// a mutex, a look at each shard, and the lock of another VP.
    #[inline]
    pub fn get(&self, place: usize) -> Option<u32> {
        self.client(place).get()
    }

    /// Returns a client, whose calls find the shard of `place` faster.
    ///
    /// ```
    /// use squall::parts::ids::Ids;
    ///
    /// let ids = Ids::new(3);
    /// let client = ids.client(0);
    /// let id = client.get().unwrap();
    /// client.put(id);
    /// ```
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn client(&self, place: usize) -> Client<'_> {
        Client { ids: self, home: self.shard(place) }
    }

    /// Takes up to `max` free ids and appends them to `into`. Returns their number. It is less than `max`
    /// only if all ids were in use, as [`get`](Ids::get) says.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn get_batch(&self, place: usize, max: usize, into: &mut Vec<u32>) -> usize {
        let (home, before) = (self.shard(place), into.len());
        while into.len() - before < max {
            let had = into.len();
            home.take(&self.round, max - (had - before), into);
            if into.len() == had {
                let Some(id) = self.get_elsewhere(home) else { break };
                into.push(id);
            }
        }
        into.len() - before
    }

    /// Returns an id to the shard of `place`. It is given out again in a later round.
    ///
    /// # Panics
    /// If there is no such place, or if the id is not below the limit.
    #[inline]
    pub fn put(&self, place: usize, id: u32) {
        self.client(place).put(id);
    }

    /// Returns several ids, like [`put`](Ids::put).
    ///
    /// # Panics
    /// If there is no such place, or if an id is not below the limit: then all stay in use.
    pub fn put_batch(&self, place: usize, ids: &[u32]) {
        if let Some(id) = ids.iter().find(|id| **id >= self.limit) {
            no_id(self.limit, *id);
        }
        self.shard(place).put_all(&self.round, ids.iter().copied());
    }

    /// Moves all free ids of other shards into the shard of `place`.
    ///
    /// # Panics
    /// If there is no such place.
    /// # Cost
    /// The lock of each VP that has a shard.
    pub fn gather(&self, place: usize) {
        let to = self.shard(place);
        let _search = self.search();
        for from in self.shards().filter(|from| !std::ptr::eq(*from, to)) {
            let (fresh, draw, back) = from.take_all(&self.round);
            to.refill(&self.round, fresh, draw);
            to.put_all(&self.round, back);
        }
    }

    /// Returns the number of free ids, counted shard by shard: an estimate while threads use them.
    ///
    /// # Cost
    /// The lock of each VP that has a shard.
    pub fn free(&self) -> usize {
        let next = self.search();
        (self.limit - *next) as usize + self.shards().map(Shard::count).sum::<usize>()
    }

    /// Marks an id that is in use as lent: a caller got the bare number. Memory for the marks, a bit for
    /// each id, is allocated at the first call.
    ///
    /// # Panics
    /// If the id is not below the limit.
    pub fn lend(&self, id: u32) {
        let words = || (0..self.limit.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        let lent = self.lent.get_or_init(words);
        let Some(word) = lent.get((id / u64::BITS) as usize) else { no_id(self.limit, id) };
        // Relaxed: the caller hands the number on, and that orders it.
        word.fetch_or(1 << (id % u64::BITS), Ordering::Relaxed);
    }

    /// Ends the loan of an id. The caller may then return the id.
    ///
    /// # Errors
    /// [`NotLent`]: all is as before.
    pub fn redeem(&self, id: u32) -> Result<(), NotLent> {
        if id >= self.limit {
            return Err(NotLent::OutOfRange);
        }
        let mask = 1 << (id % u64::BITS);
        let word = self.lent.get().map(|lent| &lent[(id / u64::BITS) as usize]);
        // Relaxed: of several calls one finds the mark, and no order is promised.
        let was_lent = word.is_some_and(|word| word.fetch_and(!mask, Ordering::Relaxed) & mask != 0);
        if was_lent { Ok(()) } else { Err(NotLent::NotLent) }
    }

    fn search(&self) -> MutexGuard<'_, u32> {
        lock(&self.search, "the free ids of a pool")
    }

    /// Takes an id that the shard `home` does not have.
    #[cold]
    #[inline(never)]
    fn get_elsewhere(&self, home: &Shard) -> Option<u32> {
        let mut next = self.search();
        let mut tries = 0;
        loop {
            // Another thread of this place may have filled it meanwhile, or a new round did.
            if let Some(id) = home.get(&self.round) {
                return Some(id);
            }
            let fresh = *next..next.saturating_add(self.batch().max(1)).min(self.limit);
            if !fresh.is_empty() {
                *next = fresh.end;
                let id = fresh.start;
                home.refill(&self.round, id + 1..fresh.end, VecDeque::new());
                return Some(id);
            }
            // Only the holder of the search lock changes it.
            let round = self.round();
            match self.estimate(round) {
                Estimate::FewLeft => {
                    if sites::EARLY.is_weak() {
                        drop(next);
                        self.begin_round(round + 1);
                        return self.get_elsewhere(home);
                    }
                    self.begin_round(round + 1);
                    continue;
                }
                Estimate::Most(shard) => {
                    if let Some(id) = self.transfer(shard, home) {
                        return Some(id);
                    }
                }
                Estimate::None => {}
            }
            let (mut sum, mut has_back, mut has_draw) = (0_u64, false, false);
            for shard in self.shards() {
                let mut word = shard.word();
                if word.has_draw(round) {
                    if sites::HOLD.is_weak() {
                        drop(next);
                        return self.transfer(shard, home).or_else(|| self.get_elsewhere(home));
                    }
                    if let Some(id) = self.transfer(shard, home) {
                        return Some(id);
                    }
                    word = shard.word();
                }
                has_draw |= word.has_draw(round);
                has_back |= word.has_back(round);
                sum = sum.wrapping_add(word.bits());
            }
            if has_draw {
                continue;
            }
            if has_back {
                self.begin_round(round + 1);
                continue;
            }
            let again = || self.shards().fold(0, |sum, shard| u64::wrapping_add(sum, shard.word().bits()));
            if sites::AGAIN.is_weak() || again() == sum {
                return None;
            }
            tries += 1;
            recheck::wait(tries);
        }
    }

    /// Begins a round. The caller holds the search lock.
    fn begin_round(&self, round: u64) {
        // Relaxed: each shard's lock orders its own change of roles (`ids/I2`, `ids/I3`).
        self.round.store(round, Ordering::Relaxed);
    }

    /// Estimates where ids are, from the counts of all shards.
    fn estimate(&self, round: u64) -> Estimate<'_> {
        if cfg!(any(loom, squall_model)) {
            // The estimate is a hint, so the earliest end stands for all.
            let came_back = || self.shards().any(|shard| shard.word().has_back(round));
            return if self.ends_early() && came_back() { Estimate::FewLeft } else { Estimate::None };
        }
        let (mut shards, mut draw, mut back) = (0, 0, 0);
        let mut most: Option<(usize, &Shard)> = None;
        for shard in self.shards() {
            let counts = shard.counts(round);
            shards += 1;
            draw += counts.draw;
            back += counts.back;
            if counts.draw > most.map_or(0, |(most, _)| most) {
                most = Some((counts.draw, shard));
            }
        }
        if back >= MANY * shards && draw <= back / 2 {
            return Estimate::FewLeft;
        }
        most.map_or(Estimate::None, |(_, shard)| Estimate::Most(shard))
    }

    /// Returns whether rounds end as soon as an id came back: in some models.
    fn ends_early(&self) -> bool {
        #[cfg(any(loom, squall_model))]
        return self.ends_early;
        #[cfg(not(any(loom, squall_model)))]
        false
    }

    /// Moves half of a shard's ids to `home`, and takes one of them. The caller holds the search lock.
    fn transfer(&self, from: &Shard, home: &Shard) -> Option<u32> {
        let (mut fresh, mut draw) = from.take_half(&self.round);
        let id = draw.pop_front().or_else(|| fresh.next())?;
        if !(fresh.is_empty() && draw.is_empty()) {
            home.refill(&self.round, fresh, draw);
        }
        Some(id)
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids")
            .field("limit", &self.limit)
            .field("round", &self.round())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotLent::OutOfRange => "the id is not below the limit of its pool",
            NotLent::NotLent => {
                "the id is not lent: it is free, was never given out, or its guard still exists"
            }
        })
    }
}

impl std::error::Error for NotLent {}

#[cold]
#[inline(never)]
fn no_place(places: usize, place: usize) -> ! {
    panic!("the ids have {places} places, and no place {place}")
}

#[cold]
#[inline(never)]
fn no_id(limit: u32, id: u32) -> ! {
    panic!("id {id} is none of these ids, which are below {limit}")
}
