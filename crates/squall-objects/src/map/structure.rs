//! Structures that can hold a map's entries in a form with one structure.
//!
//! Entries move between forms as a shared [`Table`]. A form with a table moves in the time of a call; others
//! clone their entries.

use squall_adapt::sensor::Sensor;
use squall_core::Id;
use squall_machine::{ClusterSize, machine};
use squall_parts::table::Table;
use std::any::type_name;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::classes;
use super::cloners::Cloners;
use super::locked::Locked;
use super::replicated::{LocalCopies, Replicated};
use super::storage::Storage;
use super::view::Viewed;

/// Clusters that have copies in the replicated form: those with memory of their own.
pub(super) const COPY_CLUSTERS: ClusterSize = ClusterSize::Node;

/// Whether the machine has several of these clusters, so that a copy can be nearer.
pub(super) fn has_several_nodes() -> bool {
    machine().clusters(COPY_CLUSTERS).len() > 1
}

/// The kinds of structure, as far as representatives of adaptive maps record their calls differently.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Table,
    /// A table that has replaced the hash table of a locked map.
    SpilledTable,
    Locked {
        /// Whether the calling thread owns the lock, and its calls need no record.
        needs_no_record: bool,
    },
    /// A table with copies.
    Copies,
}

/// A structure that can hold the entries of a form.
pub(super) trait Structure<K, V, S>: Send + Sync + Sized + 'static
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Data beside a table from which this structure is made.
    type Params: Copy + Send + Sync + 'static;
    /// Clusters that have a representative each in an adaptive map. A small size keeps the sensors apart; a
    /// structure with a part per cluster needs its own size.
    const SENSOR_CLUSTERS: ClusterSize;
    /// The structure's own data of each representative.
    type Local: Send + Sync + 'static;

    /// Returns the name of the class of such maps, for messages.
    fn class_name(adapts: bool) -> &'static str;
    fn local(this: &Arc<Self>) -> Arc<Self::Local>;
    /// Sets the id of the map, for error messages.
    fn set_id(local: &Self::Local, id: Id) {
        let _ = (local, id);
    }
    /// Returns the structure that has the entries.
    fn storage(local: &Self::Local) -> &dyn Storage<K, V, S>;
    /// Returns the kind of the structure that has the entries.
    fn kind(local: &Self::Local) -> Kind;
    /// Whether a thread may become the owner of the structure's lock.
    fn can_be_owned(local: &Self::Local) -> bool {
        let _ = local;
        false
    }
    /// Returns the view that a representative with this sensor publishes.
    fn view<'a>(local: &'a Self::Local, sensor: Option<&'a Sensor>) -> Viewed<'a, K, V, S> {
        let _ = (local, sensor);
        Viewed::Hidden
    }
    /// Returns the number of copies of entries that this part holds.
    fn copies(local: &Self::Local) -> usize {
        let _ = local;
        0
    }
    fn of_table(table: Arc<Table<K, V, S>>, with: Self::Params) -> Arc<Self>;
    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>>;
}

impl<K, V, S> Structure<K, V, S> for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Params = ();
    const SENSOR_CLUSTERS: ClusterSize = ClusterSize::Cpu;
    type Local = Self;

    fn class_name(_: bool) -> &'static str {
        type_name::<classes::Shared<K, V>>()
    }

    fn local(this: &Arc<Self>) -> Arc<Self> {
        this.clone()
    }

    #[inline(always)]
    fn storage(local: &Self) -> &dyn Storage<K, V, S> {
        local
    }

    #[inline(always)]
    fn kind(_: &Self) -> Kind {
        Kind::Table
    }

    fn view<'a>(local: &'a Self, sensor: Option<&'a Sensor>) -> Viewed<'a, K, V, S> {
        // Where a replicated form may pay, reads are counted, so there is no view.
        if counts_readers(sensor.is_some()) { Viewed::Hidden } else { Viewed::Table { table: local, sensor } }
    }

    fn of_table(table: Arc<Table<K, V, S>>, (): ()) -> Arc<Self> {
        table
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        this.clone()
    }
}

/// How a locked form clones its contents, and how many entries it may have before a table replaces it.
pub(super) struct LockedTerms<K, V, S> {
    pub(super) cloners: Cloners<K, V, S>,
    pub(super) most: usize,
}

impl<K, V, S> Clone for LockedTerms<K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for LockedTerms<K, V, S> {}

impl<K, V, S> Structure<K, V, S> for Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Params = LockedTerms<K, V, S>;
    const SENSOR_CLUSTERS: ClusterSize = ClusterSize::Machine;
    type Local = Self;

    fn class_name(adapts: bool) -> &'static str {
        if adapts { type_name::<classes::Small<K, V>>() } else { type_name::<classes::Locked<K, V>>() }
    }

    fn local(this: &Arc<Self>) -> Arc<Self> {
        this.clone()
    }

    fn set_id(local: &Self, id: Id) {
        Locked::set_id(local, id);
    }

    #[inline(always)]
    fn storage(local: &Self) -> &dyn Storage<K, V, S> {
        match local.spilled() {
            None => local,
            Some(table) => &**table,
        }
    }

    #[inline(always)]
    fn kind(local: &Self) -> Kind {
        match local.spilled() {
            None => Kind::Locked { needs_no_record: local.needs_no_record() },
            Some(_) => Kind::SpilledTable,
        }
    }

    fn can_be_owned(local: &Self) -> bool {
        local.spilled().is_none() && local.can_be_owned()
    }

    fn view<'a>(local: &'a Self, _: Option<&'a Sensor>) -> Viewed<'a, K, V, S> {
        Viewed::Locked(local)
    }

    fn of_table(table: Arc<Table<K, V, S>>, with: LockedTerms<K, V, S>) -> Arc<Self> {
        Arc::new(Locked::of_table(table, with.most, with.cloners))
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        Locked::to_table(this)
    }
}

/// One table with the entries, and a table of copies for each representative.
impl<K, V, S> Structure<K, V, S> for Replicated<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Params = Cloners<K, V, S>;
    const SENSOR_CLUSTERS: ClusterSize = COPY_CLUSTERS;
    type Local = LocalCopies<K, V, S>;

    fn class_name(_: bool) -> &'static str {
        type_name::<classes::Replicated<K, V>>()
    }

    fn local(this: &Arc<Self>) -> Arc<LocalCopies<K, V, S>> {
        Arc::new(this.join())
    }

    #[inline(always)]
    fn storage(local: &LocalCopies<K, V, S>) -> &dyn Storage<K, V, S> {
        local
    }

    #[inline(always)]
    fn kind(_: &LocalCopies<K, V, S>) -> Kind {
        Kind::Copies
    }

    fn view<'a>(local: &'a LocalCopies<K, V, S>, _: Option<&'a Sensor>) -> Viewed<'a, K, V, S> {
        Viewed::Copies(local.table())
    }

    fn copies(local: &LocalCopies<K, V, S>) -> usize {
        local.copies()
    }

    fn of_table(table: Arc<Table<K, V, S>>, cloners: Cloners<K, V, S>) -> Arc<Self> {
        Arc::new(Replicated::of_table(table, cloners))
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        this.table()
    }
}

/// Whether reads of a table are counted: only where a replicated form may pay, since it serves readers.
pub(super) fn counts_readers(adapts: bool) -> bool {
    adapts && has_several_nodes()
}
