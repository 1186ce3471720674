//! Implementation of both forms: the master table in the root, and a local table in each representative. The
//! forms differ in the cluster size.
//!
//! - I1. A local table lives as long as the entries, so that no part is lost unless its key is. Each
//!   representative has a table that no other representative of its object has. Before it makes a new one, it
//!   takes a spare table: one from an object before a swap, or from a representative that lost a race. So
//!   there are at most as many tables as one object has ever had representatives.
//! - I2. During a swap, representatives of both objects may have the same table. That is sound, since a table
//!   is `Sync`. The assignment of tables only decides which callers share one.

use squall_core::swap::{Format, RootFormats};
use squall_core::{Miss, MissAnswer, RepContext, Root};
use squall_machine::ClusterSize;
use squall_parts::dhash::{LocalTable, MasterTable};
use squall_rcu::{Guard, RcuArc};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Act, Directory, Sensors, Tables};

/// List of local tables.
type Locals<K, G, L, S> = Mutex<Vec<Arc<LocalTable<K, G, L, S>>>>;

/// State that a hot-swap moves: the master table, and all local tables (I1).
struct Whole<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    master: MasterTable<K, G, L, S>,
    locals: Locals<K, G, L, S>,
}

/// Root.
pub(super) struct Distributed<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Empty until a swap has moved the state in.
    whole: OnceLock<Arc<Whole<K, G, L, S>>>,
    /// Tables that no representative of this object has.
    spare: Locals<K, G, L, S>,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Holder<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    here: RcuArc<LocalTable<K, G, L, S>>,
    whole: RcuArc<Whole<K, G, L, S>>,
    at: RepContext<Distributed<K, G, L, S>>,
}

/// State that a swap moves.
struct Moved<T>(Arc<T>);

impl<T: Send + Sync + 'static> Format for Moved<T> {}

/// Locks a mutex and ignores poison: no code that panics runs under these mutexes.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the reservations of the directory: its callers that wait outside a call go on, and their next call
/// fails.
impl<K, G, L, S> Drop for Whole<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.master.revoke_all();
    }
}

impl<K, G, L, S> Distributed<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pub(super) fn of(master: MasterTable<K, G, L, S>) -> Distributed<K, G, L, S> {
        let whole = OnceLock::from(Arc::new(Whole { master, locals: Mutex::default() }));
        Distributed { whole, ..Distributed::vacant() }
    }

    pub(super) fn vacant() -> Distributed<K, G, L, S> {
        Distributed { whole: OnceLock::new(), spare: Mutex::default() }
    }
}

impl<K, G, L, S> Drop for Holder<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        locked(&self.at.root().spare).push(self.here.to_arc());
    }
}

impl<K, G, L, S> Root for Distributed<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Interface = dyn Directory<K, G, L, S>;
    type Rep = Holder<K, G, L, S>;

    fn make_rep(&self, at: RepContext<Self>) -> Holder<K, G, L, S> {
        let whole = self.whole.get().expect("a representative was made before the entries had moved in");
        let spare = locked(&self.spare).pop();
        let here = spare.unwrap_or_else(|| {
            let new = Arc::new(whole.master.local());
            locked(&whole.locals).push(new.clone());
            new
        });
        Holder { here: here.into(), whole: whole.clone().into(), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.whole.get().is_none() {
            return miss.refuse("no entries moved in; repeat the swap with its state");
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|object| {
                let whole = object.root().whole.get();
                let whole = whole.ok_or("the directory has no entries: no swap moved its state in")?;
                Ok(Moved(whole.clone()))
            })
            .import(|object, state: Moved<Whole<K, G, L, S>>| {
                let root = object.root();
                let locals = locked(&state.0.locals).clone();
                root.whole
                    .set(state.0)
                    .map_err(|_| "the replacement already has entries; make a new one for each swap")?;
                // Reversed, so that `pop` takes the first table first.
                locked(&root.spare).extend(locals.into_iter().rev());
                Ok(())
            });
    }
}

impl<K, G, L, S> Directory<K, G, L, S> for Holder<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[inline]
    fn look<'o>(&self, guard: &'o Guard, found: &mut Option<Tables<'o, K, G, L, S>>) {
        *found = Some(Tables { here: self.here.lend(guard), master: &self.whole.lend(guard).master });
    }

    fn with(&self, act: &mut Act<'_, K, G, L, S>) {
        act(Tables { here: &self.here, master: &self.whole.master });
    }

    fn cluster_size(&self) -> ClusterSize {
        self.at.clusters().size()
    }

    fn sensors(&self) -> Sensors {
        let parts = locked(&self.whole.locals).iter().map(|local| local.len()).sum();
        Sensors { keys: self.whole.master.len(), reps: self.at.reps().count(), parts }
    }
}
