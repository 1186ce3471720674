//! Page replicas: copies of a page's bytes in the clusters that read it.
//!
//! Problem: a page that many clusters read lies in the memory of one. Idea: each cluster has a table of
//! replicas, which lookups search first. A replica is a slot with a latch of its own. The page's slot has the
//! directory of clusters with replicas.
//!
//! - I1. The bytes of a replica are those of its page. The directory and the latches keep this: see
//!   `squall_parts::replica::Directory`. Each replica is an owning entry of its cluster's table, and is
//!   removed from there with its memory, or after the page was cut.
//! - I2. The replicas use pages of a pool of their own, and so its limit bounds them at each moment.
//!
//! Policy: a cluster makes a replica at its 64th pin since the last write of the page. A write that takes
//! replicas away doubles the number. The counts lie in a small array of the cluster, and two pages may share
//! one. A page that takes it over begins anew.
//!
//! Not promised: a replica lies in the memory of its cluster only if the pool has some there.
//! Cost: a lookup of a replica searches one table. Another cluster's lookup of the page also counts, in
//! memory of its cluster.
//! Source: Unrau et al. 1995, §4.3 and §5.3 (HU-14, HU-15, HU-16, AD-06).

use foldhash::fast::FixedState;
use squall_core::{Handle, Owned};
use squall_machine::{Cluster, ClusterSize, Clusters, Vp, machine};
use squall_objects::pages::{self, Attribute, PAGE_BYTES, Page, PagePool, PagePoolExt, Supply};
use squall_parts::replica::{Directory, Published};
use squall_parts::table::Table;
use squall_rcu::Guard;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crate::slot::{Dirty, Entry, Slot, Taken};

/// Number of pins by a cluster after which it makes a replica: the number of cache lines of a page. The
/// cluster has then read as many lines from the page as a replica costs.
const PINS_FIRST: u32 = if cfg!(miri) { 8 } else { PAGE_BYTES as u32 / 64 };
/// The largest number, after several writes.
const PINS_MAX: u32 = PINS_FIRST * 64;
/// Counts of a cluster.
const COUNTS: usize = 256;
/// Bits of a count. The other bits of its word tell the page.
const COUNT_BITS: u32 = 16;
const _: () = assert!(PINS_MAX < 1 << COUNT_BITS);
/// The largest number of replicas at which a lookup looks, to find one that gives way.
const LOOKS_MAX: usize = 16;
/// The number of rounds in which a give-up looks at each replica. The first clears the marks of use.
const ROUNDS: usize = 2;

/// Page replicas: copies of a page's bytes in the clusters that read it again and again.
///
/// A page stays where the cluster that first used it has memory. Another cluster gets a replica after 64 pins
/// for reading since the last write of the page. Later pins for reading there find the replica. So the
/// cluster has read as many cache lines of the page as a replica costs. A pin for writing takes all replicas
/// away first, and each time that it finds one, the page needs twice as many pins for the next, up to 4096.
/// So a page that is actively written has no replica.
///
/// The replicas come from a pool below the pool of the cache, with this limit. At the limit, a replica that
/// was not used lately gives way. Otherwise no replica is made, and the cluster goes on with the page itself.
/// If the pool of the cache is short of pages, replicas go before pages. The descriptors of the replicas are
/// not counted.
///
/// # Source
/// Unrau et al. 1995, §4.3 (HU-14 to HU-16): pages that several clusters read are copied, within a limit, and
/// a directory beside the page has the clusters. §5.3 (AD-06): copies need a bound. The number of pins:
/// Black, Gupta and Weber, "Competitive Management of Distributed Shared Memory", 1989; its doubling is that
/// of `squall::lock::ReadBiasedRwLock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    clusters: ClusterSize,
    max_bytes: usize,
}

impl Replication {
    /// Allows a replica of each page in each cluster of this size, and `max_bytes` bytes for all of them. A
    /// rest of less than a page is not used.
    pub fn new(clusters: ClusterSize, max_bytes: usize) -> Replication {
        Replication { clusters, max_bytes }
    }
}

/// The replicas of a cluster. The alignment keeps its counts from lines of other clusters.
#[repr(align(128))]
struct Place {
    cluster: usize,
    table: Table<u64, Entry, FixedState>,
    counts: Box<[AtomicU64]>,
    /// The hand of the clock: a position in the table.
    hand: Mutex<u64>,
}

impl Place {
    fn new(cluster: Cluster) -> Place {
        Place {
            cluster: cluster.index(),
            table: Table::with_hasher(FixedState::default()),
            counts: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
            hand: Mutex::default(),
        }
    }

    /// Removes this replica from the table. Returns whether it was there. In the child of a fork, where no
    /// operation opens, it stays.
    fn unlink(&self, replica: &Slot) -> bool {
        let removed =
            squall_rcu::try_pin(|_| self.table.remove_if(&replica.number(), |entry| entry.is(replica)));
        removed.unwrap_or(false)
    }

