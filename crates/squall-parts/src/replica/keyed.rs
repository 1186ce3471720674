//! Copies of keyed values in many places: when a copy may be made, and that no copy outlives its value.
//!
//! Problem: a value under a key is looked up in copies near the reader. Yet no reader may see a value after
//! any reader has seen a later one. Idea: as for a value with replicas (`raw.rs`), key by key. A copy is
//! removed before the value changes. The next reader makes it again, unless a change is announced. Keys share
//! [`KeyedCopies`]'s stripes, by their hashes. The *source* is the table with the authoritative value, and a
//! *place* is an object with copies.
//!
//! - I1. While a place has a copy of a key, the source has the same value. A thread that changes a key
//!   announces this in its stripe, then removes the copies, and only then changes the source
//!   ([`KeyedCopies::announce`]). Copies are stored under the stripe's lock, while no change is announced
//!   there. Their values were read from the source after the last change had ended
//!   ([`KeyedCopies::copy`]).
//! - I2. After its announcement, a thread removes the copies from every place that can have one. The reason:
//!   a place joins the list before it gets copies, and the thread loads the list after the announcement. A
//!   copy is stored under the stripe's lock. If that happens before an announcement, the announcing thread
//!   sees the place and the copy; if after it, the copy is not stored.
//! - I3. The lock of a stripe is held to update two numbers, or to store a copy; a reader only tries it. No
//!   user closure that computes a value runs under it.
//!
//! So a lookup that finds a copy takes effect when it finds it (I1). Other lookups take effect when they read
//! the source, changes when they change it. A thread that has seen a change finds no older copy. The copy was
//! removed before the source changed, by a release that the thread's read of the new value acquires.
//!
//! Required of source and places: a thread that finds an entry sees the writes before its insertion;
//! insertions and removals are atomic. The locks give all other order.
//!
//! Progress: lookups never wait for a stripe; a lookup that cannot store its copy goes without. Changes of
//! keys of one stripe share its lock, to update two numbers. A thread that stalls while announced prevents
//! copies of its stripe's keys, and blocks no thread.
//! Cost: a change takes the stripe's lock twice and the lock of the list of places once; making a copy takes
//! the stripe's lock. A lookup that finds a copy calls no code here.
//! Source: TO-04 (Tornado, §3.1: invalidation), HU-16 (Hurricane); counts in place of a lock that is held
//! during the change are ours.

use squall_lock::Lock;
use squall_sys::sync::Arc;
use std::fmt;

use crate::reentry;
use crate::replica::sites;

/// The changes of a stripe's keys, on a cache line of their own.
#[repr(align(64))]
#[derive(Default)]
struct Stripe(Lock<Changes>);

#[derive(Clone, Copy, Default)]
struct Changes {
    /// The number of announced changes.
    announced: u32,
    /// The number of changes that have ended.
    ended: u64,
}

impl Stripe {
    /// Returns the number of ended changes, if no change is announced and the lock is free.
    fn ended_if_idle(&self) -> Option<u64> {
        let changes = *self.0.try_lock()?;
        (changes.announced == 0).then_some(changes.ended)
    }
}

/// An announced change. Keys of its stripe are not copied until the `Announced` is dropped, also by a panic.
#[must_use = "the announced change ends when this is dropped"]
pub struct Announced<'a>(&'a Stripe);

impl<'a> Announced<'a> {
    fn new(stripe: &'a Stripe) -> Announced<'a> {
        match stripe.0.try_lock() {
            Some(mut changes) => changes.announced += 1,
            None => {
                reentry::check(&stripe.0);
                stripe.0.lock().announced += 1;
            }
        }
        Announced(stripe)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let mut changes = self.0.0.lock();
        changes.announced -= 1;
        changes.ended += 1;
    }
}

impl fmt::Debug for Announced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announced").finish_non_exhaustive()
    }
}

