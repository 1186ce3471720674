//! Copies of what is under many keys, in many places: when one may be made, and that none outlives its value.
//!
//! Problem: a value under a key is looked up in copies that lie near to who looks, and yet nobody may see a value after somebody saw a later
//! one. Idea: as of a value with replicas (`raw.rs`), key by key: a copy is taken out before the value changes, and made again by who
//! reads it next, unless somebody is about to change it. Keys share [`Keyed`]'s stripes, by their hashes. What says what a value is, is the
//! truth, whatever that is; a place is whatever has copies.
//!
//! - I1. While a copy of a key is in a place, the truth has that value. For who changes a key announces that in its stripe, then takes the
//!   copies out, and only then changes the truth ([`Keyed::announce`]); and copies are put in under the stripe's lock, while nobody is
//!   announced there, of what was read from the truth after the last who was had ended ([`Keyed::copy`]).
//! - I2. Whoever is announced takes the copies out of every place that can have one: a place joins before copies are put in there, and
//!   the places are asked for after the announcement. A copy that is put in under the stripe's lock was put in before an announcement, whose
//!   maker then sees the place and the copy; or after it, and then it is not.
//! - I3. The lock of a stripe is held for two numbers, or for putting a copy in; who looks only tries it. No user's closure that says what a
//!   value is runs under it.
//!
//! So a look that finds a copy takes effect when it finds it (I1), one that does not when it finds the truth, and a change where the truth
//! changes. Who has seen a change finds no copy of what was before: the copy was taken out before the truth changed, and the truth was
//! changed by a release that the sight of it acquires.
//!
//! What this asks of truth and places: who finds an entry has seen what came before it was put there; entries that were put in or taken out
//! are as if at one moment. All other order is the locks'.
//!
//! Progress: looks never wait for a stripe; a look that cannot make its copy goes without. Changes of keys of one stripe meet in its lock, for
//! two numbers. A thread that stalls while it is announced keeps its stripe's keys from being copied, and holds up nobody.
//! Cost: a change takes the stripe's lock twice, and that of the list of places once; a copy takes the former. What finds a copy does nothing here.
//! Source: TO-04 (invalidation), HU-16; the counts in place of a lock that is held for the change are ours.

use squall_lock::Lock;
use squall_sys::sync::Arc;
use std::fmt;

use crate::replica::sites;

/// Those who change keys of a stripe. On a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Stripe(Lock<Changes>);

#[derive(Clone, Copy, Default)]
struct Changes {
    /// Announced.
    now: u32,
    /// That were, and have ended.
    ended: u64,
}

impl Stripe {
    /// How many have ended, if nobody is announced and the lock is free.
    fn quiet(&self) -> Option<u64> {
        let changes = *self.0.try_lock()?;
        (changes.now == 0).then_some(changes.ended)
    }
}

/// A change that is announced: the keys of its stripe are not copied before this is dropped, by a panic too.
#[must_use = "what is announced is over when this is dropped"]
pub struct Announced<'a>(&'a Stripe);

impl<'a> Announced<'a> {
    fn new(stripe: &'a Stripe) -> Announced<'a> {
        stripe.0.lock().now += 1;
        Announced(stripe)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let mut changes = self.0.0.lock();
        changes.now -= 1;
        changes.ended += 1;
    }
}

impl fmt::Debug for Announced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announced").finish_non_exhaustive()
    }
}

/// Which keys are being changed, and the places that may have copies of them: see the module `keyed.rs`.
///
/// A part to build maps from whose entries are copied to where they are read.
///
/// # Cost
/// 64 bytes for each stripe, and a handle for each place.
/// # Source
/// TO-04, HU-16.
pub struct Keyed<P> {
    stripes: Box<[Stripe]>,
    places: Lock<Arc<Vec<P>>>,
}

impl<P: Clone> Keyed<P> {
    /// Without places. Of so many stripes one is shut while a key of it changes.
    ///
    /// # Panics
    /// If there shall be no stripe.
    pub fn new(stripes: usize) -> Keyed<P> {
        assert!(stripes > 0, "there is one stripe at least");
        let stripes = (0..stripes).map(|_| Stripe::default()).collect();
        Keyed { stripes, places: Lock::new(Arc::new(Vec::new())) }
    }

    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    /// The places.
    pub fn places(&self) -> Arc<Vec<P>> {
        self.places.lock().clone()
    }

    /// What becomes of the list of places. It is not dropped under the lock.
    fn change_places(&self, f: impl FnOnce(&[P]) -> Vec<P>) {
        let mut places = self.places.lock();
        let new = Arc::new(f(&places));
        let old = std::mem::replace(&mut *places, new);
        drop(places);
        drop(old);
    }

    /// Adds a place, which is empty. Copies are put into it only when this has returned.
    pub fn join(&self, place: P) {
        self.change_places(|places| [places, &[place]].concat());
    }

    /// Takes out the places of which this says so. None is copied to any more.
    pub fn leave(&self, goes: impl Fn(&P) -> bool) {
        self.change_places(|places| places.iter().filter(|place| !goes(place)).cloned().collect());
    }

    /// Announces a change of a key of this hash, and takes its copies out: `take_out` does so at each place, under no lock. The truth is
    /// changed after this, and before what it returns is dropped.
    ///
    /// # Panics
    /// If `take_out` does: some copies are out, and nothing is announced.
    pub fn announce(&self, hash: u64, mut take_out: impl FnMut(&P)) -> Announced<'_> {
        let known_before = sites::PLACES_AFTER.is_weak().then(|| self.places());
        if sites::ANNOUNCE_FIRST.is_weak() {
            self.places().iter().for_each(&mut take_out);
            return Announced::new(self.stripe(hash));
        }
        let announced = Announced::new(self.stripe(hash));
        known_before.unwrap_or_else(|| self.places()).iter().for_each(take_out);
        announced
    }

    /// Makes a copy of the value of a key of this hash, unless somebody is at a key of its stripe: `make` reads it, under no lock, from the
    /// truth; `put` puts it into a place, under the stripe's. What is not put in is dropped under no lock.
    ///
    /// # Panics
    /// If `make` or `put` do.
    pub fn copy<C>(&self, hash: u64, make: impl FnOnce() -> Option<C>, put: impl FnOnce(C) -> Result<(), C>) {
        let stripe = self.stripe(hash);
        let Some(ended) = stripe.quiet() else { return };
        let Some(copy) = make() else { return };
        let Some(changes) = stripe.0.try_lock() else { return };
        let nobody_now = changes.now == 0 || sites::NOBODY_NOW.is_weak();
        let nobody_since = changes.ended == ended || sites::NOBODY_SINCE.is_weak();
        let changes = if sites::COPY_LOCKED.is_weak() {
            drop(changes);
            None
        } else {
            Some(changes)
        };
        let in_vain = if nobody_now && nobody_since { put(copy).err() } else { Some(copy) };
        drop(changes);
        drop(in_vain);
    }
}

impl<P> fmt::Debug for Keyed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("stripes", &self.stripes.len()).finish_non_exhaustive()
    }
}
