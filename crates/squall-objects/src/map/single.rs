//! Objects of the forms with one structure: the root and the representatives.
//!
//! Each representative holds the structure itself, so that a call finds it there. The root gets it from a
//! swap that moves the entries in.

use squall_adapt::engine;
use squall_adapt::family::is_reading;
use squall_adapt::sensor::Sensor;
use squall_core::swap::{Replacement, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, ClusterSize, machine};
use squall_rcu::{Guard, RcuArc};
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::format::{EntriesFormat, has_entries, no_entries};
use super::sensor::{SAMPLE, is_sampled};
use super::store::Store;
use super::structure::{Kind, Structure, counts_readers};
use super::view::MapView;
use super::{Map, Sensors};

/// The root of a map with one structure. `ADAPTS`: its sensors post to the policy.
pub(super) struct Single<K, V, S, F, const ADAPTS: bool>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    store: OnceLock<Arc<F>>,
    with: F::Params,
    types: PhantomData<fn(K, V, S)>,
}

/// A representative of a map with one structure, on cache lines of its own.
#[repr(align(128))]
pub(super) struct SingleRep<K, V, S, F, const ADAPTS: bool>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    store: RcuArc<F::Local>,
    /// Present in adaptive forms. A separate allocation, away from the words that every call reads.
    sensor: Option<Arc<Sensor>>,
    /// Whether the sensor, which is each processor's own, also counts reads of a table.
    counts_readers: bool,
    at: RepContext<Single<K, V, S, F, ADAPTS>>,
}

impl<K, V, S, F, const ADAPTS: bool> Single<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    pub(super) const SIZE: ClusterSize = if ADAPTS { F::SENSOR_CLUSTERS } else { ClusterSize::Machine };

    pub(super) fn new(store: F, with: F::Params) -> Self {
        Single { store: OnceLock::from(Arc::new(store)), ..Single::vacant(with) }
    }

    /// Returns an implementation that gets its entries from a swap.
    pub(super) fn replacement(with: F::Params) -> Replacement<dyn Map<K, V, S>> {
        Replacement::root(Self::vacant(with), Self::SIZE)
    }

    fn vacant(with: F::Params) -> Self {
        Single { store: OnceLock::new(), with, types: PhantomData }
    }
}

impl<K, V, S, F, const ADAPTS: bool> Root for Single<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = SingleRep<K, V, S, F, ADAPTS>;
    /// A representative has only a sensor and a link to the entries.
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn view(rep: &Self::Rep) -> MapView<'_, K, V, S> {
        MapView::new(F::view(&rep.store, rep.sensor.as_deref()))
    }

    fn class_name() -> &'static str {
        F::class_name(ADAPTS)
    }

    fn make_rep(&self, at: RepContext<Self>) -> Self::Rep {
        let store = self.store.get().expect("a representative was made before the entries had moved in");
        let counts_readers = F::SENSOR_CLUSTERS == ClusterSize::Cpu && counts_readers(ADAPTS);
        let local = F::local(store);
        F::set_id(&local, Handle::id(at.handle()));
        let sensor = ADAPTS.then(|| Arc::new(Sensor::new()));
        SingleRep { store: local.into(), sensor, counts_readers, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.store.get().is_none() {
            return miss.refuse("no entries moved in; repeat the swap with its state");
        }
        // A policy that reads sensors gets any representative. No representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match (ADAPTS && is_reading()).then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let store = whole.root().store.get().ok_or_else(no_entries)?;
                Ok(EntriesFormat(F::to_table(store)))
            })
            .import(|whole, state: EntriesFormat<K, V, S>| {
                let root = whole.root();
                let store = F::of_table(state.0, root.with);
                root.store.set(store).map_err(|_| has_entries())
            });
    }
}

/// Posts the map to the policy.
fn post<K, V, S>(handle: Handle<dyn Map<K, V, S>>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    engine::post(Handle::id(handle))
}

impl<K, V, S, F, const ADAPTS: bool> SingleRep<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    #[inline]
    fn record(&self, calls: u32) {
        if let Some(sensor) = &self.sensor {
            sensor.note_calls(calls, || post(self.at.handle()));
        }
    }

    /// Samples a call if the sensor is shared by threads that need not wait for each other otherwise.
    #[inline]
    fn record_sampled(&self) {
        if is_sampled() {
            self.record(SAMPLE);
        }
    }
}

impl<K, V, S, F, const ADAPTS: bool> Map<K, V, S> for SingleRep<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Structure<K, V, S>,
{
    #[inline]
    fn read<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        let local = self.store.lend(guard);
        if ADAPTS {
            match F::kind(local) {
                // An owner is not counted. Losing the lock triggers the policy.
                Kind::Locked { needs_no_record } if needs_no_record => {}
                Kind::Locked { .. } => self.record(1),
                // Sampled for reads too, so that the policy gives the map a form of its own.
                Kind::SpilledTable => self.record_sampled(),
                Kind::Table if self.counts_readers => self.record_sampled(),
                // A reader writes no shared memory.
                Kind::Table | Kind::Copies => {}
            }
        }
        Store(F::storage(local))
    }

    #[inline]
    fn write<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        let local = self.store.lend(guard);
        if ADAPTS {
            match F::kind(local) {
                Kind::Locked { needs_no_record } if needs_no_record => {}
                Kind::Locked { .. } | Kind::Table => self.record(1),
                Kind::SpilledTable | Kind::Copies => self.record_sampled(),
            }
        }
        Store(F::storage(local))
    }

    #[cold]
    fn note_writes(&self) {
        self.record(SAMPLE);
    }

    /// If the policy misses this post or makes no change, the sensor posts again.
    #[cold]
    fn note_spill(&self) {
        if ADAPTS {
            post(self.at.handle());
        }
    }

    fn sensors(&self) -> Sensors {
        let spilled = F::kind(&self.store) == Kind::SpilledTable;
        let can_be_owned = F::can_be_owned(&self.store);
        let entries = F::storage(&self.store).len();
        let mut sensors = Sensors { entries, spilled, can_be_owned, ..Sensors::default() };
        for rep in self.at.reps() {
            sensors.reps += 1;
            sensors.copies += F::copies(&rep.store);
            if let Some(sensor) = &rep.sensor {
                let counts = sensor.reading();
                sensors.here = sensors.here.wrapping_add(counts.local);
                sensors.elsewhere = sensors.elsewhere.wrapping_add(counts.foreign);
            }
        }
        sensors
    }

    fn arm(&self, after: u32) {
        let sensors = self.at.reps().filter_map(|rep| rep.sensor.as_ref());
        sensors.for_each(|sensor| sensor.arm(after));
    }
}