/// The keys that are being changed, and the places that may have copies of them. See the module header of
/// `keyed.rs`.
///
/// A building block for maps with entries that are copied to the places where they are read.
///
/// # Cost
/// 64 bytes for each stripe, and a handle for each place.
/// # Source
/// TO-04 (Tornado, §3.1), HU-16 (Hurricane).
/// # Example
/// ```
/// use squall::parts::replica::KeyedCopies;
/// use squall::parts::table::Table;
/// use std::sync::Arc;
///
/// let source: Table<u64, u64> = [(1, 10)].into_iter().collect();
/// let place: Arc<Table<u64, u64>> = Arc::default();
/// let keyed = KeyedCopies::new(64);
/// keyed.join(place.clone());
/// // A lookup that found no copy makes one.
/// keyed.copy(1, || source.get(&1), |copy| _ = copy.take().map(|value| place.set(1, value)));
/// assert_eq!(place.get(&1), Some(10));
/// // A change removes the copies first.
/// let announced = keyed.announce(1, |place| _ = place.delete(&1));
/// source.set(1, 20);
/// drop(announced);
/// assert_eq!(place.get(&1), None);
/// ```
pub struct KeyedCopies<P> {
    stripes: Box<[Stripe]>,
    places: Lock<Arc<Vec<P>>>,
}

impl<P: Clone> KeyedCopies<P> {
    /// Returns a `KeyedCopies` without places. Keys of one stripe are not copied while one of them changes.
    ///
    /// # Panics
    /// If `stripes` is zero.
    pub fn new(stripes: usize) -> KeyedCopies<P> {
        assert!(stripes > 0, "`KeyedCopies::new` was called with zero stripes");
        let stripes = (0..stripes).map(|_| Stripe::default()).collect();
        KeyedCopies { stripes, places: Lock::new(Arc::new(Vec::new())) }
    }

    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    /// Returns the places.
    pub fn places(&self) -> Arc<Vec<P>> {
        self.places.lock().clone()
    }

    /// Replaces the list of places. The old list is dropped after the lock is released.
    fn change_places(&self, f: impl FnOnce(&[P]) -> Vec<P>) {
        let mut places = self.places.lock();
        let new = Arc::new(f(&places));
        let old = std::mem::replace(&mut *places, new);
        drop(places);
        drop(old);
    }

    /// Adds an empty place. Copies may be stored in it only after this has returned.
    pub fn join(&self, place: P) {
        self.change_places(|places| [places, &[place]].concat());
    }

    /// Removes the places for which `goes` returns `true`. No copies may be stored in them any more.
    pub fn leave(&self, goes: impl Fn(&P) -> bool) {
        self.change_places(|places| places.iter().filter(|place| !goes(place)).cloned().collect());
    }

    /// Announces a change of a key with this hash and removes its copies: `take_out` does so at each place,
    /// under no lock. Change the source after this call, and before dropping its result.
    ///
    /// # Panics
    /// If `take_out` panics: some copies are removed, and no change is announced. Also if `put` of
    /// [`copy`](KeyedCopies::copy) calls this for a key of the same stripe.
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

    /// Makes a copy of the value of a key with this hash, unless a change of its stripe is announced. `make`
    /// reads the value from the source, under no lock; `put` takes it out and stores it in a place, under the
    /// stripe's lock. An unused copy is dropped under no lock.
    ///
    /// # Panics
    /// If `make` or `put` panics.
    pub fn copy<C>(&self, hash: u64, make: impl FnOnce() -> Option<C>, put: impl FnOnce(&mut Option<C>)) {
        let stripe = self.stripe(hash);
        let Some(ended) = stripe.ended_if_idle() else { return };
        // Declared before the lock, so that an unused copy is dropped after it.
        let mut copy = make();
        if copy.is_none() {
            return;
        }
        let Some(changes) = stripe.0.try_lock() else { return };
        let no_change_now = changes.announced == 0 || sites::NO_CHANGE_NOW.is_weak();
        let no_change_since = changes.ended == ended || sites::NO_CHANGE_SINCE.is_weak();
        let _locked = if sites::COPY_LOCKED.is_weak() {
            drop(changes);
            None
        } else {
            Some(changes)
        };
        if no_change_now && no_change_since {
            reentry::under(&stripe.0, || put(&mut copy));
        }
    }
}

impl<P> fmt::Debug for KeyedCopies<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedCopies").field("stripes", &self.stripes.len()).finish_non_exhaustive()
    }
}
