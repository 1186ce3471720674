//! Models of a cache with a budget, while its policy is swapped, and their twins with one weakened site.
//!
//! The place of an entry is a lock for each key, since the table has models of its own. A policy is the place
//! that it visits first. So a swap lets two threads choose the same victim, or different ones. In an object
//! of squall-core a call meets the old policy or the new one, which is the one load of `World::evict`.

use super::{Budget, Claim, sites};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Mutex, thread};
use std::sync::Arc as Owned;
use std::sync::atomic::{AtomicU32 as Count, AtomicU64 as Noted, Ordering::SeqCst};

/// Number of places.
const PLACES: usize = 3;
/// Number of entries of a model.
const ENTRIES: usize = 5;

/// An entry. Its number is its index in the counts of notifications.
struct Entry {
    number: usize,
    cost: u64,
    claim: Claim,
}

fn entry(number: usize, cost: u64) -> Owned<Entry> {
    Owned::new(Entry { number, cost, claim: Claim::new(0) })
}

/// A cache. Counts of the model itself are no atomics of loom, so they add no executions.
struct World {
    budget: Budget,
    bound: u64,
    places: [Mutex<Option<Owned<Entry>>>; PLACES],
    /// The place that the policy visits first.
    policy: AtomicUsize,
    /// The cost of the entries in their places. Changes with them, under their locks.
    present: Noted,
    /// For each entry, the number of times that the listener got it.
    told: [Count; ENTRIES],
}

impl World {
    /// Returns a cache with these entries in its first places.
    fn new(bound: u64, entries: &[u64]) -> Arc<World> {
        let world = World {
            budget: Budget::new(),
            bound,
            places: std::array::from_fn(|_| Mutex::new(None)),
            policy: AtomicUsize::new(0),
            present: Noted::new(0),
            told: Default::default(),
        };
        for (number, cost) in entries.iter().enumerate() {
            assert!(world.put(number, &entry(number, *cost)));
        }
        Arc::new(world)
    }

    /// Changes a place, and returns the entry that was there. `with` may leave it.
    fn change(
        &self,
        place: usize,
        with: impl FnOnce(&mut Option<Owned<Entry>>) -> Option<Owned<Entry>>,
    ) -> Option<Owned<Entry>> {
        let cost = |entry: &Option<Owned<Entry>>| entry.as_ref().map_or(0, |entry| entry.cost);
        let mut found = self.places[place].lock().unwrap();
        let before = cost(&found);
        let left = with(&mut found);
        let present = self.present.load(SeqCst) + cost(&found) - before;
        self.present.store(present, SeqCst);
        assert!(present <= self.bound, "the entries exceed the bound");
        left
    }

    fn find(&self, place: usize) -> Option<Owned<Entry>> {
        self.places[place].lock().unwrap().clone()
    }

    fn tell(&self, entry: &Entry) {
        assert_eq!(self.told[entry.number].fetch_add(1, SeqCst), 0, "the listener got an entry twice");
    }

    /// Removes an entry that this thread has claimed, and then gives its cost back.
    fn take_out(&self, place: usize, victim: &Owned<Entry>) {
        self.change(place, |found| found.take_if(|found| Owned::ptr_eq(found, victim)));
        self.tell(victim);
    }

    /// Evicts an entry. Returns false if each was claimed by another thread.
    fn evict(&self) -> bool {
        // Relaxed: a call meets the old policy or the new one.
        let first = self.policy.load(Ordering::Relaxed);
        for step in 0..PLACES {
            let place = (first + step) % PLACES;
            let Some(victim) = self.find(place) else { continue };
            let mut share = self.budget.share();
            if share.claim(&victim.claim, victim.cost) {
                if sites::GIVE_LAST.is_weak() {
                    drop(share);
                    self.take_out(place, &victim);
                } else {
                    self.take_out(place, &victim);
                }
                return true;
            }
        }
        false
    }

    /// Inserts an entry, or replaces the one of its place. Returns false if there is no room.
    fn put(&self, place: usize, new: &Owned<Entry>) -> bool {
        let mut share = self.budget.share();
        // A replacement claims the old entry (`budget/I5`).
        let old = self.find(place).filter(|old| !old.claim.is_claimed());
        let mut credit = 0;
        let old = old.filter(|old| {
            if sites::CLAIM_OLD.is_weak() {
                credit = old.cost;
                return false;
            }
            share.claim(&old.claim, old.cost)
        });
        let missing = new.cost.saturating_sub(share.held() + credit);
        if sites::TAKE_FIRST.is_weak() {
            self.place(place, new, old);
            while !share.take(missing, self.bound) && self.evict() {}
            return true;
        }
        while !share.take(missing, self.bound) {
            if self.evict() {
                continue;
            }
            // The newcomer is refused.
            if let Some(old) = old.filter(|_| !sites::TAKE_OUT_OLD.is_weak()) {
                self.take_out(place, &old);
            }
            self.tell(new);
            return false;
        }
        if let Some(replaced) = self.place(place, new, old)
            && share.claim(&replaced.claim, replaced.cost)
        {
            self.tell(&replaced);
        }
        share.spend(new.cost);
        true
    }

