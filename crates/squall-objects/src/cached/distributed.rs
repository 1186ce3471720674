//! Roots and representatives of cached objects: what lists and maps have in common.
//!
//! The root has the one place, the *store*, and moves it, shared, in a hot-swap. A representative is *full* if it has a *cache*, in which it
//! keeps what it looks up; a thin one looks into the cache of the home's cluster, and into the store where there is none.
//!
//! In the form `Full::After(n)` a representative goes where its threads go. Half way of the n lookups after which a thin one becomes full, a
//! *watch* begins; when it becomes full, each other one that nobody looked into during that watch becomes thin: its cache is taken away, and what
//! was in it is handed on to the new one. That of the home stays. So n is also what the others are measured by: one whose threads make no
//! lookup while another one's make n/2, is taken for left. That is wrong now and then, of threads that sleep; so that it does not go on and on, one
//! that was made thin needs twice as many lookups the next time. Who only passes, with less than n/2 lookups, begins nothing.
//!
//! - I1. What writes does so within a call of the object, so that a swap waits for it, or holds it up, before the store moves.
//! - I2. What was lent by a call to an operation, is used for one lookup, which began before that call. If the object is swapped meanwhile,
//!   its cache tells what there was at the swap, or later; both are within the lookup.
//! - I3. Representatives are made, become full and become thin without regard to changes under way. It is on who puts something into a cache to make
//!   sure that changes find it there (`lines`, `items`); a cache has its place, where a change finds it, before anything is put into it, what
//!   is handed on included.
//! - I4. A cache that was taken away is found by nobody any more but by who was lent it before, for one lookup that was under way then (I2); it
//!   is dropped after their operations. Changes reach it up to that moment, and perhaps not after it. So what such a lookup finds in it was
//!   true at that moment or later, whoever put it there meanwhile, and is of that lookup's time.
//! - I5. A place that becomes full again has a new cache, empty at first. A change that saw no cache there, or the old one, has nothing to
//!   do in the new one: of what it changes nothing gets in before it is done, but what is taken out again (`raw/I1`, `places/I2`). What a
//!   directory says of a place that has become thin is more than is so, and costs a look in vain.
//! - I6. Whether a representative is full, and what is known of who is used, changes under the root's lock alone. Lookups try that lock, and go on
//!   without it. No code of the user's runs under it.
//!
//! A swap moves the store, not the caches; what becomes thin meanwhile is the old object's, and goes with it or before it (I4).
//!
//! Cost of a hit: a load of whether it was noted since it was last asked that this one is used, and a store if not. Of a watch: a walk over the
//! representatives when it begins, and one when it ends. Not promised: that one which was left becomes thin if no other becomes full
//! after that, or if threads came back to it in the midst of the other's watch: then it stays until the next one becomes full.
//! Source: TO-05 (Tornado, §3.2, Fig. 5: "when threads migrate, their Rep migrates too"). There the system that moves the thread says so; here
//! lookups tell.

use squall_core::swap::{Format, Replacement, RootFormats};
use squall_core::{RepContext, InterfaceOf, Miss, MissAnswer, Root};
use squall_lock::Lock;
use squall_machine::{Cluster, Vp};
use squall_rcu::{Guard, Rcu, RcuArc, pin};
use squall_parts::replica::Places;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Form, Full, Sensors};

/// What is cached.
pub(crate) trait Body: Sized + Send + Sync + 'static {
    type Interface: ?Sized + InterfaceOf<Local<Self>>;
    type Store: Send + Sync + 'static;
    type Cache: Send + Sync + 'static;

    /// An empty cache, of the cluster of this number, that keeps so many at most.
    fn cache(store: &Self::Store, place: usize, most: usize) -> Self::Cache;
    /// The store as an object of this form has it.
    fn refit(store: &Arc<Self::Store>, form: &Form) -> Arc<Self::Store>;
    /// What the store's sensors read.
    fn read(store: &Self::Store) -> Sensors;
    /// Adds what a cache's sensors read.
    fn add(cache: &Self::Cache, sensors: &mut Sensors);
    /// Hands on what is in a cache that was taken away, so much at most, to one that changes find (I3).
    fn hand_on(guard: &Guard, from: &Self::Cache, to: &Self::Cache, most: usize);
}

/// Entries that one that becomes full is handed at once: a lookup waits for it.
const HANDED: usize = 256;
/// How many times one that is made thin needs more lookups the next time, in all.
const PATIENCE: u32 = 1024;

/// The root.
pub(crate) struct Distributed<B: Body> {
    form: Form,
    /// In whose cluster thin representatives look.
    home: Vp,
    /// Empty in an object that a swap has to move the state into.
    store: OnceLock<Arc<B::Store>>,
    /// I6.
    moves: Lock<Moves>,
}

