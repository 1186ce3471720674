//! The store that this server demonstrates: a Squall cache.

use std::sync::Once;

use squall::Handle;
use squall::adapt::control;
use squall::cache::ops::compute::Op;
use squall::cache::policy::{self, Eviction};
use squall::cache::{Cache, DefaultHasher, Reservation};

use crate::item::{Item, SHARE_BYTES};
use crate::key::Key;
use crate::store::{Bound, Change, Reserved, Store};

/// The memory limit until the server sets its own. The policy allocates its state for a larger one when there
/// are some entries.
const MEMORY_BYTES: u64 = 256 << 10;

/// A policy of evictions, to begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Evicts the entry that is used least often.
    #[default]
    Frequency,
    /// Like `Frequency`, but a new entry must be wanted often to take the place of another one. More requests
    /// hit, but a client may not find a value that it has just stored.
    Admission,
    /// Evicts the entry that was unused for longest.
    Lru,
}

/// Entries in a [`squall::cache::Cache`]. A read takes no lock, and writes no memory that others read but one
/// mark per entry and epoch. The cache keeps the memory limit, with a policy that may be swapped while the
/// server runs.
#[derive(Debug)]
pub struct SquallStore(Cache<Key, Item>);

impl SquallStore {
    /// Makes an empty store.
    pub fn new() -> SquallStore {
        SquallStore::with_policy(Policy::default())
    }

    /// Makes an empty store that begins with this policy.
    pub fn with_policy(policy: Policy) -> SquallStore {
        register_policies();
        let policy = match policy {
            Policy::Frequency => policy::frequency_admitting_all(),
            Policy::Admission => policy::frequency(),
            Policy::Lru => policy::lru(),
        };
        let entries = Cache::builder()
            .name("entries")
            .max_memory(MEMORY_BYTES)
            .weigher(|key: &Key, item: &Item| {
                SHARE_BYTES.saturating_add(Item::owned_bytes(key, item.data.len()))
            })
            .eviction_policy(policy)
            .record_statistics();
        SquallStore(entries.build())
    }

    /// Returns the cache, for example to swap its policy while the server runs.
    pub fn cache(&self) -> &Cache<Key, Item> {
        &self.0
    }

    /// Returns the policy's handle.
    pub fn policy(&self) -> Handle<dyn Eviction> {
        self.0.policy()
    }
}

/// Lets `squall top` swap a policy for another one, by its name.
fn register_policies() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        control::register::<dyn Eviction>("frequency", |_| policy::new_frequency_admitting_all());
        control::register::<dyn Eviction>("admission", |_| policy::new_frequency());
        control::register::<dyn Eviction>("lru", |_| policy::new_lru());
    });
}

impl Default for SquallStore {
    fn default() -> SquallStore {
        SquallStore::new()
    }
}

impl Store for SquallStore {
    #[inline]
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R> {
        self.0.with(key, f)
    }

    fn change(&self, key: &[u8], mut f: impl FnMut(Option<&Item>) -> Change) {
        self.0.compute(key.into(), |item| match f(item) {
            Change::Keep => Op::Nop,
            Change::Put(item) => Op::Put(item),
            Change::Remove => Op::Remove,
        });
    }

    fn visit(&self, from: u64, mut f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64> {
        let (mut next, mut shown, mut more) = (Some(from), false, true);
        while let Some(at) = next
            && !shown
        {
            next = self.0.visit_from(at, |key, item| {
                shown = true;
                more = more && f(key, item);
            });
        }
        next
    }

    fn reclaim(&self) {
        // A thread in an operation must not wait, but no caller of this method is in one.
        let _ = squall::rcu::barrier();
    }

    fn len(&self) -> usize {
        self.0.entry_count() as usize
    }

    fn bound(&self) -> Option<&dyn Bound> {
        Some(self)
    }
}

impl Bound for SquallStore {
    fn set_limit(&self, bytes: u64) {
        self.0.set_max_capacity(bytes);
    }

    fn used_bytes(&self) -> u64 {
        self.0.weighted_size()
    }

    fn reserved_bytes(&self) -> u64 {
        self.0.reserved()
    }

    fn evictions(&self) -> u64 {
        let statistics = self.0.statistics();
        // An item that the policy does not admit is evicted at once.
        statistics.evictions + statistics.refusals
    }

    fn reserve(&self) -> Box<dyn Reserved + '_> {
        Box::new(self.0.reserve(0).expect("nothing always fits"))
    }
}

impl Reserved for Reservation<'_, Key, Item, DefaultHasher> {
    fn resize(&mut self, bytes: u64) -> bool {
        Reservation::resize(self, bytes)
    }
}
