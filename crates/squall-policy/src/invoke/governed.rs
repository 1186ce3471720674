//! Registry of governed objects: leads from a handle to the policy of its object.
//!
//! - I1. The registry keeps no policy alive. An entry is removed when the object has ended, and at the latest
//!   with its policy.
//!
//! Cost: a lock and a hash table, outside every call of an object. An [`Invoker`](super::Invoker) looks an
//! object up once.

use squall_core::Id;
use squall_sys::fork::forked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::dispatch::Dispatch;
use super::mode::Mode;
use crate::attribute::{Callee, InstanceValues};

/// A policy together with its object, without their types.
pub(crate) trait Governed: Send + Sync {
    /// Returns the first id of the object, and the number of its ids.
    fn ids(&self) -> (Id, u32);
    /// Returns the object as a receiver of attributes.
    fn callee(&self) -> Callee;
    /// Returns the modes of the policy.
    fn modes(&self) -> &'static [&'static Mode];
    /// Returns the values of the object's attributes.
    fn values(&self) -> Option<&Arc<InstanceValues>>;
    /// Has the policy make a call in a mode.
    fn invoke_mode(&self, mode: &'static Mode, call: Dispatch);
}

static TABLE: Mutex<Option<HashMap<Id, Weak<dyn Governed>>>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<HashMap<Id, Weak<dyn Governed>>>> {
    // User code does not run under this lock, so a poisoned lock is usable.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ids_of((first, count): (Id, u32)) -> impl Iterator<Item = Id> {
    // An object has consecutive slots of one generation as its ids.
    (0..count).filter_map(move |at| Id::from_parts(first.slot() + at, first.generation()))
}

/// Registers a policy under all ids of its object.
pub(crate) fn register(governed: &Weak<dyn Governed>, ids: (Id, u32)) {
    // In a forked child the lock may be held for ever.
    if !forked() {
        let mut table = table();
        let table = table.get_or_insert_default();
        table.extend(ids_of(ids).map(|id| (id, governed.clone())));
    }
}

/// Removes the policy of an object.
pub(crate) fn unregister(ids: (Id, u32)) {
    if !forked()
        && let Some(table) = &mut *table()
    {
        ids_of(ids).for_each(|id| drop(table.remove(&id)));
    }
}

/// Returns the policy of the object with this id.
pub(super) fn find(id: Id) -> Option<Arc<dyn Governed>> {
    if forked() {
        return None;
    }
    let found = table().as_ref()?.get(&id).cloned();
    // Upgraded outside the lock: if the result is the last reference, its drop locks again.
    found?.upgrade()
}
