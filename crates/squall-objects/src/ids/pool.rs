//! Implementation of all forms: views of one set of ids. The forms differ in the shard that a call uses.
//!
//! There is one class for a single representative and one for several, so that a policy can tell them apart.
//! A swap hands the ids themselves on, so no id moves.

use squall_core::swap::{Format, RootFormats};
use squall_core::{CallError, CallErrorKind, Cleanup, Handle, Miss, MissAnswer, RepContext, Root};
use squall_machine::Vp;
use squall_parts::ids::{Ids, NotLent};
use squall_sys::fork;
use squall_sys::sync::lock;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use super::{IdPool, IdPoolView};
use crate::misses::Misses;

/// Root. `ADAPTS`: its misses post to the policy. `WIDE`: there is a representative for each calling VP.
pub(super) struct Pool<const ADAPTS: bool, const WIDE: bool> {
    /// Empty until a swap moves the ids in.
    ids: OnceLock<Arc<Known>>,
    /// In a form that is not wide, all callers use the shard of this VP: the first one that calls.
    home: OnceLock<Vp>,
    misses: Misses,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local {
    ids: Arc<Known>,
    place: usize,
}

/// State that a swap moves: the ids, shared.
struct Moved(Arc<Known>);

impl Format for Moved {}

/// The ids of a pool, which are found by its handle, too.
pub(super) struct Known {
    ids: Ids,
    own: OnceLock<Handle<dyn IdPool>>,
}

/// The ids of pools, by their handles. An id comes back this way if an arbiter refuses calls of the pool.
static KNOWN: Mutex<BTreeMap<Handle<dyn IdPool>, Weak<Known>>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<Handle<dyn IdPool>, Weak<Known>>> {
    lock(&KNOWN, "the ids of pools")
}

impl Known {
    pub(super) fn new(limit: u32) -> Arc<Known> {
        Arc::new(Known { ids: Ids::new(limit), own: OnceLock::new() })
    }

    /// Makes the ids known by the handle of their pool.
    pub(super) fn publish(self: &Arc<Known>, own: Handle<dyn IdPool>) {
        known().insert(own, Arc::downgrade(self));
        self.own.get_or_init(|| own);
    }
}

impl Deref for Known {
    type Target = Ids;

    #[inline]
    fn deref(&self) -> &Ids {
        &self.ids
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // In the child of a fork the lock may be held for ever.
        if let Some(own) = self.own.get().filter(|_| !fork::forked()) {
            known().remove(own);
        }
    }
}

/// Returns the ids of a pool that failed a call with this error, unless they are gone.
#[cold]
pub(super) fn behind(pool: Handle<dyn IdPool>, error: &CallError) -> Option<Arc<Known>> {
    match error.reason() {
        // Here the lock may be held for ever: by a thread that the child of a fork does not have, or by this
        // one.
        CallErrorKind::Forked | CallErrorKind::Reentrant => None,
        // The lock is free again before the ids may be dropped.
        _ => known().get(&pool).and_then(Weak::upgrade),
    }
}

impl<const ADAPTS: bool, const WIDE: bool> Pool<ADAPTS, WIDE> {
    pub(super) fn new(ids: Arc<Known>) -> Pool<ADAPTS, WIDE> {
        Pool { ids: ids.into(), home: Vp::current().into(), misses: Misses::default() }
    }

    /// Makes a pool without ids, as a replacement.
    pub(super) fn vacant() -> Pool<ADAPTS, WIDE> {
        Pool { ids: OnceLock::new(), home: OnceLock::new(), misses: Misses::default() }
    }
}

impl<const ADAPTS: bool, const WIDE: bool> Root for Pool<ADAPTS, WIDE> {
    type Interface = dyn IdPool;
    type Rep = Local;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn view(rep: &Local) -> IdPoolView<'_> {
        IdPoolView { client: Some(rep.ids.client(rep.place)) }
    }

    fn make_rep(&self, at: RepContext<Self>) -> Local {
        self.misses.set_id(Handle::id(at.handle()));
        // `handle_miss` refuses calls of a vacant pool, and no part of the state moves alone.
        let ids = self.ids.get().cloned().unwrap_or_else(|| Known::new(0));
        let place = if WIDE { at.vp() } else { *self.home.get_or_init(|| at.vp()) }.index();
        if !WIDE {
            ids.gather(place);
        }
        Local { ids, place }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.ids.get().is_none() {
            return miss.refuse("no ids moved in; repeat the swap with its state");
        }
        let rep = miss.local();
        if !ADAPTS || WIDE || self.misses.note(miss.vp()) { rep.cached() } else { rep.once() }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let ids = whole.root().ids.get().ok_or("the pool has no ids: no swap moved its state in")?;
                Ok(Moved(ids.clone()))
            })
            .import(|whole, state: Moved| {
                let again = "the replacement already has ids; make a new one for each swap";
                Ok(whole.root().ids.set(state.0).map_err(|_| again)?)
            });
    }
}

impl IdPool for Local {
    #[inline]
    fn take(&self) -> Option<u32> {
        self.ids.get(self.place)
    }

    fn take_batch(&self, max: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        self.ids.get_batch(self.place, max, &mut ids);
        ids
    }

    #[inline]
    fn give(&self, id: u32) {
        self.ids.put(self.place, id);
    }

    fn give_batch(&self, ids: Vec<u32>) {
        self.ids.put_batch(self.place, &ids);
    }

    fn lend(&self, id: u32) {
        self.ids.lend(id);
    }

    fn put_raw(&self, id: u32) -> Result<(), NotLent> {
        self.ids.redeem(id)?;
        self.ids.put(self.place, id);
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.ids.limit()
    }

    fn free(&self) -> usize {
        self.ids.free()
    }

    fn round(&self) -> u64 {
        self.ids.round()
    }

    fn batch(&self) -> u32 {
        self.ids.batch()
    }

    fn set_batch(&self, batch: u32) {
        self.ids.set_batch(batch);
    }
}
