//! Roots and representatives of cached objects: the part that lists and maps share.
//!
//! The root has the *store* with all entries. A hot-swap moves the store, shared. A representative is *full*
//! if it has a *cache* of the entries that it has looked up. A *thin* representative searches the cache of
//! the home's cluster; without one, the store.
//!
//! In the form `Full::After(n)` the caches follow the threads. A thin representative becomes full after n
//! lookups. After n/2 of them a *watch* begins. When the representative becomes full, every other
//! representative that had no lookup during the watch becomes thin. It loses its cache, and the new cache
//! takes over the entries. The home's representative stays full.
//!
//! So a representative is taken for deserted if its threads make no lookup while another's make n/2. A
//! sleeping thread can be mistaken for a departed one. To bound the repetitions, a representative that was
//! made thin needs twice as many lookups the next time. A thread that passes through with fewer than n/2
//! lookups starts no watch.
//!
//! - I1. A change runs within a call of the object. So a swap waits for the change, or the change completes
//!   before the store moves.
//! - I2. A view that a call gives to an operation serves one lookup, which began before that call. If the
//!   object is swapped during the lookup, the old cache shows the state at the swap or later. Both are within
//!   the lookup.
//! - I3. Representatives are made, become full and become thin regardless of changes under way. The code that
//!   fills a cache must ensure that changes find the new entry there (`lines`, `items`). A cache is
//!   registered at its place, where changes find it, before any entry enters it. Entries that are taken over
//!   are no exception.
//! - I4. A removed cache is reachable only from lookups that got it before, each for one lookup under way
//!   (I2). It is dropped after their operations. Changes reach it until its removal, and perhaps no longer.
//!   So an entry that such a lookup finds was valid at the removal or later, regardless of the thread that
//!   cached the entry. The result is within the time of that lookup.
//! - I5. A place that becomes full again gets a new, empty cache. A change that saw no cache at that place,
//!   or the old cache, does not visit the new one. Any stale entry that a thread puts into the new cache is
//!   taken out again before that change is done (`raw/I1`, `places/I2`). A directory may name a place that
//!   has become thin, which costs one useless visit.
//! - I6. The state full or thin, and the record of use, change under the root's lock alone. Lookups only try
//!   that lock, and go on without it. No user code runs under it.
//!
//! A swap moves the store without the caches. A cache that is removed during the swap belongs to the old
//! object, and is freed with it or before it (I4).
//!
//! Cost of a hit: a load of the flag that records use, and a store if it is clear. A watch costs a walk over
//! the representatives at its begin and at its end.
//!
//! Not promised: a deserted representative becomes thin only when another becomes full later. Threads that
//! return during that watch keep the cache until the next one.
//!
//! Source: Gamsa et al. 1999, Tornado §3.2, Fig. 5: "when threads migrate, their Rep migrates too" (TO-05).
//! There the system that moves a thread reports it; here lookups show it.

use squall_core::swap::{Format, Replacement, RootFormats};
use squall_core::{InterfaceOf, Miss, MissAnswer, RepContext, Root};
use squall_lock::Lock;
use squall_machine::{Cluster, Vp};
use squall_parts::replica::Places;
use squall_rcu::{__pin as pin, Guard, Rcu, RcuArc};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Form, Full, Sensors};

/// Contents of a cached object: the types of its store and its caches.
pub(crate) trait Body: Sized + Send + Sync + 'static {
    type Interface: ?Sized + InterfaceOf<Local<Self>>;
    type Store: Send + Sync + 'static;
    type Cache: Send + Sync + 'static;

    /// Creates an empty cache with at most `most` entries, for the cluster with number `place`.
    fn cache(store: &Self::Store, place: usize, most: usize) -> Self::Cache;
    /// Returns the store in the shape that an object of this form needs.
    fn refit(store: &Arc<Self::Store>, form: &Form) -> Arc<Self::Store>;
    /// Reads the store's sensors.
    fn read(store: &Self::Store) -> Sensors;
    /// Adds the readings of a cache's sensors.
    fn add(cache: &Self::Cache, sensors: &mut Sensors);
    /// Copies at most `most` entries from a removed cache into one that changes find (I3).
    fn hand_on(guard: &Guard, from: &Self::Cache, to: &Self::Cache, most: usize);
}

/// Number of entries that a new cache takes over at once. A lookup waits for that.
const HANDED: usize = 256;
/// Maximum factor by which the lookups needed for a cache grow.
const PATIENCE: u32 = 1024;

