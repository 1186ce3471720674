//! Board of posts: ids of objects that ask to be sampled.
//!
//! Problem: a sensor trips in the middle of a call, inside an operation, possibly in a signal handler. It
//! must not lock, allocate or wait. Idea: a fixed board of words. A post puts its object's id into a free
//! word and rings a bell. A round takes all ids off.
//!
//! - I1. A word is the bits of an id, or zero. The generation of an id is never zero.
//! - I2. A post that found a word is taken by a round that begins later, or by the thread that posted
//!   (`caller.rs`). Both take under the lock of the rounds.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall_core::Id;
use squall_machine::park::{EventCount, Seen};

/// Number of words on the board, and number of words that a post probes.
const PLACES: usize = 512;
const PROBES: usize = 32;

static POSTS: Posts = Posts::new();
/// Rings when there is work for the engine's thread.
static BELL: EventCount = EventCount::new();

thread_local! {
    /// The last post of this thread inside an operation. Without a destructor: a post may be made anywhere.
    static POSTED: Cell<Option<Place>> = const { Cell::new(None) };
}

#[derive(Debug)]
struct Posts([AtomicU64; PLACES]);

/// The word of a post.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    at: usize,
    pub(super) id: Id,
}

fn bits(id: Id) -> u64 {
    u64::from(id.generation()) << 32 | u64::from(id.slot())
}

impl Posts {
    const fn new() -> Posts {
        Posts([const { AtomicU64::new(0) }; PLACES])
    }

    /// Puts an id on the board. Returns its word, or `None` if the probed words are all taken.
    fn put(&self, id: Id) -> Option<Place> {
        let (bits, first) = (bits(id), id.slot().wrapping_mul(0x9E37_79B1) as usize);
        (0..PROBES).find_map(|step| {
            let at = first.wrapping_add(step) % PLACES;
            let place = &self.0[at];
            // Release: pairs with the exchange in `take`. The thread that takes the id sees the sensor's
            // data. An id that is already on the board will be taken. Two concurrent posts may put it there
            // twice.
            let there = place.compare_exchange(0, bits, Ordering::Release, Ordering::Relaxed);
            there.map_or_else(|there| there == bits, |_| true).then_some(Place { at, id })
        })
    }

    /// Returns `true` if the id is still in its word.
    fn has(&self, place: Place) -> bool {
        self.0[place.at].load(Ordering::Relaxed) == bits(place.id)
    }

    /// Takes one id off the board. Returns `false` if another thread has taken it.
    fn take_one(&self, place: Place) -> bool {
        // Acquire: pairs with the Release in `put`.
        self.0[place.at].compare_exchange(bits(place.id), 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns `true` if the board has an id.
    fn any(&self) -> bool {
        self.0.iter().any(|place| place.load(Ordering::Relaxed) != 0)
    }

    /// Takes all ids off the board.
    fn take(&self) -> Vec<Id> {
        let taken = self.0.iter().filter_map(|place| {
            if place.load(Ordering::Relaxed) == 0 {
                return None;
            }
            // Acquire: pairs with the Release in `put`.
            let bits = place.swap(0, Ordering::Acquire);
            Id::from_parts(bits as u32, (bits >> 32) as u32)
        });
        let mut ids: Vec<Id> = taken.collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

/// Asks for a sample of an object. Sensors call this when they trip. Returns `false` if the board is full;
/// then the sensor should be armed again.
///
/// May be called anywhere. Inside an operation it may be called in a signal handler that interrupted the
/// operation.
///
/// If the engine's thread does not get a processor for some milliseconds, a thread that posted inside an
/// operation may sample and swap the object itself, after an operation of its own. It does so only for a
/// family that [allows it](crate::family::Family::callers_may_swap).
///
/// # Cost
/// One atomic exchange, and a wake-up if the thread sleeps. Lock-free. Inside an operation: some nanoseconds
/// more for each operation of the calling thread, until a round takes the post.
///
/// ```
/// use squall_adapt::engine::post;
/// use squall_core::Handle;
/// # #[squall_macros::interface(crate = squall_core)]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall_core::Owned<dyn Hits> = squall_core::shared(Count);
/// assert!(post(Handle::id(hits.handle())));
/// ```
pub fn post(id: Id) -> bool {
    if squall_sys::fork::forked() {
        return false;
    }
    let Some(place) = POSTS.put(id) else { return false };
    ring();
    // Inside an operation the thread checks the post after each of its operations (`caller.rs`).
    if squall_rcu::__owe_errand() {
        POSTED.set(Some(place));
    }
    true
}

/// Returns the last post that the calling thread made inside an operation.
pub(super) fn own_post() -> Option<Place> {
    POSTED.get()
}

/// Forgets the calling thread's post.
pub(super) fn forget_own_post() {
    POSTED.set(None);
}

/// Returns `true` if no round has taken the post.
pub(super) fn is_waiting(place: Place) -> bool {
    POSTS.has(place)
}

/// Takes a post. Returns `false` if a round has taken it. The caller holds the lock of the rounds.
pub(super) fn take_post(place: Place) -> bool {
    POSTS.take_one(place)
}

/// Returns `true` if an object has posted.
pub(super) fn has_post() -> bool {
    POSTS.any()
}

/// Takes the ids of all objects that have posted.
pub(super) fn take_posts() -> Vec<Id> {
    POSTS.take()
}

/// Wakes the engine's thread.
pub(super) fn ring() {
    BELL.signal(1);
}

/// Reads the bell, before the engine's thread checks for work.
pub(super) fn prepare() -> Seen {
    BELL.prepare()
}

/// Sleeps until the bell rings after `seen` was read, for at most `limit`.
pub(super) fn wait(seen: Seen, limit: Option<Duration>) {
    BELL.wait(seen, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_taken_once_and_a_full_board_says_so() {
        let posts = Posts::new();
        let id = |slot| Id::from_parts(slot, 7).unwrap();
        let places = [3, 3, 4].map(|slot| posts.put(id(slot)).expect("there is room"));
        assert!(places.iter().all(|place| posts.has(*place)));
        assert!(posts.take_one(places[0]) && !posts.take_one(places[1]), "they share a word");
        assert_eq!(posts.take(), [id(4)]);
        assert!(!posts.has(places[2]) && !posts.take_one(places[2]));
        assert_eq!(posts.take(), []);
        let put = (0..PLACES as u32 * 2).filter(|slot| posts.put(id(*slot)).is_some()).count();
        assert!(put <= PLACES, "{put}");
        assert_eq!(posts.take().len(), put);
    }
}