    /// Puts an entry into its place. `old` is the one that this thread has claimed. Returns the one replaced.
    fn place(&self, place: usize, new: &Owned<Entry>, old: Option<Owned<Entry>>) -> Option<Owned<Entry>> {
        let replaced = self.change(place, |found| found.replace(new.clone()));
        old.iter().for_each(|old| self.tell(old));
        replaced
    }

    /// Removes the entry of a place.
    fn remove(&self, place: usize) {
        let mut share = self.budget.share();
        let removed = self.change(place, Option::take);
        if let Some(removed) = removed
            && share.claim(&removed.claim, removed.cost)
        {
            self.tell(&removed);
        }
    }

    /// Marks the entry of a place as used.
    fn mark(&self, place: usize) {
        if let Some(entry) = self.find(place) {
            let word = entry.claim.word();
            entry.claim.change(word, word + 1);
        }
    }

    /// Checks the budget at any moment.
    fn check(&self) {
        // Loom shows older values to loads. An addition reads the newest one.
        let taken = self.budget.taken.fetch_add(0, Ordering::Relaxed);
        assert!(taken <= self.bound, "more than the bound is taken");
        assert!(self.present.load(SeqCst) <= taken, "the entries need more than is taken");
    }

    /// Checks the cache after all threads have ended. `entries` came to it.
    fn end(&self, entries: usize) {
        self.check();
        let left: Vec<_> = (0..PLACES).filter_map(|place| self.find(place)).collect();
        assert!(left.iter().all(|entry| !entry.claim.is_claimed()), "an entry that was claimed is left");
        let cost: u64 = left.iter().map(|entry| entry.cost).sum();
        assert_eq!((self.budget.taken(), self.present.load(SeqCst)), (cost, cost), "room is lost");
        for number in 0..entries {
            let is_left = left.iter().any(|entry| entry.number == number);
            let told = self.told[number].load(SeqCst);
            assert_eq!(told + u32::from(is_left), 1, "entry {number} is there, or was told once");
        }
    }
}

/// Runs `act` on another thread, and `here` on this one. Meanwhile a third thread swaps the policy, and looks
/// at the budget.
fn beside(
    world: &Arc<World>,
    entries: usize,
    act: impl FnOnce(&World) + Send + 'static,
    here: impl FnOnce(&World),
) {
    let (other, swapping) = (world.clone(), world.clone());
    let other = thread::spawn(move || act(&other));
    let swapping = thread::spawn(move || {
        swapping.policy.store(1, Ordering::Relaxed);
        swapping.check();
    });
    here(world);
    other.join().unwrap();
    swapping.join().unwrap();
    world.end(entries);
}

/// Two threads insert into a full cache.
fn inserts() {
    let world = World::new(2, &[1, 1]);
    let act = |world: &World| _ = world.put(2, &entry(2, 1));
    beside(&world, 4, act, |world| _ = world.put(0, &entry(3, 2)));
}

/// A thread replaces an entry, and another one evicts it for its own.
fn replaces() {
    let world = World::new(2, &[2]);
    let act = |world: &World| _ = world.put(0, &entry(1, 2));
    beside(&world, 3, act, |world| _ = world.put(1, &entry(2, 2)));
}

/// A thread replaces an entry by a larger one, and another one removes it.
fn grows() {
    let world = World::new(3, &[1, 1]);
    let act = |world: &World| _ = world.put(0, &entry(2, 3));
    beside(&world, 3, act, |world| world.remove(0));
}

/// An entry that never fits is to replace another one, while a thread inserts.
fn refuses() {
    let world = World::new(3, &[1, 1]);
    let act = |world: &World| _ = world.put(0, &entry(2, 4));
    beside(&world, 4, act, |world| _ = world.put(2, &entry(3, 2)));
}

/// Two threads replace one entry.
fn replaces_both() {
    let world = World::new(2, &[1]);
    let act = |world: &World| _ = world.put(0, &entry(1, 2));
    beside(&world, 3, act, |world| _ = world.put(0, &entry(2, 2)));
}

/// A thread marks an entry, and inserts one. Another one evicts the marked one for its own.
fn marks() {
    let world = World::new(1, &[1]);
    let act = |world: &World| {
        world.mark(0);
        world.put(1, &entry(1, 1));
    };
    beside(&world, 3, act, |world| _ = world.put(2, &entry(2, 1)));
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { within 3: inserts replaces grows refuses replaces_both marks }

#[cfg(loom)]
#[test]
fn twins() {
    for (site, model) in [
        (sites::FITS, "inserts"),
        (sites::TAKE_WHOLE, "inserts"),
        (sites::CLAIM_ONCE, "inserts"),
        (sites::KEEP_CLAIM, "marks"),
        (sites::GIVE_BACK, "inserts"),
        (sites::TAKE_FIRST, "inserts"),
        (sites::GIVE_LAST, "inserts"),
        (sites::CLAIM_OLD, "replaces"),
        (sites::TAKE_OUT_OLD, "refuses"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("budget::model::{model}::holds"));
    }
}