/// Root.
pub(crate) struct Distributed<B: Body> {
    form: Form,
    /// VP at home: the cache of its cluster serves thin representatives.
    home: Vp,
    /// Empty until a swap has moved the state in.
    store: OnceLock<Arc<B::Store>>,
    /// Lock of I6.
    moves: Lock<Moves>,
}

#[derive(Default)]
struct Moves {
    /// Number of watches begun.
    watches: u64,
    /// Number of full representatives made thin.
    thinned: u64,
    /// Sum of the `asked` counts of removed caches.
    asked: u64,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(crate) struct Local<B: Body> {
    store: RcuArc<B::Store>,
    /// Present in a full representative.
    cache: Rcu<Option<B::Cache>>,
    /// Set by a lookup, cleared by a watch. A hint, so accesses are relaxed.
    used: AtomicBool,
    /// Number of lookups since the representative became thin.
    lookups: AtomicU32,
    /// Number of lookups after which it becomes full. This field and the next ones change under the root's
    /// lock.
    limit: AtomicU32,
    /// Number of the watch that began at half the limit.
    watch: AtomicU64,
    /// Last watch in which this full representative was seen in use.
    used_in: AtomicU64,
    at: RepContext<Distributed<B>>,
}

/// State that a swap moves.
struct Moved<S>(Arc<S>);

impl<S: Send + Sync + 'static> Format for Moved<S> {}

/// Access to the caches, for changes.
pub(crate) trait Reach<C> {
    /// Calls `act` with the caches at these places, neighbours one after the other.
    fn each(&self, places: Places, act: &mut dyn FnMut(&C));
}

impl<B: Body> Distributed<B> {
    /// Creates a root with this store, or an empty one for a swap to fill.
    pub(crate) fn new(form: Form, store: Option<B::Store>) -> Distributed<B> {
        let home = match &form.full {
            Full::On(vps) => vps.first().copied(),
            _ => None,
        };
        let store = store.map_or_else(OnceLock::new, |store| OnceLock::from(Arc::new(store)));
        Distributed { form, home: home.unwrap_or_else(Vp::current), store, moves: Lock::default() }
    }

    /// Returns a replacement for a hot-swap.
    pub(crate) fn to_come(form: Form) -> Replacement<B::Interface> {
        let size = form.size;
        Replacement::root(Distributed::<B>::new(form, None), size)
    }

    fn is_full_from_the_start(&self, at: &RepContext<Distributed<B>>) -> bool {
        let is_here = |vp: &Vp| at.clusters().get(*vp) == Some(at.cluster());
        match &self.form.full {
            Full::Nowhere => false,
            Full::Everywhere | Full::After(0) => true,
            Full::On(vps) => vps.iter().any(is_here),
            Full::After(_) => is_here(&self.home),
        }
    }
}

impl<B: Body> Root for Distributed<B> {
    type Interface = B::Interface;
    type Rep = Local<B>;

    fn make_rep(&self, at: RepContext<Self>) -> Local<B> {
        let store =
            self.store.get().expect("a representative was made before the state had moved in").clone();
        let limit = match self.form.full {
            Full::After(limit) => limit,
            _ => 0,
        };
        let is_full = self.is_full_from_the_start(&at);
        let cache = is_full.then(|| B::cache(&store, at.cluster().index(), self.form.most));
        Local {
            store: store.into(),
            cache: Rcu::new(Box::new(cache)),
            used: AtomicBool::new(true),
            lookups: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
            watch: AtomicU64::new(0),
            used_in: AtomicU64::new(0),
            at,
        }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.store.get().is_none() {
            return miss.refuse("nothing moved in; repeat the swap with its state");
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let store = whole.root().store.get();
                let store = store.ok_or("the object has no entries: no swap moved its state in")?;
                Ok(Moved(store.clone()))
            })
            .import(|whole, state: Moved<B::Store>| {
                let root = whole.root();
                let store = B::refit(&state.0, &root.form);
                root.store
                    .set(store)
                    .map_err(|_| "the replacement already has entries; make a new one for each swap".into())
            });
    }
}

