//! What a representative of a form with one structure for all lends without being asked.
//!
//! Problem: of a call that costs a few nanoseconds, asking the representative for the structure, and what follows from not knowing which it
//! will be, is a third. Idea: the structure and its kind lie where the header says (`squall_core::lent`), so that a caller's code for
//! the common kinds is compiled into it.
//!
//! - I1. Only where the representative would do no more about a call than is done here: it notes nothing of a read of a table whose readers
//!   are not counted, of a write of a table that nobody adapts, and of a call of the form of one lock by the lock's owner where values are cheap
//!   to copy; and of a write of a table that a policy looks after, that there was one more. All others ask.

use squall_core::__macro::Lent;
use squall_table::Table;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::forms::Sensor;
use super::locked::Locked;
use super::store::{Form, Store};

/// The structure.
pub struct Direct<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Kind<K, V, S>);

enum Kind<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// A table that is all there is.
    Table(Lent<Table<K, V, S>>),
    /// One whose writers this counts.
    Counted(Lent<Table<K, V, S>>, Arc<Sensor>),
    Locked(Lent<Locked<K, V, S>>),
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Direct<K, V, S> {
    /// A table whose readers are not counted, and what counts its writers.
    pub(super) fn table(table: &Arc<Table<K, V, S>>, sensor: Option<&Arc<Sensor>>) -> Self {
        let table = Lent::new(table.clone());
        Direct(match sensor {
            None => Kind::Table(table),
            Some(sensor) => Kind::Counted(table, sensor.clone()),
        })
    }

    pub(super) fn locked(locked: &Arc<Locked<K, V, S>>) -> Self {
        Direct(Kind::Locked(Lent::new(locked.clone())))
    }
}

/// What a read finds.
pub(super) enum Readable<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Table(&'a Table<K, V, S>),
    Locked(&'a Locked<K, V, S>),
}

impl<K, V, S> Direct<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// For a read. Of the form of one lock only its owner may go on without asking, and is told so by the form.
    #[inline(always)]
    pub(super) fn for_read(&self) -> Readable<'_, K, V, S> {
        match &self.0 {
            Kind::Table(table) | Kind::Counted(table, _) => Readable::Table(table),
            Kind::Locked(locked) => Readable::Locked(locked),
        }
    }

    /// For a write, if nobody is to note it but what is noted here.
    #[inline(always)]
    pub(super) fn for_write(&self) -> Option<Store<'_, K, V, S>> {
        match &self.0 {
            Kind::Table(table) => Some(Store::table(table)),
            Kind::Counted(table, sensor) if sensor.step_on() => Some(Store::table(table)),
            Kind::Locked(locked) if locked.is_mine_for_nothing() && locked.spilled().is_none() => {
                Some(Store::new(Form::Locked(locked)))
            }
            Kind::Counted(..) | Kind::Locked(_) => None,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> std::fmt::Debug for Direct<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}
