//! The partitioned form as an object: a fixed number of tables, held by the first representatives. The
//! other representatives have pointers to all tables.
//!
//! Problem: if threads insert separate groups of keys into one table, they all share its counts and its
//! growth. Copies of the entries per processor would never be read again. Idea: the program says which keys
//! belong together. Each such part has a table of its own, so a thread that stays in its part shares no
//! memory with others.
//!
//! Source: CO-64 (K42's `FCMPartitioned`). There, m tables are held by the first m representatives. A key's
//! table has the index `(key >> shift) % m`, and m is fixed when the object is made. Here, any function
//! maps a key to a part, and a part's table is made at its first insertion. With fewer clusters than parts
//! a representative holds several.

use squall_core::swap::{Replacement, RootFormats};
use squall_core::{Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, ClusterSize, machine};
use squall_rcu::{Guard, RcuArc};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::format::{EntriesFormat, has_entries, no_entries};
use super::parts::{Home, Part, Parts};
use super::storage::Storage;
use super::store::Store;
use super::{Map, Resized, Sensors};

/// The root of a partitioned map.
pub(super) struct Partitioned<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    count: usize,
    home: Home,
    size: ClusterSize,
    cloners: Cloners<K, V, S>,
    /// Empty until the entries have moved in.
    parts: OnceLock<Arc<Parts<K, V, S>>>,
}

/// A representative of a partitioned map, on cache lines of its own.
#[repr(align(128))]
pub(super) struct PartitionedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// All parts.
    parts: RcuArc<Parts<K, V, S>>,
    /// Parts that this representative holds, if it is one of the first.
    held: Box<[Arc<Part<K, V, S>>]>,
    at: RepContext<Partitioned<K, V, S>>,
}

impl<K, V, S> Partitioned<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn vacant(count: usize, home: Home, size: ClusterSize, cloners: Cloners<K, V, S>) -> Self {
        assert!(count > 0, "a partitioned map with zero parts was requested");
        Partitioned { count, home, size, cloners, parts: OnceLock::new() }
    }

    pub(super) fn new(
        count: usize,
        home: Home,
        size: ClusterSize,
        hasher: S,
        cloners: Cloners<K, V, S>,
    ) -> Self {
        let root = Self::vacant(count, home.clone(), size, cloners);
        let parts = Parts::new(count, home, hasher, cloners);
        Partitioned { parts: OnceLock::from(Arc::new(parts)), ..root }
    }

    pub(super) fn replacement(
        count: usize,
        home: Home,
        size: ClusterSize,
        cloners: Cloners<K, V, S>,
    ) -> Replacement<dyn Map<K, V, S>> {
        Replacement::root(Self::vacant(count, home, size, cloners), size)
    }

    /// Returns the clusters of the representatives that hold parts: the first ones, at most one per part.
    fn holders(&self) -> impl Iterator<Item = Cluster> {
        machine().clusters(self.size).iter().take(self.count)
    }
}

impl<K, V, S> Root for Partitioned<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = PartitionedRep<K, V, S>;

    fn class_name() -> &'static str {
        std::any::type_name::<super::classes::Partitioned<K, V>>()
    }

    fn make_rep(&self, at: RepContext<Self>) -> PartitionedRep<K, V, S> {
        let parts =
            self.parts.get().expect("a representative was made before the entries had moved in").clone();
        let holders = self.holders().count();
        let first = self.holders().position(|cluster| cluster == at.cluster());
        let mine = first.into_iter().flat_map(|first| (first..self.count).step_by(holders));
        let held = mine.map(|index| parts.part(index).clone()).collect();
        PartitionedRep { parts: parts.into(), held, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.parts.get().is_none() {
            return miss.refuse("no entries moved in; repeat the swap with its state");
        }
        // The first call makes the representatives that hold parts. The others point to those parts.
        for cluster in self.holders() {
            let _ = miss.rep(cluster);
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let parts = whole.root().parts.get().ok_or_else(no_entries)?;
                Ok(EntriesFormat(Arc::new(parts.to_table())))
            })
            .import(|whole, state: EntriesFormat<K, V, S>| {
                let root = whole.root();
                let parts = Parts::of_table(root.count, root.home.clone(), &state.0, root.cloners);
                root.parts.set(Arc::new(parts)).map_err(|_| has_entries())
            });
    }
}

impl<K, V, S> Map<K, V, S> for PartitionedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    fn read<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        Store(self.parts.lend(guard))
    }

    fn sensors(&self) -> Sensors {
        let reps = self.at.reps();
        let (reps, held) = reps.fold((0, 0), |(reps, held), rep| (reps + 1, held + rep.held.len()));
        debug_assert_eq!(
            held,
            self.parts.count(),
            "the representatives hold another number of parts than the map has"
        );
        Sensors { entries: self.parts.len(), reps, ..Sensors::default() }
    }

    fn cluster_size(&self) -> ClusterSize {
        self.at.root().size
    }

    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        let root = self.at.root();
        let new = Partitioned::replacement(root.count, root.home.clone(), size, root.cloners);
        Some((self.at.handle(), new))
    }
}
