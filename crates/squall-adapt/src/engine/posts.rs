//! Board of posts: ids of objects that ask to be sampled.
//!
//! Problem: a sensor trips in the middle of a call, inside an operation, possibly in a signal handler. It
//! must not lock, allocate or wait. Idea: a fixed board of words. A post puts its object's id into a free
//! word and rings a bell. A round takes all ids off.
//!
//! - I1. A word is the bits of an id, or zero. The generation of an id is never zero.
//! - I2. A post that found a word is taken by a round that begins later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall_core::Id;
use squall_machine::park::{EventCount, Seen};

use super::starved;

/// Number of words on the board, and number of words that a post probes.
const PLACES: usize = 512;
const PROBES: usize = 32;

static POSTS: Posts = Posts::new();
/// Rings when there is work for the engine's thread.
static BELL: EventCount = EventCount::new();

#[derive(Debug)]
struct Posts([AtomicU64; PLACES]);

fn bits(id: Id) -> u64 {
    u64::from(id.generation()) << 32 | u64::from(id.slot())
}

impl Posts {
    const fn new() -> Posts {
        Posts([const { AtomicU64::new(0) }; PLACES])
    }

    /// Puts an id on the board. Returns `false` if the probed words are all taken.
    fn put(&self, id: Id) -> bool {
        let (bits, first) = (bits(id), id.slot().wrapping_mul(0x9E37_79B1) as usize);
        (0..PROBES).any(|step| {
            let place = &self.0[first.wrapping_add(step) % PLACES];
            // Release: pairs with the exchange in `take`. The thread that takes the id sees the sensor's
            // data. An id that is already on the board will be taken. Two concurrent posts may put it there
            // twice.
            match place.compare_exchange(0, bits, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => true,
                Err(there) => there == bits,
            }
        })
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
/// May be called anywhere: inside an operation, in a signal handler.
///
/// Lets the calling thread sleep for a millisecond if the engine's thread gets no processor: see
/// [`pauses`](super::pauses) and [`set_pauses`](super::set_pauses).
///
/// # Cost
/// One atomic exchange, one reading of the clock, and a wake-up if the thread sleeps.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::engine::post;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// assert!(post(Handle::id(hits.handle())));
/// ```
pub fn post(id: Id) -> bool {
    if squall_sys::fork::forked() {
        return false;
    }
    let put = POSTS.put(id);
    if put {
        starved::wake();
        ring();
    }
    starved::pause_if_late();
    put
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
        assert!(posts.put(id(3)) && posts.put(id(3)) && posts.put(id(4)));
        assert_eq!(posts.take(), [id(3), id(4)]);
        assert_eq!(posts.take(), []);
        let put = (0..PLACES as u32 * 2).filter(|slot| posts.put(id(*slot))).count();
        assert!(put <= PLACES, "{put}");
        assert_eq!(posts.take().len(), put);
    }
}
