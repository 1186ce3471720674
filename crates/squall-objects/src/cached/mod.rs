//! Cached lists and maps: one store holds all entries, and each cluster caches the entries that it looks up.
//!
//! - [`list`]: items that a predicate finds ([`Items::find`]). Examples are the regions of an address space,
//!   or the rules that a request may match.
//! - [`map`]: values by key, which can be changed too.
//!
//! A [`Form`] says which clusters have caches. A swap changes the form while the object is used:
//!
//! | form | a repeated lookup searches | a first lookup | a change visits |
//! |---|---|---|---|
//! | [`shared`](Form::shared) | the store | searches the store | the store |
//! | [`distributed`](Form::distributed) | its cluster's | also fills the cache | and the caches with it |
//! | [`where_threads_are`](Form::where_threads_are) | its own or a full cluster's | the same | the same |
//! | [`on`](Form::on) | its own or a full cluster's | the same | the same |
//!
//! Memory holds each entry once in the store, and once more in each cache that has it. A cache grows with the
//! lookups, up to all entries; [`keeping`](Form::keeping) limits it.
//!
//! ```
//! use squall::ClusterSize;
//! use squall::objects::cached::{self, CachedMapExt, Form, Items};
//!
//! let regions = cached::list(Form::distributed(ClusterSize::Core));
//! regions.insert((0x1000..0x3000, "heap"));
//! let hit = |address| regions.find(|(range, _)| range.contains(&address), |(_, name)| *name);
//! assert_eq!((hit(0x2000), hit(0x4000)), (Some("heap"), None));
//! regions.remove(|(_, name)| *name == "heap");
//! assert_eq!(hit(0x2000), None); // in every cluster
//!
//! let routes = cached::map::<String, u32>(Form::distributed(ClusterSize::Cache).updated());
//! routes.insert("home".into(), 1);
//! assert_eq!(routes.with("home", |to| *to), Some(1));
//! ```
//!
//! # When not
//! Use a [`map`](mod@crate::map) for most loads, and a [read-mostly value](crate::read_mostly) for one value.
//! Caches do not pay in these cases:
//!
//! - Entries change as often as they are looked up.
//! - Most lookups fail. Each of them searches the store.
//! - Removals are frequent. Each visits all clusters that have the entry.
//! - One cluster alone uses the object. Each cached entry is then stored twice.
//!
//! # Guarantees
//! - Each operation takes effect at one moment, in all forms and across hot-swaps. After a removal returns,
//!   no lookup finds the entry in any cluster.
//! - A lookup in the cluster's cache writes no shared memory and waits for no other thread.
//! - A lookup in the store counts itself. If it fills the cache, it may wait briefly for other changes of
//!   that cache.
//! - A call that meets a hot-swap waits for it.
//! - There is no poisoning. User closures run under no lock, in an operation, and may use the object. A
//!   closure that panics leaves the object unchanged. Keep closures short, since removed memory is
//!   freed only after them.
//!
//! # Limits
//! - A closure that decides about a key must not change that key on each call, or it is called forever.
//! - `Eq` and `Hash` of a map's keys run under locks, and must not use the map. If one panics during a
//!   change, the change is done completely or not at all.
//! - Signal handlers must not use these objects, since a lookup may allocate and take a lock.
//! - In the child of a fork, calls return an error or panic: see
//!   [forked children](squall_core#forked-children).

mod distributed;
mod items;
mod lines;
mod list;
mod mapping;
mod owner;

use squall_machine::{ClusterSize, Vp};

pub use crate::walk::Walk;
pub use items::Item;
pub use list::{CachedList, Items, List, ListView, ListWriter, list, new_list};
pub use mapping::{CachedMap, CachedMapExt, MapView, MapWriter, map, map_with, new_map};
pub use owner::OwnedCachedMap;
pub use squall_parts::table::{Compute, Computed};

/// Form of a list or a map: which clusters have caches, of which size, and how the caches are kept up to
/// date.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{Coherence, Form};
///
/// let form = Form::distributed(ClusterSize::Core).keeping(100).updated();
/// assert_eq!((form.cluster_size(), form.most()), (ClusterSize::Core, 100));
/// assert_eq!(form.coherence(), Coherence::Update);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    size: ClusterSize,
    full: Full,
    coherence: Coherence,
    /// Maximum number of entries in a cache.
    most: usize,
}

/// Clusters that have a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Nowhere,
    Everywhere,
    /// The clusters of these VPs.
    On(Box<[Vp]>),
    /// The cluster of the creating thread, and each other cluster after this many lookups, until its threads
    /// leave.
    After(u32),
}

/// Effect of a change of a map's value on the cached copies. Source: Gamsa et al. 1999, Tornado (TO-04).
///
/// ```
/// use squall::objects::cached::{Coherence, Form};
///
/// assert_eq!(Form::shared().coherence(), Coherence::Invalidate);
/// assert_eq!(Form::shared().updated().coherence(), Coherence::Update);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coherence {
    /// The copies are invalidated. Each cluster copies the new value at its next lookup, into its own memory.
    Invalidate,
    /// Each copy is replaced by a pointer to the new value, which stays in the memory of its creator.
    Update,
}

impl Form {
    /// Returns the form without caches, for objects that one thread uses, or with an unknown load.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMap, CachedMapExt, Form};
    ///
    /// let map = cached::map::<u32, u32>(Form::shared());
    /// map.insert(1, 10);
    /// assert_eq!((map.get(&1), map.sensors().copies), (Some(10), 0));
    /// ```
    pub fn shared() -> Form {
        Form {
            size: ClusterSize::Machine,
            full: Full::Nowhere,
            coherence: Coherence::Invalidate,
            most: usize::MAX,
        }
    }