impl<B: Body> Local<B> {
    /// Returns the store, valid for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_store<'o>(&self, guard: &'o Guard) -> &'o B::Store {
        self.store.lend(guard)
    }

    /// Returns the cache that serves lookups from this representative, if any, for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_cache<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        match self.cache.load(guard) {
            Some(cache) => {
                // Relaxed, as all accesses to this flag: a hint.
                if !self.used.load(Ordering::Relaxed) {
                    self.note_use();
                }
                Some(cache)
            }
            None => self.redirect(guard),
        }
    }

    #[cold]
    fn note_use(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn redirect<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        let root = self.at.root();
        match root.form.full {
            Full::Nowhere => return None,
            Full::After(_) => {
                // Relaxed: a count. It exceeds the limit only by concurrent lookups.
                let (before, limit) =
                    (self.lookups.fetch_add(1, Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
                if before == limit / 2 {
                    self.begin_watch(before);
                } else if before >= limit
                    && let Some(cache) = self.become_full(guard)
                {
                    return Some(cache);
                }
            }
            Full::Everywhere | Full::On(_) => {}
        }
        self.at.find(root.home)?.cache.load(guard).as_ref()
    }

    /// Starts a watch, at half the limit. From now on it is recorded which other caches are used.
    fn begin_watch(&self, before: u32) {
        let Some(mut moves) = self.at.root().moves.try_lock() else {
            // Another thread has the lock, so the next lookup tries again. If other lookups were counted
            // meanwhile, or the count was reset, there is no further try.
            let _ = self.lookups.compare_exchange(before + 1, before, Ordering::Relaxed, Ordering::Relaxed);
            return;
        };
        for rep in self.at.reps() {
            if rep.used.load(Ordering::Relaxed) {
                rep.used.store(false, Ordering::Relaxed);
                rep.used_in.store(moves.watches, Ordering::Relaxed);
            }
        }
        moves.watches += 1;
        self.watch.store(moves.watches, Ordering::Relaxed);
    }

    /// Makes this representative full, and those thin that were unused during its watch. Gives up if another
    /// thread has the lock.
    fn become_full<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        let new = B::cache(&self.store, self.at.cluster().index(), self.form().most);
        let root = self.at.root();
        let home = self.at.clusters().get(root.home);
        let mut left = Vec::new();
        {
            let mut moves = root.moves.try_lock()?;
            if let Some(cache) = self.cache.load(guard) {
                return Some(cache);
            }
            let watch = self.watch.load(Ordering::Relaxed);
            for rep in self.at.reps().filter(|rep| Some(rep.at.cluster()) != home) {
                if let Some(cache) = rep.cache.load(guard)
                    && !rep.used.load(Ordering::Relaxed)
                    && rep.used_in.load(Ordering::Relaxed) < watch
                {
                    rep.become_thin(&mut moves, cache);
                    left.push(cache);
                }
            }
            self.used.store(true, Ordering::Relaxed);
            self.cache.replace(Box::new(Some(new)));
        }
        // Another thread may have removed the new cache by now.
        let cache = self.cache.load(guard).as_ref()?;
        // If several caches are removed, each gives a part.
        left.iter().for_each(|from| B::hand_on(guard, from, cache, HANDED / left.len()));
        Some(cache)
    }

    /// Removes the cache.
    fn become_thin(&self, moves: &mut Moves, cache: &B::Cache) {
        let mut sensors = Sensors::default();
        B::add(cache, &mut sensors);
        moves.asked += sensors.asked;
        moves.thinned += 1;
        if let Full::After(limit) = self.form().full {
            let next = self.limit.load(Ordering::Relaxed).saturating_mul(2);
            self.limit.store(next.min(limit.saturating_mul(PATIENCE)), Ordering::Relaxed);
        }
        // Before the cache is removed, since a lookup without a cache starts to count.
        self.lookups.store(0, Ordering::Relaxed);
        self.cache.replace(Box::new(None));
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &B::Store {
        &self.store
    }

    /// Returns the cache of this cluster, if it is full, for the rest of the operation.
    pub(crate) fn own_cache<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        self.cache.load(guard).as_ref()
    }

    pub(crate) fn form(&self) -> &Form {
        &self.at.root().form
    }

    pub(crate) fn read_sensors(&self) -> Sensors {
        let mut sensors = B::read(&self.store);
        pin(|guard| {
            // Under the lock, so that a cache removed meanwhile is counted once.
            let moves = self.at.root().moves.lock();
            for rep in self.at.reps() {
                sensors.reps += 1;
                if let Some(cache) = rep.own_cache(guard) {
                    sensors.full += 1;
                    B::add(cache, &mut sensors);
                }
            }
            sensors.asked += moves.asked;
            sensors.thinned = moves.thinned;
        });
        sensors
    }
}

impl<B: Body> Reach<B::Cache> for Local<B> {
    fn each(&self, places: Places, act: &mut dyn FnMut(&B::Cache)) {
        for place in places.below(self.at.clusters().len()) {
            let rep = self.at.of_cluster(Cluster::new(place as u32));
            pin(|guard| {
                if let Some(cache) = rep.and_then(|rep| rep.own_cache(guard)) {
                    act(cache);
                }
            });
        }
    }
}
