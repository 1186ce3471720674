//! What a representative of a form with one structure for all lends without being asked.
//!
//! Problem: of a call that costs a few nanoseconds, asking the representative for the structure, and what follows from not knowing which it
//! will be, is a third. Idea: the structure and its kind are said behind the header (`squall_core::lent`), so that a caller's code for
//! the common kinds is compiled into it: first a table, beside it what counts its writers if something does, each VP's own (`Shape::SENSED_BY`),
//! second the form of one lock.
//!
//! - I1. Only where the representative would do no more about a call than is done here: it notes nothing of a read of a table whose readers
//!   are not counted, of a write of a table that nobody adapts, and of a call of the form of one lock by the lock's owner where values are cheap
//!   to copy; and of a write of a table that a policy looks after, that there was one more. All others ask.

use squall_core::__macro::{Hit, Lends};
use squall_table::Table;
use std::hash::{BuildHasher, Hash};

use super::Mapping;
use super::forms::Sensor;
use super::locked::Locked;
use super::store::{Form, Store};

/// The structure that [`look`](Mapping::look) and [`lend`](Mapping::lend) lend whenever they are asked, so that they need not be.
impl<K, V, S> Lends for dyn Mapping<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type First = Table<K, V, S>;
    type Beside = Sensor;
    type Second = Locked<K, V, S>;
}

/// For a write, if nobody is to note it but what is noted here.
#[inline(always)]
pub(super) fn for_write<'o, K, V, S>(hit: &Hit<'o, dyn Mapping<K, V, S>>) -> Option<Store<'o, K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    if let Some(locked) = hit.second() {
        let is_mine = locked.is_mine_for_nothing() && locked.spilled().is_none();
        return is_mine.then(|| Store::new(Form::Locked(locked)));
    }
    table_for_write(hit).map(Store::table)
}

/// The same, if it is a table.
#[inline(always)]
pub(super) fn table_for_write<'o, K, V, S>(hit: &Hit<'o, dyn Mapping<K, V, S>>) -> Option<&'o Table<K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let table = hit.first()?;
    hit.beside().is_none_or(Sensor::step_on).then_some(table)
}
