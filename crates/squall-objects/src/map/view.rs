//! Views of a map: the structures that a representative publishes behind its header, for calls without a
//! virtual call.
//!
//! Problem: a third of a call that costs a few nanoseconds is the virtual call that returns the store, and
//! the branches on its form. Idea: a [`MapView`] of the structure lies behind the header
//! (`squall_core::call::view`), and the caller's code for it is inlined.
//!
//! - I1. A call uses a view only if the representative would do no more about the call than the code here
//!   does. A representative records no read of a table without counted readers, and no read that finds a
//!   copy. It records no write of a table that does not adapt. It records no call by the owner of a locked
//!   map's lock where values are cheap to copy. Of the writes of an adaptive table some are sampled, and
//!   each of these is reported for many (`Map::note_writes`). All other calls go through the
//!   representative.

use squall_adapt::sensor::Sensor;
use squall_parts::table::Table;

use super::locked::Locked;

/// The structure that `Map::read` and `Map::write` return, as a call uses it.
pub(super) enum Viewed<'rep, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// A table, with the sensor of its writers if each VP has a sensor of its own
    /// (`Structure::SENSOR_CLUSTERS`).
    Table { table: &'rep Table<K, V, S>, sensor: Option<&'rep Sensor> },
    /// A locked map.
    Locked(&'rep Locked<K, V, S>),
    /// A representative's table of copies. A hit there is valid, and a miss proves no absence.
    Copies(&'rep Table<K, V, S>),
    /// No structure is published.
    Hidden,
}

/// The view of a map: a [`Viewed`], laid out so that a test for a table is a test of one pointer.
pub struct MapView<'rep, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: Option<&'rep Table<K, V, S>>,
    sensor: Option<&'rep Sensor>,
    other: Other<'rep, K, V, S>,
}

enum Other<'rep, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Hidden,
    Locked(&'rep Locked<K, V, S>),
    Copies(&'rep Table<K, V, S>),
}

impl<'rep, K: Send + Sync + 'static, V: Send + Sync + 'static, S> MapView<'rep, K, V, S> {
    const HIDDEN: Self = MapView { table: None, sensor: None, other: Other::Hidden };

    pub(super) fn new(viewed: Viewed<'rep, K, V, S>) -> Self {
        match viewed {
            Viewed::Table { table, sensor } => MapView { table: Some(table), sensor, ..Self::HIDDEN },
            Viewed::Locked(locked) => MapView { other: Other::Locked(locked), ..Self::HIDDEN },
            Viewed::Copies(copies) => MapView { other: Other::Copies(copies), ..Self::HIDDEN },
            Viewed::Hidden => Self::HIDDEN,
        }
    }

    /// Returns the structure. The enum itself is compiled away where a call matches it.
    #[inline(always)]
    pub(super) fn get(self) -> Viewed<'rep, K, V, S> {
        match (self.table, self.other) {
            (Some(table), _) => Viewed::Table { table, sensor: self.sensor },
            (None, Other::Locked(locked)) => Viewed::Locked(locked),
            (None, Other::Copies(copies)) => Viewed::Copies(copies),
            (None, Other::Hidden) => Viewed::Hidden,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for MapView<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for MapView<'_, K, V, S> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Other<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for Other<'_, K, V, S> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Default for MapView<'_, K, V, S> {
    fn default() -> Self {
        Self::HIDDEN
    }
}
