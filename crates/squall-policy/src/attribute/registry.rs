//! Registry of attribute values by object id, for a person, a browser or a policy that knows only the id.
//!
//! - I1. Pruning keeps an entry only if its object lives or its values have another owner. The table is
//!   pruned whenever it has doubled. So its size stays proportional to the number of live objects and values.
//! - I2. The values of an object that is being created are not pruned while its creator keeps them.
//!
//! Cost: a lock and a hash table, outside every call.

use squall_core::{Id, class_of};
use squall_sys::fork::forked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::values::InstanceValues;

/// Smallest number of entries at which the table is pruned.
const PRUNE_MIN: usize = 64;

struct Table {
    entries: Option<HashMap<Id, Arc<InstanceValues>>>,
    /// The table is pruned at this many entries.
    prune_at: usize,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: None, prune_at: PRUNE_MIN });

fn table() -> MutexGuard<'static, Table> {
    // The code below does not panic between two changes that belong together, so a poisoned lock is usable.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the values of an object under its id. If the id has values already, the first ones stay. Returns
/// the registered values.
///
/// They stay registered as long as the object lives, unless [`detach`] removes them. Some time after the
/// object has ended they are dropped. The object itself need not hold them: a policy or its owner may. A
/// caller that registers them before the object exists must keep a reference until it does.
///
/// # Cost
/// A lock, and occasionally a check of every registered object.
///
/// ```
/// use squall::Handle;
/// use squall::policy::attribute::{self, Attribute, ClassValues, InstanceValues, Schema};
/// use std::sync::Arc;
/// # #[squall::interface]
/// # trait Door: Send + Sync {
/// #     fn open(&self);
/// # }
/// # struct Wood;
/// # impl Door for Wood { fn open(&self) {} }
/// static WIDE: Attribute<bool> = Attribute::new("wide", false);
/// static SCHEMA: Schema = Schema::new("door", &[&WIDE]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
/// # let door: squall::Owned<dyn Door> = squall::shared(Wood);
///
/// let id = Handle::id(door.handle());
/// attribute::attach(id, Arc::new(InstanceValues::of_class(&CLASS)));
/// attribute::values_of(id).unwrap().set_text("wide", "true")?;
/// assert!(attribute::values_of(id).unwrap().get(&WIDE));
/// assert!(attribute::attached().contains(&id));
/// attribute::detach(id);
/// assert!(attribute::values_of(id).is_none());
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
pub fn attach(id: Id, values: Arc<InstanceValues>) -> Arc<InstanceValues> {
    // In a forked child the lock may be held for ever.
    if forked() {
        return values;
    }
    // No deferred call runs under the lock, when an operation ends below.
    let quiet = squall_rcu::__callback_free();
    let mut ended = Vec::new();
    let mut table = table();
    let Table { entries, prune_at } = &mut *table;
    let entries = entries.get_or_insert_default();
    // If this thread cannot begin an operation, every object looks as if it had ended.
    if entries.len() >= *prune_at && squall_rcu::__try_pin(|_| ()).is_ok() {
        // A count of one stays one: another reference can be taken only under this lock.
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
    drop(quiet);
    // Dropped outside the lock, because the last reference to a value may be here.
    drop((values, ended));
    known
}

/// Returns the registered values of an object.
pub fn values_of(id: Id) -> Option<Arc<InstanceValues>> {
    if forked() {
        return None;
    }
    let table = table();
    table.entries.as_ref()?.get(&id).cloned()
}

/// Removes the values of an object from the registry. The object keeps them.
pub fn detach(id: Id) -> Option<Arc<InstanceValues>> {
    if forked() {
        return None;
    }
    table().entries.as_mut()?.remove(&id)
}

/// Returns the ids with registered values, including those of objects that ended recently.
pub fn attached() -> Vec<Id> {
    if forked() {
        return Vec::new();
    }
    table().entries.iter().flat_map(HashMap::keys).copied().collect()
}