    /// Returns the form in which each cluster of this size caches its lookups. Source: Appavoo 2005, the
    /// process object of K42 (CO-43).
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::cached::{self, CachedMap, CachedMapExt, Form};
    ///
    /// let map = cached::map::<u32, u32>(Form::distributed(ClusterSize::Core));
    /// map.insert(1, 10);
    /// assert_eq!((map.get(&1), map.sensors().copies), (Some(10), 1));
    /// ```
    pub fn distributed(size: ClusterSize) -> Form {
        Form { size, full: Full::Everywhere, coherence: Coherence::Invalidate, most: usize::MAX }
    }

    /// Returns the form in which a cluster gets a cache after `after` lookups. Until then its lookups search
    /// the cache of the cluster in which the object was created.
    ///
    /// When a thread moves to another cluster, that cluster gets a cache after `after` lookups. The new cache
    /// takes over up to 256 entries of the old one. A cluster loses its cache if it made no lookup during the
    /// last `after / 2` lookups of the new cluster. It needs twice as many lookups the next time. The cluster
    /// of the creator always has a cache.
    ///
    /// Choose `after` so that each working thread makes a lookup during half of it: some hundred.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::cached::{self, CachedMap, CachedMapExt, Form};
    ///
    /// let map = cached::map::<u32, u32>(Form::where_threads_are(ClusterSize::Core, 500));
    /// map.insert(1, 10);
    /// assert_eq!((map.get(&1), map.sensors().full), (Some(10), 1));
    /// ```
    ///
    /// # Source
    /// Gamsa et al. 1999, the process object of Tornado (TO-05).
    pub fn where_threads_are(size: ClusterSize, after: u32) -> Form {
        Form { size, full: Full::After(after), coherence: Coherence::Invalidate, most: usize::MAX }
    }

    /// Returns the form in which the clusters of these VPs have caches. Other clusters search the cache of
    /// the first VP's cluster. Use it if the places of the threads are known beforehand.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    /// use squall::{ClusterSize, Vp};
    ///
    /// let map = cached::map::<u32, u32>(Form::on(ClusterSize::Core, [Vp::new(0)]));
    /// map.insert(1, 10);
    /// assert_eq!(map.get(&1), Some(10));
    /// ```
    pub fn on(size: ClusterSize, vps: impl IntoIterator<Item = Vp>) -> Form {
        Form {
            size,
            full: Full::On(vps.into_iter().collect()),
            coherence: Coherence::Invalidate,
            most: usize::MAX,
        }
    }

    /// Returns the form with [`Coherence::Update`]: a change of a map's value updates the copies. Items of
    /// lists never change.
    #[must_use]
    pub fn updated(self) -> Form {
        Form { coherence: Coherence::Update, ..self }
    }

    /// Returns the form with caches of at most `most` entries each, or a few more while several threads look
    /// up at once.
    ///
    /// An entry beyond the limit replaces another: a random one in a map, the oldest one in a list. A
    /// replaced entry is looked up in the store again. Its memory is freed after a grace period.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::cached::{self, CachedMap, CachedMapExt, Form};
    ///
    /// let names = cached::map::<u32, String>(Form::distributed(ClusterSize::Core).keeping(100));
    /// (0..1000).for_each(|id| _ = names.insert(id, format!("name {id}")));
    /// (0..1000).for_each(|id| assert!(names.contains_key(&id)));
    /// assert!(names.len() == 1000 && names.sensors().copies <= 100 * names.sensors().full);
    /// ```
    ///
    /// # Panics
    /// If `most` is zero. [`Form::shared`] is the form without caches.
    #[must_use]
    pub fn keeping(self, most: usize) -> Form {
        assert!(most > 0, "a cache of zero entries was requested; use `Form::shared()` for no caches");
        Form { most, ..self }
    }

    /// Returns the maximum number of entries in a cache.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the effect of a change on the cached copies of a map.
    pub fn coherence(&self) -> Coherence {
        self.coherence
    }

    /// Returns the cluster size if the form has caches.
    pub(crate) fn chosen_size(&self) -> Option<ClusterSize> {
        (self.full != Full::Nowhere).then_some(self.size)
    }

    /// Returns the cluster size.
    pub fn cluster_size(&self) -> ClusterSize {
        self.size
    }

    /// Returns the form with this cluster size. It has no effect on [`shared`](Form::shared).
    #[must_use]
    pub fn resized(self, size: ClusterSize) -> Form {
        Form { size, ..self }
    }
}

/// Readings of the sensors of a cached object.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, CachedMap, CachedMapExt, Form};
///
/// let map = cached::map::<u32, u32>(Form::distributed(ClusterSize::Core));
/// map.insert(1, 10);
/// let sensors = map.sensors();
/// assert_eq!((sensors.entries, sensors.changes), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of entries or items.
    pub entries: usize,
    /// Number of representatives.
    pub reps: usize,
    /// Number of representatives that have a cache.
    pub full: usize,
    /// Number of times a representative lost its cache because its threads had left. Counted since the
    /// creation or the last hot-swap.
    pub thinned: u64,
    /// Number of cached entries or items. A map that invalidates copies counts entries without a copy too.
    pub copies: usize,
    /// Approximate number of lookups that searched the store, since the creation or the last hot-swap that
    /// copied it. These are cache misses, and hits on an invalidated copy. Lookups of clusters that have lost
    /// their cache are included.
    pub asked: u64,
    /// Number of changed values, insertions and removals, across hot-swaps.
    pub changes: u64,
    /// Number of copies that changes invalidated or updated, across hot-swaps.
    pub reached: u64,
}