#[derive(Default)]
struct Moves {
    /// How many watches have begun.
    watches: u64,
    /// Full ones that were made thin.
    thinned: u64,
    /// What their caches had asked.
    asked: u64,
}

/// A representative, on lines of its own: neighbours in memory belong to other processors.
#[repr(align(128))]
pub(crate) struct Local<B: Body> {
    store: RcuArc<B::Store>,
    /// Of a full one.
    cache: Rcu<Option<B::Cache>>,
    /// It was looked into since that was last asked. A hint: relaxed.
    used: AtomicBool,
    /// Lookups since it is thin.
    lookups: AtomicU32,
    /// How many of them there are to be before it becomes full. Changes under the root's lock, as what follows.
    limit: AtomicU32,
    /// The watch that began half way of them.
    watch: AtomicU64,
    /// The last watch in which a full one was used, as far as that was asked.
    used_in: AtomicU64,
    at: RepContext<Distributed<B>>,
}

/// The state.
struct Moved<S>(Arc<S>);

impl<S: Send + Sync + 'static> Format for Moved<S> {}

/// Reaches caches, for changes.
pub(crate) trait Reach<C> {
    /// Calls `act` with the caches of these places: neighbours one after the other.
    fn each(&self, places: Places, act: &mut dyn FnMut(&C));
}

impl<B: Body> Distributed<B> {
    /// A root with this store, or one to move it into.
    pub(crate) fn new(form: Form, store: Option<B::Store>) -> Distributed<B> {
        let home = match &form.full {
            Full::On(vps) => vps.first().copied(),
            _ => None,
        };
        let store = store.map_or_else(OnceLock::new, |store| OnceLock::from(Arc::new(store)));
        Distributed { form, home: home.unwrap_or_else(Vp::current), store, moves: Lock::default() }
    }

    /// An object that is to take the place of another one.
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
        let store = self.store.get().expect("misses are refused until the state has moved in").clone();
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
                let store = whole.root().store.get().ok_or("the old object has no state")?;
                Ok(Moved(store.clone()))
            })
            .import(|whole, state: Moved<B::Store>| {
                let root = whole.root();
                let store = B::refit(&state.0, &root.form);
                root.store.set(store).map_err(|_| "the new object has a state already".into())
            });
    }
}

impl<B: Body> Local<B> {
    /// The store, for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_store<'o>(&self, guard: &'o Guard) -> &'o B::Store {
        self.store.lend(guard)
    }

    /// The cache in which lookups from here are made, if there is one, for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_cache<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        match self.cache.load(guard) {
            Some(cache) => {
                // Relaxed, here and wherever it is asked: a hint.
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
                // Relaxed: a count. It goes no further than the limit, but for those who come at once.
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

    /// Half way to its being full: from now on it is noted which others are used.
    fn begin_watch(&self, before: u32) {
        let Some(mut moves) = self.at.root().moves.try_lock() else {
            // Somebody else is at it: with the next lookup, then; if others were counted meanwhile, or it is counted from none again, not at all.
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

    /// Makes it full, and those thin that were not used in its watch; unless somebody else is at it.
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
        // It may have been taken away again by now.
        let cache = self.cache.load(guard).as_ref()?;
        // Who was left by several is handed a part by each.
        left.iter().for_each(|from| B::hand_on(guard, from, cache, HANDED / left.len()));
        Some(cache)
    }

    /// Takes its cache away.
    fn become_thin(&self, moves: &mut Moves, cache: &B::Cache) {
        let mut sensors = Sensors::default();
        B::add(cache, &mut sensors);
        moves.asked += sensors.asked;
        moves.thinned += 1;
        if let Full::After(limit) = self.form().full {
            let next = self.limit.load(Ordering::Relaxed).saturating_mul(2);
            self.limit.store(next.min(limit.saturating_mul(PATIENCE)), Ordering::Relaxed);
        }
        // Before the cache goes: who finds none begins to count.
        self.lookups.store(0, Ordering::Relaxed);
        self.cache.replace(Box::new(None));
    }

    /// The store.
    pub(crate) fn store(&self) -> &B::Store {
        &self.store
    }

    /// The cache of this cluster, if it is full, for the rest of the operation.
    pub(crate) fn own_cache<'o>(&self, guard: &'o Guard) -> Option<&'o B::Cache> {
        self.cache.load(guard).as_ref()
    }

    pub(crate) fn form(&self) -> &Form {
        &self.at.root().form
    }

    pub(crate) fn read_sensors(&self) -> Sensors {
        let mut sensors = B::read(&self.store);
        pin(|guard| {
            // So that what goes meanwhile is counted once.
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
