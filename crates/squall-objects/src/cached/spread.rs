//! Roots and representatives of cached objects: what lists and maps have in common.
//!
//! The root has the one place, the *store*, and moves it, shared, in a hot-swap. A representative is *full* if it has a *cache*, in which it
//! keeps what it looks up; a thin one looks into the cache of the home's cluster, and into the store where there is none.
//!
//! - I1. What writes does so within a call of the object, so that a swap waits for it, or holds it up, before the store moves.
//! - I2. What was lent by a call to an operation, is used for one lookup, which began before that call. If the object is swapped meanwhile,
//!   its cache tells what there was at the swap, or later; both are within the lookup.
//! - I3. Representatives are made, and become full, without regard to changes under way: it is on who puts something into a cache to make
//!   sure that changes find it there (`lines`, `items`).

use squall_core::swap::{Format, New, RootFormats};
use squall_core::{At, InterfaceOf, Miss, Reply, Root};
use squall_machine::{Cluster, Vp};
use squall_rcu::{Op, RcuArc};
use squall_replica::Places;
use std::sync::atomic::{AtomicU32, Ordering};
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
}

/// The root.
pub(crate) struct Spread<B: Body> {
    form: Form,
    /// In whose cluster thin representatives look.
    home: Vp,
    /// Empty in an object that a swap has to move the state into.
    store: OnceLock<Arc<B::Store>>,
}

/// A representative, on lines of its own: neighbours in memory belong to other processors.
#[repr(align(128))]
pub(crate) struct Local<B: Body> {
    store: RcuArc<B::Store>,
    /// Of a full one.
    cache: OnceLock<RcuArc<B::Cache>>,
    /// Lookups while it was thin.
    lookups: AtomicU32,
    at: At<Spread<B>>,
}

/// The state.
struct Moved<S>(Arc<S>);

impl<S: Send + Sync + 'static> Format for Moved<S> {}

/// Reaches caches, for changes.
pub(crate) trait Reach<C> {
    /// Calls `act` with the caches of these places: neighbours one after the other.
    fn each(&self, places: Places, act: &mut dyn FnMut(&C));
}

impl<B: Body> Spread<B> {
    /// A root with this store, or one to move it into.
    pub(crate) fn new(form: Form, store: Option<B::Store>) -> Spread<B> {
        let home = match &form.full {
            Full::On(vps) => vps.first().copied(),
            _ => None,
        };
        let store = store.map_or_else(OnceLock::new, |store| OnceLock::from(Arc::new(store)));
        Spread { form, home: home.unwrap_or_else(Vp::current), store }
    }

    /// An object that is to take the place of another one.
    pub(crate) fn to_come(form: Form) -> New<B::Interface> {
        let size = form.size;
        New::root(Spread::<B>::new(form, None), size)
    }

    fn is_full_from_the_start(&self, at: &At<Spread<B>>) -> bool {
        let is_here = |vp: &Vp| at.clusters().get(*vp) == Some(at.cluster());
        match &self.form.full {
            Full::Nowhere => false,
            Full::Everywhere | Full::After(0) => true,
            Full::On(vps) => vps.iter().any(is_here),
            Full::After(_) => is_here(&self.home),
        }
    }
}

impl<B: Body> Root for Spread<B> {
    type Interface = B::Interface;
    type Rep = Local<B>;

    fn make_rep(&self, at: At<Self>) -> Local<B> {
        let store = self.store.get().expect("a miss is refused while nothing moved in").clone();
        let local = Local { store: store.into(), cache: OnceLock::new(), lookups: AtomicU32::new(0), at };
        if self.is_full_from_the_start(&local.at) {
            local.fill();
        }
        local
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> Reply<'a, Self> {
        if self.store.get().is_none() {
            return miss.refuse("nothing moved in");
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let store = whole.root().store.get().ok_or("a state that was never moved in")?;
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
    /// Makes it full.
    fn fill(&self) -> &RcuArc<B::Cache> {
        let most = self.form().most;
        self.cache.get_or_init(|| RcuArc::new(B::cache(&self.store, self.at.cluster().index(), most)))
    }

    /// The store, for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_store<'o>(&self, op: &'o Op) -> &'o B::Store {
        self.store.lend(op)
    }

    /// The cache in which lookups from here are made, if there is one, for the rest of the operation.
    #[inline(always)]
    pub(crate) fn lend_cache<'o>(&self, op: &'o Op) -> Option<&'o B::Cache> {
        match self.cache.get() {
            Some(cache) => Some(cache.lend(op)),
            None => self.redirect(op),
        }
    }

    #[cold]
    fn redirect<'o>(&self, op: &'o Op) -> Option<&'o B::Cache> {
        let root = self.at.root();
        match root.form.full {
            Full::Nowhere => return None,
            Full::After(limit) => {
                // Relaxed: a count. It goes no further than the limit, but for those who come at once.
                if self.lookups.fetch_add(1, Ordering::Relaxed) >= limit {
                    return Some(self.fill().lend(op));
                }
            }
            Full::Everywhere | Full::On(_) => {}
        }
        let home = self.at.find(root.home)?;
        home.cache.get().map(|cache| cache.lend(op))
    }

    /// The store.
    pub(crate) fn store(&self) -> &B::Store {
        &self.store
    }

    /// The cache of this cluster, if it is full.
    pub(crate) fn own_cache(&self) -> Option<&B::Cache> {
        self.cache.get().map(|cache| &**cache)
    }

    pub(crate) fn form(&self) -> &Form {
        &self.at.root().form
    }

    pub(crate) fn read_sensors(&self) -> Sensors {
        let mut sensors = B::read(&self.store);
        for rep in self.at.reps() {
            sensors.reps += 1;
            if let Some(cache) = rep.own_cache() {
                sensors.full += 1;
                B::add(cache, &mut sensors);
            }
        }
        sensors
    }
}

impl<B: Body> Reach<B::Cache> for Local<B> {
    fn each(&self, places: Places, act: &mut dyn FnMut(&B::Cache)) {
        for place in places.below(self.at.clusters().len()) {
            let rep = self.at.of_cluster(Cluster::new(place as u32));
            if let Some(cache) = rep.and_then(Local::own_cache) {
                act(cache);
            }
        }
    }
}
