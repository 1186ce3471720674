//! The board, which shows handles to all threads, and the vaults, which hold the owners.
//!
//! - I1. The handle in a slot may be stale at any time, on purpose. It is replaced only when the slot is used
//!   again.
//! - I2. The thread that takes an owner out of a vault destroys the object.

use std::sync::Mutex;

use squall::rcu::{Guard, Rcu, pin};
use squall::{Destruction, Owned};

use super::interfaces::{AnyHandle, Deep, Pair, Probe};
use super::ledger::ObjectKey;
use crate::run::{Rng, lock};

/// Number of slots: enough for all classes at once, and few enough for threads to meet.
const SLOTS: usize = 96;

/// An object, as its callers know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) handle: AnyHandle,
    pub(super) key: ObjectKey,
    /// The additions are compared exactly at its end, so callers pass its gate.
    pub(super) counted: bool,
    /// Its root sometimes refuses calls.
    pub(super) refuses: bool,
    /// The slot whose vault may hold its owner.
    pub(super) slot: usize,
}

/// An object, as its owner holds it.
#[derive(Debug)]
pub(super) struct OwnedEntry {
    pub(super) owner: Owner,
    pub(super) entry: Entry,
}

/// The right to destroy an object.
#[derive(Debug)]
pub(super) enum Owner {
    Probe(Owned<dyn Probe>),
    Deep(Owned<dyn Deep>),
    Pair(Owned<dyn Pair<u64, 3>>),
}

impl Owner {
    pub(super) fn handle(&self) -> AnyHandle {
        match self {
            Owner::Probe(owned) => AnyHandle::Probe(owned.handle()),
            Owner::Deep(owned) => AnyHandle::Deep(owned.handle()),
            Owner::Pair(owned) => AnyHandle::Pair(owned.handle()),
        }
    }

    pub(super) fn destroy(self) -> Destruction {
        match self {
            Owner::Probe(owned) => Owned::destroy(owned),
            Owner::Deep(owned) => Owned::destroy(owned),
            Owner::Pair(owned) => Owned::destroy(owned),
        }
    }
}

struct Slot {
    shown: Rcu<Option<Entry>>,
    vault: Mutex<Option<OwnedEntry>>,
}

pub(super) struct Board(Vec<Slot>);

impl Board {
    pub(super) fn new() -> Board {
        let slot = || Slot { shown: Rcu::new(Box::new(None)), vault: Mutex::new(None) };
        Board((0..SLOTS).map(|_| slot()).collect())
    }

    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.0.len()
    }

    pub(super) fn any_slot(&self, rng: &mut Rng) -> usize {
        rng.below(self.0.len() as u64) as usize
    }

    /// Returns the entry shown by a random slot.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<Entry> {
        let slot = self.any_slot(rng);
        pin(|o| *self.shown(o, slot))
    }

    pub(super) fn shown<'o>(&self, o: &'o Guard, slot: usize) -> &'o Option<Entry> {
        self.0[slot].shown.load(o)
    }

    /// Shows an object and puts its owner into the vault. Returns the previous owner.
    pub(super) fn publish(&self, held: OwnedEntry) -> Option<OwnedEntry> {
        let slot = &self.0[held.entry.slot];
        slot.shown.replace(Box::new(Some(held.entry)));
        lock(&slot.vault).replace(held)
    }

    pub(super) fn wipe(&self, slot: usize) {
        self.0[slot].shown.replace(Box::new(None));
    }

    /// Takes the owner out of a vault. With a key, takes it only if it owns that object.
    pub(super) fn take(&self, slot: usize, key: Option<ObjectKey>) -> Option<OwnedEntry> {
        let mut vault = lock(&self.0.get(slot)?.vault);
        match key {
            Some(key) if vault.as_ref().is_none_or(|held| held.entry.key != key) => None,
            _ => vault.take(),
        }
    }
}
