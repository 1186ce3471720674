//! Giving back what is idle, without a thread that would see to it.
//!
//! Problem: a VP that has gone quiet keeps what it cached, a pool what was freed, and nobody of theirs comes by any more. Idea: whoever
//! passes a slow path looks at a clock, and now and then does a turn for all: empties the caches of VPs that have hardly passed one
//! since the turn before, takes the empty slabs that were not needed, and gives half of the pages to the system that nobody needed in between.
//!
//! - I1. One thread at a time does a turn, and turns begin a quarter of a second apart, the first one so long after the first slow path. Nobody
//!   waits for one.
//! - I2. A turn empties the caches of [`VPS_MAX`] VPs at most, and gives 32 MiB of pages of each pool to the system at most. Where the
//!   system refuses a pool's pages (locked memory) turns leave that pool alone until it takes some again: from `units/I3`, or `trim`.
//! - I3. A process in which nobody allocates or frees beyond a cache does no turns. What it keeps then is bounded all the same: for each
//!   VP by [`BOUND_BYTES`](crate::BOUND_BYTES) and [`SPARE_BYTES`](crate::SPARE_BYTES), of pages by `units/I3`, and by slabs of which a block is out, be it
//!   that it is cached (`heap/I2`): those may be many times the bytes that are.
//! - I4. A VP that is quiet keeps no empty slab after a turn, and a busy one none that it did not need since the turn before.
//!
//! Not promised: that a VP is idle whose caches are emptied: one that gets along with what it caches is taken for one, and is filled
//! again at its next call.
//! Cost: a look at the clock for each slow path, some five nanoseconds; for a turn a lock for each VP and pool, and for each VP that is
//! emptied two system calls.
//! Source: jemalloc's decay by ticks; tcmalloc's low-water marks.

use crate::drain;
use crate::faults;
use crate::ground::{Ground, Part, known};
use crate::lock::Lock;
use crate::mappings;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use squall_sys::apart::Apart;
use squall_sys::pages;
use std::time::Duration;

/// A VP that took and put back blocks of its heap so often since the turn before is busy.
const BUSY: u32 = 16;
/// VPs that are emptied in a turn (I2).
const VPS_MAX: usize = 8;

/// When the next turn is due; 0: not known yet. Read on every slow path, written once for each turn.
static DUE: Apart<AtomicU64> = Apart::new(AtomicU64::new(0));
/// Held by who does a turn.
pub(crate) static TURN: Lock = Lock::new();
/// The VP that a turn begins with: written under the lock.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Passed on every slow path, without a lock.
#[inline]
pub(crate) fn tick(ground: &Ground) {
    // Relaxed: a time, and who takes the lock looks again.
    if pages::coarse_ms() >= DUE.load(Ordering::Relaxed) {
        turn(ground);
    }
}

/// Does a turn if one is due and nobody else does. Whether there may be something to do in the next one.
#[cold]
fn turn(ground: &Ground) -> bool {
    if !TURN.try_lock() {
        return true;
    }
    let (now, due) = (pages::coarse_ms(), DUE.load(Ordering::Relaxed));
    let is_due = now >= due;
    if is_due {
        DUE.store(now + faults::turn_ms(), Ordering::Relaxed);
    }
    // The first slow path of all only begins to count.
    let more = if is_due && due != 0 { sweep(ground) } else { true };
    TURN.unlock();
    more
}

fn sweep(ground: &Ground) -> bool {
    let (mut emptied, mut more) = (0, false);
    let first = FIRST.load(Ordering::Relaxed);
    let turns = |at: &(u32, Part)| at.0 < first;
    let behind = ground.parts_made().skip_while(turns);
    for (vp, part) in behind.chain(ground.parts_made().take_while(turns)) {
        let events = part.heap().events();
        let is_busy = events.wrapping_sub(part.seen(events)) >= BUSY;
        more |= part.heap().give_spares(ground, !is_busy);
        if is_busy || !part.holds() {
            more |= is_busy;
            continue;
        }
        if emptied == VPS_MAX {
            FIRST.store(vp, Ordering::Relaxed);
            more = true;
            break;
        }
        emptied += 1;
        // Where it cannot be done, trying again will not help.
        let _ = drain::empty(ground, vp, part);
        part.heap().give_spares(ground, true);
        part.seen(part.heap().events());
    }
    for pool in &ground.pools {
        more |= pool.decay(ground);
    }
    mappings::again();
    more
}

/// Gives back some of what is idle, if that was not done a moment ago: what every slow path of the allocator does by itself.
///
/// For a thread that has other housekeeping to do, in a program that may be quiet altogether: otherwise nobody comes by, and what was
/// cached last stays (`BOUND_BYTES` and the slabs of those blocks, and `SPARE_BYTES`, for each VP; 4 MiB or an eighth of what is in use of pages for each node). Returns when to come
/// again, or `None` if there is nothing more to give back for now.
///
/// # Cost
/// A few microseconds, and two system calls for each VP whose caches are emptied, of at most eight.
pub fn decay() -> Option<Duration> {
    turn(known()?).then_some(Duration::from_millis(faults::turn_ms()))
}