    fn get(&self, number: u64) -> Option<Arc<Slot>> {
        let found = squall_rcu::try_pin(|_| self.table.read(&number, Entry::to_arc));
        found.ok().flatten()
    }

    /// Counts a pin of a page, and returns whether the cluster has enough for a replica. The count begins
    /// anew then. Threads of the cluster may lose counts of each other.
    fn count(&self, number: u64, spread: &Spread) -> bool {
        // Relaxed, everywhere: a hint.
        let writes = u64::from(spread.writes.load(Ordering::Relaxed));
        let mixed = (number ^ writes.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = &self.counts[(number % COUNTS as u64) as usize];
        let (tag, seen) = (mixed >> COUNT_BITS, word.load(Ordering::Relaxed));
        let pins = if seen >> COUNT_BITS == tag { (seen & ((1 << COUNT_BITS) - 1)) + 1 } else { 1 };
        let is_enough = pins >= u64::from(spread.pins_needed.load(Ordering::Relaxed));
        word.store(tag << COUNT_BITS | if is_enough { 0 } else { pins }, Ordering::Relaxed);
        is_enough
    }

    /// Moves the hand over some replicas, and returns them.
    fn next(&self) -> Vec<Arc<Slot>> {
        let mut found = Vec::new();
        let mut hand = match self.hand.try_lock() {
            Ok(hand) => hand,
            // Any position will do.
            Err(TryLockError::Poisoned(hand)) => hand.into_inner(),
            // Another thread looks for a replica here.
            Err(TryLockError::WouldBlock) => return found,
        };
        *hand = self.table.visit_from(*hand, |_, entry| found.push(entry.to_arc())).unwrap_or(0);
        found
    }
}

/// The replicas of a cache.
pub(crate) struct Replicas {
    clusters: &'static Clusters,
    places: Box<[Place]>,
    made: AtomicU64,
    removed: AtomicU64,
    refused: AtomicU64,
    /// The pool of the replicas (I2).
    pool: Handle<dyn PagePool>,
}

/// Counts of replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) made: u64,
    pub(crate) removed: u64,
    pub(crate) refused: u64,
}

impl Counts {
    /// Returns the number of present replicas. The counts are read one after the other.
    pub(crate) fn present(self) -> usize {
        self.made.saturating_sub(self.removed) as usize
    }
}

impl Replicas {
    /// Makes the pool for replicas, below the pool of the cache.
    pub(crate) fn make_pool(replication: Replication, above: Handle<dyn PagePool>) -> Owned<dyn PagePool> {
        let pool = pages::distributed(Supply::under(above, replication.max_bytes / PAGE_BYTES));
        // A further page comes only for a further replica.
        pool.set_attribute(Attribute::Chunk, 1);
        pool
    }

