//! Which values belong to which object, for who knows only its id: a person, a browser, a policy.
//!
//! - I1. What a prune leaves belongs to an object that lives, or to somebody else who keeps the values; and the table is
//!   pruned whenever it has doubled. So its size is in proportion to the objects and values that there are.
//! - I2. The values of an object that is being made are not pruned while its maker keeps them.
//!
//! Cost: a lock and a hash table, outside every call.

use squall_core::{Id, class_of};
use squall_sys::fork::forked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::values::InstanceValues;

/// Below this many entries the table is not pruned.
const PRUNE_MIN: usize = 64;

struct Table {
    entries: Option<HashMap<Id, Arc<InstanceValues>>>,
    /// Pruned at this many entries.
    prune_at: usize,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: None, prune_at: PRUNE_MIN });

fn table() -> MutexGuard<'static, Table> {
    // Nothing below panics between two changes that belong together.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the values of an object known under its id, unless others are: answers those that are known then.
///
/// They stay known as long as the object lives, unless they are [detached](detach); some time after it has ended they are
/// forgotten. The object itself need not have them: a policy or its owner may keep them. Whoever attaches them before the
/// object is there keeps them as well until it is.
///
/// # Cost
/// A lock, and now and then a look at every object attached.
pub fn attach(id: Id, values: Arc<InstanceValues>) -> Arc<InstanceValues> {
    // In a forked child the lock may be held for ever.
    if forked() {
        return values;
    }
    let mut ended = Vec::new();
    let mut table = table();
    let Table { entries, prune_at } = &mut *table;
    let entries = entries.get_or_insert_default();
    // Where no operation can begin, every object looks as if it had ended.
    if entries.len() >= *prune_at && squall_rcu::try_pin(|_| ()).is_ok() {
        // Nobody can take another reference to one that is here alone: that is done under this lock.
        let is_over = |id: &Id, values: &mut Arc<InstanceValues>| {
            Arc::strong_count(values) == 1 && class_of(*id).is_none()
        };
        ended.extend(entries.extract_if(is_over));
        *prune_at = PRUNE_MIN.max(2 * entries.len());
    }
    let known = entries.entry(id).or_insert_with(|| {
        values.belongs_to(id);
        values.clone()
    });
    let known = known.clone();
    drop(table);
    // The last reference to one of them may be here: outside the lock.
    drop((values, ended));
    known
}

/// The values of an object.
pub fn of(id: Id) -> Option<Arc<InstanceValues>> {
    if forked() {
        return None;
    }
    let table = table();
    table.entries.as_ref()?.get(&id).cloned()
}

/// Forgets the values of an object; the object keeps them.
pub fn detach(id: Id) -> Option<Arc<InstanceValues>> {
    if forked() {
        return None;
    }
    table().entries.as_mut()?.remove(&id)
}

/// The ids with values that are known now, those of objects that ended lately among them.
pub fn attached() -> Vec<Id> {
    if forked() {
        return Vec::new();
    }
    table().entries.iter().flat_map(HashMap::keys).copied().collect()
}
