//! Stress of caches: each entry is accounted for once, and lookups find no older value.
//!
//! Promised (`squall::cache`): a lookup finds a value that was inserted for its key, and none older than the
//! last one. A removed, expired or invalidated value is not found again. The entries need at most the bound.
//! The listener gets each entry that leaves once, after it has left. Of the callers of an absent key one
//! loads at a time; an error goes to its own caller. A panic of a loader, a listener, a predicate or a
//! policy reaches its caller, and leaves the cache exact. All this holds while the policy is swapped. Each
//! value is dropped.
//!
//! Tried: each round has a new cache with a small bound, of entries, weights or memory. It may have times and
//! a listener. Threads insert, look up, load, change, remove, invalidate and iterate, swap the policy, and
//! move to another processor. One more thread swaps the policy all the time. A policy of the stress decides
//! at random and panics at times. At the end of a round all threads stop, and the entries left are compared
//! with the books.
//!
//! - I1. A thread has keys that it alone inserts. It knows which values a lookup of them may find (`own`).
//! - I2. A value has a serial number, larger than that of each earlier value of its thread. A thread
//!   publishes the number after the insertion. So later lookups find no smaller one of that thread (`books`).
//! - I3. A panic on its way marks the values that the thread drops as lost. So each value that was inserted
//!   was told to the listener, is in the cache, or is lost.
//! - I4. A loader loads only larger keys. So loads do not wait for each other in a circle.
//! - I5. Each planned break must end the run with a violation.

mod books;
mod breaks;
mod counts;
mod mood;
mod own;
mod policy;
mod round;
mod value;
mod worker;

use crate::run::{Report, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use crate::skeleton::placement::AllowedCpus;
use breaks::Break;
use counts::Counts;

pub(super) const STRESS: Stress = Stress {
    name: "cache",
    about: "each entry of a cache is accounted for once, and lookups find no older value",
    run,
    threads: threads_beyond_processors,
};

fn run(run: &Run) -> Result<Report, Violation> {
    let broken = asked(Break::ALL)?;
    let _exclusive = exclusive();
    let home = AllowedCpus::find()?;
    let counts = Counts::default();
    let mut rounds = 0;
    while !run.is_over() {
        round::run(run, rounds, broken, &home, &counts)?;
        rounds += 1;
    }
    let mut lines = vec![("rounds", rounds)];
    lines.extend(counts.lines());
    Ok(Report(lines))
}