    pub(crate) fn new(replication: Replication, pool: Handle<dyn PagePool>) -> Replicas {
        let clusters = machine().clusters(replication.clusters);
        Replicas {
            clusters,
            places: clusters.iter().map(Place::new).collect(),
            made: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            pool,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        // Relaxed: counts. Removals are read first, so that fewer of them than makings are seen.
        let removed = self.removed.load(Ordering::Relaxed);
        Counts {
            made: self.made.load(Ordering::Relaxed),
            removed,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn here(&self) -> &Place {
        &self.places[self.clusters.cluster_of(Vp::current()).index()]
    }

    /// Returns the directory for a page that this thread brings into memory.
    pub(crate) fn spread(self: &Arc<Self>) -> Spread {
        Spread {
            directory: Directory::new(),
            first: self.here().cluster,
            writes: AtomicU32::new(0),
            pins_needed: AtomicU32::new(PINS_FIRST),
            replicas: self.clone(),
        }
    }

    /// Finds the replica of a page in this cluster, or else the page. A page that this cluster pins again and
    /// again gets a replica.
    pub(crate) fn find<'o>(
        &self,
        guard: &'o Guard,
        number: u64,
        find: impl FnOnce() -> Option<&'o Slot>,
    ) -> Option<&'o Slot> {
        let here = self.here();
        let replica = self.table_entry(here, guard, number);
        if replica.is_some() {
            return replica;
        }
        let slot = find()?;
        // A page of another cache is that cache's to copy.
        if let Some(spread) = slot.spread().filter(|spread| std::ptr::eq(self, &*spread.replicas))
            && spread.first != here.cluster
            && here.count(number, spread)
        {
            self.make(here, slot, spread);
        }
        Some(slot)
    }

    #[inline]
    fn table_entry<'o>(&self, here: &Place, guard: &'o Guard, number: u64) -> Option<&'o Slot> {
        here.table.read_in(guard, &number, |entry| entry.lend(guard))
    }

    #[cold]
    fn make(&self, here: &Place, slot: &Slot, spread: &Spread) {
        let publish = |replica: Arc<Slot>| {
            let insert = || {
                let inserted = here.table.try_insert(slot.number(), Entry::owner(replica.clone())).is_ok();
                self.made.fetch_add(u64::from(inserted), Ordering::Relaxed);
                inserted
            };
            let published = spread.directory.publish(here.cluster, insert);
            if published == Published::Ended {
                self.unlink(here, &replica);
            }
            published == Published::Stays
        };
        slot.replicate(|| self.page(here), publish);
    }

    /// Returns a page for a replica. At the limit an old replica gives way, of this cluster if possible.
    fn page(&self, here: &Place) -> Option<Page> {
        let free = || self.pool.try_get_free().ok().flatten();
        let page = free().or_else(|| {
            let others = self.places.iter().filter(|place| place.cluster != here.cluster);
            let mut looks = LOOKS_MAX;
            let found =
                std::iter::once(here).chain(others).any(|place| self.take_old(place, 1, &mut looks) > 0);
            if found { free() } else { None }
        });
        if page.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        page
    }

    /// Takes replicas of a place away that were not used since the hand of the clock passed them. Returns
    /// their number.
    fn take_old(&self, place: &Place, wanted: usize, looks: &mut usize) -> usize {
        let mut taken = 0;
        while taken < wanted && *looks > 0 && !place.table.is_empty() {
            let found = place.next();
            *looks = looks.saturating_sub(found.len().max(1));
            for replica in found {
                if taken < wanted && !replica.take_referenced() && self.take(place, &replica) {
                    taken += 1;
                }
            }
        }
        taken
    }

    /// Takes a replica away, unless it is pinned.
    fn take(&self, place: &Place, replica: &Slot) -> bool {
        match replica.try_take(Dirty::Discard) {
            Taken::Page(page) => {
                self.unlink(place, replica);
                drop(page);
                true
            }
            // Another thread took its memory.
            Taken::Gone | Taken::Dirty => true,
            Taken::Pinned => false,
        }
    }

    fn unlink(&self, place: &Place, replica: &Slot) {
        let removed = place.unlink(replica);
        self.removed.fetch_add(u64::from(removed), Ordering::Relaxed);
    }

    /// Returns up to `wanted` pages of replicas to the pool of the cache: free ones first, then those of
    /// replicas that were not used lately. Returns their number.
    pub(crate) fn give_up(&self, wanted: usize) -> usize {
        let free = self.pool.try_give_up(wanted).unwrap_or(0);
        let mut taken = 0;
        for place in &self.places {
            let mut looks = place.table.len().saturating_mul(ROUNDS);
            taken += self.take_old(place, wanted.saturating_sub(free + taken), &mut looks);
        }
        free + if taken > 0 { self.pool.try_give_up(taken).unwrap_or(0) } else { 0 }
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// The replicas of one page, beside its slot.
pub(crate) struct Spread {
    directory: Directory,
    /// The cluster that brought the page into memory. It uses the page itself.
    first: usize,
    /// Number of writes.
    writes: AtomicU32,
    /// Number of pins after which a cluster makes a replica. Changed under the page's latch for writing.
    pins_needed: AtomicU32,
    replicas: Arc<Replicas>,
}

impl Spread {
    /// Takes all replicas away before a write. Waits for their readers. Called under the latch for writing.
    pub(crate) fn write(&self, slot: &Slot) {
        // Relaxed, here and below: the latch orders it for writers, and readers need a hint.
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut taken = false;
        self.directory.recall(self.replicas.places.len(), |place| {
            let place = &self.replicas.places[place];
            if let Some(replica) = place.get(slot.number()) {
                replica.take();
                self.replicas.unlink(place, &replica);
                taken = true;
            }
            true
        });
        if taken {
            let needed = self.pins_needed.load(Ordering::Relaxed);
            self.pins_needed.store((needed * 2).min(PINS_MAX), Ordering::Relaxed);
        }
    }

    /// Takes all replicas away before the page goes, unless one is pinned. Called under the latch for
    /// writing.
    pub(crate) fn try_recall(&self, slot: &Slot) -> bool {
        // The replicas of a page that was cut are unlinked already. The next page of its number may have
        // some.
        self.directory.has_ended()
            || self.directory.recall(self.replicas.places.len(), |place| {
                let place = &self.replicas.places[place];
                place.get(slot.number()).is_none_or(|replica| self.replicas.take(place, &replica))
            })
    }

    /// Lets no lookup find a replica from now on. A pin of one keeps its bytes.
    pub(crate) fn end(&self, slot: &Slot) {
        self.directory.end(self.replicas.places.len(), |place| {
            let place = &self.replicas.places[place];
            if let Some(replica) = place.get(slot.number()) {
                self.replicas.unlink(place, &replica);
            }
        });
    }

    /// Takes the marks of use of the replicas.
    pub(crate) fn take_referenced(&self, slot: &Slot) -> bool {
        let places = self.directory.places().below(self.replicas.places.len());
        let marks = places.filter(|place| {
            self.replicas.places[*place].get(slot.number()).is_some_and(|replica| replica.take_referenced())
        });
        marks.count() > 0
    }
}
