//! Decay: gives idle memory back, without a background thread.
//!
//! Problem: a VP that goes quiet keeps its cached blocks, and a page pool keeps its freed pages. No thread of
//! theirs enters the allocator any more to release them. Idea: each slow path reads a clock, and now and then
//! runs a pass for all VPs. The pass empties the caches of VPs that hardly used their heap since the previous
//! pass, and releases empty slabs that were not needed. It gives the system half of the pages that were
//! unused in between.
//!
//! - I1. One thread at a time runs a pass. Passes begin a quarter of a second apart, the first one that long
//!   after the first slow path. A thread that finds a pass running skips its own.
//! - I2. A pass empties the caches of at most [`VPS_MAX`] VPs, and gives at most 32 MiB of pages of each pool
//!   to the system. If the system refuses the pages of a pool (locked memory), passes skip that pool until
//!   the system takes some again, through `page_pool/I3` or `trim`.
//! - I3. A process runs no passes while all its calls hit the caches. Even then its idle memory has a bound:
//!   [`BOUND_BYTES`](crate::BOUND_BYTES) and [`SPARE_BYTES`](crate::SPARE_BYTES) for each VP, pages by
//!   `page_pool/I3`, and slabs with a block that is in use or cached (`heap/I2`). These slabs may be many
//!   times the bytes of the blocks.
//! - I4. After a pass, a quiet VP has no empty slab. A busy VP has only empty slabs that it needed since the
//!   previous pass.
//!
//! Not promised: that a VP with emptied caches is idle. A VP that needs only its caches counts as idle, and
//! refills them at its next call.
//! Cost: each slow path reads a clock, some five nanoseconds. A pass takes a lock for each VP and pool, and
//! makes two system calls for each emptied VP.
//! Source: jemalloc's decay by ticks; tcmalloc's low-water marks.

use crate::address_space::{AddressSpace, if_set_up};
use crate::drain;
use crate::faults;
use crate::lock::Lock;
use crate::mappings;
use crate::part::Part;
use squall_sys::padded::CachePadded;
use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A VP with so many heap operations since the previous pass is busy.
const BUSY: u32 = 16;
/// The most VPs that a pass empties (I2).
const VPS_MAX: usize = 8;

/// The time of the next pass; 0: not known yet. Every slow path reads it, and each pass writes it once.
static DUE: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
/// Held by the thread that runs a pass.
pub(crate) static PASS: Lock = Lock::new();
/// The VP at which a pass begins, written under the lock.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Runs a pass if one is due. Every slow path calls this without a lock.
#[inline]
pub(crate) fn tick(space: &AddressSpace) {
    // Relaxed: a time; the thread that takes the lock reads it again.
    if pages::coarse_ms() >= DUE.load(Ordering::Relaxed) {
        pass(space);
    }
}

/// Runs a pass if one is due and no other thread runs one. Returns whether a later pass may find more.
#[cold]
fn pass(space: &AddressSpace) -> bool {
    if !PASS.try_lock() {
        return true;
    }
    let (now, due) = (pages::coarse_ms(), DUE.load(Ordering::Relaxed));
    let is_due = now >= due;
    if is_due {
        DUE.store(now + faults::pass_ms(), Ordering::Relaxed);
    }
    // The first slow path of the process only sets the time of the first pass.
    let more = if is_due && due != 0 { sweep(space) } else { true };
    PASS.unlock();
    more
}

fn sweep(space: &AddressSpace) -> bool {
    let (mut emptied, mut more) = (0, false);
    let first = FIRST.load(Ordering::Relaxed);
    let turns = |at: &(u32, Part)| at.0 < first;
    let behind = space.parts_made().skip_while(turns);
    for (vp, part) in behind.chain(space.parts_made().take_while(turns)) {
        let events = part.heap().events();
        let is_busy = events.wrapping_sub(part.seen(events)) >= BUSY;
        more |= part.heap().give_spares(space, !is_busy);
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
        // If the caches cannot be emptied, a retry fails, too.
        let _ = drain::drain(space, vp, part);
        part.heap().give_spares(space, true);
        part.seen(part.heap().events());
    }
    for pool in &space.pools {
        more |= pool.decay(space);
    }
    mappings::retry();
    more
}

/// Gives some idle memory back, unless that happened less than a quarter of a second ago.
///
/// Every slow path of the allocator does this by itself. Call `decay` from a housekeeping thread, for a
/// program that may be completely quiet. Without a call, a quiet program keeps its last cached blocks:
/// `BOUND_BYTES`, the slabs of those blocks and `SPARE_BYTES` for each VP. It also keeps 4 MiB of pages, or
/// an eighth of those in use, for each node.
///
/// Returns the time until the next call is useful, or `None` if there is no more to give back for now.
///
/// # Cost
/// A few microseconds, and two system calls for each drained VP, at most eight of them.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// // In a housekeeping thread:
/// let pause = squall::alloc::decay().unwrap_or(Duration::from_secs(10));
/// assert!(pause > Duration::ZERO);
/// ```
pub fn decay() -> Option<Duration> {
    pass(if_set_up()?).then_some(Duration::from_millis(faults::pass_ms()))
}
